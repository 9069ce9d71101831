"""Freed blocks of memory that wait for reuse, by size. The allocator holds its lock around every call."""

from __future__ import annotations

import mmap as mmap_module
from mmap import mmap
from typing import Any

import numpy as np

_LAZY: int | None = getattr(mmap_module, "MADV_FREE", None)
"""The advice that lets the system take back memory that stays mapped; Linux and macOS have it."""


class KeptBlocks:
    """Blocks by size; the sizes in order of their last return."""

    def __init__(self) -> None:
        """No block."""
        self._blocks: dict[int, list[memoryview]] = {}
        self.bytes = 0
        """Of all blocks, but for an interrupt between a change of the lists and its count."""

    def add(self, block: memoryview) -> None:
        """Keep a block."""
        size = len(block)
        blocks = self._blocks.pop(size, None) or []
        blocks.append(block)
        self._blocks[size] = blocks
        self.bytes += size

    def take(self, size: int) -> memoryview | None:
        """Remove and return the block of this size that was added last."""
        blocks = self._blocks.get(size)
        if not blocks:
            return None
        self.bytes -= size
        return blocks.pop()

    def shrink(self, limit: int) -> list[memoryview]:
        """Remove blocks until at most `limit` bytes are left, those of sizes that were not used for longest first."""
        if self.bytes <= limit:
            return []
        self.bytes = self.count()
        removed: list[memoryview] = []
        while self.bytes > limit and self._blocks:
            size, blocks = next(iter(self._blocks.items()))
            if blocks:
                removed.append(blocks.pop(0))
                self.bytes -= size
            else:
                del self._blocks[size]
        return removed

    def count(self) -> int:
        """The bytes of all blocks, counted anew."""
        return sum(size * len(blocks) for size, blocks in self._blocks.items())


def lend(block: memoryview) -> bool:
    """Allow the system to take the pages of a block when it needs them; returns whether it can.

    The block stays mapped. Pages that were not taken are there without a page fault when the block is used again; from
    then on the system leaves them alone.
    """
    held: Any = block
    while isinstance(held, memoryview | np.ndarray):
        held = held.obj if isinstance(held, memoryview) else held.base
    if _LAZY is None or not isinstance(held, mmap):
        return False
    try:
        held.madvise(_LAZY)
    except OSError:  # for example locked pages
        return False
    return True
