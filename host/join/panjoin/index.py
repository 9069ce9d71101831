"""`index="bisort" | "rap" | "wib"`: PanJoin (section III), a chain of subwindows per side.

For each step, the new tuples are sorted once, inserted into their side's chain, and probe the other side's chain in
sorted order. Matches are returned per subwindow, oldest first, so a tuple's partners are in order of position when
they are written one subwindow after the other.
"""

from __future__ import annotations

from functools import partial

import numpy as np

from millrace.host.base.types import SIDES, Array, Mask, Side
from millrace.host.base.words import all_true
from millrace.host.join.contract import (
    FewPairs,
    IndexContext,
    JoinIndex,
    Matches,
    PlainTuples,
    ProbeBatch,
    SideProbes,
)
from millrace.host.join.panjoin import match_collector, range_probes, run_engine
from millrace.host.join.panjoin.chain import SUBWINDOWS, Chain
from millrace.host.join.panjoin.range_probes import SortedTuples
from millrace.host.join.panjoin.small_step import MAX_TUPLES, SmallSteps
from millrace.host.join.panjoin.subwindow import RangeProbes, Structure, StructureContext
from millrace.host.kernels.word_sorter import sort_words
from millrace.host.runtime.critical import load_module
from millrace.host.runtime.team import Team

STRUCTURES = {
    "bisort": "millrace.host.join.panjoin.bisort:Bisort",
    "rap": "millrace.host.join.panjoin.raptable:RapTable",
    "wib": "millrace.host.join.panjoin.wibtree:WibTree",
}
_NO_POSITIONS = np.zeros(0, np.int64)
NO_MATCHES, NO_COUNTS = Matches(_NO_POSITIONS, _NO_POSITIONS), Matches(_NO_POSITIONS, None)
LOAD_ROWS = 1 << 16
"""Tuples inserted at a time when a window is loaded: sorting is fastest in the cache."""
STATIC_LOAD_ROWS = 1 << 24
"""The same for static windows (a full table): there, fewer runs to merge matter more."""


def structure_class(name: str) -> type[Structure]:
    """The class of a structure."""
    module, _, attribute = STRUCTURES[name].partition(":")
    found: type[Structure] = getattr(load_module(module), attribute)
    return found


