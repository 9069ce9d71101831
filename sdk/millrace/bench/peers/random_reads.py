"""Yardsticks: random cache lines that the machine reads per second, with prefetch, on all cores.

Tuples joined (or keys looked up) per second divided by this rate say how well an index uses memory, on any machine.
`random-reads` is the machine's limit in memory far larger than any cache (for lookups: as large as keys and values).
`window-reads` is the limit in as much memory as the words and ids of both windows, which may fit into a cache.
`random-reads, far` prefetches into the second-level cache, as our lookups do, instead of the first-level one.
The memory is allocated by NumPy, as our own is.
"""

from __future__ import annotations

import ctypes
import time

import numpy as np

from millrace.bench.harness import Answer
from millrace.bench.peers.native import load
from millrace.host.runtime import pool

MACHINE, QUICK_MACHINE = 1 << 30, 1 << 26
"""Bytes; larger than any usual cache."""
BYTES_PER_TUPLE = 12
"""A word of 8 bytes and an id of 4."""
LINE = 64
READS = 1 << 21
"""Lines read per thread and step."""


class RandomReads:
    """Random reads in a block of `size` bytes."""

    def __init__(self, size: int, far: bool = False) -> None:
        """Compile and load the reader, and write all of the memory, so that every page is mapped."""
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
        """No result."""
        return {}

    def pause(self) -> None:
        """Nothing to free."""

    def close(self) -> None:
        """Free the memory."""
        self._memory = np.zeros(0, np.uint8)
