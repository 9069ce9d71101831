"""An allocator that reuses arrays: new memory costs a page fault per page, as much as the work that is done in it.

An arena belongs to one user at a time. A returned block is reused for the next array of its size class; an array that
is never returned is freed by Python as usual. Arrays are page-aligned and can be read two cache lines beyond their end
(`huge_pages.py`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from mmap import mmap
from typing import Any, ClassVar

import numpy as np

from millrace.host.base.types import Array
from millrace.host.runtime.huge_pages import huge_array

MAX_KEPT = 1 << 28
"""The most bytes that an arena keeps for reuse; blocks beyond that are freed."""
_MIN_BLOCK = 1 << 12
_STEPS = 4
"""Size classes per power of two: no block is more than a quarter larger than requested."""


def size_class(size: int) -> int:
    """Return the size of the block, in bytes, for a request of `size` bytes."""
    if size <= _MIN_BLOCK:
        return _MIN_BLOCK
    step = 1 << max((size - 1).bit_length() - 1 - (_STEPS.bit_length() - 1), 0)
    return -(-size // step) * step


class Arena:
    """Free blocks of memory by size class."""

    _spare: ClassVar[list[Arena]] = []

    @classmethod
    def borrow(cls) -> Arena:
        """Return the arena that the last user left, or a new one."""
        try:
            return cls._spare.pop()
        except IndexError:
            return cls()

    def leave(self) -> None:
        """Keep the arena for the next user, unless another one is kept already."""
        if not self._spare:
            self._spare.append(self)

    def __init__(self) -> None:
        """An empty arena."""
        self._blocks: dict[int, list[Array]] = {}
        self._kept = 0

    def take(self, size: int, dtype: np.dtype[Any] | type) -> Array:
        """Return an uninitialised array of `size` elements."""
        kind = np.dtype(dtype)
        bytes_ = size_class(size * kind.itemsize)
        stock = self._blocks.get(bytes_)
        if stock:
            self._kept -= bytes_
            block = stock.pop()
        else:
            block = huge_array(bytes_, np.uint8)
        return block[: size * kind.itemsize].view(kind)

    def give(self, array: Array) -> None:
        """Return an array for reuse; ignores arrays that do not come from an arena."""
        block = array.base
        if not isinstance(block, np.ndarray) or not isinstance(getattr(block.base, "obj", None), mmap):
            return
        if self._kept + block.nbytes <= MAX_KEPT:
            self._kept += block.nbytes
            self._blocks.setdefault(block.nbytes, []).append(block)


class ArenaCache:
    """Keeps one arena between calls of a function; a concurrent call that finds none gets a new one."""

    def __init__(self) -> None:
        """An empty cache."""
        self.kept: deque[Arena] = deque(maxlen=1)

    @contextmanager
    def use(self, keep: bool = True) -> Iterator[Arena]:
        """Provide an arena for exclusive use; it is not kept if the call fails."""
        try:
            arena = self.kept.pop()
        except IndexError:
            arena = Arena()
        yield arena
        if keep:
            self.kept.append(arena)
