"""Copies packed leaves into lines with free slots: the leaves of a fresh regular HB+-Tree (thesis, appendix A, 4.1).

Each line but the last gets the same number of words. Unused lines of the last big leaf contain only free slots. If the
packed leaves have no values, the value of a word is its position. Limit: the largest word marks free slots, so rows
with that key are left out.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import auto
from typing import Any

import numpy as np

from millrace.host.base.types import Array
from millrace.host.hbtree.leaves import Leaves, largest
from millrace.host.runtime.allocator import huge_array
from millrace.host.runtime.intrinsics import load, load_as, size_of, store_as
from millrace.host.runtime.jit import inline, share
from millrace.host.runtime.kernel_args import KernelArgs
from millrace.host.runtime.team import Team

SLICE = 1 << 13
"""Lines per task of a thread."""


class _Args(KernelArgs):
    """The arguments of the copy: rows in lines of one shape, to lines of another."""

    SOURCE = auto()
    STRIDE = auto()
    BITS = auto()
    OFFSET = auto()
    SOURCE_WIDTH = auto()
    OUT = auto()
    OUT_STRIDE = auto()
    OUT_LANES = auto()
    WIDTH = auto()
    USED = auto()
    SIZE = auto()
    LINES = auto()


@dataclass(frozen=True)
class FilledLeaves:
    """Leaf lines with `per_leaf` words in use, for `build_nodes`."""

    data: Array
    stride: int
    per_leaf: int


@inline
def _copy_with_gaps(args: int, part: int, parts: int, like: Any) -> None:
    source, stride, bits = load(args, _Args.SOURCE), load(args, _Args.STRIDE), load(args, _Args.BITS)
    offset, source_width = load(args, _Args.OFFSET), load(args, _Args.SOURCE_WIDTH)
    out, out_stride, lanes = load(args, _Args.OUT), load(args, _Args.OUT_STRIDE), load(args, _Args.OUT_LANES)
    width, used = load(args, _Args.WIDTH), load(args, _Args.USED)
    size, lines = load(args, _Args.SIZE), load(args, _Args.LINES)
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
    args = _Args.pack(
        SOURCE=leaves.data,
        STRIDE=leaves.stride,
        BITS=leaves.per_leaf.bit_length() - 1,
        OFFSET=leaves.offset,
        SOURCE_WIDTH=leaves.width,
        OUT=data,
        OUT_STRIDE=target.stride,
        OUT_LANES=target.per_leaf,
        WIDTH=width,
        USED=used,
        SIZE=size,
        LINES=lines,
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
