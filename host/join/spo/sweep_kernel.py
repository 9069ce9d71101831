"""Counts dominated points by a sweep: points are inserted in order of key A, and queries count by rank of key B.

The inserted ranks are a bit array with prefix counters on three levels of 64: per word inside its group of 64 words,
per group inside its super-group, per super-group. So a count is four loads, whatever the number of matches, and an
insertion changes two lines of counters at once (SIMD). All of it fits into the cache: about 1.3 bits per point. Each
part of the points starts from the bits of all points before it, so parts are independent. (The paper enumerates.)
"""

from __future__ import annotations

from enum import auto
from typing import Any

import numpy as np

from millrace.host.runtime.intrinsics import count_after, load, load_as, load_id, ones, prefetch, store, store_as
from millrace.host.runtime.jit import inline, share
from millrace.host.runtime.kernel_args import KernelArgs

WORD, GROUP, SUPER = 6, 12, 18
"""Ranks of a word, a group and a super-group, as a power of two."""
AHEAD = 16
"""How many queries ahead memory is prefetched."""
_U16, _U32 = np.uint16, np.uint32


class SweepArgs(KernelArgs):
    """The arguments of `sweep`."""

    VALUES = auto()  # ranks of B, in order of A
    N = auto()
    BOUNDS = auto()  # ascending positions in order of A: one per query
    ROWS = auto()  # the row of each query
    M = auto()
    LOWS = auto()  # by row: the lowest rank of B; 0 if all are 0
    HIGHS = auto()  # by row: the end of the ranks of B
    COUNTS = auto()  # by row: the count is added to it, or subtracted
    SIGN = auto()
    LOCAL = auto()  # zeroed memory of all parts
    LOCAL_SIZE = auto()


def words(n: int) -> int:
    """The words of the bit array, rounded up to super-groups; one more than ranks need, for the bound `n`."""
    return ((n >> SUPER) + 1) << (SUPER - WORD)


def local_size(n: int) -> int:
    """The bytes of a part: bits, counters of words, of groups, of super-groups."""
    count = words(n)
    return count * 8 + count * 2 + (count >> 6) * 4 + (count >> 12) * 8


@inline
def _insert(bits: int, mid: int, top: int, supers: int, super_count: int, rank: int) -> None:
    word, group, super_group = rank >> WORD, rank >> GROUP, rank >> SUPER
    store(bits, word, load(bits, word) | (1 << (rank & 63)))
    count_after(mid + 128 * group, word & 63, _U16(0))
    count_after(top + 256 * super_group, group & 63, _U32(0))
    for i in range(super_group + 1, super_count):
        store(supers, i, load(supers, i) + 1)


@inline
def _count(bits: int, mid: int, top: int, supers: int, rank: int) -> Any:
    """The number of inserted ranks below `rank`."""
    word = rank >> WORD
    inside = ones(load(bits, word) & ((1 << (rank & 63)) - 1))
    return load(supers, rank >> SUPER) + load_id(top, rank >> GROUP) + np.int64(load_as(mid, word, _U16(0))) + inside


@inline
def _start(bits: int, mid: int, top: int, supers: int, count: int, values: int, stop: int) -> None:
    """Insert all points before a part at once: set their bits, then sum up the counters."""
    for p in range(stop):
        rank = load_id(values, p)
        store(bits, rank >> WORD, load(bits, rank >> WORD) | (1 << (rank & 63)))
    in_group = in_super = total = 0
    for word in range(count):
        if word & 63 == 0:
            in_super += in_group
            in_group = 0
            if word & 4095 == 0:
                total += in_super
                in_super = 0
                store(supers, word >> 12, total)
            store_as(top, word >> 6, _U32(in_super))
        store_as(mid, word, _U16(in_group))
        in_group += ones(load(bits, word))


@inline
def _first_at_least(bounds: int, m: int, least: int) -> int:
    low, high = 0, m
    while low < high:
        middle = (low + high) >> 1
        if load_id(bounds, middle) < least:
            low = middle + 1
        else:
            high = middle
    return low


@share
def sweep(given: int, part: int, parts: int) -> None:
    """Answer the queries whose bound lies in a part of the points."""
    values, n = load(given, SweepArgs.VALUES), load(given, SweepArgs.N)
    bounds, rows, m = load(given, SweepArgs.BOUNDS), load(given, SweepArgs.ROWS), load(given, SweepArgs.M)
    lows, highs = load(given, SweepArgs.LOWS), load(given, SweepArgs.HIGHS)
    counts, sign = load(given, SweepArgs.COUNTS), load(given, SweepArgs.SIGN)
    count = ((n >> SUPER) + 1) << (SUPER - WORD)
    bits = load(given, SweepArgs.LOCAL) + part * load(given, SweepArgs.LOCAL_SIZE)
    mid = bits + 8 * count
    top = mid + 2 * count
    supers = top + 4 * (count >> 6)
    at, stop = n * part // parts, n * (part + 1) // parts
    # A query counts the points before its bound: bound 0 counts none, bound `stop` belongs to this part.
    query, last = _first_at_least(bounds, m, at + 1), _first_at_least(bounds, m, stop + 1)
    if query == last:
        return
    if at:
        _start(bits, mid, top, supers, count, values, at)
    for q in range(query, last):
        if q + AHEAD < last:  # rows in order of A are random
            later = load_id(rows, q + AHEAD)
            prefetch(highs + 4 * later)
            prefetch(counts + 8 * later)
        bound, row = load_id(bounds, q), load_id(rows, q)
        while at < bound:
            _insert(bits, mid, top, supers, count >> 12, load_id(values, at))
            at += 1
        found = _count(bits, mid, top, supers, load_id(highs, row))
        if lows:
            found -= _count(bits, mid, top, supers, load_id(lows, row))
        store(counts, row, load(counts, row) + sign * found)
