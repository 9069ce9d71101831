"""`index="auto"`: which structure a new subwindow gets (PanJoin, V-A4, by measuring instead of a rule).

The paper's rule: BI-Sort for large batches or many partners, RaP-Table for small ones, WiB+-Tree where keys wander.
Here a part of the stream itself is gone through again with each structure, and clocked (`replay.py`),
once for every *way* in which the join is used: tuples per step, partners per tuple, rows of a subwindow, pairs or
counts. Until then, and where nothing could be recorded, a sum of costs serves, whose constants are measured once per
machine (`calibration.py`). The choice is made anew whenever a subwindow begins. Whole tables, which are put
in order once and asked in large batches, always get BI-Sort.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from math import log2

from millrace.host.base.types import SIDES, Array, Mask, Side, other
from millrace.host.base.words import all_true
from millrace.host.join.contract import IndexContext, Matches, ProbeBatch, SideProbes
from millrace.host.join.panjoin.index import LOAD_ROWS, PanJoinIndex, structure_class
from millrace.host.join.panjoin.subwindow import RangeProbes, Structure, StructureContext
from millrace.host.planner import calibration
from millrace.host.planner.calibration import Costs
from millrace.host.planner.replay import Recording, able, rehearse

WANDERING = 0.02
"""Keys wander where this share of them is beyond those of the subwindow before."""
SWITCH = 0.95
"""Another structure must promise to cost no more than this share of the present one's."""
UNSURE = 0.75
"""The same of BI-Sort's cost for a first subwindow that nothing was measured for: the constants are of a small window,
and in a large one BI-Sort is never far behind, while the others may be."""
SHARE = 0.5
"""Rehearsals may take this share of the time, the first of all more: a way of use is rehearsed once, so that it is
next to nothing after a while. With less, the large batches that fill a window put off what comes after them."""
ALIKE = 1.0
"""Ways of use are alike whose sizes differ by less than a factor of two, and partners by less than four."""
LOOKS = 16
"""How often it is looked at, while a subwindow fills, whether the way of use has changed."""
SMALL, EVERY = 1 << 12, 7
"""Of steps of fewer tuples than this only one of so many is looked at: to look costs as much as a tenth of the index's
work in a step of few. An odd number: both sides get their turns where they alternate."""
_WEIGHT, _WHOLE = 0.2, 256
"""How much the latest step counts in what has been seen; of partners, a step of fewer tuples in proportion less."""
Way = tuple[float, ...]


@dataclass
class Seen:
    """What a side's window has been used for lately: tuples put in at once, and asked for by at once, and partners."""

    batch: float = 0.0
    asked: float = 0.0
    partners: float = 2.0
    drift: float = 0.0

    @property
    def wanders(self) -> bool:
        """Whether keys leave the range of those before."""
        return self.drift > WANDERING

    def put(self, batch: int) -> None:
        """So many tuples were put in."""
        self.batch = _moved(self.batch, batch)

    def ask(self, asked: int, partners: float) -> None:
        """So many tuples of the other side asked, and found so many partners each."""
        self.asked = _moved(self.asked, asked)
        self.partners += _WEIGHT * min(asked / _WHOLE, 1.0) * (partners - self.partners)


def _moved(before: float, now: float) -> float:
    """A running geometric mean, which soon forgets the large batches that filled a window; it begins with the first."""
    return now if before == 0 else before ** (1 - _WEIGHT) * now**_WEIGHT


def _apart(one: Way, other: Way) -> float:
    """How much ways of use differ, in what they differ most."""
    return max(abs(a - b) for a, b in zip(one, other, strict=True))


@dataclass
class Strategy:
    """Chooses structures by what they took in rehearsals, for each way of use, or by their `costs`."""

    costs: dict[str, Costs]
    counting: bool = False
    took: dict[Way, dict[str, float]] = field(default_factory=dict)

    def way(self, seen: Seen, capacity: int) -> Way:
        """How a window is used, as a point in space."""
        batch, asked = log2(max(seen.batch, 1)), log2(max(seen.asked, 1))
        kind = (2 * ALIKE * self.counting, 2 * ALIKE * seen.wanders)
        return batch, asked, log2(capacity), log2(1 + seen.partners) / 2, *kind

    def measured(self, way: Way) -> dict[str, float] | None:
        """What the structures took in the nearest way of use that was rehearsed, if that is alike."""
        nearest = min(self.took, key=lambda known: _apart(known, way), default=None)
        return self.took[nearest] if nearest is not None and _apart(nearest, way) < ALIKE else None

    def expected(self, name: str, seen: Seen) -> float:
        """Nanoseconds per tuple by the constants."""
        batch, asked = seen.batch or seen.asked or 1.0, seen.asked or seen.batch or 1.0
        return self.costs[name].per_tuple(batch, asked, seen.partners, self.counting and name == "bisort")

    def choose(self, seen: Seen, capacity: int, present: str | None) -> tuple[str, str]:
        """A structure, and why."""
        took = self.measured(self.way(seen, capacity))
        costs = took or {name: self.expected(name, seen) for name in able(seen.wanders)}
        why = f"batches of {seen.batch:.0f}, {seen.partners:.1f} partners a tuple"
        if seen.wanders:
            why += f", {seen.drift:.0%} of the keys beyond those before (no rap)"
        ranked = sorted(costs, key=lambda name: costs[name])
        best, share = ranked[0], SWITCH if took or present else UNSURE
        present = present or ("bisort" if not took else None)
        if present in costs and costs[best] > share * costs[present]:
            best = present
        told = ", ".join(f"{name} {costs[name]:.0f}" for name in ranked)
        return best, f"{best} for {why}; {'measured' if took else 'expected'} ns a tuple: {told}"


