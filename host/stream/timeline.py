"""Many sources, one order: which rows are late, which wait, and which are taken next.

Our reading of ScaleGate (Algorithms 1 and 2, as corrected): the total order is (timestamp, side, source, seq) with
r before s, and a row is taken once no source can still deliver a smaller one. Each source has a clock: the largest
timestamp it has pushed or been advanced to, minus the lateness, or what a flush set. The frontier is the least
(clock, source); rows up to it are taken. Waiting rows are kept per side in a few sorted runs; taking is a cut of
each run's front.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np

from millrace.host.base.types import SIDES, Longs, Mask, Side
from millrace.host.base.words import saturating_add
from millrace.host.data.tuples import Tuples, concat, in_order
from millrace.host.expr.exact import INT64_MAX, INT64_MIN

MOST_RUNS = 8

Frontier = tuple[int, int]
"""(timestamp, rank): rows at or below it in the total order are taken."""


@dataclass(frozen=True)
class Clocks:
    """Where each source stands; immutable, so that a call that fails has changed nothing.

    Sources are ranked r's first, then s's. `high` is the largest timestamp pushed or advanced to; `flushed` the
    newest timestamp at the last flush; `tick` the smallest step of the time columns, in the join's ticks.
    """

    high: tuple[int | None, ...]
    lateness: int = 0
    flushed: int | None = None
    tick: int = 1

    def of(self, rank: int) -> int | None:
        """A source's clock, or nothing before it has said anything."""
        high = self.high[rank]
        clock = None if high is None else high - self.lateness
        floor = None if self.flushed is None else self.flushed + self.tick
        return floor if clock is None else clock if floor is None else max(clock, floor)

    def frontier(self) -> Frontier | None:
        """The order up to which rows are taken; nothing while some source has said nothing."""
        clocks = [self.of(rank) for rank in range(len(self.high))]
        known = [c for c in clocks if c is not None]
        if len(known) < len(clocks):
            return None
        return min(known), known.index(min(known))

    def silent(self) -> int:
        """The rank of the source that the others wait for."""
        clocks = [self.of(rank) for rank in range(len(self.high))]
        return min(range(len(clocks)), key=lambda q: (clocks[q] is not None, clocks[q] or 0, q))

    def moved(self, rank: int, timestamp: int) -> Clocks:
        """After a source has pushed or been advanced to a timestamp."""
        high = list(self.high)
        before = high[rank]
        high[rank] = timestamp if before is None else max(before, timestamp)
        return replace(self, high=tuple(high))

    def flush(self) -> Clocks:
        """After every clock was moved past the newest timestamp."""
        known = [h for h in self.high if h is not None]
        return replace(self, flushed=max(known)) if known else self

    def rescaled(self, factor: int, tick: int, lateness: int) -> Clocks:
        """The same instants in a unit `factor` times finer."""
        high = tuple(None if h is None else h * factor for h in self.high)
        flushed = None if self.flushed is None else self.flushed * factor
        return Clocks(high, lateness, flushed, tick)

    def late(self, rank: int, times: Longs, known: Mask) -> Mask:
        """Row by row, which are below their own source's clock as it stands when they come."""
        clock = self.of(rank)
        if len(times) == 0 or (clock is not None and clock > INT64_MAX):
            return known.copy()
        least = INT64_MIN if clock is None else max(clock, INT64_MIN)
        largest = np.maximum.accumulate(np.where(known, times, INT64_MIN))
        before = np.concatenate([np.array([INT64_MIN]), largest[:-1]])
        return known & (times < np.maximum(saturating_add(before, -self.lateness), least))


@dataclass(frozen=True)
class Waiting:
    """Rows not yet taken: per side, sorted runs, and the names under which they were written as state."""

    runs: dict[Side, tuple[WaitingRun, ...]] = field(default_factory=lambda: {"r": (), "s": ()})

    def __len__(self) -> int:
        """How many rows wait."""
        return sum(len(run.rows) for side in SIDES for run in self.runs[side])

    def push(self, side: Side, rows: Tuples) -> Waiting:
        """With rows added (in any order)."""
        if len(rows) == 0:
            return self
        runs = [*self.runs[side], WaitingRun(in_order(rows))]
        while len(runs) > MOST_RUNS or (len(runs) > 1 and len(runs[-2].rows) <= 2 * len(runs[-1].rows)):
            runs[-2:] = [WaitingRun(in_order(concat([runs[-2].rows, runs[-1].rows])).compact())]
        return Waiting({**self.runs, side: tuple(runs)})

    def take(self, frontier: Frontier, ranks: dict[Side, int]) -> tuple[dict[Side, Tuples | None], Waiting]:
        """Each side's rows up to the frontier, in order, and what still waits. `ranks`: of each side's source 0."""
        taken: dict[Side, Tuples | None] = {}
        left: dict[Side, tuple[WaitingRun, ...]] = {}
        for side in SIDES:
            parts = [run.cut(frontier, ranks[side]) for run in self.runs[side]]
            ready = [head for head, _ in parts if len(head)]
            taken[side] = in_order(concat(ready)) if ready else None
            left[side] = tuple(rest for _, rest in parts if len(rest.rows))
        return taken, Waiting(left)

    def rescaled(self, factor: int) -> Waiting:
        """Times in a unit `factor` times finer."""
        return Waiting({s: tuple(replace(run, rows=run.rows.rescaled(factor)) for run in self.runs[s]) for s in SIDES})


@dataclass(frozen=True)
class WaitingRun:
    """Sorted rows; `run` names the stored run that holds them (and perhaps rows taken since)."""

    rows: Tuples
    run: str | None = None

    def cut(self, frontier: Frontier, first_rank: int) -> tuple[Tuples, WaitingRun]:
        """The rows up to the frontier, and the rest."""
        at = self._upto(frontier, first_rank)
        if at == 0:
            return self.rows.slice(0, 0), self
        rest = self.rows.slice(at, len(self.rows))
        if 0 < len(rest) < at:
            rest = rest.take(np.arange(len(rest)))  # lets go of the memory of what was taken
        return self.rows.slice(0, at), WaitingRun(rest, self.run)

    def _upto(self, frontier: Frontier, first_rank: int) -> int:
        """How many rows are at or below the frontier."""
        timestamp, rank = frontier
        if not INT64_MIN <= timestamp <= INT64_MAX:  # a clock may stand one tick past the last time there is
            return len(self.rows) if timestamp > 0 else 0
        times = self.rows.time
        start, stop = np.searchsorted(times, timestamp, "left"), np.searchsorted(times, timestamp, "right")
        return int(start) + int(np.searchsorted(self.rows.source[start:stop], rank - first_rank, "right"))
