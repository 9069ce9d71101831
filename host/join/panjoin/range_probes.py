"""From a step's new tuples to sorted questions: which ranges they look up, in ascending order.

A side's words were sorted to be inserted; in a band of constant width its ranges are ascending in that same order, so
they need not be sorted again. Where they are not (`s.x BETWEEN r.lo AND r.hi`), they are sorted by themselves.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from millrace.host.base.types import Array, Ids
from millrace.host.join.contract import SideStep
from millrace.host.join.panjoin.subwindow import Intervals, Questions
from millrace.host.kernels.word_sorter import sort_words
from millrace.host.runtime.intrinsics import address, load_as, load_id, store_as, table
from millrace.host.runtime.jit import inline, share
from millrace.host.runtime.team import Team

SLICE = 1 << 14
"""About how many ranges one thread brings in order at a time."""
EMPTY, UNSORTED, FALLING = range(3)
"""What is noticed on the way: a range is empty, lows are not ascending, highs are not."""
_U32 = np.uint32


@dataclass(frozen=True)
class Ordered:
    """Live tuples by their own words: these, and their numbers among all tuples."""

    words: Array
    order: Ids


@inline
def _gather(given: int, part: int, parts: int, like: Any) -> None:
    low, high, order, n = (load_as(given, 0, 0), load_as(given, 1, 0), load_as(given, 2, 0), load_as(given, 3, 0))
    out_low, out_high, notes = load_as(given, 4, 0), load_as(given, 5, 0), load_as(given, 6, 0)
    first, stop = n * part // parts, n * (part + 1) // parts
    empty = unsorted = falling = False
    before = load_id(order, max(first - 1, 0))
    low_before, high_before = load_as(low, before, like), load_as(high, before, like)
    for i in range(first, stop):
        number = load_id(order, i)
        a, b = load_as(low, number, like), load_as(high, number, like)
        store_as(out_low, i, a)
        store_as(out_high, i, b)
        empty |= a > b
        unsorted |= (a < low_before) & (i > 0)
        falling |= (b < high_before) & (i > 0)
        low_before, high_before = a, b
    if empty:
        store_as(notes, EMPTY, 1)
    if unsorted:
        store_as(notes, UNSORTED, 1)
    if falling:
        store_as(notes, FALLING, 1)


@share
def _gather_32(given: int, part: int, parts: int) -> None:
    _gather(given, part, parts, np.uint32(0))


@share
def _gather_64(given: int, part: int, parts: int) -> None:
    _gather(given, part, parts, np.uint64(0))


@inline
def _spread(given: int, part: int, parts: int, like: Any) -> None:
    """Words to the ends of a band round them, saturating."""
    words, n, out_low, out_high = (
        load_as(given, 0, 0),
        load_as(given, 1, 0),
        load_as(given, 2, 0),
        load_as(given, 3, 0),
    )
    below, above = type(like)(load_as(given, 4, np.uint64(0))), type(like)(load_as(given, 5, np.uint64(0)))
    most = type(like)(~type(like)(0))
    for i in range(n * part // parts, n * (part + 1) // parts):
        word = load_as(words, i, like)
        store_as(out_low, i, type(like)(word - min(word, below)))
        store_as(out_high, i, type(like)(word + min(type(like)(most - word), above)))


@share
def _spread_32(given: int, part: int, parts: int) -> None:
    _spread(given, part, parts, np.uint32(0))


@share
def _spread_64(given: int, part: int, parts: int) -> None:
    _spread(given, part, parts, np.uint64(0))


def questions(step: SideStep, ordered: Ordered | None, team: Team, keys: bool = False) -> Questions:
    """The ranges of all live tuples, ascending; `ordered` are the live tuples by their own words, where that is known.

    With `keys`, a band's questions have those too. Arrays come from the team's arena where they can.
    """
    if ordered is not None and len(ordered.order):
        if step.band is not None:
            return _band(ordered, step.band, team, keys)
        given = _in_order(step.low[0], step.high[0], ordered.order, team) if len(step.low) == 1 else None
        if given is not None:
            return given
    lines, who = np.nonzero(step.live & (step.low <= step.high))
    low, number = sort_words(step.low[lines, who], team)
    high = step.high[lines, who][number]
    slot = (lines * len(step.words) + who)[number].astype(np.uint32)
    rising = bool((high[1:] >= high[:-1]).all())
    return Questions(low, high, who[number].astype(np.uint32), rising, slot, len(step.low))


def _band(ordered: Ordered, band: tuple[int, int], team: Team, keys: bool) -> Questions:
    """Ranges of constant width are in the order of the words."""
    n, word = len(ordered.order), ordered.words.dtype
    low, high = team.arena.take(n, word), team.arena.take(n, word)
    given = np.array([address(ordered.words), n, address(low), address(high), *band], np.uint64)
    team.run(_spread_64 if word == np.uint64 else _spread_32, given.view(np.int64), -(-n // SLICE))
    # A copy: the words themselves go into a structure, which may use their memory again.
    kept = ordered.words.copy() if keys else None
    return Questions(low, high, ordered.order, True, ordered.order, keys=kept, band=band if keys else None)


def _in_order(low: Array, high: Array, order: Ids, team: Team) -> Questions | None:
    """The ranges in a given order of the tuples; nothing where they are not ascending then."""
    n = len(order)
    low, high = np.ascontiguousarray(low), np.ascontiguousarray(high)
    out_low, out_high = team.arena.take(n, low.dtype), team.arena.take(n, high.dtype)
    notes = np.zeros(3, np.int64)
    gather = _gather_64 if low.dtype == np.uint64 else _gather_32
    team.run(gather, table(low, high, order, n, out_low, out_high, notes), -(-n // SLICE))
    if notes[EMPTY] or notes[UNSORTED]:
        team.arena.give(out_low)
        team.arena.give(out_high)
        return None
    return Questions(out_low, out_high, order, not notes[FALLING], order)


def reach_of(step: SideStep) -> Intervals:
    """Which positions each tuple may meet, in one entry if all may meet the same."""
    begin, end = step.begin, step.end
    if len(begin) and begin[0] == begin[-1] and end[0] == end[-1]:
        begin, end = begin[:1], end[:1]
    return Intervals(np.ascontiguousarray(begin), np.ascontiguousarray(end))


def free(questions: Questions, team: Team) -> None:
    """Give the arrays back."""
    for array in (questions.low, questions.high, questions.who):
        team.arena.give(array)
