"""Collects the partners of a block of probes with few partners each, the usual case: a part of `match_collector.py`.

One comparison of two cache lines with both bounds of a range gives a bit mask of the partners. First all runs are
searched, and the ids that a probe needs are prefetched; then the ids are copied to a slot of each probe. The slot is
sorted into the *cell* of its tuple, which the delivery reads in order of arrival. If a probe has more than `MAX_HELD`
candidates, or a range leaves the two lines, the general code in `match_collector_kernel.py` processes the block.
"""

from __future__ import annotations

from enum import auto
from typing import Any

import numpy as np

from millrace.host.join.panjoin.bisort_prober import BLOCK, fetch
from millrace.host.runtime.cell_intrinsics import CELL, put_cell, shift_ids
from millrace.host.runtime.intrinsics import (
    LANES,
    inside,
    leading_upto,
    load,
    load_as,
    load_id,
    lowest_bit,
    ones,
    prefetch,
    prefetch_far,
    size_of,
    store_as,
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


SOURCE_SIZE = len(Source)
MAX_HELD = 12
"""The maximum number of candidates of a probe in this code path, those that are not visible included."""
SLOT = 4 * (MAX_HELD + 4)
"""Bytes of a probe's slot, a cache line: four ids are written at a time."""
CELL_BYTES = 4 * CELL
LONG_CELL = 0xFFFFFFFF
"""The first 64 bits of a cell whose tuple has its partners elsewhere: no sorted cell begins with them."""
_U32 = np.uint32
_HELD = SLOT * BLOCK
_FOUND = _HELD + 4 * BLOCK


def short_size(sources: int) -> int:
    """Bytes of a block's memory: the slots; the candidates of each probe; for each source what a probe has found."""
    return _FOUND + 8 * BLOCK * sources


@inline
def _continues(index: int, line: int, high: Any, like: Any) -> Any:
    """Whether a range continues into a line of words, by the line's first word, which is a sample of the index."""
    return load_as(index, line, like) <= high


@inline
def _prefetch_next(line: int, partitions: int, high: int, last: int, like: Any) -> None:
    """Prefetch the words of the next block. `last` is the number of the last probe whose partition is known."""
    words, index = load(line, Source.WORDS), load(line, Source.INDEX)
    for j in range(BLOCK, min(2 * BLOCK, last + 1)):
        after = max(load_id(partitions, j), 1)
        second = after - 1 + _continues(index, after, load_as(high, j, like), like)
        prefetch_far(words + (after - 1) * LANES * size_of(like))
        prefetch_far(words + second * LANES * size_of(like))


@inline
def _find(line: int, partitions: int, low: int, high: int, count: int, k: int, own: int, dense: Any, like: Any) -> int:
    """Find a block's candidates in a run, and prefetch their ids. Returns 0 unless a probe has too many.

    Reads the second line only if the range continues there, which it rarely does. What a probe has found is one word:
    offset, number, and how many candidates it had before.
    """
    words, n, index = load(line, Source.WORDS), load(line, Source.SIZE), load(line, Source.INDEX)
    ids, all_held, all_found, wide = load(line, Source.IDS), own + _HELD, own + _FOUND + 8 * BLOCK * k, 0
    for j in range(count):
        lowest, highest = load_as(low, j, like), load_as(high, j, like)
        if dense:
            # The words are their own index, so the range begins here.
            offset = load_id(partitions, j)
            number = min(leading_upto(words + offset * size_of(like), highest), n - offset)
            wide |= number >> 3
        else:
            after = max(load_id(partitions, j), 1)
            base, more = (after - 1) * LANES, int(_continues(index, after, highest, like))
            found = inside(words + base * size_of(like), lowest, highest)
            found |= (inside(words + (base + LANES * more) * size_of(like), lowest, highest) & -more) << LANES
            found &= (1 << min(n - base, 2 * LANES)) - 1
            number = ones(found)
            wide |= found >> (2 * LANES - 1)
            offset = base + (lowest_bit(found | (1 << 2 * LANES)) & (2 * LANES - 1))
        offset *= int(number > 0)
        prefetch(ids + 4 * offset)
        held = load_id(all_held, j)
        store_as(all_found, j, (offset << 8) | (number << 4) | held)
        wide |= int(held + number > MAX_HELD)
        store_as(all_held, j, _U32(held + number))
    return wide


@inline
def _copy(ids: int, base: int, count: int, k: int, own: int) -> None:
    """Append a run's candidates to those in the slots."""
    all_found = own + _FOUND + 8 * BLOCK * k
    for j in range(count):
        found = load(all_found, j)
        offset, number, held = found >> 8, (found >> 4) & 15, found & 15
        to = own + SLOT * j + 4 * held
        shift_ids(ids + 4 * offset, base, to)
        if number > 4:
            shift_ids(ids + 4 * (offset + 4), base, to + 16)
        if number > 8:  # up to MAX_HELD
            shift_ids(ids + 4 * (offset + 8), base, to + 32)


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
    own: int,
    like: Any,
) -> int:
    """Gather a block's candidates in its slots, oldest run first. Returns 0 unless a probe has too many.

    Ids in the slots count from position `begin`, modulo 2^32.
    """
    for j in range(count):
        store_as(own + _HELD, j, _U32(0))
    for k in range(sources):
        line = table + 8 * SOURCE_SIZE * k
        partitions = load_as(local, 2 * k, 0) + 4 * at
        if load(line, Source.STEP) == 1:
            wide = _find(line, partitions, low, high, count, k, own, True, like)
        else:
            if at == 0:
                fetch(load(line, Source.WORDS), load(line, Source.SIZE), LANES, partitions, count, like)
            _prefetch_next(line, partitions, high, last, like)
            wide = _find(line, partitions, low, high, count, k, own, False, like)
        if wide:
            return wide
    for k in range(sources):
        line = table + 8 * SOURCE_SIZE * k
        _copy(load(line, Source.IDS), load(line, Source.FIRST) - begin, count, k, own)
    return 0


@inline
def put_short(j: int, length: int, own: int, cell: int) -> int:
    """Write a probe's partners to the cell of its tuple. Returns their number, or -1 if it has too many candidates."""
    held = load_id(own + _HELD, j)
    return put_cell(own + SLOT * j, held, length, cell) if held <= CELL else -1


@inline
def put_long(j: int, begin: int, length: int, own: int, out: int, at: int) -> int:
    """Write a probe's partners to `out`, from element `at` on. Returns their number; one more may be written."""
    number = 0
    for i in range(load_id(own + _HELD, j)):
        value = load_id(own + SLOT * j, i)
        store_as(out, at + number, value + begin)
        number += int(value < length)
    return number
