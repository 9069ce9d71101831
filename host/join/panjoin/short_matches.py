"""Collects the partners of a block of questions that have few each, which most do: a part of `match_collector.py`.

Ranges of few words are found by one comparison of two cache lines with both ends, whose bits say where partners are and
how many; a question's partners gather in a small slot of its own, so nobody need know beforehand how many will come.
Where a question has more than `MOST`, or a range leaves the two lines, the block is left to the code for any number.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from millrace.host.join.panjoin.bisort_prober import BLOCK, fetch
from millrace.host.runtime.intrinsics import (
    LANES,
    bits,
    inside,
    load_as,
    load_id,
    lowest_bit,
    move_line,
    prefetch_far,
    size_of,
    store_as,
    widen_ids,
)
from millrace.host.runtime.jit import inline

# A line of the table of records.
STARTS, ENDS, IDS, FIRST, CHECK, WORDS, SIZE, STEP, INDEX, LINE = range(10)
MOST = 8
"""Partners that a question may have here."""
SLOT = MOST + 4
"""Places of a question's slot: four are written at a time."""
FEW_SIZE = 8 * BLOCK * SLOT + 3 * 4 * BLOCK
"""Bytes of a block's own memory: the slots; how many are in each; where a run's partners are, and how many."""
_U32 = np.uint32
_COUNTS, _PLACES, _FOUND = 8 * BLOCK * SLOT, 8 * BLOCK * SLOT + 4 * BLOCK, 8 * BLOCK * SLOT + 8 * BLOCK


@inline
def suits(table: int, records: int, stride: int) -> Any:
    """Whether all records are runs to be searched here, and all questions have the same reach."""
    fits = stride == 0
    for k in range(records):
        line = table + 8 * LINE * k
        step = load_as(line, STEP, 0)
        fits &= (load_as(line, WORDS, 0) != 0) & ((step == 1) | (step == LANES))
    return fits


@inline
def _goes_on(index: int, line: int, high: Any, like: Any) -> Any:
    """Whether a range reaches into a line of words: what its first word, a sample, says."""
    return load_as(index, line, like) <= high


@inline
def _ask_ahead(line: int, partitions: int, high: int, last: int, like: Any) -> None:
    """Ask memory for what the next block will read, of which the `last` question is known."""
    words, index, ids = load_as(line, WORDS, 0), load_as(line, INDEX, 0), load_as(line, IDS, 0)
    for j in range(BLOCK, min(2 * BLOCK, last + 1)):
        after = max(load_id(partitions, j), 1)
        second = after - 1 + _goes_on(index, after, load_as(high, j, like), like)
        prefetch_far(words + (after - 1) * LANES * size_of(like))
        prefetch_far(words + second * LANES * size_of(like))
        prefetch_far(ids + 4 * (after * LANES - 1))


@inline
def _find(line: int, partitions: int, low: int, high: int, count: int, own: int, dense: Any, like: Any) -> int:
    """Where a block's partners are in a run, and how many; all of them, or -1 where some question has too many.

    The second line is read only where the range goes on there: as a rule it does not, and each line read is time.
    """
    words, n, index = load_as(line, WORDS, 0), load_as(line, SIZE, 0), load_as(line, INDEX, 0)
    total, wide = 0, 0
    for j in range(count):
        least, most = load_as(low, j, like), load_as(high, j, like)
        if dense:
            base, more = load_id(partitions, j), 1
        else:
            after = max(load_id(partitions, j), 1)
            base, more = (after - 1) * LANES, int(_goes_on(index, after, most, like))
        found = inside(words + base * size_of(like), least, most)
        found |= (inside(words + (base + LANES * more) * size_of(like), least, most) & -more) << LANES
        found &= (1 << min(n - base, 2 * LANES)) - 1
        number = bits(found)
        wide |= (load_id(own + _COUNTS, j) + number > MOST) | (found >> (2 * LANES - 1))
        store_as(own + _PLACES, j, _U32(base + (lowest_bit(found | (1 << 2 * LANES)) & (2 * LANES - 1))))
        store_as(own + _FOUND, j, _U32(number))
        total += number
    return -1 if wide else total


@inline
def _copy(ids: int, first: int, count: int, own: int) -> None:
    """Put a run's partners behind those that are in the slots."""
    for j in range(count):
        place, number, held = load_id(own + _PLACES, j), load_id(own + _FOUND, j), load_id(own + _COUNTS, j)
        to = own + 8 * (SLOT * j + held)
        widen_ids(ids + 4 * place, first, to)
        if number > 4:
            widen_ids(ids + 4 * (place + 4), first, to + 32)
        store_as(own + _COUNTS, j, _U32(held + number))


@inline
def _copy_checked(ids: int, first: int, begin: int, length: int, count: int, own: int) -> None:
    """The same of those in reach."""
    for j in range(count):
        place, number, held = load_id(own + _PLACES, j), load_id(own + _FOUND, j), load_id(own + _COUNTS, j)
        slot = own + 8 * SLOT * j
        for i in range(4):
            position = load_id(ids, place + i) + first
            store_as(slot, held, position)
            held += int((i < number) & (np.uint64(position - begin) < np.uint64(length)))
        for i in range(4, number):
            position = load_id(ids, place + i) + first
            store_as(slot, held, position)
            held += int(np.uint64(position - begin) < np.uint64(length))
        store_as(own + _COUNTS, j, _U32(held))


@inline
def gather_few(
    table: int,
    records: int,
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
    """Gather a block's partners in its slots, oldest run first; how many were found, or -1 where there are too many."""
    named = 0
    for j in range(count):
        store_as(own + _COUNTS, j, _U32(0))
    for k in range(records):
        line = table + 8 * LINE * k
        partitions, ids, first = load_as(local, 2 * k, 0) + 4 * at, load_as(line, IDS, 0), load_as(line, FIRST, 0)
        if load_as(line, STEP, 0) == 1:
            total = _find(line, partitions, low, high, count, own, True, like)
        else:
            if at == 0:
                fetch(load_as(line, WORDS, 0), load_as(line, SIZE, 0), LANES, partitions, count, like)
            _ask_ahead(line, partitions, high, last, like)
            total = _find(line, partitions, low, high, count, own, False, like)
        if total < 0:
            return -1
        named += total
        if load_as(line, CHECK, 0):
            _copy_checked(ids, first, begin, end - begin, count, own)
        else:
            _copy(ids, first, count, own)
    return named


@inline
def put_few(slots: int, count: int, own: int, out: int, at: int, places: int) -> int:
    """Put the gathered partners side by side, and note where each question's are; where the next go.

    Up to `MOST` places behind the last partner are written.
    """
    for j in range(count):
        held, slot = load_id(own + _COUNTS, j), load_id(slots, j)
        move_line(own + 8 * SLOT * j, out + 8 * at)
        store_as(places, 2 * slot, at)
        store_as(places, 2 * slot + 1, held)
        at += held
    return at
