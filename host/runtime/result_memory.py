"""Memory for results: when the user drops a result table, its memory is reused for the next one.

New memory costs a page fault per page, often more than the work of filling it. Arrow holds a reference to the NumPy
array as long as anything uses its memory; when the last reference is gone, the block joins the free list. A block is
never in the free list and in use at once, so no result ever changes.
"""

from __future__ import annotations

import weakref
from typing import Any

import numpy as np

from millrace.host.base.types import Array
from millrace.host.runtime.arena import size_class
from millrace.host.runtime.huge_pages import huge_array

MIN_BYTES = 1 << 16
"""Smaller results are plain NumPy arrays."""
MAX_KEPT = 1 << 27
"""The most bytes in the free list."""
_free_blocks: dict[int, list[Array]] = {}


def result_array(size: int, dtype: np.dtype[Any] | type) -> Array:
    """Return an uninitialised array of `size` elements, whose memory is reused when its last reference is gone."""
    kind = np.dtype(dtype)
    length = size * kind.itemsize
    if length < MIN_BYTES:
        return np.empty(size, kind)
    block = _block(size_class(length))
    # A new array over the block: every view of the result keeps it alive, so its end means that the block is unused.
    lease = np.frombuffer(block.data, np.uint8)
    weakref.finalize(lease, _recycle, block).atexit = False
    return lease[:length].view(kind)


def _block(length: int) -> Array:
    try:
        return _free_blocks[length].pop()
    except (KeyError, IndexError):
        return huge_array(length, np.uint8)


def _recycle(block: Array) -> None:
    # Any thread may drop a result at any time. Each line is atomic, or a stale value does no harm.
    kept = sum(length * len(blocks) for length, blocks in list(_free_blocks.items()))
    if kept + block.nbytes <= MAX_KEPT:
        _free_blocks.setdefault(block.nbytes, []).append(block)
