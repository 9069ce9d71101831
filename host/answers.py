"""From what subwindows found to the partners of each new tuple, in order: the last part of every probe.

Subwindows answer sorted questions with *records*: which of some ids belong to each question. Here, on all threads, the
questions are first gone through as they are sorted, and their partners are collected side by side, oldest subwindow
first; then the tuples are gone through as they arrived, and each one's partners are put where they belong. Most tuples
have few partners, so four are copied at once, whether there are as many or not: a guess about how many there are would
be wrong half of the time. Where only counts are wanted, nothing is copied, and records that need no check are not even
looked into.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from millrace.host.indexes import Matches, Positions
from millrace.host.jit import Share, inline, share
from millrace.host.memory import address, load_as, load_id, prefetch, store_as
from millrace.host.segments import sort_segment
from millrace.host.subwindow import PAD, Intervals, Questions, Records
from millrace.host.team import Team
from millrace.host.words import Array

SLICE = 1 << 12
"""About how many questions or tuples one thread works on at a time."""
AHEAD = 12
"""How many questions or tuples ahead memory is asked for."""
_U32 = np.uint32
# A line of the table of records.
_STARTS, _ENDS, _IDS, _FIRST, _CHECK, _LINE = range(6)
# The arguments of the kernels.
_QUESTIONS, _RECORDS, _TABLE, _WHO, _SLOT, _BEGIN, _END, _STRIDE, _COUNTS, _PLACES, _SCRATCH, _TOTALS = range(12)
_TUPLES, _RANGES, _OUT, _NEWCOMERS, _OWN, _TUPLE_TOTALS, _ARGUMENTS = range(12, 19)


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
            line = table + 8 * _LINE * k
            start = load_id(load_as(line, _STARTS, 0), q)
            end = load_id(load_as(line, _ENDS, 0), q)
            if load_as(line, _CHECK, 0):
                begin, length = _reach(given, q)
                ids, begin = load_as(line, _IDS, 0), begin - load_as(line, _FIRST, 0)
                for i in range(start, end):
                    total += _within(load_id(ids, i), begin, length)
            else:
                total += end - start
        store_as(counts, load_id(slots, q), total)


@share
def _candidates(given: int, part: int, parts: int) -> None:
    """How many ids the records of a slice of questions name: what there must be room for."""
    questions, records, table = load_as(given, _QUESTIONS, 0), load_as(given, _RECORDS, 0), load_as(given, _TABLE, 0)
    total = 0
    for k in range(records):
        starts, ends = load_as(table, _LINE * k + _STARTS, 0), load_as(table, _LINE * k + _ENDS, 0)
        for q in range(questions * part // parts, questions * (part + 1) // parts):
            total += load_id(ends, q) - load_id(starts, q)
    store_as(load_as(given, _TOTALS, 0), part + 1, total + PAD)


@inline
def _copy_checked(ids: int, start: int, end: int, first: int, begin: int, length: int, out: int, at: int) -> int:
    """Copy the positions that are in reach; where the next one goes."""
    for i in range(start, end):
        position = load_id(ids, i) + first
        store_as(out, at, position)
        at += _within(position, begin, length)
    return at


@inline
def _copy(ids: int, start: int, end: int, first: int, out: int, at: int) -> int:
    """Copy positions; where the next one goes."""
    for i in range(PAD):
        store_as(out, at + i, load_id(ids, start + i) + first)
    for i in range(PAD, end - start):
        store_as(out, at + i, load_id(ids, start + i) + first)
    return at + end - start


@share
def _collect(given: int, part: int, parts: int) -> None:
    """Put each question's partners side by side, as they come."""
    questions, records, table = load_as(given, _QUESTIONS, 0), load_as(given, _RECORDS, 0), load_as(given, _TABLE, 0)
    counts, places, slots = load_as(given, _COUNTS, 0), load_as(given, _PLACES, 0), load_as(given, _SLOT, 0)
    scratch, at = load_as(given, _SCRATCH, 0), load_as(load_as(given, _TOTALS, 0), part, 0)
    stop = questions * (part + 1) // parts
    for q in range(questions * part // parts, stop):
        later = min(q + AHEAD, stop - 1)
        begin_at = at
        for k in range(records):
            line = table + 8 * _LINE * k
            starts, ids = load_as(line, _STARTS, 0), load_as(line, _IDS, 0)
            ends = load_as(line, _ENDS, 0)
            start, end = load_id(starts, q), load_id(ends, q)
            soon = load_id(starts, later)
            # Records are often empty: their ids are not worth a cache line, so the first ones stand for them.
            prefetch(ids + 4 * soon * (soon < load_id(ends, later)))
            start, end = start * (start < end), end * (start < end)
            if load_as(line, _CHECK, 0):
                begin, length = _reach(given, q)
                at = _copy_checked(ids, start, end, load_as(line, _FIRST, 0), begin, length, scratch, at)
            else:
                at = _copy(ids, start, end, load_as(line, _FIRST, 0), scratch, at)
        slot = load_id(slots, q)
        store_as(counts, slot, at - begin_at)
        store_as(places, slot, begin_at)


@share
def _tuple_totals(given: int, part: int, parts: int) -> None:
    """How many partners a slice of tuples has."""
    tuples, ranges, counts = load_as(given, _TUPLES, 0), load_as(given, _RANGES, 0), load_as(given, _COUNTS, 0)
    total = 0
    for k in range(ranges):
        for i in range(tuples * part // parts, tuples * (part + 1) // parts):
            total += load_as(counts, k * tuples + i, 0)
    store_as(load_as(given, _TUPLE_TOTALS, 0), part + 1, total)


@inline
def _move(scratch: int, place: int, count: int, out: int, at: int, room: int) -> None:
    """Copy a tuple's partners; `room` places may be written."""
    if room >= PAD:
        for i in range(PAD):
            store_as(out, at + i, load_as(scratch, place + i, 0))
        for i in range(PAD, count):
            store_as(out, at + i, load_as(scratch, place + i, 0))
    else:
        for i in range(count):
            store_as(out, at + i, load_as(scratch, place + i, 0))


@inline
def _name(newcomers: int, who: int, count: int, at: int, room: int) -> None:
    """Write a tuple's own position beside each partner."""
    if room >= PAD:
        for i in range(PAD):
            store_as(newcomers, at + i, who)
        for i in range(PAD, count):
            store_as(newcomers, at + i, who)
    else:
        for i in range(count):
            store_as(newcomers, at + i, who)


@share
def _deliver(given: int, part: int, parts: int) -> None:
    """Put each tuple's partners in their place, ascending."""
    tuples, ranges, counts = load_as(given, _TUPLES, 0), load_as(given, _RANGES, 0), load_as(given, _COUNTS, 0)
    places, scratch = load_as(given, _PLACES, 0), load_as(given, _SCRATCH, 0)
    out, newcomers, own = load_as(given, _OUT, 0), load_as(given, _NEWCOMERS, 0), load_as(given, _OWN, 0)
    totals = load_as(given, _TUPLE_TOTALS, 0)
    at, limit = load_as(totals, part, 0), load_as(totals, part + 1, 0)
    stop = tuples * (part + 1) // parts
    for i in range(tuples * part // parts, stop):
        prefetch(scratch + 8 * load_as(places, min(i + AHEAD, stop - 1), 0))
        first = at
        for k in range(ranges):
            count = load_as(counts, k * tuples + i, 0)
            _move(scratch, load_as(places, k * tuples + i, 0), count, out, at, limit - at)
            at += count
        _name(newcomers, own + i, at - first, first, limit - first)
        if at - first == 2:
            a, b = load_as(out, first, 0), load_as(out, first + 1, 0)
            store_as(out, first, min(a, b))
            store_as(out, first + 1, max(a, b))
        elif at - first > 2:
            sort_segment(out + 8 * first, at - first)


def count_partners(n: int, asked: Questions, records: Sequence[Records], reach: Intervals, team: Team) -> Matches:
    """How many partners each of `n` tuples has."""
    job = _Job(n, asked, records, reach, team, want=False)
    job.run(_count, len(asked))
    return Matches(job.counts_per_tuple(), None)


def find_partners(
    n: int, asked: Questions, records: Sequence[Records], reach: Intervals, own: int, team: Team
) -> Matches:
    """The partners of each of `n` tuples, whose own positions begin at `own`."""
    job = _Job(n, asked, records, reach, team, want=True)
    totals = job.run(_candidates, len(asked), _TOTALS)
    scratch = job.lend(_SCRATCH, int(totals[-1]) + PAD, np.int64)
    places = job.lend(_PLACES, n * asked.ranges, np.int64)
    if len(asked) < len(places):
        places[:] = 0  # tuples that ask nothing have no place of their own, but it is looked at
    job.run(_collect, len(asked))
    ends = job.run(_tuple_totals, n, _TUPLE_TOTALS)
    total = int(ends[-1])
    out, newcomers = np.empty(total, np.int64), np.empty(total, np.int64)
    job.given[_OUT], job.given[_NEWCOMERS], job.given[_OWN] = address(out), address(newcomers), own
    job.run(_deliver, n)
    team.arena.give(scratch)
    team.arena.give(places)
    return Matches(job.counts_per_tuple(), out, newcomers)


class _Job:
    """The kernels' arguments, and the arrays that they are addresses of."""

    def __init__(
        self, n: int, asked: Questions, records: Sequence[Records], reach: Intervals, team: Team, want: bool
    ) -> None:
        self._team, self._tuples, self._ranges = team, n, asked.ranges
        slots = n * asked.ranges
        self.counts = np.empty(slots, np.int64) if len(asked) == slots else np.zeros(slots, np.int64)
        self._table = np.zeros((len(records), _LINE), np.int64)
        self._kept: list[Array] = []
        for line, one in zip(self._table, records, strict=True):
            line[:] = address(one.starts), address(one.ends), 0, one.first, one.check
            if want or one.check:
                ids = one.ids()
                self._kept.append(ids)
                line[_IDS] = address(ids)
        self.given = given = np.zeros(_ARGUMENTS, np.int64)
        given[_QUESTIONS], given[_RECORDS], given[_TABLE] = len(asked), len(records), address(self._table)
        given[_WHO], given[_SLOT] = address(asked.who), address(asked.slot)
        given[_BEGIN], given[_END], given[_STRIDE] = address(reach.begin), address(reach.end), reach.stride
        given[_COUNTS], given[_TUPLES], given[_RANGES] = address(self.counts), n, asked.ranges

    def lend(self, argument: int, size: int, dtype: type) -> Array:
        """An array of the arena as an argument."""
        array = self._team.arena.take(size, dtype)
        self.given[argument] = address(array)
        return array

    def run(self, kernel: Share, size: int, totals: int | None = None) -> Array:
        """Run a kernel over questions or tuples; with `totals`, the sums of its slices before each slice and in all."""
        parts = max(-(-size // SLICE), 1)
        sums = np.zeros(parts + 1, np.int64)
        if totals is not None:
            self._kept.append(sums)
            self.given[totals] = address(sums)
        self._team.run(kernel, self.given, parts)
        return np.cumsum(sums, out=sums)

    def counts_per_tuple(self) -> Positions:
        """The counts of a tuple's ranges added up."""
        if self._ranges == 1:
            return self.counts
        total: Positions = self.counts.reshape(self._ranges, self._tuples).sum(axis=0)
        return total
