"""From what subwindows found to the partners of each new tuple, in order: the last part of every probe.

Subwindows answer sorted questions with *records*: which of some ids belong to each question. Here, on all threads, the
questions are first gone through as they are sorted, and their partners are collected side by side, oldest subwindow
first; then the tuples are gone through as they arrived, and each one's partners are put where they belong. A record of
a run that lies in this memory is made only now, a block of questions at a time, so that it never leaves the cache.
Most tuples have few partners, so four are copied and put in order at once, whether there are as many or not: a guess
about how many there are would be wrong half of the time. Where only counts are wanted, nothing is copied, and records
that need no check are not even looked into.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from millrace.host.base.types import Array
from millrace.host.join.contract import Matches
from millrace.host.join.panjoin.bisort_prober import BLOCK, seek, settle
from millrace.host.join.panjoin.short_matches import (
    CHECK,
    ENDS,
    FEW_SIZE,
    FIRST,
    IDS,
    INDEX,
    LINE,
    MOST,
    SIZE,
    STARTS,
    STEP,
    WORDS,
    gather_few,
    put_few,
    suits,
)
from millrace.host.join.panjoin.subwindow import PAD, Intervals, Questions, Records
from millrace.host.kernels.segments import sort_segment
from millrace.host.runtime.intrinsics import address, copy_ids, load_as, load_id, prefetch, size_of, store_as, touch
from millrace.host.runtime.jit import Share, inline, share
from millrace.host.runtime.result_memory import result_array
from millrace.host.runtime.team import Team

SLICE = 1 << 12
"""About how many questions or tuples one thread works on at a time, at least."""
PARTS = 8
"""In how many parts questions are collected at most: each needs room of its own."""
SPAN = 1 << 10
"""Questions whose partitions are looked up together."""
AHEAD = 12
"""How many tuples ahead memory is asked for."""
ROOMY = 4
"""Partners per question that there is room for at first; where that does not suffice, all is collected again."""
_MOST = np.int64((1 << 63) - 1)
# The arguments of the kernels.
_QUESTIONS, _RECORDS, _TABLE, _WHO, _SLOT, _BEGIN, _END, _STRIDE, _COUNTS, _PLACES, _SCRATCH, _TOTALS = range(12)
_TUPLES, _RANGES, _OUT, _NEWCOMERS, _OWN, _TUPLE_TOTALS, _LOW, _HIGH, _LOCAL, _LOCAL_SIZE, _AREAS = range(12, 23)
_ARGUMENTS = 23


@inline
def _reach(given: int, q: int) -> tuple[int, int]:
    """The first position that a question may meet, and how many from there on."""
    who = load_id(load_as(given, _WHO, 0), q) * load_as(given, _STRIDE, 0)
    begin, end = load_as(load_as(given, _BEGIN, 0), who, 0), load_as(load_as(given, _END, 0), who, 0)
    return begin, end - begin


@inline
def _within(position: int, begin: int, length: int) -> Any:
    return np.uint64(position - begin) < np.uint64(length)


@share
def _count(given: int, part: int, parts: int) -> None:
    """How many partners each question has."""
    questions, records, table = load_as(given, _QUESTIONS, 0), load_as(given, _RECORDS, 0), load_as(given, _TABLE, 0)
    counts, slots = load_as(given, _COUNTS, 0), load_as(given, _SLOT, 0)
    for q in range(questions * part // parts, questions * (part + 1) // parts):
        total = 0
        for k in range(records):
            line = table + 8 * LINE * k
            start = load_id(load_as(line, STARTS, 0), q)
            end = load_id(load_as(line, ENDS, 0), q)
            if load_as(line, CHECK, 0):
                begin, length = _reach(given, q)
                ids, begin = load_as(line, IDS, 0), begin - load_as(line, FIRST, 0)
                for i in range(start, end):
                    total += _within(load_id(ids, i), begin, length)
            else:
                total += end - start
        store_as(counts, load_id(slots, q), total)


# Collecting. A part's own memory begins with a pair of addresses per record: where starts and ends of the questions of
# the present span are. Then come those that are made here, `SPAN` of each for every record; then, for each question of
# a block, how many partners it has or where the next goes, and where the first one is; then a spare place; then the
# memory of a block whose questions have few partners each.


@inline
def _nexts(local: int, records: int) -> int:
    return local + (16 + 8 * SPAN) * records


@inline
def _open_span(given: int, first: int, count: int, local: int, like: Any) -> None:
    """Say where the records of a span of questions are, and look up the partitions of those to be made."""
    records, table, low = load_as(given, _RECORDS, 0), load_as(given, _TABLE, 0), load_as(given, _LOW, 0)
    for k in range(records):
        line = table + 8 * LINE * k
        if load_as(line, WORDS, 0):
            starts = local + 16 * records + 8 * SPAN * k
            store_as(local, 2 * k, starts)
            store_as(local, 2 * k + 1, starts + 4 * SPAN)
            n, step, index = load_as(line, SIZE, 0), load_as(line, STEP, 0), load_as(line, INDEX, 0)
            seek(n, step, index, low + first * size_of(like), count, starts, like)
        else:
            store_as(local, 2 * k, load_as(line, STARTS, 0) + 4 * first)
            store_as(local, 2 * k + 1, load_as(line, ENDS, 0) + 4 * first)


@inline
def _make_records(given: int, first: int, at: int, count: int, local: int, like: Any) -> int:
    """Make a block's records, and bring their ids near; how many those are."""
    records, table = load_as(given, _RECORDS, 0), load_as(given, _TABLE, 0)
    bounds = (first + at) * size_of(like)
    low, high = load_as(given, _LOW, 0) + bounds, load_as(given, _HIGH, 0) + bounds
    nexts, named = _nexts(local, records), 0
    for j in range(count):
        store_as(nexts, j, 0)
    for k in range(records):
        line = table + 8 * LINE * k
        starts, ends = load_as(local, 2 * k, 0) + 4 * at, load_as(local, 2 * k + 1, 0) + 4 * at
        words = load_as(line, WORDS, 0)
        if words:
            n, step, index = load_as(line, SIZE, 0), load_as(line, STEP, 0), load_as(line, INDEX, 0)
            settle(words, n, step, index, low, high, count, starts, ends, like)
        ids = load_as(line, IDS, 0)
        for j in range(count):
            start, end = load_id(starts, j), load_id(ends, j)
            # Records are often empty: their ids are not worth a cache line, so the first ones stand for them.
            touch(ids + 4 * start * (start < end))
        for j in range(count):
            found = load_id(ends, j) - load_id(starts, j)
            store_as(nexts, j, load_as(nexts, j, 0) + found)
            named += found
    return named


