"""Peer `multimap`: the tuple-at-a-time join on two `std::multimap`, in C++ compiled with -O3 (`multimap.cpp`)."""

from __future__ import annotations

import ctypes

import numpy as np

from millrace.bench.harness import Answer
from millrace.bench.peers.native import load
from millrace.bench.workload import Longs, Rows, Turn, Workload

_LONGS = np.ctypeslib.ndpointer(np.int64, flags="C_CONTIGUOUS")
_BYTES = np.ctypeslib.ndpointer(np.uint8, flags="C_CONTIGUOUS")


def _library() -> ctypes.CDLL:
    """The compiled peer with its signatures."""
    library = load("multimap")
    signatures = {
        "multimap_open": (ctypes.c_void_p, [ctypes.c_int64, ctypes.c_int64]),
        "multimap_close": (None, [ctypes.c_void_p]),
        "multimap_fill": (None, [ctypes.c_void_p, ctypes.c_int, _LONGS, ctypes.c_int64]),
        "multimap_push": (ctypes.c_int64, [ctypes.c_void_p, _LONGS, _LONGS, _BYTES, ctypes.c_int64]),
        "multimap_pairs": (ctypes.POINTER(ctypes.c_int64), [ctypes.c_void_p, ctypes.c_int]),
    }
    for name, (result, arguments) in signatures.items():
        function = getattr(library, name)
        function.restype, function.argtypes = result, arguments
    return library


class MultimapSession:
    """The C++ join; it gets complete turns, so no Python runs between two tuples."""

    def __init__(self, workload: Workload) -> None:
        """Compile and load the library; the windows are empty."""
        self._library = _library()
        self._handle: int | None = self._library.multimap_open(workload.window, workload.eps)

    def fill(self, r: Rows, s: Rows) -> None:
        """Insert without searching."""
        for side, rows in enumerate((r, s)):
            self._library.multimap_fill(self._handle, side, rows.x, len(rows))

    def prepare(self, turn: Turn) -> Turn:
        """The arrays without conversion."""
        return turn

    def push(self, prepared: Turn) -> tuple[Longs, Longs]:
        """Push all tuples in order; the pairs are views of the C++ vectors."""
        turn, library = prepared, self._library
        rows = library.multimap_push(self._handle, turn.r.x, turn.s.x, turn.order, len(turn))
        return self._column(0, rows), self._column(1, rows)

    def answer(self, result: tuple[Longs, Longs]) -> Answer:
        """Copies, because the next push overwrites the vectors."""
        return {"r_seq": result[0].copy(), "s_seq": result[1].copy()}

    def close(self) -> None:
        """Free both trees."""
        handle, self._handle = self._handle, None
        self._library.multimap_close(handle)

    def _column(self, side: int, rows: int) -> Longs:
        if rows == 0:
            return np.zeros(0, np.int64)
        return np.ctypeslib.as_array(self._library.multimap_pairs(self._handle, side), (rows,))