class PanJoinIndex(JoinIndex):
    """Two chains of subwindows of one structure."""

    structure: str

    def __init__(self, context: IndexContext) -> None:
        """Two empty chains."""
        super().__init__(context)
        self.team = context.team
        self._words = {side: context.plan.searches[side][0].key.kind.word for side in SIDES}
        subwindows = 1 if context.static else SUBWINDOWS
        self._small_steps = SmallSteps()
        self._chains = {side: Chain(partial(self._begin, side), context.rows.get(side), subwindows) for side in SIDES}

    def _begin(self, side: Side, before: Structure | None, first: int, capacity: int) -> Structure:
        """The structure of a new subwindow."""
        context = StructureContext(self._words[side], capacity, self.context.device, self.team)
        return self._next(side, before, context, first)

    def _next(self, side: Side, before: Structure | None, context: StructureContext, first: int) -> Structure:
        return structure_class(self.structure)(context, first) if before is None else before.successor(context, first)

    def load(self, side: Side, first: int, words: tuple[Array, ...], live: Mask) -> None:
        """Insert earlier tuples, a batch at a time."""
        batch = STATIC_LOAD_ROWS if self.context.static else LOAD_ROWS
        for start in range(0, len(live), batch):
            stop = min(start + batch, len(live))
            self._append(side, first + start, words[0][start:stop], live[start:stop])
        if self.context.static:
            self._chains[side].seal()

    def _append(self, side: Side, first: int, words: Array, live: Mask) -> None:
        """Sort live tuples by word and insert them."""
        sorted_tuples = _sort_live(words, live, self.team)
        self._chains[side].append(first, len(words), sorted_tuples.words, sorted_tuples.order)

    def step(self, batch: ProbeBatch, want_positions: bool) -> tuple[Matches, Matches]:
        """Insert, probe, expire."""
        r, s = self._chains["r"], self._chains["s"]
        found = self._small_step(batch, want_positions) if len(batch.order) <= MAX_TUPLES else None
        if found is None:
            r_probes, s_probes = self._take("r", batch.r, batch), self._take("s", batch.s, batch)
            found = (
                self._find_matches(s, batch.r, r_probes, want_positions),
                self._find_matches(r, batch.s, s_probes, want_positions),
            )
        self._end_step(batch.keep)
        return found

    def _small_step(self, batch: ProbeBatch, want: bool) -> tuple[Matches, Matches] | None:
        """Insert and probe few tuples of one side; None if the general path must."""
        r, s = self._chains["r"], self._chains["s"]
        none = NO_MATCHES if want else NO_COUNTS
        if not len(batch.s.live) and batch.keep[0] <= batch.r.first:
            found = self._small_steps.step(batch.r, r, s, want)
            return None if found is None else (found, none)
        if not len(batch.r.live) and batch.keep[1] <= batch.s.first:
            found = self._small_steps.step(batch.s, s, r, want)
            return None if found is None else (none, found)
        return None

    def is_ready_for_few(self, side: Side, tuples: int) -> bool:
        """Whether the other side's tuples are sorted in host memory, and this side's newest subwindow has a buffer."""
        own, others = self._own_and_others(side)
        return own.has_room_for(tuples) and others.sources() is not None

    def step_few(self, side: Side, new: PlainTuples, keep: tuple[int, int]) -> FewPairs:
        """Insert, probe, expire."""
        own, others = self._own_and_others(side)
        buffer, sources = own.room_for(new.first, new.count), others.sources()
        assert buffer is not None
        assert sources is not None
        found = self._small_steps.plain_step(new, buffer, own, sources)
        others.count_probes(new.count)
        self._end_step(keep)
        return found

    def _own_and_others(self, side: Side) -> tuple[Chain, Chain]:
        chains = self._chains
        return (chains["r"], chains["s"]) if side == "r" else (chains["s"], chains["r"])

    def _end_step(self, keep: tuple[int, int]) -> None:
        for chain, oldest in ((self._chains["r"], keep[0]), (self._chains["s"], keep[1])):
            chain.expire(oldest)
            chain.maintain()

    def close(self) -> None:
        """Drop the chains and free their memory."""
        for chain in self._chains.values():
            chain.close()

    def _take(self, side: Side, part: SideProbes, batch: ProbeBatch) -> RangeProbes | None:
        """Make the probes of new tuples, and insert those that a later tuple may match into their chain."""
        n, chain = len(part.live), self._chains[side]
        if n == 0:
            return None
        words, alone = part.words[0], len(batch.order) == n
        skip = min(max(batch.keep[SIDES.index(side)] - part.first, 0), n) if alone else 0
        sorted_tuples = _sort_live(words, part.live, self.team) if skip == 0 or part.probes[0].band else None
        probes = range_probes.make_probes(
            part, sorted_tuples, self.team, run_engine.BAND_PROBER in self.context.device.units
        )
        if skip == n:
            chain.skip(part.first + n)
        elif skip:
            self._append(side, part.first + skip, words[skip:], part.live[skip:])
        elif sorted_tuples is not None:
            chain.append(part.first, n, sorted_tuples.words, sorted_tuples.order)
        return probes

    def _find_matches(self, chain: Chain, part: SideProbes, probes: RangeProbes | None, want: bool) -> Matches:
        """The partners of one side's new tuples in the other side's chain."""
        n = len(part.live)
        if probes is None or not len(probes.low):
            return Matches(np.zeros(n, np.int64), _NO_POSITIONS if want else None)
        visible = range_probes.visible_intervals(part)
        match_ranges = chain.probe(probes, visible, want)
        if want:
            result = match_collector.find_partners(n, probes, match_ranges, visible, part.first, self.team)
        else:
            result = match_collector.count_partners(n, probes, match_ranges, visible, self.team)
        for one in match_ranges:
            one.release()
        range_probes.free_probes(probes)
        return result

    def counters(self) -> dict[str, int]:
        """The number of subwindows begun and dropped, and the counters of their structures."""
        total = {"boundaries": sum(chain.boundaries for chain in self._chains.values())}
        for chain in self._chains.values():
            for name, amount in chain.counters().items():
                total[name] = total.get(name, 0) + amount
        return total


def _sort_live(words: Array, live: Mask, team: Team) -> SortedTuples:
    """Sort live tuples by word, with their numbers among all tuples."""
    if all_true(live):
        return SortedTuples(*sort_words(words, team))
    rows = np.flatnonzero(live)
    sorted_words, order = sort_words(words[rows], team)
    return SortedTuples(sorted_words, rows[order].astype(np.uint32))


class BisortIndex(PanJoinIndex):
    """BI-Sort, on every device with a run engine."""

    structure = "bisort"
    needs = structure_class("bisort").needs


class RapIndex(PanJoinIndex):
    """RaP-Table, on the CPU."""

    structure = "rap"


class WibIndex(PanJoinIndex):
    """WiB+-Tree, on the CPU."""

    structure = "wib"
