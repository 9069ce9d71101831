"""`index="auto"`: PanJoin whose next subwindow gets the structure that suits the recent steps (`rule.py`).

The choice is made whenever a subwindow begins, from two running means: tuples per step and partners per tuple. Nothing
is timed and nothing is replayed inside a push; `WindowJoin.tune` measures if the user asks for it (`tune.py`). Static
tables (`mr.join`) are sorted once and probed in large batches: they always get BI-Sort. Limit: after a change of the
batch size the present subwindow keeps its structure until it is full.
"""

from __future__ import annotations

from millrace.host.base.types import Side
from millrace.host.join.contract import IndexContext, Matches, ProbeBatch
from millrace.host.join.panjoin.index import PanJoinIndex, structure_class
from millrace.host.join.panjoin.subwindow import Structure, StructureContext
from millrace.host.planner import calibration
from millrace.host.planner.rule import RecentSteps, structure_for


class AutoIndex(PanJoinIndex):
    """Two chains of subwindows, each of the structure that the rule gives when it begins."""

    structure = "auto"

    def __init__(self, context: IndexContext) -> None:
        """Create empty chains; nothing was seen yet."""
        super().__init__(context)
        self._recent = RecentSteps()
        self._reason = ""

    def _next(self, side: Side, before: Structure | None, context: StructureContext, first: int) -> Structure:
        name, self._reason = self._choose()
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
        return found

    def reason(self) -> str:
        """The last choice, and why."""
        return self._reason
