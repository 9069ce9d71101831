"""Finds the many points of a rectangle in row order: an AND of prefix bitmaps, then a scan of the set bits.

The searched table is cut into blocks of `BLOCK` rows. In a block, for each key, a bitmap over its rows is stored for
every `CHUNK`-th point in order of the key: the rows of all points before it (SPO-Join, 3.3 and 3.4; the paper sets the
bits for each probe, one by one). A query takes the bitmaps inside both of its ranges; the points between a checkpoint
and the query's exact bound are compared and add their bits. Rows come out ascending, so nothing is sorted.
"""

from __future__ import annotations

from enum import auto
from typing import Any

import numpy as np

from millrace.host.join.spo.search_kernel import SearchArgs, inside
from millrace.host.runtime.bit_intrinsics import SPREAD, spread_bits
from millrace.host.runtime.intrinsics import (
    MASK_LANES,
    load,
    load_as,
    load_id,
    lowest_bit,
    mask_within,
    ones,
    store,
)
from millrace.host.runtime.jit import inline, share
from millrace.host.runtime.kernel_args import KernelArgs

BLOCK_BITS = 16
BLOCK = 1 << BLOCK_BITS
"""Rows of a block: its bitmaps of both keys take 1 MiB, a second-level cache."""
CHUNK = 1 << 10
"""Points between two checkpoints."""
CHECKPOINTS = BLOCK // CHUNK + 1
WORDS = BLOCK // 64
"""Words of a bitmap."""
_U16, _U32 = np.uint16, np.uint32


class BlockArgs(KernelArgs):
    """One key of one block: its points in order of the key."""

    POINTS = auto()  # how many
    OWN = auto()  # their ranks by this key
    OTHER = auto()  # their ranks by the other key
    ROWS = auto()  # their rows, from the first row of the block (uint16)
    BITMAPS = auto()  # `CHECKPOINTS` bitmaps; the first one is empty


BLOCK_WORDS = len(BlockArgs)


class BitmapArgs(KernelArgs):
    """The arguments of `build` and `find_many`."""

    A = auto()  # the address of the `BlockArgs` of key A
    B = auto()
    SEARCH = auto()  # the address of the `SearchArgs`
    MANY = auto()  # the rows to answer
    M = auto()
    NEXT = auto()  # by number in MANY: where the next partner is written
    FIRST = auto()  # the position of the block's first row
    WORDS = auto()  # words of a bitmap that rows of the block use
    LOCAL = auto()  # two bitmaps per part; the first one is zeroed


