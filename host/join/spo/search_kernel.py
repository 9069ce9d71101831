"""Finds the few points of a rectangle: by hierarchical minima, or by a scan of the narrower of its two ranges.

If key B is one-sided (`rank < end`), a tree of minima with 64 children per node over the ranks of B, in order of A,
leads to the points that match: a node is four vector compares, and a visited node inside the range of A has a match
below it. If both keys are ranges, the narrower one is scanned. The points found are sorted by row
at once. Counts are known before, so every query writes to its own part of the result.
"""

from __future__ import annotations

from enum import auto
from typing import Any

import numpy as np

from millrace.host.kernels.segments import sort_segment
from millrace.host.runtime.intrinsics import (
    MASK_LANES,
    WIDE_LANES,
    load,
    load_id,
    lowest_bit,
    mask_below,
    mask_within,
    ones,
    prefetch,
    stack_words,
    store,
    store_as,
    within,
)
from millrace.host.runtime.jit import inline, share
from millrace.host.runtime.kernel_args import KernelArgs

FAN_OUT_BITS = 6
"""A node has as many children as a mask has bits (`MASK_LANES`)."""
SMALL = MASK_LANES
"""Rows that are sorted by counting, for each, those below it."""
CHEAP_ROW, SORTED_ROW = 12, 40
"""Nanoseconds to find and sort a partner: of up to `SMALL` partners, and of more."""
AHEAD = 8
"""How many queries ahead memory is prefetched."""
_U32 = np.uint32
_ALL: Any = np.uint64(0xFFFFFFFFFFFFFFFF)


class MinimaArgs(KernelArgs):
    """The arguments of `next_level`."""

    BELOW = auto()
    COUNT = auto()  # nodes of the level to fill
    OUT = auto()


