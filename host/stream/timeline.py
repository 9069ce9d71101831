"""Merges the rows of all sources into one total order: which rows are late, which wait, and which are taken next.

Follows ScaleGate (Algorithms 1 and 2, as corrected). The total order is (timestamp, side, source, seq) with r before s.
A row is taken (processed) once no source can still deliver an earlier one. Each source has a clock: the largest
timestamp it has pushed or been advanced to, minus the lateness, or the value that a flush has set. The frontier is the
minimum (clock, source); rows up to it are taken. Waiting rows are kept per side in a few sorted runs; taking rows cuts
off the front of each run.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np

from millrace.host.base.types import SIDES, Longs, Mask, Side
from millrace.host.base.words import saturating_add
from millrace.host.data.tuples import NO_TUPLES, Tuples, concat, in_order
from millrace.host.expr.exact import INT64_MAX, INT64_MIN

MAX_RUNS = 8

Frontier = tuple[int, int]
"""(timestamp, source rank): rows at or below it in the total order are taken."""


@dataclass(frozen=True)
class Clocks:
    """The clock of each source; immutable, so a call that fails changes nothing.

    Sources are ranked: first r's, then s's. `high` is the largest timestamp pushed or advanced to; `flushed` is the
    newest timestamp at the last flush; `tick` is the smallest step of the time columns, in ticks of the time scale.
    """

    high: tuple[int | None, ...]
    lateness: int = 0
    flushed: int | None = None
    tick: int = 1

    def of(self, rank: int) -> int | None:
        """Return a source's clock, or None before its first row, advance or flush."""
        high = self.high[rank]
        clock = None if high is None else high - self.lateness
        floor = None if self.flushed is None else self.flushed + self.tick
        return floor if clock is None else clock if floor is None else max(clock, floor)

    def frontier(self) -> Frontier | None:
        """Return the frontier, or None while some source has no clock."""
        clocks = [self.of(rank) for rank in range(len(self.high))]
        known = [c for c in clocks if c is not None]
        if len(known) < len(clocks):
            return None
        return min(known), known.index(min(known))

    def slowest_source(self) -> int:
        """Return the rank of the source that the others wait for."""
        clocks = [self.of(rank) for rank in range(len(self.high))]
        return min(range(len(clocks)), key=lambda q: (clocks[q] is not None, clocks[q] or 0, q))

    def moved(self, rank: int, timestamp: int) -> Clocks:
        """Return the clocks after a source has pushed or been advanced to a timestamp."""
        high = list(self.high)
        before = high[rank]
        high[rank] = timestamp if before is None else max(before, timestamp)
        return Clocks(tuple(high), self.lateness, self.flushed, self.tick)

    def flush(self) -> Clocks:
        """Return the clocks after all of them are moved past the newest timestamp."""
        known = [h for h in self.high if h is not None]
        return replace(self, flushed=max(known)) if known else self

    def rescaled(self, factor: int, tick: int, lateness: int) -> Clocks:
        """Return the same clocks in a unit `factor` times finer."""
        high = tuple(None if h is None else h * factor for h in self.high)
        flushed = None if self.flushed is None else self.flushed * factor
        return Clocks(high, lateness, flushed, tick)

    def late(self, rank: int, times: Longs, known: Mask) -> Mask:
        """Return a mask of the rows that are below their source's clock at the time of their arrival."""
        clock = self.of(rank)
        if len(times) == 0 or (clock is not None and clock > INT64_MAX):
            return known.copy()
        lowest = INT64_MIN if clock is None else max(clock, INT64_MIN)
        largest = np.maximum.accumulate(np.where(known, times, INT64_MIN))
        before = np.concatenate([np.array([INT64_MIN]), largest[:-1]])
        return known & (times < np.maximum(saturating_add(before, -self.lateness), lowest))


@dataclass(frozen=True)
class Waiting:
    """Rows not yet taken: sorted runs per side, with the names of the stored runs that hold them."""

    runs: dict[Side, tuple[WaitingRun, ...]] = field(default_factory=lambda: {"r": (), "s": ()})

    def __len__(self) -> int:
        """Return the number of waiting rows."""
        return sum([len(run.rows.seq) for run in (*self.runs["r"], *self.runs["s"])])

    def push(self, side: Side, rows: Tuples) -> Waiting:
        """Return a copy with these rows added (in any order)."""
        if len(rows) == 0:
            return self
        runs = [*self.runs[side], WaitingRun(in_order(rows))]
        while len(runs) > MAX_RUNS or (len(runs) > 1 and len(runs[-2].rows) <= 2 * len(runs[-1].rows)):
            runs[-2:] = [WaitingRun(in_order(concat([runs[-2].rows, runs[-1].rows])).compact())]
        return Waiting({**self.runs, side: tuple(runs)})

    def take(self, frontier: Frontier, ranks: dict[Side, int]) -> tuple[dict[Side, Tuples | None], Waiting]:
        """Return each side's rows up to the frontier, in order, and the remaining rows. `ranks`: of each source 0."""
        taken: dict[Side, Tuples | None] = {}
        left: dict[Side, tuple[WaitingRun, ...]] = {}
        for side in SIDES:
            parts = [run.cut(frontier, ranks[side]) for run in self.runs[side]]
            ready = [head for head, _ in parts if len(head.seq)]
            taken[side] = in_order(concat(ready)) if ready else None
            left[side] = tuple(remaining for _, remaining in parts if len(remaining.rows.seq))
        return taken, Waiting(left)

    def rescaled(self, factor: int) -> Waiting:
        """Return a copy with times in a unit `factor` times finer."""
        return Waiting({s: tuple(replace(run, rows=run.rows.rescaled(factor)) for run in self.runs[s]) for s in SIDES})


@dataclass(frozen=True)
class WaitingRun:
    """Sorted rows; `run` names the stored run that holds them (and possibly rows that were taken since)."""

    rows: Tuples
    run: str | None = None

    def cut(self, frontier: Frontier, first_rank: int) -> tuple[Tuples, WaitingRun]:
        """Return the rows up to the frontier, and a run of the remaining rows."""
        at, rows = self._count_up_to(frontier, first_rank), self.rows
        if at == 0:
            return NO_TUPLES, self
        if at == len(rows.seq):
            return rows, WaitingRun(NO_TUPLES, self.run)
        remaining = rows.slice(at, len(rows.seq))
        if len(remaining.seq) < at:
            remaining = remaining.take(np.arange(len(remaining.seq)))  # a copy: frees the memory of the taken rows
        return rows.slice(0, at), WaitingRun(remaining, self.run)

    def _count_up_to(self, frontier: Frontier, first_rank: int) -> int:
        """Return the number of rows at or below the frontier."""
        timestamp, rank = frontier
        if not INT64_MIN <= timestamp <= INT64_MAX:  # a clock may be one tick past the largest time
            return len(self.rows) if timestamp > 0 else 0
        times = self.rows.time
        start, stop = times.searchsorted(timestamp), times.searchsorted(timestamp, "right")
        return int(start) + int(self.rows.source[start:stop].searchsorted(rank - first_rank, "right"))
