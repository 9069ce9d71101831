"""`index="auto"`: PanJoin whose next subwindow gets the structure that suits the recent steps (`rule.py`).

The choice is made whenever a subwindow begins, from two running means: tuples per step and partners per tuple. It is
made once more after the subwindow's first few small steps, when it is cheap to insert them again: a large push that
filled the window says nothing about the small ones after it. Nothing is timed or replayed inside a push;
`WindowJoin.tune` measures if the user asks for it (`tune.py`). Static tables (`mr.join`) are sorted once and probed in
large batches: they always get BI-Sort. Limit: later changes of the workload wait for the next subwindow.
"""

from __future__ import annotations

from millrace.host.base.types import Array, Mask, Side
from millrace.host.join.contract import FewPairs, IndexContext, Matches, PlainTuples, ProbeBatch, SideProbes
from millrace.host.join.panjoin.index import PanJoinIndex, structure_class
from millrace.host.join.panjoin.subwindow import Structure, StructureContext
from millrace.host.planner import calibration
from millrace.host.planner.rule import RecentSteps, structure_for

YOUNG_STEPS, YOUNG_TUPLES = 8, 1 << 12
"""A subwindow's choice is reviewed after this many steps, unless one of them has more tuples than that."""


class AutoIndex(PanJoinIndex):
    """Two chains of subwindows, each of the structure that the rule gives when it begins."""

    structure = "auto"

    def __init__(self, context: IndexContext) -> None:
        """Create empty chains; nothing was seen yet."""
        super().__init__(context)
        self._recent = RecentSteps()
        self._reason = ""
        self._young: dict[Side, list[tuple[int, Array, Mask]]] = {}
        """The steps of a newest subwindow whose choice will be reviewed: position of the first tuple, words, live."""

    def _next(self, side: Side, before: Structure | None, context: StructureContext, first: int) -> Structure:
        name, self._reason = self._choose()
        self._young[side] = []
        if before is not None and before.name == name:
            return before.successor(context, first)
        return structure_class(name)(context, first)

    def _choose(self) -> tuple[str, str]:
        """A structure, and why."""
        if self.context.static:
            return "bisort", "bisort for static tables: they are sorted once and probed in large batches"
        if not self._recent.steps:
            return "bisort", "bisort for a window that is loaded as a whole, before the first batch"
        rule = calibration.rule(self.team.threads)
        return structure_for(self._recent.batch, self._recent.fan_out, rule)

    def step(self, batch: ProbeBatch, want_positions: bool) -> tuple[Matches, Matches]:
        """Insert, probe, expire; update the running means."""
        if self.context.static:
            return super().step(batch, want_positions)
        self._recent.add_batch(len(batch.order))
        found = super().step(batch, want_positions)
        for matches in found:
            self._recent.add_partners(matches)
        if self._young:
            for side, part in (("r", batch.r), ("s", batch.s)):
                if side in self._young and len(part.live):
                    self._review(side, part)
        return found

    def is_ready_for_few(self, side: Side, tuples: int) -> bool:
        """Not while the choice of the newest subwindow may be reviewed."""
        return side not in self._young and super().is_ready_for_few(side, tuples)

    def step_few(self, side: Side, new: PlainTuples, keep: tuple[int, int]) -> FewPairs:
        """Insert, probe, expire; update the running means."""
        self._recent.add_batch(new.count)
        found = super().step_few(side, new, keep)
        self._recent.add_found(new.count, found.count)
        return found

    def _review(self, side: Side, part: SideProbes) -> None:
        """Keep a step of a young subwindow; after enough of them, insert them into another structure if that suits."""
        chain, steps = self._chains[side], self._young.pop(side)
        newest = chain.subwindows[-1]
        if len(part.live) > YOUNG_TUPLES or part.first < newest.first or len(newest) >= newest.capacity:
            return
        steps.append((part.first, part.words[0].copy(), part.live.copy()))
        if len(steps) < YOUNG_STEPS:
            self._young[side] = steps
        elif self._choose()[0] != newest.structure.name:
            chain.restart_newest()
            for first, words, live in steps:
                self._append(side, first, words, live)
            del self._young[side]

    def load(self, side: Side, first: int, words: tuple[Array, ...], live: Mask) -> None:
        """Insert earlier tuples; the subwindow that holds them keeps its structure."""
        super().load(side, first, words, live)
        self._young.pop(side, None)

    def reason(self) -> str:
        """The last choice, and why."""
        return self._reason