@share
def next_level(given: int, part: int, parts: int) -> None:
    """Write the minimum of every 64 values."""
    below, count, out = load(given, MinimaArgs.BELOW), load(given, MinimaArgs.COUNT), load(given, MinimaArgs.OUT)
    for node in range(count * part // parts, count * (part + 1) // parts):
        least = load_id(below, node << FAN_OUT_BITS)
        for i in range(1, MASK_LANES):
            least = min(least, load_id(below, (node << FAN_OUT_BITS) + i))
        store_as(out, node, _U32(least))


class SearchArgs(KernelArgs):
    """The arguments of `count_rows` and `find_rows`. Arrays over queries are by row."""

    M = auto()
    ORDER = auto()  # the rows in order of A, so that successive queries visit the same points
    A_BOUNDS = auto()  # the bounds of A by which they are in order
    A_UPPER = auto()  # whether these are the upper ones
    A_OTHERS = auto()  # by row: the lower ones; 0 if they are all trivial, or if A_BOUNDS has them
    A_LOW = auto()
    A_HIGH = auto()
    B_LOW = auto()
    B_HIGH = auto()
    N = auto()  # the number of points
    VALUES = auto()  # ranks of B, in order of A; padded to full vectors with the largest number
    A_ROWS = auto()  # row numbers in order of A
    LEVELS = auto()  # addresses of the levels of minima, the values first; 0 if B is not one-sided
    LEVEL_COUNT = auto()
    RANKS = auto()  # ranks of A in order of B, padded likewise; 0 if B is one-sided
    B_ROWS = auto()  # row numbers in order of B
    COUNTS = auto()
    OFFSETS = auto()  # where a row's partners begin in the result
    LIMIT = auto()  # rows with a higher cost are left to the bitmaps
    FIRST = auto()  # the position of row 0 of the searched table
    OWN_FIRST = auto()  # the position of row 0 of the queries
    PARTNERS = auto()
    OWN = auto()
    CHOSEN = auto()  # memory for one number per query and part; 0: a part takes a share in order of A


@inline
def inside(first: int, begin: int, end: int) -> Any:
    """A mask of which of the 64 numbers from `first` on are in `begin .. end - 1`; at least one is."""
    below, beyond = np.uint64(max(begin - first, 0)), np.uint64(max(first + MASK_LANES - end, 0))
    return np.int64((_ALL << below) & (_ALL >> beyond))


@inline
def _emit(out: int, found: int, first: int, row: int) -> int:
    """Write a row: as 32 bits if few are expected (`first` is negative then), else as a position."""
    if first < 0:
        store_as(out, found, _U32(row))
    else:
        store(out, found, first + row)
    return found + 1


@inline
def _write_sorted(rows: int, count: int, first: int, out: int) -> None:
    """Write at most `SMALL` different rows in ascending order, as positions: each goes where its rank says."""
    among: Any = np.int64(_ALL >> np.uint64(SMALL - count))
    if count <= WIDE_LANES:
        for i in range(count):
            row = load_id(rows, i)
            store(out, ones(within(rows, 0, np.uint64(0), np.uint64(row), _U32(0)) & among) - 1, first + row)
        return
    for i in range(count):
        row = load_id(rows, i)
        store(out, ones(mask_below(rows, 0, row, _U32(0)) & among), first + row)


@inline
def _descend(levels: int, count: int, begin: int, end: int, high: int, rows: int, first: int, out: int) -> int:
    """Write the rows of all points with A in `begin .. end - 1` and B below `high`; return their number."""
    stack = stack_words(512)
    store(stack, 0, (count - 1) << 32)
    depth, found = 1, 0
    while depth:
        depth -= 1
        top = load(stack, depth)
        level, node = top >> 32, (top & 0xFFFFFFFF) << FAN_OUT_BITS
        shift = level * FAN_OUT_BITS
        mask = mask_below(load(levels, level), node, high, _U32(0))
        mask &= inside(node, begin >> shift, ((end - 1) >> shift) + 1)
        while mask:
            child = node + lowest_bit(mask)
            mask &= mask - 1
            if level == 0:
                found = _emit(out, found, first, load_id(rows, child))
            else:
                store(stack, depth, ((level - 1) << 32) | child)
                depth += 1
    return found


@inline
def _scan(values: int, begin: int, end: int, low: int, high: int, rows: int, first: int, out: int) -> int:
    """The same by comparing all values of `begin .. end - 1`; without `out` the points are only counted."""
    found = 0
    for at in range(begin, end, MASK_LANES):
        mask = mask_within(values, at, low, high - low - 1, _U32(0)) & inside(at, begin, end)
        if out == 0:
            found += ones(mask)
            continue
        while mask:
            found = _emit(out, found, first, load_id(rows, at + lowest_bit(mask)))
            mask &= mask - 1
    return found


@inline
def _narrow(given: int, row: int, first: int, out: int) -> int:
    """Scan the narrower range of a query; if B is one-sided, only the order of A is known."""
    a, a_end = load_id(load(given, SearchArgs.A_LOW), row), load_id(load(given, SearchArgs.A_HIGH), row)
    b, b_end = load_id(load(given, SearchArgs.B_LOW), row), load_id(load(given, SearchArgs.B_HIGH), row)
    ranks = load(given, SearchArgs.RANKS)
    if a >= a_end or b >= b_end:
        return 0
    if ranks == 0 or a_end - a <= b_end - b:
        return _scan(load(given, SearchArgs.VALUES), a, a_end, b, b_end, load(given, SearchArgs.A_ROWS), first, out)
    return _scan(ranks, b, b_end, a, a_end, load(given, SearchArgs.B_ROWS), first, out)


@share
def count_rows(given: int, part: int, parts: int) -> None:
    """Count the points of each query by a scan: for a few queries, which do not pay for a sweep over all points."""
    m, counts = load(given, SearchArgs.M), load(given, SearchArgs.COUNTS)
    for row in range(m * part // parts, m * (part + 1) // parts):
        store(counts, row, _narrow(given, row, 0, 0))


class CostArgs(KernelArgs):
    """The arguments of `estimate_costs`."""

    SEARCH = auto()
    COSTS = auto()


@inline
def _cost(given: int, row: int, count: int) -> int:
    """About how long `find_rows` takes for a query with so many partners, in nanoseconds."""
    cost = count * (CHEAP_ROW if count <= SMALL else SORTED_ROW)
    if load(given, SearchArgs.LEVELS) == 0 and count:
        a_low, a_high = load(given, SearchArgs.A_LOW), load(given, SearchArgs.A_HIGH)
        b_low, b_high = load(given, SearchArgs.B_LOW), load(given, SearchArgs.B_HIGH)
        a, b = load_id(a_high, row) - load_id(a_low, row), load_id(b_high, row) - load_id(b_low, row)
        cost += min(a, b) >> 4
    return cost


@share
def estimate_costs(given: int, part: int, parts: int) -> None:
    """Estimate how long `find_rows` takes for each query."""
    search, costs = load(given, CostArgs.SEARCH), load(given, CostArgs.COSTS)
    m, counts = load(search, SearchArgs.M), load(search, SearchArgs.COUNTS)
    for row in range(m * part // parts, m * (part + 1) // parts):
        store(costs, row, _cost(search, row, load(counts, row)))


@share
def fill_own(given: int, part: int, parts: int) -> None:
    """Write every query's own position, once per partner."""
    m, counts, offsets = load(given, SearchArgs.M), load(given, SearchArgs.COUNTS), load(given, SearchArgs.OFFSETS)
    own, own_first = load(given, SearchArgs.OWN), load(given, SearchArgs.OWN_FIRST)
    for row in range(m * part // parts, m * (part + 1) // parts):
        offset = load(offsets, row)
        for i in range(load(counts, row)):
            store(own, offset + i, own_first + row)


@inline
def _choose(given: int, chosen: int, part: int, parts: int) -> int:
    """List the queries of a part: those of its range of rows, in order of A. Return their number."""
    m, order = load(given, SearchArgs.M), load(given, SearchArgs.ORDER)
    first, stop = m * part // parts, m * (part + 1) // parts
    count = 0
    for i in range(m):
        row = load_id(order, i)
        store_as(chosen, count, _U32(i))
        count += (row >= first) & (row < stop)
    return count


@inline
def _number(chosen: int, j: int) -> int:
    return load_id(chosen, j) if chosen else j


@inline
def _prefetch_query(given: int, chosen: int, j: int, stop: int) -> None:
    """Prefetch a later query, and where the partners of one before it are written: rows in order of A are random."""
    order, offsets = load(given, SearchArgs.ORDER), load(given, SearchArgs.OFFSETS)
    if j + 2 * AHEAD < stop:
        row = load_id(order, _number(chosen, j + 2 * AHEAD))
        prefetch(offsets + 8 * row)
        prefetch(load(given, SearchArgs.B_HIGH) + 4 * row)
        prefetch(load(given, SearchArgs.A_OTHERS) + 4 * row)
    if j + AHEAD < stop:
        row = load_id(order, _number(chosen, j + AHEAD))
        start = load(offsets, row)
        if load(offsets, row + 1) - start <= SMALL:  # many partners are left to the bitmaps
            out = load(given, SearchArgs.PARTNERS) + 8 * start
            prefetch(out)
            prefetch(out + 64)


@inline
def _find_below(given: int, i: int, row: int, first: int, out: int) -> None:
    """Write the partners of query `i` in order of A by descending the minima. Few random accesses: see `A_BOUNDS`."""
    bound, others = load_id(load(given, SearchArgs.A_BOUNDS), i), load(given, SearchArgs.A_OTHERS)
    a, a_end = bound, load(given, SearchArgs.N)
    if load(given, SearchArgs.A_UPPER):
        a, a_end = load_id(others, row) if others else 0, bound
    levels, level_count = load(given, SearchArgs.LEVELS), load(given, SearchArgs.LEVEL_COUNT)
    rows, b_end = load(given, SearchArgs.A_ROWS), load_id(load(given, SearchArgs.B_HIGH), row)
    _descend(levels, level_count, a, a_end, b_end, rows, first, out)


@share
def find_rows(given: int, part: int, parts: int) -> None:
    """Write the partners of each query with few of them, in order."""
    m, order, offsets = load(given, SearchArgs.M), load(given, SearchArgs.ORDER), load(given, SearchArgs.OFFSETS)
    partners, first, limit = (
        load(given, SearchArgs.PARTNERS),
        load(given, SearchArgs.FIRST),
        load(given, SearchArgs.LIMIT),
    )
    begin, stop = m * part // parts, m * (part + 1) // parts
    chosen = load(given, SearchArgs.CHOSEN)
    if chosen:
        chosen += 4 * (begin + part)
        begin, stop = 0, _choose(given, chosen, part, parts)
    buffer = stack_words(32)
    for j in range(begin, stop):
        _prefetch_query(given, chosen, j, stop)
        i = _number(chosen, j)
        row = load_id(order, i)
        start = load(offsets, row)
        count = load(offsets, row + 1) - start
        if count == 0 or _cost(given, row, count) > limit:
            continue
        out = partners + 8 * start
        small = count <= SMALL
        target, base = buffer if small else out, -1 if small else first
        if load(given, SearchArgs.LEVELS):
            _find_below(given, i, row, base, target)
        else:
            _narrow(given, row, base, target)
        if small:
            _write_sorted(buffer, count, first, out)
        else:
            sort_segment(out, count)