@inline
def _copy_checked(ids: int, start: int, end: int, first: int, begin: int, length: int, out: int, spare: int) -> int:
    """Copy the positions that are in reach, the others to a spare place; where the next one goes."""
    for i in range(start, start + PAD):
        position = load_id(ids, i) + first
        kept = (i < end) & _within(position, begin, length)
        store_as(out if kept else spare, 0, position)
        out += 8 * kept
    for i in range(start + PAD, end):
        position = load_id(ids, i) + first
        kept = _within(position, begin, length)
        store_as(out if kept else spare, 0, position)
        out += 8 * kept
    return out


@inline
def _copy(ids: int, start: int, end: int, first: int, out: int) -> int:
    """Copy positions; where the next one goes."""
    copy_ids(ids + 4 * start, first, out, end - start)
    for i in range(PAD, end - start):
        store_as(out, i, load_id(ids, start + i) + first)
    return out + 8 * (end - start)


@inline
def _copy_run(given: int, k: int, first: int, start_at: int, count: int, local: int) -> None:
    """Copy what a block of questions found in one run or the like, each behind what it has."""
    records, line = load_as(given, _RECORDS, 0), load_as(given, _TABLE, 0) + 8 * LINE * k
    starts, ends = load_as(local, 2 * k, 0) + 4 * start_at, load_as(local, 2 * k + 1, 0) + 4 * start_at
    nexts = _nexts(local, records)
    spare = nexts + 8 * 2 * BLOCK
    ids, base = load_as(line, IDS, 0), load_as(line, FIRST, 0)
    if load_as(line, CHECK, 0):
        for j in range(count):
            begin, length = _reach(given, first + start_at + j)
            start, end = load_id(starts, j), load_id(ends, j)
            start, end = start * (start < end), end * (start < end)
            out = _copy_checked(ids, start, end, base, begin, length, load_as(nexts, j, 0), spare)
            store_as(nexts, j, out)
    else:
        for j in range(count):
            start, end = load_id(starts, j), load_id(ends, j)
            start, end = start * (start < end), end * (start < end)
            store_as(nexts, j, _copy(ids, start, end, base, load_as(nexts, j, 0)))


