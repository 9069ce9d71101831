"""Copies packed leaves into lines with free slots: the leaves of a fresh regular HB+-Tree (thesis, appendix A, 4.1).

Each line but the last gets the same number of words. Unused lines of the last big leaf contain only free slots. If the
packed leaves have no values, the value of a word is its position. Limit: the largest word marks free slots, so rows
with that key are left out.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from millrace.host.base.types import Array
from millrace.host.hbtree.leaves import Leaves, largest
from millrace.host.runtime.allocator import huge_array
from millrace.host.runtime.intrinsics import load_as, size_of, store_as, table
from millrace.host.runtime.jit import inline, share
from millrace.host.runtime.team import Team

SLICE = 1 << 13
"""Lines per task of a thread."""
_SOURCE, _STRIDE, _BITS, _OFFSET, _SOURCE_WIDTH, _OUT, _OUT_STRIDE, _OUT_LANES, _WIDTH, _USED, _SIZE, _LINES = range(12)


@dataclass(frozen=True)
class FilledLeaves:
    """Leaf lines with `per_leaf` words in use, for `build_nodes`."""

    data: Array
    stride: int
    per_leaf: int


@inline
def _copy_with_gaps(args: int, part: int, parts: int, like: Any) -> None:
    source, stride, bits = load_as(args, _SOURCE, 0), load_as(args, _STRIDE, 0), load_as(args, _BITS, 0)
    offset, source_width = load_as(args, _OFFSET, 0), load_as(args, _SOURCE_WIDTH, 0)
    out, out_stride, lanes = load_as(args, _OUT, 0), load_as(args, _OUT_STRIDE, 0), load_as(args, _OUT_LANES, 0)
    width, used = load_as(args, _WIDTH, 0), load_as(args, _USED, 0)
    size, lines = load_as(args, _SIZE, 0), load_as(args, _LINES, 0)
    mask = (1 << bits) - 1
    for line in range(lines * part // parts, lines * (part + 1) // parts):
        where = out + line * out_stride
        values, first = where + lanes * size_of(like), line * used
        count = min(max(size - first, 0), used)
        for i in range(count):
            old = source + ((first + i) >> bits) * stride
            store_as(where, i, load_as(old, (first + i) & mask, like))
        for i in range(count, lanes):
            store_as(where, i, largest(like))
        if source_width == 8:
            for i in range(count):
                old = source + ((first + i) >> bits) * stride + offset
                store_as(values, i, load_as(old, (first + i) & mask, np.uint64(0)))
        elif source_width == 4:
            for i in range(count):
                old = source + ((first + i) >> bits) * stride + offset
                store_as(values, i, load_as(old, (first + i) & mask, np.uint32(0)))
        elif width == 8:
            for i in range(count):
                store_as(values, i, first + i)
        else:
            for i in range(count):
                store_as(values, i, np.uint32(first + i))


@share
def _copy_with_gaps_32(args: int, part: int, parts: int) -> None:
    _copy_with_gaps(args, part, parts, np.uint32(0))


@share
def _copy_with_gaps_64(args: int, part: int, parts: int) -> None:
    _copy_with_gaps(args, part, parts, np.uint64(0))


def copy_with_gaps(
    leaves: Leaves, width: int, size: int, used: int, capacity: int, lines: int, team: Team
) -> tuple[Array, Array]:
    """Copy the first `size` rows to `lines` lines, `used` per line; also return the values of the other rows.

    The result has memory for `capacity` lines.
    """
    target = Leaves(np.zeros(0, np.uint8), leaves.word, size, width)
    data = huge_array(capacity * target.stride, np.uint8)
    args = table(
        *(leaves.data, leaves.stride, leaves.per_leaf.bit_length() - 1, leaves.offset, leaves.width),
        *(data, target.stride, target.per_leaf, width, used, size, lines),
    )
    team.run(_copy_with_gaps_64 if leaves.word.itemsize == 8 else _copy_with_gaps_32, args, -(-lines // SLICE))
    kind = np.dtype(f"u{width}")
    others = np.arange(size, leaves.size)
    if leaves.width:
        rows = leaves.data.reshape(leaves.lines, leaves.stride)[:, leaves.offset :].view(kind)
        return data, rows[others // leaves.per_leaf, others % leaves.per_leaf]
    return data, others.astype(kind)


def count_below_largest(leaves: Leaves) -> int:
    """Number of words below the largest word, which only the last ones can equal."""
    rows = leaves.data.reshape(leaves.lines, leaves.stride)[:, : leaves.offset]
    size = leaves.size
    while size > 0:
        line = (size - 1) // leaves.per_leaf
        first = line * leaves.per_leaf
        words = np.ascontiguousarray(rows[line]).view(leaves.word)[: size - first]
        below = int(np.searchsorted(words, np.iinfo(leaves.word).max))
        if below:
            return first + below
        size = first
    return 0