class AutoIndex(PanJoinIndex):
    """Two chains of subwindows, each of the structure that suits best when it begins."""

    structure = "auto"

    def __init__(self, context: IndexContext) -> None:
        """Nothing seen yet."""
        super().__init__(context)
        self._seen: dict[Side, Seen] = {side: Seen() for side in SIDES}
        self._recordings: dict[Side, Recording | None] = dict.fromkeys(SIDES)
        self._records = False
        self._unwatched: dict[Side, int] = dict.fromkeys(SIDES, 0)
        self._unseen = -1
        self._strategy = Strategy(calibration.costs(self.team.threads))
        self._reason = ""
        self._worked = self._rehearsed = 0

    def _next(self, side: Side, before: Structure | None, context: StructureContext, first: int) -> Structure:
        if self.context.static:
            name, self._reason = "bisort", "bisort for whole tables: put in order once, asked in large batches"
        else:
            self._rehearse(side, context)
            present = None if before is None else before.name
            name, self._reason = self._strategy.choose(self._seen[side], context.capacity, present)
        if before is not None and before.name == name:
            return before.successor(context, first)
        return structure_class(name)(context, first)

    def _rehearse(self, side: Side, context: StructureContext) -> None:
        """A subwindow is to begin: measure what was recorded before, if need be."""
        way, recording = self._strategy.way(self._seen[side], context.capacity), self._recordings[side]
        if recording is None or recording.short:
            return
        self._recordings[side] = None
        self._records = self._recordings[other(side)] is not None
        if self._strategy.measured(way) is None and self._may_rehearse(recording, way):
            want, wanders = not self._strategy.counting, self._seen[side].wanders
            self._strategy.took[way], took = rehearse(recording, self.team, want, wanders)
            self._rehearsed += took

    def _may_rehearse(self, recording: Recording, way: Way) -> bool:
        """Whether what was recorded was used in that way, and there has been enough work for another rehearsal."""
        if not recording.enough or self._rehearsed > SHARE * self._worked:
            return False
        return _apart((log2(recording.batch), log2(recording.asking)), way[:2]) < ALIKE

    def _watch(self, side: Side, size: int) -> None:
        """So many tuples are to come. Now and then: record them, if the window is used in a way not rehearsed yet."""
        self._unwatched[side] += size
        newest = self._chains[side].subwindows[-1:]
        if self._recordings[side] is None and newest and self._unwatched[side] * LOOKS >= newest[0].capacity:
            self._unwatched[side] = 0
            if self._strategy.measured(self._strategy.way(self._seen[side], newest[0].capacity)) is None:
                self._recordings[side] = Recording(self._words[side])
                self._records = True

    def _take(self, side: Side, part: SideProbes, batch: ProbeBatch) -> RangeProbes | None:
        asked = super()._take(side, part, batch)
        if self._records:
            self._record(side, part, asked)
        return asked

    def _record(self, side: Side, part: SideProbes, asked: RangeProbes | None) -> None:
        """Tuples of a side came in, and asked the other side's window."""
        own, others = self._recordings[side], self._recordings[other(side)]
        if own is not None and len(part):
            own.put(part.words[0] if all_true(part.live) else part.words[0][part.live])
        if others is not None and asked is not None and len(asked):
            others.ask(len(part), asked)

    def step(self, batch: ProbeBatch, want_positions: bool) -> tuple[Matches, Matches]:
        """Look at large steps, and now and then at a small one, before and after it is made."""
        if self.context.static:
            return super().step(batch, want_positions)
        small = len(batch.order) < SMALL
        if small:
            self._unseen = (self._unseen + 1) % EVERY
            if self._unseen:
                return super().step(batch, want_positions)
        self._strategy.counting = not want_positions
        sizes = (len(batch.r), len(batch.s))
        for side, size in zip(SIDES, sizes, strict=True):
            if size:
                self._seen[side].put(size)
                self._watch(side, EVERY * size if small else size)
        start, rehearsed = time.perf_counter_ns(), self._rehearsed
        found = super().step(batch, want_positions)
        took = time.perf_counter_ns() - start - (self._rehearsed - rehearsed)
        self._worked += EVERY * took if small else took
        self._look(sizes, found)
        return found

    def _look(self, sizes: tuple[int, int], found: tuple[Matches, Matches]) -> None:
        """What a step's tuples found in the other side's window."""
        for side, size, matches in zip(SIDES, sizes, found, strict=True):
            if size:
                asked = self._seen[other(side)]
                partners = matches.counts.sum() if matches.positions is None else len(matches.positions)
                asked.ask(size, float(partners) / size)
                asked.drift = self._chains[other(side)].drift

    def load(self, side: Side, first: int, words: tuple[Array, ...], live: Mask) -> None:
        """Put in earlier tuples; nothing is known yet of how they will be asked for."""
        if len(live):
            self._seen[side].put(min(len(live), LOAD_ROWS))
        super().load(side, first, words, live)

    def reason(self) -> str:
        """The last choice, and what it was made of."""
        return self._reason
