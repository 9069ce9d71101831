"""Yardsticks: how many random cache lines the machine reads per second, with prefetch, on all cores.

They answer nothing: tuples joined, or keys looked up, per second divided by one say how well an index uses memory, on
any machine. `random-reads` is the machine's own limit, in a memory far larger than any cache (for lookups: as large as
keys and values); `window-reads` the limit in one as large as the words and ids of both windows, which a cache may hold.
`random-reads, far` asks for lines into the second-level cache, as our own lookups do, and not into the nearest.
The memory is NumPy's, as our own is.
"""

from __future__ import annotations

import ctypes
import time

import numpy as np

from millrace.bench.harness import Answer
from millrace.bench.peers.native import load
from millrace.host.runtime import pool

MACHINE, QUICK_MACHINE = 1 << 30, 1 << 26
"""Bytes that no cache holds, or hardly any."""
BYTES_PER_TUPLE = 12
"""A word of 8 bytes and an id of 4."""
LINE = 64
READS = 1 << 21
"""Lines that each thread reads in a step."""


class RandomReads:
    """A block of memory of `size` bytes, read at random."""

    def __init__(self, size: int, far: bool = False) -> None:
        """Compiles and loads the reader, and writes all of the memory, so that it is really there."""
        self._read = load("random_reads").random_reads
        self._read.restype = ctypes.c_uint64
        self._read.argtypes = [
            ctypes.c_void_p,
            ctypes.c_uint64,
            ctypes.c_int64,
            ctypes.c_int,
            ctypes.c_uint64,
            ctypes.c_int,
        ]
        self._far = far
        self._lines = -(-size // LINE)
        self._memory = np.ones((self._lines + 1) * LINE, np.uint8)
        self._start = -(-self._memory.ctypes.data // LINE) * LINE
        self._threads = pool.cores()
        self._steps = 0

    def step(self) -> tuple[float, float]:
        """Read on all cores."""
        start = time.perf_counter()
        self._read(self._start, self._lines, READS, self._threads, self._steps, self._far)
        seconds = time.perf_counter() - start
        self._steps += 1
        return READS * self._threads, seconds

    def answer(self) -> Answer:
        """None: it answers nothing."""
        return {}

    def pause(self) -> None:
        """Nothing to forget."""

    def close(self) -> None:
        """Give the memory back."""
        self._memory = np.zeros(0, np.uint8)
