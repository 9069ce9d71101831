"""Memory for results, which users hold as long as they like: when a table is let go, its memory serves the next one.

Fresh memory costs a page fault for every page, often more than the work of filling it. Arrow keeps a NumPy array as
long as anything uses its memory; when the last user has gone, the block goes back on the shelf. A block is never on the
shelf and in use at once, so no result ever changes.
"""

from __future__ import annotations

import weakref
from typing import Any

import numpy as np

from millrace.host.base.types import Array
from millrace.host.runtime.arena import class_of
from millrace.host.runtime.huge_pages import huge_array

LEAST = 1 << 16
"""Bytes below which memory is Python's own business."""
MOST_KEPT = 1 << 27
"""Bytes kept on the shelf at most."""
_shelf: dict[int, list[Array]] = {}


def result_array(size: int, dtype: np.dtype[Any] | type) -> Array:
    """An array of `size` elements, not initialised, whose memory comes back when nobody uses it any more."""
    kind = np.dtype(dtype)
    length = size * kind.itemsize
    if length < LEAST:
        return np.empty(size, kind)
    block = _block(class_of(length))
    # A new array over the block: whatever is made of the result keeps this one alive, and its end is the end of all.
    lease = np.frombuffer(block.data, np.uint8)
    weakref.finalize(lease, _put_back, block).atexit = False
    return lease[:length].view(kind)


def _block(length: int) -> Array:
    try:
        return _shelf[length].pop()
    except (KeyError, IndexError):
        return huge_array(length, np.uint8)


def _put_back(block: Array) -> None:
    # Any thread may let a result go at any moment: each line here is one step of Python, or harmless if it is late.
    kept = sum(length * len(blocks) for length, blocks in list(_shelf.items()))
    if kept + block.nbytes <= MOST_KEPT:
        _shelf.setdefault(block.nbytes, []).append(block)
