"""Joins inside small groups: a query compares all points of its group, 64 at a time.

With an equality in front, a query has only the points of one group as candidates. If groups are small, comparing all of
them is cheaper than any search: the points are put together by group, those of a group in order of their rows, so the
matches come out in order and nothing is sorted or ranked. First the matches of 64 points are kept as a mask and
counted, then the masks are written as pairs. (SPO-Join has no equalities; its bits per probe, 3.3, are these masks.)
"""

from __future__ import annotations

from enum import auto
from typing import Any

import numpy as np

from millrace.host.join.spo.search_kernel import inside
from millrace.host.runtime.intrinsics import (
    MASK_LANES,
    load,
    load_as,
    load_byte,
    load_id,
    lowest_bit,
    mask_within,
    ones,
    prefetch,
    store,
    store_as,
)
from millrace.host.runtime.jit import inline, share
from millrace.host.runtime.kernel_args import KernelArgs

AHEAD = 8
"""How many queries ahead memory is prefetched."""
MAX_PARTS = 1 << 12
_U32, _U64 = np.uint32, np.uint64


class PartitionArgs(KernelArgs):
    """The arguments of `count_groups`, `find_offsets` and `partition`: the points by row, and by group."""

    WORDS = auto()  # grouped words of A (uint64): the group in the bits from SHIFT on
    OTHERS = auto()  # words of B (uint64)
    N = auto()
    SHIFT = auto()
    GROUPS = auto()
    PARTS = auto()
    COUNTS = auto()  # by part: the points of each group (uint32), then where its next point goes
    OFFSETS = auto()  # where each group begins (uint32), and the end
    A = auto()  # by group: words of A, words of B, rows (uint32)
    B = auto()
    ROWS = auto()


@inline
def _group(words: int, at: int, shift: Any) -> Any:
    return np.int64(load_as(words, at, _U64(0)) >> shift)


