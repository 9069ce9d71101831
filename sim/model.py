"""The simulated engine in Python: a `Transport` over the C ABI of `sim/model.h`, and the timing models of its memory.

`ideal`: each port at its full rate, `IDEAL_LATENCY` cycles of latency. `ddr3`: the paper's board (V-B, Table I), two
channels DDR3-1066 of 64 bits, 8.533 GB/s each, for an engine at 252.7 MHz. The model omits rows, banks, refresh and
turn-around, so bandwidth is the limit, as in the paper. `shuffled`: as `ideal`, but different ids are answered in a
random order, as AXI4 allows; for tests.
"""

from __future__ import annotations

import ctypes
import weakref
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from millrace.host.base.errors import ArgumentError, DeviceFault, DeviceUnavailable
from millrace.host.base.types import Array
from millrace.sim.memory import Memory

CLOCK_HZ = 252.7e6
"""The clock of the paper's engine (Table I)."""
IDEAL_LATENCY = 16
DDR3_LATENCY = 40
"""Cycles: about 160 ns from a request to its data, controller included."""
DDR3_BYTES_PER_CYCLE = 1066.67e6 * 8 / CLOCK_HZ
PIECE = 1 << 17
"""Cycles per call into the model: about a second."""
MORE = 1
"""MR_MORE of `sim/model.h`."""
IDLE_CYCLES = 20_000
"""An engine without a transfer for so many cycles hangs: its longest work without memory takes hundreds of cycles."""


@dataclass(frozen=True)
class Timing:
    """The timing of a memory; see `mr_memory` in `model.h`."""

    latency: int
    channels: int = 0
    interleave: int = 256
    backlog: int = 32
    bytes_per_cycle: float = 0.0
    shuffle: int = 0


TIMINGS = {
    "ideal": Timing(IDEAL_LATENCY),
    "ddr3": Timing(DDR3_LATENCY, channels=2, bytes_per_cycle=DDR3_BYTES_PER_CYCLE),
    "shuffled": Timing(IDEAL_LATENCY, shuffle=1),
}


class _Memory(ctypes.Structure):
    _fields_ = (
        ("cells", ctypes.c_void_p),
        ("bytes", ctypes.c_uint64),
        ("latency", ctypes.c_uint32),
        ("channels", ctypes.c_uint32),
        ("interleave", ctypes.c_uint32),
        ("backlog", ctypes.c_uint32),
        ("bytes_per_cycle", ctypes.c_double),
        ("shuffle", ctypes.c_uint32),
    )


def timing(name: str) -> Timing:
    """The timing model of that name."""
    if name not in TIMINGS:
        raise ArgumentError(f"memory model {name!r} is unknown; known are {', '.join(TIMINGS)}")
    return TIMINGS[name]


class Model:
    """One simulated engine on a memory, which it may share with other engines."""

    def __init__(self, library: Path, memory: Memory, behaviour: Timing, idle: int = IDLE_CYCLES) -> None:
        """`idle`: the engine hangs (`DeviceFault`) if no data are transferred for so many cycles."""
        self._call = _load(library)
        self._memory, self._idle = memory, idle
        timing_ = (behaviour.latency, behaviour.channels, behaviour.interleave, behaviour.backlog)
        described = _Memory(memory.pointer, memory.size, *timing_, behaviour.bytes_per_cycle, behaviour.shuffle)
        self._model: int | None = self._call.mr_create(ctypes.byref(described))
        self._destroy = weakref.finalize(self, self._call.mr_destroy, self._model)

    def close(self) -> None:
        """Destroy the model; the garbage collector does the same."""
        self._model = None
        self._destroy()

    def write_regs(self, pairs: Sequence[tuple[int, int]]) -> None:
        """Write by AXI4-Lite."""
        flat = [number for pair in pairs for number in pair]
        self._check(self._call.mr_reg_write(self._model, (ctypes.c_uint32 * len(flat))(*flat), len(pairs)))

    def read_regs(self, offsets: Sequence[int]) -> list[int]:
        """Read by AXI4-Lite."""
        count = len(offsets)
        values = (ctypes.c_uint32 * count)()
        self._check(self._call.mr_reg_read(self._model, (ctypes.c_uint32 * count)(*offsets), values, count))
        return list(values)

    def write_mem(self, address: int, data: Array) -> None:
        """Write directly, without simulated cycles."""
        self._memory.view(address, len(data), data.dtype)[:] = data

    def read_mem(self, address: int, count: int, dtype: np.dtype[Any]) -> Array:
        """Read directly, without simulated cycles."""
        return self._memory.view(address, count, dtype).copy()

    def wait(self) -> None:
        """Run until the interrupt is high."""
        code = MORE
        while code == MORE:  # in pieces, so that Ctrl-C works in between
            code = self._call.mr_run(self._model, self._idle, max(PIECE, 2 * self._idle))
        self._check(code)

    @property
    def cycles(self) -> int:
        """Cycles since reset, AXI4-Lite transactions included."""
        return int(self._call.mr_cycles(self._model))

    def busy(self, channel: int) -> int:
        """Cycles in which a channel of the memory was busy."""
        return int(self._call.mr_busy(self._model, channel))

    def _check(self, code: int) -> None:
        if code:
            raise DeviceFault(f"the simulated engine failed: {self._call.mr_error(self._model).decode()}")


def _load(library: Path) -> Any:
    """Load a library and declare the types of its C ABI."""
    try:
        call: Any = ctypes.CDLL(str(library))
    except OSError as error:
        raise DeviceUnavailable(f"the simulated engine does not load: {error}; remove {library.parent}") from error
    model, numbers = ctypes.c_void_p, ctypes.POINTER(ctypes.c_uint32)
    signatures: dict[str, tuple[Any, tuple[Any, ...]]] = {
        "mr_create": (model, (ctypes.POINTER(_Memory),)),
        "mr_destroy": (None, (model,)),
        "mr_error": (ctypes.c_char_p, (model,)),
        "mr_reg_write": (ctypes.c_int, (model, numbers, ctypes.c_uint32)),
        "mr_reg_read": (ctypes.c_int, (model, numbers, numbers, ctypes.c_uint32)),
        "mr_run": (ctypes.c_int, (model, ctypes.c_uint64, ctypes.c_uint64)),
        "mr_cycles": (ctypes.c_uint64, (model,)),
        "mr_busy": (ctypes.c_uint64, (model, ctypes.c_uint32)),
    }
    for name, (result, arguments) in signatures.items():
        function = getattr(call, name)
        function.restype, function.argtypes = result, arguments
    return call