@share
def build(given: int, part: int, parts: int) -> None:
    """Fill the bitmaps of one key: part 0 those of A, part 1 those of B."""
    block = load(given, BitmapArgs.A if part == 0 else BitmapArgs.B)
    points, rows, bitmaps = load(block, BlockArgs.POINTS), load(block, BlockArgs.ROWS), load(block, BlockArgs.BITMAPS)
    for w in range(WORDS):
        store(bitmaps, w, 0)
    for c in range(1, (points + CHUNK - 1) // CHUNK + 1):
        to, before = bitmaps + 8 * WORDS * c, bitmaps + 8 * WORDS * (c - 1)
        for w in range(WORDS):
            store(to, w, load(before, w))
        for i in range((c - 1) * CHUNK, min(c * CHUNK, points)):
            row: Any = np.int64(load_as(rows, i, _U16(0)))
            store(to, row >> 6, load(to, row >> 6) | (1 << (row & 63)))


@inline
def _before(own: int, points: int, bound: int) -> int:
    """How many points have a rank below a bound: binary search."""
    low, high = 0, points
    while low < high:
        middle = (low + high) >> 1
        if load_id(own, middle) < bound:
            low = middle + 1
        else:
            high = middle
    return low


@inline
def _add_bits(block: int, begin: int, end: int, low: int, high: int, extra: int) -> None:
    """Set the bits of the points `begin .. end - 1` whose rank by the other key is in `low .. high - 1`."""
    others, rows = load(block, BlockArgs.OTHER), load(block, BlockArgs.ROWS)
    for at in range(begin, end, MASK_LANES):
        mask = mask_within(others, at, low, high - low - 1, _U32(0)) & inside(at, begin, end)
        while mask:
            row: Any = np.int64(load_as(rows, at + lowest_bit(mask), _U16(0)))
            mask &= mask - 1
            store(extra, row >> 6, load(extra, row >> 6) | (1 << (row & 63)))


@inline
def _checkpoints(block: int, low: int, high: int, other_low: int, other_high: int, extra: int) -> Any:
    """Return the checkpoints inside a range of ranks, packed in one word; add the bits of the points outside them."""
    own, points = load(block, BlockArgs.OWN), load(block, BlockArgs.POINTS)
    begin, end = _before(own, points, low), _before(own, points, high)
    first, last = (begin + CHUNK - 1) // CHUNK, end // CHUNK
    if end == points:  # the last bitmap holds all points, however many are in the last chunk
        last = (points + CHUNK - 1) // CHUNK
    if first >= last:
        _add_bits(block, begin, end, other_low, other_high, extra)
        return 0
    _add_bits(block, begin, first * CHUNK, other_low, other_high, extra)
    _add_bits(block, min(last * CHUNK, end), end, other_low, other_high, extra)
    return (first << 32) | last


@inline
def _write_rest(word: int, bits: int, first: int, out: int, at: int, end: int) -> None:
    """Write the numbers of a word's `bits` set bits, `first` added, from `out[at]` on, and nothing from `end` on."""
    while bits > SPREAD and at + SPREAD <= end:
        spread_bits(word, first, out + 8 * at)
        for _ in range(SPREAD):
            word &= word - 1
        at, bits = at + SPREAD, bits - SPREAD
    for i in range(bits):
        store(out, at + i, first + lowest_bit(word))
        word &= word - 1


@inline
def _write_bits(words: int, count: int, base: int, out: int, at: int, end: int) -> int:
    """Write the numbers of the set bits, `base` added, from `out[at]` on; entries before `end` may be overwritten."""
    for w in range(count):
        word, first = load(words, w), base + 64 * w
        bits = ones(word)
        if bits <= SPREAD and at + SPREAD <= end:  # no branch on the number of bits, unless there are many
            spread_bits(word, first, out + 8 * at)
        else:
            _write_rest(word, bits, first, out, at, end)
        at += bits
    return at


@inline
def _find(given: int, search: int, row: int, at: int, local: int) -> int:
    """Write the partners of a query in one block; return where the next partner is written."""
    a, b = load(given, BitmapArgs.A), load(given, BitmapArgs.B)
    a_low, a_high = load_id(load(search, SearchArgs.A_LOW), row), load_id(load(search, SearchArgs.A_HIGH), row)
    b_low, b_high = load_id(load(search, SearchArgs.B_LOW), row), load_id(load(search, SearchArgs.B_HIGH), row)
    extra, words, count = local, local + 8 * WORDS, load(given, BitmapArgs.WORDS)
    in_a = _checkpoints(a, a_low, a_high, b_low, b_high, extra)
    in_b = _checkpoints(b, b_low, b_high, a_low, a_high, extra)
    bitmaps_a, bitmaps_b = load(a, BlockArgs.BITMAPS), load(b, BlockArgs.BITMAPS)
    if in_a == 0 or in_b == 0:  # the two empty bitmaps: only the bits added count
        in_a = in_b = 0
    a_begin, a_end = bitmaps_a + 8 * WORDS * (in_a >> 32), bitmaps_a + 8 * WORDS * (in_a & 0xFFFFFFFF)
    b_begin, b_end = bitmaps_b + 8 * WORDS * (in_b >> 32), bitmaps_b + 8 * WORDS * (in_b & 0xFFFFFFFF)
    out, base = load(search, SearchArgs.PARTNERS), load(given, BitmapArgs.FIRST)
    end = load(load(search, SearchArgs.OFFSETS), row) + load(load(search, SearchArgs.COUNTS), row)
    for w in range(count):
        store(words, w, load(a_end, w) & ~load(a_begin, w) & load(b_end, w) & ~load(b_begin, w) | load(extra, w))
        store(extra, w, 0)
    return _write_bits(words, count, base, out, at, end)


@share
def find_many(given: int, part: int, parts: int) -> None:
    """Write the partners of a share of the queries in one block."""
    search, many, m = load(given, BitmapArgs.SEARCH), load(given, BitmapArgs.MANY), load(given, BitmapArgs.M)
    nexts, local = load(given, BitmapArgs.NEXT), load(given, BitmapArgs.LOCAL) + 16 * WORDS * part
    for i in range(m * part // parts, m * (part + 1) // parts):
        store(nexts, i, _find(given, search, load(many, i), load(nexts, i), local))
