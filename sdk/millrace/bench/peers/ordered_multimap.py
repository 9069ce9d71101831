"""Peer `multimap` of updates: a `std::multimap` as an ordered index, compiled with -O3 (`ordered_multimap.cpp`)."""

from __future__ import annotations

import ctypes

import numpy as np
import numpy.typing as npt

from millrace.bench.peers.native import load

Numbers = npt.NDArray[np.int64]
_LONGS = np.ctypeslib.ndpointer(np.int64, flags="C_CONTIGUOUS")


def _library() -> ctypes.CDLL:
    """The compiled peer with its signatures."""
    library = load("ordered_multimap")
    rows = ctypes.c_int64
    library.ordered_open.restype, library.ordered_open.argtypes = ctypes.c_void_p, [_LONGS, _LONGS, rows]
    library.ordered_close.restype, library.ordered_close.argtypes = None, [ctypes.c_void_p]
    library.ordered_insert.restype = library.ordered_erase.restype = library.ordered_find.restype = None
    library.ordered_insert.argtypes = [ctypes.c_void_p, _LONGS, _LONGS, rows]
    library.ordered_erase.argtypes = [ctypes.c_void_p, _LONGS, rows]
    library.ordered_find.argtypes = [ctypes.c_void_p, _LONGS, _LONGS, rows]
    return library


class OrderedMultimap:
    """One `std::multimap`."""

    def __init__(self, keys: Numbers, values: Numbers) -> None:
        """Build from keys in ascending order."""
        self._library = _library()
        self._map: int | None = self._library.ordered_open(keys, values, len(keys))

    def insert(self, keys: Numbers, values: Numbers) -> None:
        """Insert one by one."""
        self._library.ordered_insert(self._map, keys, values, len(keys))

    def erase(self, keys: Numbers) -> None:
        """Delete all rows of these keys."""
        self._library.ordered_erase(self._map, keys, len(keys))

    def find(self, keys: Numbers) -> Numbers:
        """The first value of each key; 0 if there is none."""
        out = np.empty(len(keys), np.int64)
        self._library.ordered_find(self._map, keys, out, len(keys))
        return out

    def close(self) -> None:
        """Free the map."""
        held, self._map = self._map, None
        if held is not None:
            self._library.ordered_close(held)