@inline
def _collect_block(given: int, first: int, start_at: int, count: int, local: int, out: int, at: int) -> int:
    """Put the partners of a block of questions side by side, and note where each one's are; where the next go.

    One run after the other. What is out of reach leaves a gap.
    """
    records, slots = load_as(given, _RECORDS, 0), load_as(given, _SLOT, 0) + 4 * (first + start_at)
    nexts, places = _nexts(local, records), load_as(given, _PLACES, 0)
    for j in range(count):
        store_as(nexts, BLOCK + j, at)
        after = at + load_as(nexts, j, 0)
        store_as(nexts, j, out + 8 * at)
        at = after
    for k in range(records):
        _copy_run(given, k, first, start_at, count, local)
    for j in range(count):
        slot, begin = load_id(slots, j), load_as(nexts, BLOCK + j, 0)
        store_as(places, 2 * slot, begin)
        store_as(places, 2 * slot + 1, ((load_as(nexts, j, 0) - out) >> 3) - begin)
    return at


@inline
def _try_few(given: int, first: int, at: int, count: int, last: int, local: int, like: Any) -> int:
    """Gather the partners of a block of questions with few each; how many, or -1 where there are too many."""
    records, bounds = load_as(given, _RECORDS, 0), (first + at) * size_of(like)
    low, high = load_as(given, _LOW, 0) + bounds, load_as(given, _HIGH, 0) + bounds
    begin, end = load_as(load_as(given, _BEGIN, 0), 0, 0), load_as(load_as(given, _END, 0), 0, 0)
    own = _few(local, records)
    return gather_few(load_as(given, _TABLE, 0), records, local, at, low, high, count, last, begin, end, own, like)


@inline
def _few(local: int, records: int) -> int:
    return _nexts(local, records) + 8 * (2 * BLOCK + 1)


