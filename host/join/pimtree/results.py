"""Result buffers of kernels: positions in memory of the C library, which grows without a return to Python.

The number of results is not known before a step. So each buffer has a limit, beyond which compiled code stops as if
there were no memory: a system that overcommits memory would end the process instead. The step raises then, and the join
builds its index again from its windows.
"""

from __future__ import annotations

import time
from enum import auto

import numpy as np

from millrace.host.base.memory import free_bytes
from millrace.host.base.types import Array, Positions
from millrace.host.join.pair_memory import FEWER_ROWS, check_fits
from millrace.host.runtime.allocator import result_array
from millrace.host.runtime.heap import free_memory, free_with, resize_memory
from millrace.host.runtime.intrinsics import address, load, move_bytes, store
from millrace.host.runtime.jit import inline, kernel
from millrace.host.runtime.kernel_args import KernelArgs

FIRST_CAPACITY = 64
MAX_KEPT = 1 << 23
"""A larger buffer is freed after its step."""


class Slot(KernelArgs):
    """A buffer; a capacity of -1 means that results are only counted."""

    WHERE = auto()
    CAPACITY = auto()
    FAILED = auto()  # the results for which there was no memory; 0: none is missing
    USED = auto()  # results so far
    LIMIT = auto()  # the most results; 0: no limit


@kernel
def enlarge(slot: int, needed: int) -> bool:
    """Make room for so many positions; false if there is no memory."""
    capacity, limit = max(2 * needed, FIRST_CAPACITY), load(slot, Slot.LIMIT)
    where = 0
    if limit == 0 or needed <= limit:
        where = resize_memory(load(slot, Slot.WHERE), 8 * capacity)
    if where == 0:
        store(slot, Slot.FAILED, needed)
        return False
    store(slot, Slot.WHERE, where)
    store(slot, Slot.CAPACITY, capacity)
    return True


@kernel
def copy_words(to: int, source: int, count: int) -> None:
    """Copy 64-bit words."""
    move_bytes(to, source, 8 * count)


@inline
def append(slot: int, at: int, position: int) -> int:
    """Write result number `at`, or only count it; returns the next number."""
    capacity = load(slot, Slot.CAPACITY)
    if capacity >= 0:
        if at >= capacity and not enlarge(slot, at + 1):
            return at
        store(load(slot, Slot.WHERE), at, position)
    return at + 1


BYTES_PER_RESULT = 32
"""A buffer is up to twice as large as needed, and its results are copied to the two positions of pairs."""
RECHECK = 1.0
"""Seconds for which the free memory is taken as known: every step asks for it."""
_known = (float("-inf"), 0)


def most_results() -> int:
    """How many results a step may have in the memory that is free."""
    global _known
    now = time.monotonic()
    if now - _known[0] > RECHECK:
        _known = now, free_bytes() // BYTES_PER_RESULT
    return _known[1]


def check_complete(needed: int) -> None:
    """Raise if results of a step are missing: `needed` is the `FAILED` of a buffer."""
    if needed:
        check_fits(needed, FEWER_ROWS, BYTES_PER_RESULT)
        raise MemoryError(f"there is no memory for {needed:,} partners of a step; {FEWER_ROWS}")


class ResultBuffer:
    """Owns a buffer whose words are the first ones of an array; the memory lasts as long as this object."""

    def __init__(self, slot: Array, sharers: int = 1) -> None:
        """No memory yet. `sharers`: how many buffers share what one may have and keep."""
        self._slot = slot
        self._sharers = sharers
        self._capacity = 0
        free_with(self, slot[Slot.WHERE : Slot.WHERE + 1])

    def start(self, want_positions: bool) -> None:
        """Begin a step without results; without `want_positions` they are only counted."""
        slot = self._slot
        if slot[Slot.CAPACITY] >= 0:
            self._capacity = int(slot[Slot.CAPACITY])
        if self._capacity > MAX_KEPT // self._sharers:
            _free(slot)
            self._capacity = 0
        slot[Slot.FAILED], slot[Slot.LIMIT] = 0, max(most_results() // self._sharers, 1)
        slot[Slot.CAPACITY] = self._capacity if want_positions else -1

    def take(self, count: int) -> Positions | None:
        """A copy of the first `count` results; None if they were only counted."""
        slot = self._slot
        check_complete(int(slot[Slot.FAILED]))
        if slot[Slot.CAPACITY] < 0:
            return None
        found = result_array(count, np.int64)
        copy_words(address(found), int(slot[Slot.WHERE]), count)
        return found


def _free(slot: Array) -> None:
    where = int(slot[Slot.WHERE])
    slot[Slot.WHERE] = 0  # first: an interrupt may come after the next line
    free_memory(where)
