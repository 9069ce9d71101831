"""`index="auto"`: which structure a new subwindow gets (PanJoin, V-A4, as a cost model).

The paper's rule: BI-Sort for large batches or many partners, RaP-Table for small ones, WiB+-Tree where keys wander.
Here the rule is a sum of costs per tuple, whose constants are measured once per machine (`millrace.host.calibration`),
put to what the join has seen of its stream: tuples per step, partners per tuple, keys beyond those of the subwindow
before. While it runs, the time each structure really took corrects its estimate. The choice is made anew whenever a
subwindow begins. Whole tables, which are put in order once and asked in large batches, always get BI-Sort.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field

from millrace.host import calibration
from millrace.host.calibration import Costs
from millrace.host.condition import SIDES, Side, other
from millrace.host.indexes import Matches, Setting, Step
from millrace.host.panjoin import LOAD_ROWS, PanJoinIndex, structure_class
from millrace.host.subwindow import Site, Structure
from millrace.host.words import Array, Mask

WANDERING = 0.25
"""RaP-Table is not taken where this share of new keys is beyond those of the subwindow before."""
SWITCH = 0.85
"""Another structure must promise to cost no more than this share of the present one's."""
_WEIGHT = 0.2
"""How much the latest step counts in what has been seen."""


@dataclass
class Seen:
    """What a side's window has been used for lately: tuples put in at once, and asked for by at once, and partners."""

    batch: float = 0.0
    asked: float = 0.0
    partners: float = 2.0
    wandering: float = 0.0

    def put(self, batch: int) -> None:
        """So many tuples were put in."""
        self.batch = _moved(self.batch, batch)

    def ask(self, asked: int, partners: float) -> None:
        """So many tuples of the other side asked, and found so many partners each."""
        self.asked = _moved(self.asked, asked)
        self.partners += _WEIGHT * (partners - self.partners)


def _moved(before: float, now: float) -> float:
    """A running mean that begins with the first value."""
    return now if before == 0 else before + _WEIGHT * (now - before)


@dataclass
class Strategy:
    """Chooses structures. `paid` is how much more time each took than expected, where it was used."""

    costs: dict[str, Costs]
    counting: bool = False
    paid: dict[str, float] = field(default_factory=dict)

    def expected(self, name: str, seen: Seen) -> float:
        """Nanoseconds per tuple by the model alone."""
        batch, asked = seen.batch or seen.asked or 1.0, seen.asked or seen.batch or 1.0
        return self.costs[name].per_tuple(batch, asked, seen.partners, self.counting and name == "bisort")

    def estimate(self, name: str, seen: Seen) -> float:
        """The same, corrected by experience."""
        return self.expected(name, seen) * self.paid.get(name, 1.0)

    def choose(self, seen: Seen, present: str | None) -> tuple[str, str]:
        """A structure, and why."""
        able = {name: self.estimate(name, seen) for name in self.costs}
        why = f"batches of {seen.batch:.0f}, {seen.partners:.1f} partners a tuple"
        if seen.wandering > WANDERING:
            del able["rap"]
            why += f", {seen.wandering:.0%} of the keys beyond those before (no rap)"
        best = min(able, key=lambda name: able[name])
        if present in able and able[best] > SWITCH * able[present]:
            best = present
        costs = ", ".join(f"{name} {able[name]:.0f}" for name in sorted(able, key=lambda name: able[name]))
        return best, f"{best} for {why}; expected ns a tuple: {costs}"

    def learn(self, name: str, seen: Seen, nanoseconds: float) -> None:
        """A tuple took so long with a structure."""
        before = self.paid.get(name, 1.0)
        now = min(max(nanoseconds / self.expected(name, seen), 0.25), 4.0)
        self.paid[name] = before + _WEIGHT * (now - before)


class AutoIndex(PanJoinIndex):
    """Two chains of subwindows, each of the structure that suits best when it begins."""

    structure = "auto"

    def __init__(self, setting: Setting) -> None:
        """Nothing seen yet."""
        super().__init__(setting)
        self._seen: dict[Side, Seen] = {side: Seen() for side in SIDES}
        self._strategy = Strategy(calibration.costs(self.team.threads))
        self._reason = ""

    def _next(self, side: Side, before: Structure | None, site: Site, first: int) -> Structure:
        if self.setting.whole:
            name, self._reason = "bisort", "bisort for whole tables: put in order once, asked in large batches"
        else:
            name, self._reason = self._strategy.choose(self._seen[side], None if before is None else before.name)
        if before is not None and before.name == name:
            return before.successor(site, first)
        return structure_class(name)(site, first)

    def step(self, step: Step, want_positions: bool) -> tuple[Matches, Matches]:
        """Look at the step before and after it is made."""
        self._strategy.counting = not want_positions
        sizes = {"r": len(step.r.words), "s": len(step.s.words)}
        for side in SIDES:
            if sizes[side]:
                self._seen[side].put(sizes[side])
        start = time.perf_counter_ns()
        found = super().step(step, want_positions)
        took = (time.perf_counter_ns() - start) / max(len(step.order), 1)
        for side, matches in zip(SIDES, found, strict=True):
            if sizes[side]:
                self._note(other(side), sizes[side], float(matches.counts.sum()) / sizes[side], took)
        return found

    def _note(self, side: Side, asked: int, partners: float, took: float) -> None:
        """What it was like to ask a side's window; its structure is to thank for the time, if all of it has one."""
        seen, chain = self._seen[side], self._chains[side]
        seen.ask(asked, partners)
        seen.wandering = chain.wandering
        names = {sub.structure.name for sub in chain.subwindows}
        if len(names) == 1:
            self._strategy.learn(names.pop(), seen, took)

    def load(self, side: Side, first: int, words: Array, live: Mask) -> None:
        """Put in earlier tuples; nothing is known yet of how they will be asked for."""
        if len(words):
            self._seen[side].put(min(len(words), LOAD_ROWS))
        super().load(side, first, words, live)

    def reason(self) -> str:
        """The last choice, and what it was made of."""
        return self._reason