@inline
def _collect(given: int, part: int, parts: int, like: Any) -> None:
    """Put each question's partners side by side, as they come, while there is room; how much room they need."""
    questions, scratch = load_as(given, _QUESTIONS, 0), load_as(given, _SCRATCH, 0)
    local = load_as(given, _LOCAL, 0) + part * load_as(given, _LOCAL_SIZE, 0)
    areas, needed = load_as(given, _AREAS, 0), PAD
    at, limit = load_as(areas, part, 0), load_as(areas, part + 1, 0)
    stop = questions * (part + 1) // parts
    records, places = load_as(given, _RECORDS, 0), load_as(given, _PLACES, 0)
    few = suits(load_as(given, _TABLE, 0), records, load_as(given, _STRIDE, 0))
    # Where few partners are expected in vain, that is tried only now and then.
    hope = 1 if few else -questions
    for first in range(questions * part // parts, stop, SPAN):
        span = min(SPAN, stop - first)
        _open_span(given, first, span, local, like)
        for block in range(0, span, BLOCK):
            count, named = min(BLOCK, span - block), -1
            if (hope > 0) & (at + MOST * (count + 1) <= limit):
                named = _try_few(given, first, block, count, span - 1 - block, local, like)
                hope = min(hope + 1, 16) if named >= 0 else hope - 4
            else:
                hope += 1
            if named >= 0:
                slots = load_as(given, _SLOT, 0) + 4 * (first + block)
                at = put_few(slots, count, _few(local, records), scratch, at, places)
                needed += named
                continue
            named = _make_records(given, first, block, count, local, like)
            needed += named
            if at + named + PAD <= limit:
                at = _collect_block(given, first, block, count, local, scratch, at)
    store_as(load_as(given, _TOTALS, 0), part + 1, needed)


@share
def _collect_32(given: int, part: int, parts: int) -> None:
    _collect(given, part, parts, np.uint32(0))


@share
def _collect_64(given: int, part: int, parts: int) -> None:
    _collect(given, part, parts, np.uint64(0))


@share
def _tuple_totals(given: int, part: int, parts: int) -> None:
    """How many partners a slice of tuples has."""
    tuples, ranges, places = load_as(given, _TUPLES, 0), load_as(given, _RANGES, 0), load_as(given, _PLACES, 0)
    total = 0
    for k in range(ranges):
        for i in range(tuples * part // parts, tuples * (part + 1) // parts):
            total += load_as(places, 2 * (k * tuples + i) + 1, 0)
    store_as(load_as(given, _TUPLE_TOTALS, 0), part + 1, total)


@inline
def _move_few(scratch: int, place: int, count: int, out: int, at: int) -> None:
    """Copy up to four partners in ascending order; four places are written."""
    a, b = load_as(scratch, place, 0), load_as(scratch, place + 1, 0)
    c, d = load_as(scratch, place + 2, 0), load_as(scratch, place + 3, 0)
    # Whatever stands behind the partners goes to the end.
    b, c, d = b if count > 1 else _MOST, c if count > 2 else _MOST, d if count > 3 else _MOST
    a, b, c, d = min(a, b), max(a, b), min(c, d), max(c, d)
    a, c, b, d = min(a, c), max(a, c), min(b, d), max(b, d)
    store_as(out, at, a)
    store_as(out, at + 1, min(b, c))
    store_as(out, at + 2, max(b, c))
    store_as(out, at + 3, d)


@inline
def _move(scratch: int, place: int, count: int, out: int, at: int) -> None:
    """Copy partners."""
    for i in range(count):
        store_as(out, at + i, load_as(scratch, place + i, 0))


@inline
def _deliver_many(given: int, i: int, out: int, first: int) -> int:
    """Put the partners of all ranges of a tuple in their place, ascending; how many they are."""
    tuples, ranges, places = load_as(given, _TUPLES, 0), load_as(given, _RANGES, 0), load_as(given, _PLACES, 0)
    at = first
    for k in range(ranges):
        place, count = (load_as(places, 2 * (k * tuples + i), 0), load_as(places, 2 * (k * tuples + i) + 1, 0))
        _move(load_as(given, _SCRATCH, 0), place, count, out, at)
        at += count
    sort_segment(out + 8 * first, at - first)
    return at - first


@share
def _deliver(given: int, part: int, parts: int) -> None:
    """Put each tuple's partners in their place, ascending, and the tuple's own position beside each."""
    tuples, single = load_as(given, _TUPLES, 0), load_as(given, _RANGES, 0) == 1
    places, scratch, counts = load_as(given, _PLACES, 0), load_as(given, _SCRATCH, 0), load_as(given, _COUNTS, 0)
    out, newcomers, own = load_as(given, _OUT, 0), load_as(given, _NEWCOMERS, 0), load_as(given, _OWN, 0)
    totals = load_as(given, _TUPLE_TOTALS, 0)
    at, limit = load_as(totals, part, 0), load_as(totals, part + 1, 0)
    stop = tuples * (part + 1) // parts
    for i in range(tuples * part // parts, stop):
        prefetch(scratch + 8 * load_as(places, 2 * min(i + AHEAD, stop - 1), 0))
        count = load_as(places, 2 * i + 1, 0)
        if single & (count <= PAD) & (at + PAD <= limit):
            _move_few(scratch, load_as(places, 2 * i, 0), count, out, at)
            for k in range(PAD):
                store_as(newcomers, at + k, own + i)
        else:
            count = _deliver_many(given, i, out, at)
            for k in range(count):
                store_as(newcomers, at + k, own + i)
        store_as(counts, i, count)
        at += count


def count_partners(n: int, asked: Questions, records: Sequence[Records], reach: Intervals, team: Team) -> Matches:
    """How many partners each of `n` tuples has."""
    slots = n * asked.ranges
    counts = np.empty(slots, np.int64) if len(asked) == slots else np.zeros(slots, np.int64)
    job = _Job(n, asked, records, reach, team, counts)
    job.run(_count, _slices(len(asked)))
    return Matches(counts if asked.ranges == 1 else counts.reshape(asked.ranges, n).sum(axis=0), None)


def find_partners(
    n: int, asked: Questions, records: Sequence[Records], reach: Intervals, own: int, team: Team
) -> Matches:
    """The partners of each of `n` tuples, whose own positions begin at `own`."""
    counts = result_array(n, np.int64)
    job = _Job(n, asked, records, reach, team, counts, want=True)
    job.lend(_PLACES, 2 * n * asked.ranges)
    if len(asked) < n * asked.ranges:
        job.lent[_PLACES][:] = 0  # tuples that ask nothing have no partners
    job.collect()
    ends = job.run(_tuple_totals, _slices(n), _TUPLE_TOTALS)
    total = int(ends[-1])
    out, newcomers = result_array(total, np.int64), result_array(total, np.int64)
    job.given[_OUT], job.given[_NEWCOMERS], job.given[_OWN] = address(out), address(newcomers), own
    job.run(_deliver, len(ends) - 1)
    job.close()
    return Matches(counts, out, newcomers)


def _slices(size: int) -> int:
    return max(-(-size // SLICE), 1)


class _Job:
    """The kernels' arguments, and the arrays that they are addresses of."""

    def __init__(
        self,
        n: int,
        asked: Questions,
        records: Sequence[Records],
        reach: Intervals,
        team: Team,
        counts: Array,
        want: bool = False,
    ) -> None:
        self._team, self._asked = team, asked
        self.lent: dict[int, Array] = {}
        self._kept: list[Array] = []
        lines = [self._line(one, want) for one in records]
        self._table = np.array(lines, np.int64)
        self.given = np.zeros(_ARGUMENTS, np.int64)
        self.given[:_PLACES] = (
            *(len(asked), len(records), address(self._table), address(asked.who), address(asked.slot)),
            *(address(reach.begin), address(reach.end), reach.stride, address(counts)),
        )
        self.given[_TUPLES], self.given[_RANGES] = n, asked.ranges

    def _line(self, one: Records, want: bool) -> tuple[int, ...]:
        """A record's line of the table."""
        ids = 0
        if want or one.check:
            array = one.ids()
            self._kept.append(array)
            ids = address(array)
        if one.run is not None:
            run = one.run
            return 0, 0, ids, one.first, one.check, address(run.words), run.size, run.step, address(run.index)
        return address(one.starts), address(one.ends), ids, one.first, one.check, 0, 0, 0, 0

    def lend(self, argument: int, size: int) -> None:
        """An array of int64 of the arena as an argument."""
        if argument in self.lent:
            self._team.arena.give(self.lent[argument])
        self.lent[argument] = self._team.arena.take(size, np.int64)
        self.given[argument] = address(self.lent[argument])

    def collect(self) -> None:
        """Collect the partners, once more where there was not room enough."""
        asked, given = self._asked, self.given
        parts = min(_slices(len(asked)), PARTS)
        local = len(self._table) * (2 + SPAN) + 2 * BLOCK + 1 + FEW_SIZE // 8
        self.lend(_LOCAL, parts * local)
        given[_LOCAL_SIZE], given[_LOW], given[_HIGH] = 8 * local, address(asked.low), address(asked.high)
        kernel = _collect_64 if asked.low.dtype == np.uint64 else _collect_32
        areas = np.arange(parts + 1) * (ROOMY * (len(asked) // parts + 1) + PAD)
        while True:
            self.lend(_SCRATCH, int(areas[-1]) + PAD)
            given[_AREAS] = address(areas)
            needed = self.run(kernel, parts, _TOTALS)
            if (np.diff(needed) <= np.diff(areas)).all():
                return
            areas = needed

    def run(self, kernel: Share, parts: int, totals: int | None = None) -> Array:
        """Run a kernel in parts; with `totals`, the sums of its parts before each part and in all."""
        sums = np.zeros(parts + 1, np.int64)
        if totals is not None:
            self._kept.append(sums)
            self.given[totals] = address(sums)
        self._team.run(kernel, self.given, parts)
        return np.cumsum(sums, out=sums)

    def close(self) -> None:
        """Give the arrays back."""
        for array in self.lent.values():
            self._team.arena.give(array)
