"""`index="bisort" | "rap" | "wib"`: PanJoin (section III), a chain of subwindows per side.

For each step: the new tuples are sorted once, put into their side's chain, and asked of the other side's chain in
sorted order. Answers come back per subwindow, oldest first, so a tuple's partners are in order of position when they
are written one subwindow after the other.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from importlib import import_module

import numpy as np

from millrace.host import asking
from millrace.host.chain import Chain
from millrace.host.condition import SIDES, Side, other
from millrace.host.cpu import CpuDevice
from millrace.host.indexes import JoinIndex, Matches, Positions, Setting, SideStep, Step
from millrace.host.jit import kernel
from millrace.host.memory import address
from millrace.host.plan import PlanKind
from millrace.host.pool import cores
from millrace.host.segments import sort_segment
from millrace.host.subwindow import Hits, Ids, Questions, Site, Structure
from millrace.host.team import Team
from millrace.host.word_sorter import sort_words
from millrace.host.words import Array, Mask

STRUCTURES = {
    "bisort": "millrace.host.bisort:Bisort",
    "rap": "millrace.host.raptable:RapTable",
    "wib": "millrace.host.wibtree:WibTree",
}
LOAD_ROWS = 1 << 16
"""Tuples put in at a time when a window is loaded: sorting is fastest in cache."""
LEAST_SHARED = 1 << 11
"""Steps of fewer tuples are not worth waking other threads for."""


def structure_class(name: str) -> type[Structure]:
    """The class of a structure."""
    module, _, attribute = STRUCTURES[name].partition(":")
    found: type[Structure] = getattr(import_module(module), attribute)
    return found


@kernel
def _sort_all(where: int, counts: Positions) -> None:
    """Put each tuple's partners in order."""
    for i in range(counts.shape[0]):
        sort_segment(where, counts[i])
        where += 8 * counts[i]


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
        self._chains = {side: Chain(partial(self._begin, side), setting.rows.get(side)) for side in SIDES}

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
        for start in range(0, len(words), LOAD_ROWS):
            stop = min(start + LOAD_ROWS, len(words))
            self._append(side, first + start, words[start:stop], live[start:stop])

    def _append(self, side: Side, first: int, words: Array, live: Mask) -> Ids:
        """Sort live tuples by word and put them in; the order they are in now, by number among all."""
        sorted_words, order = _sorted(words, live, self.team)
        self._chains[side].append(first, len(words), sorted_words, order)
        return order

    def step(self, step: Step, want_positions: bool) -> tuple[Matches, Matches]:
        """Insert, ask, expire."""
        parts: dict[Side, SideStep] = {"r": step.r, "s": step.s}
        orders = {side: self._insert(side, part, step) for side, part in parts.items()}
        found = {side: self._ask(side, part, orders[side], want_positions) for side, part in parts.items()}
        self._chains["r"].expire(step.keep[0])
        self._chains["s"].expire(step.keep[1])
        return found["r"], found["s"]

    def rouse(self, rows: int) -> None:
        """Wake the team where that is worth it."""
        if rows >= LEAST_SHARED:
            self.team.rouse()

    def rest(self) -> None:
        """Let the team go."""
        self.team.rest()

    def _insert(self, side: Side, part: SideStep, step: Step) -> Ids | None:
        """New tuples into their chain; those that nobody will meet are left out."""
        n = len(part.words)
        if n == 0:
            return None
        alone = len(step.order) == n
        skip = min(max(step.keep[SIDES.index(side)] - part.first, 0), n) if alone else 0
        if skip == n:
            self._chains[side].skip(part.first + n)
            return None
        order = self._append(side, part.first + skip, part.words[skip:], part.live[skip:])
        return order if skip == 0 else None

    def _ask(self, side: Side, part: SideStep, order: Ids | None, want: bool) -> Matches:
        """Partners of one side's new tuples."""
        n = len(part.words)
        asked = asking.questions(part, order, self.team) if n else None
        if asked is None or not len(asked):
            return Matches(np.zeros(n, np.int64), np.zeros(0, np.int64) if want else None)
        hits = self._chains[other(side)].probe(asked, asking.reach_of(part), want)
        result = _gathered(n, asked, hits, len(part.low) > 1, want)
        for one in hits:
            one.release()
        asking.free(asked, self.team)
        return result

    def counters(self) -> dict[str, int]:
        """Subwindows begun and ended, and what their structures count."""
        total = {"boundaries": sum(chain.boundaries for chain in self._chains.values())}
        for chain in self._chains.values():
            for name, amount in chain.counters().items():
                total[name] = total.get(name, 0) + amount
        return total


def _sorted(words: Array, live: Mask, team: Team) -> tuple[Array, Ids]:
    """Live tuples by word, and their numbers among all."""
    if live.all():
        return sort_words(words, team)
    rows = np.flatnonzero(live)
    sorted_words, order = sort_words(words[rows], team)
    return sorted_words, rows[order].astype(np.uint32)


def _gathered(n: int, asked: Questions, hits: Sequence[Hits], several: bool, want: bool) -> Matches:
    """Counts per tuple and, if wanted, positions: one tuple after the other, each one's subwindows oldest first.

    `several`: a tuple may ask several questions.
    """
    per_question = np.zeros(len(asked), np.int64)
    for one in hits:
        per_question += one.counts
    counts = np.zeros(n, np.int64)
    if several:
        np.add.at(counts, asked.who, per_question)
    else:
        counts[asked.who] = per_question
    if not want:
        return Matches(counts, None)
    at = _places(asked, counts, per_question, several)
    out = np.empty(int(counts.sum()), np.int64)
    for one in hits:
        one.write(out, at)
    if several:
        _sort_all(address(out), counts)
    return Matches(counts, out)


def _places(asked: Questions, counts: Positions, per_question: Positions, several: bool) -> Positions:
    """Where each question's partners go."""
    if not several:
        return (np.cumsum(counts) - counts)[asked.who]
    order = np.argsort(asked.who, kind="stable")
    at = np.empty(len(asked), np.int64)
    at[order] = np.cumsum(per_question[order]) - per_question[order]
    return at


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
