"""Collects the partners of a block of probes with few partners each, the usual case: a part of `match_collector.py`.

One comparison of two cache lines with both bounds of a range gives a bit mask of the partners. The partners of a probe
gather in a small slot of its own, so their number need not be known in advance. If a probe has more than `MAX_MATCHES`
partners, or a range leaves the two lines, the general code in `match_collector_kernel.py` processes the block.
"""

from __future__ import annotations

from enum import auto
from typing import Any

import numpy as np

from millrace.host.join.panjoin.bisort_prober import BLOCK, fetch
from millrace.host.runtime.intrinsics import (
    LANES,
    inside,
    load,
    load_as,
    load_id,
    lowest_bit,
    move_line,
    ones,
    prefetch_far,
    size_of,
    store_as,
    widen_ids,
)
from millrace.host.runtime.jit import inline
from millrace.host.runtime.kernel_args import KernelArgs


class Source(KernelArgs):
    """A line of the table of sources: one `MatchRanges`."""

    STARTS = auto()
    ENDS = auto()
    IDS = auto()
    FIRST = auto()
    CHECK = auto()
    WORDS = auto()
    SIZE = auto()
    STEP = auto()
    INDEX = auto()


MAX_MATCHES = 8
"""The maximum number of partners of a probe in this code path."""
SLOT = MAX_MATCHES + 4
"""Size of a probe's slot: four values are written at a time."""
SHORT_SIZE = 8 * BLOCK * SLOT + 3 * 4 * BLOCK
"""Bytes of a block's memory: the slots; the number of partners in each; offset and number of partners in a run."""
_U32 = np.uint32
_COUNTS, _OFFSETS, _FOUND = 8 * BLOCK * SLOT, 8 * BLOCK * SLOT + 4 * BLOCK, 8 * BLOCK * SLOT + 8 * BLOCK


SOURCE_SIZE = len(Source)


@inline
def applies(table: int, sources: int, stride: int) -> Any:
    """Whether this code path applies: all sources are runs in host memory, and all probes have the same interval."""
    fits = stride == 0
    for k in range(sources):
        line = table + 8 * SOURCE_SIZE * k
        step = load(line, Source.STEP)
        fits &= (load(line, Source.WORDS) != 0) & ((step == 1) | (step == LANES))
    return fits


@inline
def _continues(index: int, line: int, high: Any, like: Any) -> Any:
    """Whether a range continues into a line of words, by the line's first word, which is a sample of the index."""
    return load_as(index, line, like) <= high


@inline
def _prefetch_next(line: int, partitions: int, high: int, last: int, like: Any) -> None:
    """Prefetch what the next block reads. `last` is the number of the last probe whose partition is known."""
    words, index, ids = load(line, Source.WORDS), load(line, Source.INDEX), load(line, Source.IDS)
    for j in range(BLOCK, min(2 * BLOCK, last + 1)):
        after = max(load_id(partitions, j), 1)
        second = after - 1 + _continues(index, after, load_as(high, j, like), like)
        prefetch_far(words + (after - 1) * LANES * size_of(like))
        prefetch_far(words + second * LANES * size_of(like))
        prefetch_far(ids + 4 * (after * LANES - 1))


@inline
def _find(line: int, partitions: int, low: int, high: int, count: int, own: int, dense: Any, like: Any) -> int:
    """Find offset and number of a block's partners in a run. Returns their total, or -1 if a probe has too many.

    Reads the second line only if the range continues there, which it rarely does.
    """
    words, n, index = load(line, Source.WORDS), load(line, Source.SIZE), load(line, Source.INDEX)
    total, wide = 0, 0
    for j in range(count):
        lowest, highest = load_as(low, j, like), load_as(high, j, like)
        if dense:
            base, more = load_id(partitions, j), 1
        else:
            after = max(load_id(partitions, j), 1)
            base, more = (after - 1) * LANES, int(_continues(index, after, highest, like))
        found = inside(words + base * size_of(like), lowest, highest)
        found |= (inside(words + (base + LANES * more) * size_of(like), lowest, highest) & -more) << LANES
        found &= (1 << min(n - base, 2 * LANES)) - 1
        number = ones(found)
        wide |= (load_id(own + _COUNTS, j) + number > MAX_MATCHES) | (found >> (2 * LANES - 1))
        store_as(own + _OFFSETS, j, _U32(base + (lowest_bit(found | (1 << 2 * LANES)) & (2 * LANES - 1))))
        store_as(own + _FOUND, j, _U32(number))
        total += number
    return -1 if wide else total


@inline
def _copy(ids: int, first: int, count: int, own: int) -> None:
    """Append a run's partners to those in the slots."""
    for j in range(count):
        offset, number, held = load_id(own + _OFFSETS, j), load_id(own + _FOUND, j), load_id(own + _COUNTS, j)
        to = own + 8 * (SLOT * j + held)
        widen_ids(ids + 4 * offset, first, to)
        if number > 4:
            widen_ids(ids + 4 * (offset + 4), first, to + 32)
        store_as(own + _COUNTS, j, _U32(held + number))


@inline
def _copy_checked(ids: int, first: int, begin: int, length: int, count: int, own: int) -> None:
    """The same for visible partners only."""
    for j in range(count):
        offset, number, held = load_id(own + _OFFSETS, j), load_id(own + _FOUND, j), load_id(own + _COUNTS, j)
        slot = own + 8 * SLOT * j
        for i in range(4):
            position = load_id(ids, offset + i) + first
            store_as(slot, held, position)
            held += int((i < number) & (np.uint64(position - begin) < np.uint64(length)))
        for i in range(4, number):
            position = load_id(ids, offset + i) + first
            store_as(slot, held, position)
            held += int(np.uint64(position - begin) < np.uint64(length))
        store_as(own + _COUNTS, j, _U32(held))


@inline
def gather_short(
    table: int,
    sources: int,
    local: int,
    at: int,
    low: int,
    high: int,
    count: int,
    last: int,
    begin: int,
    end: int,
    own: int,
    like: Any,
) -> int:
    """Gather a block's partners in its slots, oldest run first. Returns their number, or -1 if there are too many."""
    named = 0
    for j in range(count):
        store_as(own + _COUNTS, j, _U32(0))
    for k in range(sources):
        line = table + 8 * SOURCE_SIZE * k
        partitions, ids, first = load_as(local, 2 * k, 0) + 4 * at, load(line, Source.IDS), load(line, Source.FIRST)
        if load(line, Source.STEP) == 1:
            total = _find(line, partitions, low, high, count, own, True, like)
        else:
            if at == 0:
                fetch(load(line, Source.WORDS), load(line, Source.SIZE), LANES, partitions, count, like)
            _prefetch_next(line, partitions, high, last, like)
            total = _find(line, partitions, low, high, count, own, False, like)
        if total < 0:
            return -1
        named += total
        if load(line, Source.CHECK):
            _copy_checked(ids, first, begin, end - begin, count, own)
        else:
            _copy(ids, first, count, own)
    return named


@inline
def put_short(slots: int, count: int, own: int, out: int, at: int, segments: int) -> int:
    """Store the gathered partners side by side, and where each probe's are. Returns the next offset.

    Writes up to `MAX_MATCHES` values after the last partner.
    """
    for j in range(count):
        held, slot = load_id(own + _COUNTS, j), load_id(slots, j)
        move_line(own + 8 * SLOT * j, out + 8 * at)
        store_as(segments, 2 * slot, at)
        store_as(segments, 2 * slot + 1, held)
        at += held
    return at