@share
def count_groups(given: int, part: int, parts: int) -> None:
    """Count the points of each group in one part of the rows."""
    words, n, groups = load(given, PartitionArgs.WORDS), load(given, PartitionArgs.N), load(given, PartitionArgs.GROUPS)
    shift, counts = _U64(load(given, PartitionArgs.SHIFT)), load(given, PartitionArgs.COUNTS) + 4 * groups * part
    for group in range(groups):
        store_as(counts, group, _U32(0))
    for i in range(n * part // parts, n * (part + 1) // parts):
        group = _group(words, i, shift)
        store_as(counts, group, _U32(load_id(counts, group) + 1))


@share
def find_offsets(given: int, part: int, parts: int) -> None:
    """Turn counts into offsets; one part."""
    groups, cuts = load(given, PartitionArgs.GROUPS), load(given, PartitionArgs.PARTS)
    counts, offsets = load(given, PartitionArgs.COUNTS), load(given, PartitionArgs.OFFSETS)
    at = 0
    for group in range(groups):
        store_as(offsets, group, _U32(at))
        for cut in range(cuts):
            count = load_id(counts, cut * groups + group)
            store_as(counts, cut * groups + group, _U32(at))
            at += count
    store_as(offsets, groups, _U32(at))


@share
def partition(given: int, part: int, parts: int) -> None:
    """Put the points of one part of the rows into their groups, in order of their rows."""
    words, others = load(given, PartitionArgs.WORDS), load(given, PartitionArgs.OTHERS)
    n, groups, shift = (
        load(given, PartitionArgs.N),
        load(given, PartitionArgs.GROUPS),
        _U64(load(given, PartitionArgs.SHIFT)),
    )
    nexts = load(given, PartitionArgs.COUNTS) + 4 * groups * part
    a, b, rows = load(given, PartitionArgs.A), load(given, PartitionArgs.B), load(given, PartitionArgs.ROWS)
    for i in range(n * part // parts, n * (part + 1) // parts):
        group = _group(words, i, shift)
        at = load_id(nexts, group)
        store_as(nexts, group, _U32(at + 1))
        store(a, at, load(words, i))
        store(b, at, load(others, i))
        store_as(rows, at, _U32(i))


class GroupArgs(KernelArgs):
    """The arguments of `measure`, `count_pairs` and `write_pairs`. Queries are by row; masks are in their order."""

    M = auto()
    A_LOW = auto()  # closed ranges of words (uint64)
    A_HIGH = auto()
    B_LOW = auto()
    B_HIGH = auto()
    LIVE = auto()
    SHIFT = auto()
    OFFSETS = auto()
    A = auto()
    B = auto()
    ROWS = auto()
    COUNTS = auto()  # by query
    MASKS = auto()  # 0 if only counts are wanted
    MASK_STARTS = auto()  # by part: its number of masks, then the number of its first one
    PAIR_STARTS = auto()  # the same of pairs
    FIRST = auto()  # the position of row 0 of the points
    OWN_FIRST = auto()  # the position of the first query
    PARTNERS = auto()
    OWN = auto()


@inline
def _is_empty(given: int, row: int) -> bool:
    """Whether a query can match nothing."""
    a_low, a_high = load(given, GroupArgs.A_LOW), load(given, GroupArgs.A_HIGH)
    b_low, b_high = load(given, GroupArgs.B_LOW), load(given, GroupArgs.B_HIGH)
    return (
        load_byte(load(given, GroupArgs.LIVE), row) == 0
        or load_as(a_low, row, _U64(0)) > load_as(a_high, row, _U64(0))
        or load_as(b_low, row, _U64(0)) > load_as(b_high, row, _U64(0))
    )


@inline
def _masks(size: int) -> int:
    return (size + MASK_LANES - 1) // MASK_LANES


@share
def measure(given: int, part: int, parts: int) -> None:
    """Count the masks of all queries of a part."""
    m, low = load(given, GroupArgs.M), load(given, GroupArgs.A_LOW)
    offsets, shift = load(given, GroupArgs.OFFSETS), _U64(load(given, GroupArgs.SHIFT))
    total = 0
    for row in range(m * part // parts, m * (part + 1) // parts):
        if not _is_empty(given, row):
            group = _group(low, row, shift)
            total += _masks(load_id(offsets, group + 1) - load_id(offsets, group))
    store(load(given, GroupArgs.MASK_STARTS), part, total)


@share
def count_pairs(given: int, part: int, parts: int) -> None:
    """Count the matches of each query of a part, and keep their masks if pairs are wanted."""
    m, offsets, shift = (
        load(given, GroupArgs.M),
        load(given, GroupArgs.OFFSETS),
        _U64(load(given, GroupArgs.SHIFT)),
    )
    a_low, a_high = load(given, GroupArgs.A_LOW), load(given, GroupArgs.A_HIGH)
    b_low, b_high = load(given, GroupArgs.B_LOW), load(given, GroupArgs.B_HIGH)
    a, b, counts = load(given, GroupArgs.A), load(given, GroupArgs.B), load(given, GroupArgs.COUNTS)
    masks = load(given, GroupArgs.MASKS)
    number, total = load(load(given, GroupArgs.MASK_STARTS), part), 0
    stop = m * (part + 1) // parts
    for row in range(m * part // parts, stop):
        if row + AHEAD < stop:
            prefetch(offsets + 4 * _group(a_low, row + AHEAD, shift))
        found = 0
        if not _is_empty(given, row):
            group = _group(a_low, row, shift)
            begin, end = load_id(offsets, group), load_id(offsets, group + 1)
            low, other_low = load(a_low, row), load(b_low, row)
            span, other_span = load(a_high, row) - low, load(b_high, row) - other_low
            for at in range(begin, end, MASK_LANES):
                mask = mask_within(a, at, low, span, _U64(0)) & mask_within(b, at, other_low, other_span, _U64(0))
                mask &= inside(at, begin, end)
                found += ones(mask)
                if masks:
                    store(masks, number, mask)
                    number += 1
        store(counts, row, found)
        total += found
    store(load(given, GroupArgs.PAIR_STARTS), part, total)


@share
def write_pairs(given: int, part: int, parts: int) -> None:
    """Write the pairs of a part from its masks."""
    m, offsets, shift = (
        load(given, GroupArgs.M),
        load(given, GroupArgs.OFFSETS),
        _U64(load(given, GroupArgs.SHIFT)),
    )
    low, rows = load(given, GroupArgs.A_LOW), load(given, GroupArgs.ROWS)
    masks, number = load(given, GroupArgs.MASKS), load(load(given, GroupArgs.MASK_STARTS), part)
    partners, own, out = (
        load(given, GroupArgs.PARTNERS),
        load(given, GroupArgs.OWN),
        load(load(given, GroupArgs.PAIR_STARTS), part),
    )
    first, own_first = load(given, GroupArgs.FIRST), load(given, GroupArgs.OWN_FIRST)
    for row in range(m * part // parts, m * (part + 1) // parts):
        if _is_empty(given, row):
            continue
        group = _group(low, row, shift)
        begin, end = load_id(offsets, group), load_id(offsets, group + 1)
        for at in range(begin, end, MASK_LANES):
            mask = load(masks, number)
            number += 1
            while mask:
                store(partners, out, first + load_id(rows, at + lowest_bit(mask)))
                store(own, out, own_first + row)
                out += 1
                mask &= mask - 1
