"""Builds and searches a small HB+-Tree with NumPy alone: what an index does before its kernels are loaded.

The segments are those that the kernels of `build.py` write, byte for byte, so a tree that was built here is searched by
the kernels as soon as they are there (`runtime/first_use.py`). A search is NumPy's binary search in the sorted words.
Limit: the implicit layout; made for up to `first_use.MAX_ROWS` keys. (Thesis, appendix A, 4.1.)
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from millrace.host.base.types import Array
from millrace.host.hbtree.layout import Shape, level_starts
from millrace.host.hbtree.leaves import DISTINCT, EQUALS, UNSORTED, Leaves
from millrace.host.kernels.word_sorter import sort_words
from millrace.host.runtime import first_use
from millrace.host.runtime.allocator import SPARE
from millrace.host.runtime.team import Team

Positions = npt.NDArray[np.int64]
ORDERED_INDEX = "ordered_index"
"""The name of the operator's kernels (`runtime/first_use.py`)."""


REASON = "NumPy searches the small index until the kernels are compiled and loaded"


def is_used(size: int) -> bool:
    """Whether calls on an index of so many keys go on without kernels now."""
    return size <= first_use.MAX_ROWS and first_use.goes_without(ORDERED_INDEX)


def without_kernels(*sizes: int) -> bool:
    """Whether a call with so many keys and queries goes on without kernels."""
    return max(sizes) <= first_use.MAX_ROWS and first_use.without_kernels(ORDERED_INDEX)


def fill_leaves(leaves: Leaves, raw: Array, flip: int, values: Array | None) -> int:
    """Write the L-segment; return the order of the keys (as `fill_lines` in `leaves.py`)."""
    words = raw ^ raw.dtype.type(flip)
    lines = leaves.data.reshape(leaves.lines, leaves.stride)
    padded = np.full(leaves.lines * leaves.per_leaf, ~words.dtype.type(0))
    padded[: len(words)] = words
    lines[:, : leaves.offset] = padded.view(np.uint8).reshape(leaves.lines, -1)
    if values is not None:
        beside = np.zeros(len(padded), values.dtype)
        beside[: len(values)] = values
        lines[:, leaves.offset :] = beside.view(np.uint8).reshape(leaves.lines, -1)
    if (words[1:] < words[:-1]).any():
        return UNSORTED
    return EQUALS if (words[1:] == words[:-1]).any() else DISTINCT


def fill_nodes(shape: Shape, leaves: Leaves, nodes: Array) -> None:
    """Write the I-segment of the implicit layout above filled leaves."""
    lasts = leaves.padded_words.reshape(-1, leaves.per_leaf)[:, -1]
    largest = ~shape.word.type(0)
    for level, first in enumerate(level_starts(shape)):
        count, below = shape.counts[level], shape.counts[level + 1]
        span = shape.fanout ** (shape.levels - 1 - level)
        separators = np.full(count * shape.fanout, largest)
        separators[: below - 1] = lasts[np.arange(1, below) * span - 1]
        level_nodes = separators.reshape(count, shape.fanout)[:, : shape.per_line].copy()
        if shape.fanout == shape.per_line:
            level_nodes[:, -1] = largest
        nodes[first : first + level_nodes.size] = level_nodes.reshape(-1)


def sort_rows(words: Array, team: Team) -> tuple[Array, npt.NDArray[np.uint32]]:
    """The words in ascending order, and the row number of each, as `sort_words` returns them."""
    if not without_kernels(len(words)):
        return sort_words(words, team)
    found = np.argsort(words, kind="stable")
    # Kernels may read beyond the end.
    ordered = np.empty(len(words) + SPARE // words.itemsize, words.dtype)[: len(words)]
    order = np.empty(len(words) + SPARE // 4, np.uint32)[: len(words)]
    ordered[:], order[:] = words[found], found
    return ordered, order


def find(leaves: Leaves, queries: Array, last: bool) -> Positions:
    """Positions of the first equal word of each query, or of the last; -1 if there is none."""
    words = leaves.words
    found = words.searchsorted(queries, "right") - 1 if last else words.searchsorted(queries)
    there = (found >= 0) & (found < len(words))
    if len(words):
        there &= words[np.where(there, found, 0)] == queries
    return np.where(there, found, -1)


def bounds(leaves: Leaves, low: Array, high: Array) -> tuple[Positions, Positions]:
    """The first position not below `low[i]`, and the first one above `high[i]` (the start if `low` is above)."""
    words = leaves.words
    starts = words.searchsorted(low)
    return starts, np.maximum(words.searchsorted(high, "right"), starts)
