"""Kernels that search one block or a tail: the ranks of a query's bounds, counts, and scans (SPO-Join, section 3.4).

A query is a rectangle of words. In a block it becomes a rectangle of ranks, by a search for each bound. Then

- counts come from the table and from two scans of at most 256 ranks per corner, or from a scan of a narrow rectangle;
- if the block is not visible in full, the narrowest of three ranges is scanned: ranks of A, ranks of B, positions;
- pairs come from a scan too. A scan in order of a key marks ids in a bitmap, from which they come out in order of
  position. If the range of A is wide and matches are few, the table tells which chunks of 256 ranks hold one.

The paper sets the bits of all tuples that fulfil the first predicate and scans those that fulfil the second one; both
are proportional to a range. Strict and non-strict operators and ties need no care here: ranges of words are closed, and
both ends are searched as lower bounds.
"""

from __future__ import annotations

from enum import auto
from typing import Any

import numpy as np

from millrace.host.runtime.intrinsics import WIDE_LANES, load, load_as, lowest_bit, ones, size_of, store, within
from millrace.host.runtime.jit import inline
from millrace.host.runtime.kernel_args import KernelArgs
from millrace.host.runtime.rank_intrinsics import RANK_LANES, first_bits, group_below, ranks_below, ranks_within

CHUNK = 256
"""Ranks per row and per column of the table."""
VECTOR = 64
"""Entries that kernels read at once; rows of the table are padded to that."""
BITMAP_WORDS = 1024 + 16
"""The 64-bit words of a bitmap: a bit for each id of a cell, and a bit for each of those words."""
NARROW = 512
"""Rectangles with at most this many ranks of one key are counted by a scan."""
COUNT_COST = 2048
"""Counting by the table costs about as much as a scan of so many ranks."""
_U16, _U32, _U64 = np.uint16, np.uint32, np.uint64


class BlockArgs(KernelArgs):
    """A block for kernels. Ids `BEGIN` to `END` are those of its positions; `BASE` is the cell's first position."""

    SIZE = auto()
    BASE = auto()
    BEGIN = auto()
    END = auto()
    WORDS_A = auto()
    WORDS_B = auto()
    IDS_A = auto()
    IDS_B = auto()
    B_IN_A = auto()
    A_IN_B = auto()
    A_AT = auto()
    B_AT = auto()
    TABLE = auto()
    STRIDE = auto()


class TailArgs(KernelArgs):
    """A tail for kernels: the words of both keys, and the positions."""

    SIZE = auto()
    WORDS_A = auto()
    WORDS_B = auto()
    POSITIONS = auto()


@inline
def _below(words: int, count: int, bound: Any, like: Any) -> int:
    """How many words of a block are below a bound: one group of 16 words on each level of the search tree."""
    size = size_of(like)
    padded = (count + 15) >> 4 << 4
    lower = ((padded >> 4) + 15) >> 4 << 4
    upper = ((lower >> 4) + 15) >> 4 << 4
    level_1 = words + size * padded
    level_2 = level_1 + size * lower
    level_3 = level_2 + size * upper
    group = max(group_below(level_3, bound) - 1, 0)
    group = max(WIDE_LANES * group + group_below(level_2 + WIDE_LANES * size * group, bound) - 1, 0)
    group = max(WIDE_LANES * group + group_below(level_1 + WIDE_LANES * size * group, bound) - 1, 0)
    return WIDE_LANES * group + group_below(words + WIDE_LANES * size * group, bound)


@inline
def first_rank(words: int, count: int, low: Any, wide: int) -> int:
    """The rank of the first word that is not below `low`."""
    if low == 0:
        return 0
    return _below(words, count, low, _U64(0)) if wide else _below(words, count, _U32(low), _U32(0))


@inline
def end_rank(words: int, count: int, high: Any, wide: int) -> int:
    """The rank of the first word that is above `high`."""
    if wide:
        return count if high == ~_U64(0) else _below(words, count, _U64(high + _U64(1)), _U64(0))
    return count if high >= _U64(0xFFFFFFFF) else _below(words, count, _U32(high + _U64(1)), _U32(0))


