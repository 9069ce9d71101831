"""Computes which tuples of the other side each new tuple can see: the visible interval of positions in its window.

Each side's window has a length, in rows or in ticks of time. A new tuple sees the tuples of the other side that were
taken before it and are within that side's length. The taken tuples of a side are in time order, so the visible tuples
have consecutive positions, and both ends of the interval never decrease from one new tuple to the next.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from millrace.host.base.types import SIDES, Longs, Order, Positions, Side, other
from millrace.host.base.value_class import value_class
from millrace.host.base.words import constant, repeated, saturating_add
from millrace.host.data.tuples import Tuples
from millrace.host.data.window import Window
from millrace.host.expr.exact import INT64_MAX, INT64_MIN

Windows = dict[Side, Window]
_NO_POSITIONS = np.zeros(0, np.int64)


@value_class
class NewTuples:
    """New tuples of one side, already appended to its window; `begin` and `end`: the visible interval of each."""

    tuples: Tuples
    first: int
    begin: Positions
    end: Positions


class TakenTuples:
    """Newly taken tuples, per side in order, and the order in which the sides interleave (0 for r, 1 for s).

    In a self-join every tuple appears twice in a row, as r and as s.
    """

    def __init__(self, sides: dict[Side, Tuples], order: Order, self_join: bool = False) -> None:
        """The tuples of both sides; a side may have none."""
        self.sides, self.order, self.self_join = sides, order, self_join
        r, s = len(sides["r"].seq), len(sides["s"].seq)
        self.only: Side | None = None if r and s else ("r" if r else "s")
        """The side that all tuples belong to; None if both sides have tuples."""

    @cached_property
    def numbers(self) -> dict[Side, Positions]:
        """The indices in `order` of each side's tuples."""
        return {"r": np.flatnonzero(self.order == 0), "s": np.flatnonzero(self.order != 0)}

    def count_among_first(self, side: Side, n: int) -> int:
        """Return how many of the first `n` tuples belong to a side."""
        if self.only is not None:
            return n if self.only == side else 0
        return int(self.numbers[side].searchsorted(n))

    def times(self) -> Longs:
        """Return all timestamps, in the order in which the tuples were taken."""
        if self.only is not None:
            return self.sides[self.only].time
        times = np.zeros(len(self.order), np.int64)
        for side, tuples in self.sides.items():
            times[self.numbers[side]] = tuples.time
        return times


def arrival_order(r: int, s: int) -> Order:
    """Return the order "all of r's tuples, then all of s's"."""
    if r == 0 or s == 0:
        return constant(int(r == 0), r + s, np.uint8)
    return np.repeat(np.array([0, 1], np.uint8), [r, s])


def time_order(r: Longs, s: Longs) -> Order:
    """Return how two sides, each in time order, interleave by time; r is before s at equal times."""
    order = np.zeros(len(r) + len(s), np.uint8)
    order[np.arange(len(s)) + np.searchsorted(r, s, "right")] = 1
    return order


@dataclass(frozen=True)
class WindowBounds:
    """The lengths of r's and s's windows: rows if `counts`, else ticks of time."""

    counts: bool
    lengths: dict[Side, int]

    def new_tuples(self, windows: Windows, taken: TakenTuples) -> dict[Side, NewTuples]:
        """Return each side's new tuples (already at the end of their window) with their visible intervals."""
        return {side: self._new_tuples(side, windows, taken) for side in SIDES}

    def _new_tuples(self, side: Side, windows: Windows, taken: TakenTuples) -> NewTuples:
        tuples = taken.sides[side]
        begin, end = self.visible(side, windows[other(side)], taken)
        return NewTuples(tuples, windows[side].end - len(tuples.seq), begin, end)

    def visible(self, side: Side, partners: Window, taken: TakenTuples) -> tuple[Positions, Positions]:
        """Return the visible intervals of a side's new tuples; the other side's are already in `partners`."""
        partner, tuples = other(side), taken.sides[side]
        n = len(tuples.seq)
        if n == 0:
            return _NO_POSITIONS, _NO_POSITIONS
        before = partners.end - len(taken.sides[partner].seq)
        # If the other side has no new tuples, all new tuples share the end of the interval.
        end = before + self._partners_before(taken, side) if taken.only is None else repeated(before, n)
        return self._begin(partners, self.lengths[partner], end, tuples.time), end

    def _partners_before(self, taken: TakenTuples, side: Side) -> Positions:
        """Return how many tuples of the other side were taken before each tuple, without its own self-join copy."""
        at = taken.numbers[side]
        count = at - np.arange(len(at))
        return count - 1 if taken.self_join and side == "s" else count

    def _begin(self, window: Window, length: int, end: Positions, times: Longs) -> Positions:
        if self.counts and end.strides == (0,):
            return repeated(max(int(end[0]) - length, 0), len(end))
        if self.counts:
            return np.maximum(end - min(length, INT64_MAX), 0)
        oldest = saturating_add(times, -length)
        return np.minimum(window.first + window.time.view().searchsorted(oldest), end)

    def oldest_needed_after(self, windows: Windows, taken: TakenTuples) -> Callable[[int], tuple[int, int]]:
        """Return a function of n: the oldest positions (r's, s's) visible to tuples after the n-th taken one."""
        times = None if self.counts else taken.times()

        def oldest(side: Side, n: int) -> int:
            if times is not None:
                return max(self._oldest(windows[side], int(times[n - 1]) - self.lengths[side]), 0)
            later = len(taken.sides[side].seq) - taken.count_among_first(side, n)
            return max(windows[side].end - later - self.lengths[side], 0)

        return lambda n: (oldest("r", n), oldest("s", n))

    def oldest_needed_position(self, side: Side, window: Window, frontier: int | None) -> int:
        """Return the oldest position that a later tuple can see, after all rows up to `frontier` are taken."""
        if self.counts:
            return window.end - self.lengths[side]
        return window.first if frontier is None else self._oldest(window, frontier - self.lengths[side])

    def _oldest(self, window: Window, time: int) -> int:
        """Return the first position at or after a time."""
        if time > INT64_MAX:
            return window.end
        return window.first + int(window.time.view().searchsorted(max(time, INT64_MIN)))
