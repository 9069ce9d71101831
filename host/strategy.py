"""`index="auto"`: which structure a new subwindow gets (PanJoin, V-A4, as a cost model).

The paper's rule: BI-Sort for large batches or many partners, RaP-Table for small ones, WiB+-Tree where keys wander.
Here the rule is a sum of costs per tuple, whose constants are measured once per machine (`millrace.host.calibration`),
put to what the join has seen of its stream: tuples per step, partners per tuple, keys beyond those of the subwindow
before. While it runs, the time each structure really took corrects its estimate. The choice is made anew whenever a
subwindow begins.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field

from millrace.host import calibration
from millrace.host.calibration import Costs
from millrace.host.condition import SIDES, Side
from millrace.host.indexes import Matches, Setting, Step
from millrace.host.panjoin import PanJoinIndex, structure_class
from millrace.host.subwindow import Site, Structure

WANDERING = 0.25
"""RaP-Table is not taken where this share of new keys is beyond those of the subwindow before."""
SWITCH = 0.85
"""Another structure must promise to cost no more than this share of the present one's."""
_WEIGHT = 0.2
"""How much the latest step counts in what has been seen."""


@dataclass
class Seen:
    """What a side's stream has been like lately."""

    batch: float = 0.0
    partners: float = 2.0
    wandering: float = 0.0

    def note(self, batch: int, partners: float) -> None:
        """A step with so many new tuples, and so many partners for each."""
        self.batch = batch if self.batch == 0 else self.batch + _WEIGHT * (batch - self.batch)
        self.partners += _WEIGHT * (partners - self.partners)


@dataclass
class Strategy:
    """Chooses structures. `paid` is how much more time each took than expected, where it was used."""

    costs: dict[str, Costs]
    counting: bool = False
    paid: dict[str, float] = field(default_factory=dict)

    def expected(self, name: str, seen: Seen) -> float:
        """Nanoseconds per tuple by the model alone."""
        return self.costs[name].per_tuple(max(seen.batch, 1.0), seen.partners, self.counting and name == "bisort")

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
        name, self._reason = self._strategy.choose(self._seen[side], None if before is None else before.name)
        if before is not None and before.name == name:
            return before.successor(site, first)
        return structure_class(name)(site, first)

    def step(self, step: Step, want_positions: bool) -> tuple[Matches, Matches]:
        """Look at the step before and after it is made."""
        self._strategy.counting = not want_positions
        sizes = {"r": len(step.r.words), "s": len(step.s.words)}
        for side in SIDES:
            if self._seen[side].batch == 0 and sizes[side]:
                self._seen[side].batch = sizes[side]
        start = time.perf_counter_ns()
        found = super().step(step, want_positions)
        took = (time.perf_counter_ns() - start) / max(len(step.order), 1)
        for side, matches in zip(SIDES, found, strict=True):
            if sizes[side]:
                self._note(side, sizes[side], float(matches.counts.sum()) / sizes[side], took)
        return found

    def _note(self, side: Side, batch: int, partners: float, took: float) -> None:
        seen, chain = self._seen[side], self._chains[side]
        seen.note(batch, partners)
        seen.wandering = chain.wandering
        if chain.subwindows:
            self._strategy.learn(chain.subwindows[-1].structure.name, seen, took)

    def reason(self) -> str:
        """The last choice, and what it was made of."""
        return self._reason
