"""Result buffers of kernels: positions in memory of the C library, which grows without a return to Python."""

from __future__ import annotations

from enum import auto

import numpy as np

from millrace.host.base.types import Array, Positions
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
    FAILED = auto()  # 1 if there was no memory: results are missing
    USED = auto()  # results so far


@kernel
def enlarge(slot: int, needed: int) -> bool:
    """Make room for so many positions; false if there is no memory."""
    capacity = max(2 * needed, FIRST_CAPACITY)
    where = resize_memory(load(slot, Slot.WHERE), 8 * capacity)
    if where == 0:
        store(slot, Slot.FAILED, 1)
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


class ResultBuffer:
    """Owns a buffer whose words are the first ones of an array; the memory lasts as long as this object."""

    def __init__(self, slot: Array) -> None:
        """No memory yet."""
        self._slot = slot
        self._capacity = 0
        free_with(self, slot[Slot.WHERE : Slot.WHERE + 1])

    def start(self, want_positions: bool) -> None:
        """Begin a step without results; without `want_positions` they are only counted."""
        slot = self._slot
        if slot[Slot.CAPACITY] >= 0:
            self._capacity = int(slot[Slot.CAPACITY])
        if self._capacity > MAX_KEPT:
            _free(slot)
            self._capacity = 0
        slot[Slot.FAILED] = 0
        slot[Slot.CAPACITY] = self._capacity if want_positions else -1

    def take(self, count: int) -> Positions | None:
        """A copy of the first `count` results; None if they were only counted."""
        slot = self._slot
        if slot[Slot.FAILED]:
            raise MemoryError("the partners of a step do not fit in memory; push smaller batches")
        if slot[Slot.CAPACITY] < 0:
            return None
        found = result_array(count, np.int64)
        copy_words(address(found), int(slot[Slot.WHERE]), count)
        return found


def _free(slot: Array) -> None:
    where = int(slot[Slot.WHERE])
    slot[Slot.WHERE] = 0  # first: an interrupt may come after the next line
    free_memory(where)
