"""Arrays that are used over and over: fresh memory costs a page fault for every page, as much as the work done in it.

An arena belongs to one user at a time. What is given back is handed out again to whoever asks for the same size class;
what nobody gives back is collected by Python as usual. Arrays begin at a page and can be read two cache lines beyond
their end (`huge_pages.py`).
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

MOST_KEPT = 1 << 28
"""Bytes kept for later at most; beyond that, arrays are let go."""
_LEAST = 1 << 12
_STEPS = 4
"""Size classes per power of two: no array is more than a quarter larger than asked for."""


def class_of(size: int) -> int:
    """The size in bytes that is handed out for a size in bytes."""
    if size <= _LEAST:
        return _LEAST
    step = 1 << max((size - 1).bit_length() - 1 - (_STEPS.bit_length() - 1), 0)
    return -(-size // step) * step


class Arena:
    """A store of blocks of memory by size."""

    _spare: ClassVar[list[Arena]] = []

    @classmethod
    def borrow(cls) -> Arena:
        """The arena that the last user left behind, or a new one."""
        try:
            return cls._spare.pop()
        except IndexError:
            return cls()

    def leave(self) -> None:
        """Leave the arena to its next user, unless one is left already."""
        if not self._spare:
            self._spare.append(self)

    def __init__(self) -> None:
        """Empty."""
        self._blocks: dict[int, list[Array]] = {}
        self._kept = 0

    def take(self, size: int, dtype: np.dtype[Any] | type) -> Array:
        """An array of `size` elements, not initialised."""
        kind = np.dtype(dtype)
        bytes_ = class_of(size * kind.itemsize)
        stock = self._blocks.get(bytes_)
        if stock:
            self._kept -= bytes_
            block = stock.pop()
        else:
            block = huge_array(bytes_, np.uint8)
        return block[: size * kind.itemsize].view(kind)

    def give(self, array: Array) -> None:
        """Take an array back that nobody uses any more; one that no arena handed out is left to Python."""
        block = array.base
        if not isinstance(block, np.ndarray) or not isinstance(getattr(block.base, "obj", None), mmap):
            return
        if self._kept + block.nbytes <= MOST_KEPT:
            self._kept += block.nbytes
            self._blocks.setdefault(block.nbytes, []).append(block)


class Workroom:
    """Keeps one arena from a call to the next of its kind, for whoever comes first; who finds none has a fresh one."""

    def __init__(self) -> None:
        """Nothing is kept yet."""
        self.kept: deque[Arena] = deque(maxlen=1)

    @contextmanager
    def use(self, keep: bool = True) -> Iterator[Arena]:
        """An arena that nobody else has; one that a failed call had is not kept."""
        try:
            arena = self.kept.pop()
        except IndexError:
            arena = Arena()
        yield arena
        if keep:
            self.kept.append(arena)
