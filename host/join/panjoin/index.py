"""`index="bisort" | "rap" | "wib"`: PanJoin (section III), a chain of subwindows per side.

For each step: the new tuples are sorted once, put into their side's chain, and asked of the other side's chain in
sorted order. Answers come back per subwindow, oldest first, so a tuple's partners are in order of position when they
are written one subwindow after the other.
"""

from __future__ import annotations

from functools import partial
from importlib import import_module

import numpy as np

from millrace.host.base.types import SIDES, Array, Mask, Side, other
from millrace.host.base.words import all_true
from millrace.host.device.cpu import CpuDevice
from millrace.host.expr.plan import PlanKind
from millrace.host.join.contract import JoinIndex, Matches, Setting, SideStep, Step
from millrace.host.join.panjoin import match_collector, range_probes, run_engine
from millrace.host.join.panjoin.chain import SHARES, Chain
from millrace.host.join.panjoin.range_probes import Ordered
from millrace.host.join.panjoin.subwindow import Questions, Site, Structure
from millrace.host.kernels.word_sorter import sort_words
from millrace.host.runtime.pool import cores
from millrace.host.runtime.team import Team

STRUCTURES = {
    "bisort": "millrace.host.join.panjoin.bisort:Bisort",
    "rap": "millrace.host.join.panjoin.raptable:RapTable",
    "wib": "millrace.host.join.panjoin.wibtree:WibTree",
}
LOAD_ROWS = 1 << 16
"""Tuples put in at a time when a window is loaded: sorting is fastest in cache."""
WHOLE_ROWS = 1 << 24
"""The same when a whole table is loaded: fewer runs to merge are worth more then."""
LEAST_SHARED = 1 << 13
"""Steps of fewer tuples are not worth waking other threads for."""


def structure_class(name: str) -> type[Structure]:
    """The class of a structure."""
    module, _, attribute = STRUCTURES[name].partition(":")
    found: type[Structure] = getattr(import_module(module), attribute)
    return found


class PanJoinIndex(JoinIndex):
    """Two chains of subwindows of one structure."""

    structure: str

    def __init__(self, setting: Setting) -> None:
        """Two empty chains."""
        super().__init__(setting)
        device = setting.device
        self.team = device.team if isinstance(device, CpuDevice) else Team(cores())
        assert setting.plan.probes is not None
        self._words = {side: setting.plan.probes[side].key.kind.word for side in SIDES}
        shares = 1 if setting.whole else SHARES
        self._chains = {
            side: Chain(partial(self._begin, side), setting.rows.get(side), self.team.arena, shares) for side in SIDES
        }

    def _begin(self, side: Side, before: Structure | None, first: int, capacity: int) -> Structure:
        """The structure of a new subwindow."""
        site = Site(self._words[side], capacity, self.setting.device, self.team)
        return self._next(side, before, site, first)

    def _next(self, side: Side, before: Structure | None, site: Site, first: int) -> Structure:
        return structure_class(self.structure)(site, first) if before is None else before.successor(site, first)

    @staticmethod
    def serves(kind: PlanKind) -> bool:
        """Conditions with a key on both sides."""
        return kind != "residual"

    def load(self, side: Side, first: int, words: Array, live: Mask) -> None:
        """Put in earlier tuples, a batch at a time."""
        self.rouse(len(words))
        most = WHOLE_ROWS if self.setting.whole else LOAD_ROWS
        for start in range(0, len(words), most):
            stop = min(start + most, len(words))
            self._append(side, first + start, words[start:stop], live[start:stop])
        if self.setting.whole:
            self._chains[side].seal()

    def _append(self, side: Side, first: int, words: Array, live: Mask) -> None:
        """Sort live tuples by word and put them in."""
        ordered = _ordered(words, live, self.team)
        self._chains[side].append(first, len(words), ordered.words, ordered.order)

    def step(self, step: Step, want_positions: bool) -> tuple[Matches, Matches]:
        """Insert, ask, expire."""
        parts: dict[Side, SideStep] = {"r": step.r, "s": step.s}
        asked = {side: self._take(side, part, step) for side, part in parts.items()}
        found = {side: self._answer(side, part, asked[side], want_positions) for side, part in parts.items()}
        self._chains["r"].expire(step.keep[0])
        self._chains["s"].expire(step.keep[1])
        for chain in self._chains.values():
            chain.tidy()
        return found["r"], found["s"]

    def rouse(self, rows: int) -> None:
        """Wake the team where that is worth it."""
        if rows >= LEAST_SHARED:
            self.team.rouse()

    def rest(self) -> None:
        """Let the team go."""
        self.team.rest()

    def close(self) -> None:
        """Give the chains back."""
        for chain in self._chains.values():
            chain.close()

    def _take(self, side: Side, part: SideStep, step: Step) -> Questions | None:
        """What new tuples will ask; then they go into their chain, except those that nobody will meet."""
        n, chain = len(part.words), self._chains[side]
        if n == 0:
            return None
        alone = len(step.order) == n
        skip = min(max(step.keep[SIDES.index(side)] - part.first, 0), n) if alone else 0
        ordered = _ordered(part.words, part.live, self.team) if skip == 0 or part.band else None
        asked = range_probes.questions(part, ordered, self.team, run_engine.BAND_PROBER in self.setting.device.units)
        if skip == n:
            chain.skip(part.first + n)
        elif skip:
            self._append(side, part.first + skip, part.words[skip:], part.live[skip:])
        elif ordered is not None:
            chain.append(part.first, n, ordered.words, ordered.order)
        return asked

    def _answer(self, side: Side, part: SideStep, asked: Questions | None, want: bool) -> Matches:
        """Partners of one side's new tuples."""
        n = len(part.words)
        if asked is None or not len(asked):
            return Matches(np.zeros(n, np.int64), np.zeros(0, np.int64) if want else None)
        reach = range_probes.reach_of(part)
        records = self._chains[other(side)].probe(asked, reach, want)
        if want:
            result = match_collector.find_partners(n, asked, records, reach, part.first, self.team)
        else:
            result = match_collector.count_partners(n, asked, records, reach, self.team)
        for one in records:
            one.release()
        range_probes.free(asked, self.team)
        return result

    def counters(self) -> dict[str, int]:
        """Subwindows begun and ended, and what their structures count."""
        total = {"boundaries": sum(chain.boundaries for chain in self._chains.values())}
        for chain in self._chains.values():
            for name, amount in chain.counters().items():
                total[name] = total.get(name, 0) + amount
        return total


def _ordered(words: Array, live: Mask, team: Team) -> Ordered:
    """Live tuples by word, and their numbers among all."""
    if all_true(live):
        return Ordered(*sort_words(words, team))
    rows = np.flatnonzero(live)
    sorted_words, order = sort_words(words[rows], team)
    return Ordered(sorted_words, rows[order].astype(np.uint32))


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
