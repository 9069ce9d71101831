"""Arrays that are used over and over: fresh memory costs a page fault for every page, as much as the work done in it.

An arena belongs to one user at a time. What is given back is handed out again to whoever asks for the same size class;
what nobody gives back is collected by Python as usual.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from millrace.host.words import Array

MOST_KEPT = 1 << 28
"""Bytes kept for later at most; beyond that, arrays are let go."""
LINE = 64
"""Bytes of a cache line; arrays begin at one, and as much can be read beyond their end."""
_LEAST = 1 << 12
_STEPS = 4
"""Size classes per power of two: no array is more than a quarter larger than asked for."""


def _class_of(size: int) -> int:
    """The size in bytes that is handed out for a size in bytes."""
    if size <= _LEAST:
        return _LEAST
    step = 1 << max((size - 1).bit_length() - 1 - (_STEPS.bit_length() - 1), 0)
    return -(-size // step) * step


class Arena:
    """A store of blocks of memory by size."""

    def __init__(self) -> None:
        """Empty."""
        self._blocks: dict[int, list[Array]] = {}
        self._kept = 0

    def take(self, size: int, dtype: np.dtype[Any] | type) -> Array:
        """An array of `size` elements, not initialised."""
        kind = np.dtype(dtype)
        bytes_ = _class_of(size * kind.itemsize)
        stock = self._blocks.get(bytes_)
        if stock:
            self._kept -= bytes_
            block = stock.pop()
        else:
            block = _from_line(np.empty(bytes_ + 2 * LINE, np.uint8))
        return block[: size * kind.itemsize].view(kind)

    def give(self, array: Array) -> None:
        """Take an array back that nobody uses any more; one that no arena handed out is left to Python."""
        owner = array.base
        if not isinstance(owner, np.ndarray) or owner.dtype != np.uint8 or owner.nbytes != 2 * LINE + _class_of(
            owner.nbytes - 2 * LINE
        ):
            return
        size = owner.nbytes - 2 * LINE
        if self._kept + size <= MOST_KEPT:
            self._kept += size
            self._blocks.setdefault(size, []).append(_from_line(owner))


def _from_line(owner: Array) -> Array:
    """The part of a block that begins at a cache line."""
    skip = -owner.__array_interface__["data"][0] % LINE
    return owner[skip : skip + len(owner) - 2 * LINE]