@inline
def _corner(block: int, a: int, b: int) -> int:
    """How many tuples have an A rank below a and a B rank below b.

    The table gives that number for the nearest chunk ends; the ranks between these and a or b are scanned.
    """
    size = load(block, BlockArgs.SIZE)
    if (a == 0) | (b == 0):
        return 0
    if a == size:
        return b
    if b == size:
        return a
    i, j = (a + CHUNK // 2) // CHUNK, (b + CHUNK // 2) // CHUNK
    near_a, near_b = min(i * CHUNK, size), min(j * CHUNK, size)
    total = int(load_as(load(block, BlockArgs.TABLE), j * load(block, BlockArgs.STRIDE) + i, _U16(0)))
    of_a = ranks_below(load(block, BlockArgs.B_IN_A), min(a, near_a), abs(a - near_a), b)
    of_b = ranks_below(load(block, BlockArgs.A_IN_B), min(b, near_b), abs(b - near_b), near_a)
    total += of_a if a >= near_a else -of_a
    total += of_b if b >= near_b else -of_b
    # Counts of the table have 16 bits; this one is below the block's size.
    return total & 0xFFFF


@inline
def count_all(block: int, a0: int, a1: int, b0: int, b1: int) -> int:
    """How many tuples of a block are in a rectangle of ranks that is not empty."""
    if min(a1 - a0, b1 - b0) > NARROW:
        found = _corner(block, a1, b1)
        if a0 > 0:
            found -= _corner(block, a0, b1)
        if b0 > 0:
            found -= _corner(block, a1, b0)
            if a0 > 0:
                found += _corner(block, a0, b0)
        return found
    if a1 - a0 <= b1 - b0:
        return _count_one(load(block, BlockArgs.B_IN_A), a0, a1, b0, b1)
    return _count_one(load(block, BlockArgs.A_IN_B), b0, b1, a0, a1)


@inline
def _count_one(ranks: int, start: int, stop: int, low: int, high: int) -> int:
    """How many of the ranks from `start` to `stop` are from `low` to `high` (exclusive)."""
    found = 0
    for i in range(start, stop, RANK_LANES):
        found += ones(ranks_within(ranks, i, low, high - low - 1) & first_bits(stop - i))
    return found


@inline
def _both(x: int, x0: int, x1: int, y: int, y0: int, y1: int, i: int, stop: int) -> int:
    """A bit mask of which of the next 64 entries, before `stop`, have both values in their ranges."""
    found = ranks_within(x, i, x0, x1 - x0 - 1) & ranks_within(y, i, y0, y1 - y0 - 1)
    return found & first_bits(stop - i)


@inline
def count_visible(block: int, a0: int, a1: int, b0: int, b1: int, v0: int, v1: int) -> int:
    """How many tuples with an id from v0 to v1 are in a rectangle; no range is empty."""
    a, b, v = a1 - a0, b1 - b0, v1 - v0
    begin, end = load(block, BlockArgs.BEGIN), load(block, BlockArgs.END)
    if end - begin - v + COUNT_COST < min(a, b, v):
        hidden = _count_positions(block, a0, a1, b0, b1, begin, v0) + _count_positions(block, a0, a1, b0, b1, v1, end)
        return count_all(block, a0, a1, b0, b1) - hidden
    if v <= min(a, b):
        return _count_positions(block, a0, a1, b0, b1, v0, v1)
    if a <= b:
        return _count_two(load(block, BlockArgs.B_IN_A), b0, b1, load(block, BlockArgs.IDS_A), v0, v1, a0, a1)
    return _count_two(load(block, BlockArgs.A_IN_B), a0, a1, load(block, BlockArgs.IDS_B), v0, v1, b0, b1)


@inline
def _count_positions(block: int, a0: int, a1: int, b0: int, b1: int, start: int, stop: int) -> int:
    """How many tuples with an id from `start` to `stop` are in a rectangle."""
    x, y = visible_ranks(block)
    return _count_two(x, a0, a1, y, b0, b1, start, stop)


@inline
def _count_two(x: int, x0: int, x1: int, y: int, y0: int, y1: int, start: int, stop: int) -> int:
    """How many entries from `start` to `stop` have both values in their ranges."""
    found = 0
    for i in range(start, stop, RANK_LANES):
        found += ones(_both(x, x0, x1, y, y0, y1, i, stop))
    return found


@inline
def visible_ranks(block: int) -> tuple[int, int]:
    """The arrays of ranks in order of position, shifted so that ids are their indexes."""
    shift = 2 * load(block, BlockArgs.BEGIN)
    return load(block, BlockArgs.A_AT) - shift, load(block, BlockArgs.B_AT) - shift


@inline
def write_visible(block: int, a0: int, a1: int, b0: int, b1: int, v0: int, v1: int, out: int) -> int:
    """Write the positions of the tuples in a rectangle by a scan in order of position; returns the end of `out`."""
    x, y = visible_ranks(block)
    base = load(block, BlockArgs.BASE)
    for i in range(v0, v1, RANK_LANES):
        found = _both(x, a0, a1, y, b0, b1, i, v1)
        while found != 0:
            store(out, 0, base + i + lowest_bit(found))
            out += 8
            found &= found - 1
    return out


@inline
def mark(ranks: int, ids: int, start: int, stop: int, low: int, high: int, v0: int, v1: int, bitmap: int) -> None:
    """Mark the ids, from v0 to v1, of entries from `start` to `stop` whose rank is from `low` to `high`."""
    for i in range(start, stop, RANK_LANES):
        found = _both(ranks, low, high, ids, v0, v1, i, stop)
        while found != 0:
            number = int(load_as(ids, i + lowest_bit(found), _U16(0)))
            word = number >> 6
            store(bitmap, word, load(bitmap, word) | (1 << (number & 63)))
            group = 1024 + (word >> 6)
            store(bitmap, group, load(bitmap, group) | (1 << (word & 63)))
            found &= found - 1


@inline
def mark_chunks(block: int, a0: int, a1: int, b0: int, b1: int, v0: int, v1: int, bitmap: int) -> None:
    """Mark the ids in a rectangle, in those chunks of 256 A ranks that hold a tuple with a B rank near the range."""
    ranks, ids = load(block, BlockArgs.B_IN_A), load(block, BlockArgs.IDS_A)
    table, stride = load(block, BlockArgs.TABLE), load(block, BlockArgs.STRIDE)
    low, high = table + 2 * stride * (b0 >> 8), table + 2 * stride * ((b1 + 255) >> 8)
    for chunk in range(a0 >> 8, (a1 + 255) >> 8):
        upto = load_as(high, chunk + 1, _U16(0)) - load_as(low, chunk + 1, _U16(0))
        before = load_as(high, chunk, _U16(0)) - load_as(low, chunk, _U16(0))
        if _U16(upto) != _U16(before):
            start, stop = max(chunk * CHUNK, a0), min((chunk + 1) * CHUNK, a1)
            mark(ranks, ids, start, stop, b0, b1, v0, v1, bitmap)


@inline
def write_marked(bitmap: int, base: int, out: int) -> int:
    """Write the positions of all marked ids in ascending order, and clear the bitmap; returns the end of `out`."""
    for group in range(16):
        words = load(bitmap, 1024 + group)
        store(bitmap, 1024 + group, 0)
        while words != 0:
            word = 64 * group + lowest_bit(words)
            bits = load(bitmap, word)
            store(bitmap, word, 0)
            while bits != 0:
                store(out, 0, base + 64 * word + lowest_bit(bits))
                out += 8
                bits &= bits - 1
            words &= words - 1
    return out


@inline
def word_mask(words: int, i: int, low: Any, high: Any, wide: int) -> int:
    """A bit mask of which of the next 16 words are in a range that is not empty."""
    return within(words, i, low, high - low, _U64(0)) if wide else within(words, i, low, high - low, _U32(0))
