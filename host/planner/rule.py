"""The static rule of `index="auto"`: which structure a new subwindow gets (PanJoin, V-A4), by what steps were like.

The paper's rule: BI-Sort for large batches or many partners, RaP-Table for small ones, WiB+-Tree if keys drift. Here
`rap` is never chosen: `wib` is as fast within a few percent and does not depend on how keys are distributed, so that
nobody has to measure drift. The smallest steps get BI-Sort again, which does them in one compiled call
(`panjoin/small_step.py`). The constants hold on the machine of `benchmarks/results`; `millrace calibrate` refines
`small_batch`. Limit: the rule knows nothing of the window's size, and near its limits both structures are close.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from millrace.host.join.contract import Matches
from millrace.host.join.panjoin.small_step import MAX_TUPLES

WEIGHT = 0.2
"""The weight of the latest step in the mean batch size; of the first steps each has the same weight."""
FAN_OUT_TUPLES = 1024
"""About how many of the latest tuples the mean fan-out covers; the most counts that one step reads for it."""


@dataclass
class RecentSteps:
    """Running means over the recent steps of a join."""

    steps: int = 0
    batch: float = 1.0
    """Tuples per step: a geometric mean, so that one large step among small ones hardly matters."""
    fan_out: float = 0.0
    """Partners per tuple: an arithmetic mean by tuples."""

    def add_batch(self, tuples: int) -> None:
        """A step of so many tuples begins."""
        self.steps += 1
        self.batch *= (tuples / self.batch) ** (WEIGHT if self.steps * WEIGHT > 1 else 1 / self.steps)

    def add_partners(self, matches: Matches) -> None:
        """A step found these partners. If only counts were wanted, the first of them are a sample of all."""
        tuples = len(matches.counts)
        if not tuples:
            return
        if matches.positions is not None:
            partners = len(matches.positions)
        else:
            tuples = min(tuples, FAN_OUT_TUPLES)
            partners = int(np.add.reduce(matches.counts[:tuples]))
        self.add_found(tuples, partners)

    def add_found(self, tuples: int, partners: int) -> None:
        """So many tuples had so many partners."""
        self.fan_out += (partners - tuples * self.fan_out) / (tuples + FAN_OUT_TUPLES)


@dataclass(frozen=True)
class Rule:
    """`wib` for steps of few tuples that find few partners, else `bisort`; also `bisort` for the smallest steps."""

    tiny_batch: int = MAX_TUPLES
    """Up to so many tuples are a small step of `bisort`."""
    small_batch: int = 1024
    """A step of fewer tuples is small: finding the few right leaves is cheaper than merging and probing runs."""
    max_partners: int = 1 << 19
    """If a step finds more partners, `bisort` is faster: it returns them as ranges, `wib` visits each one."""


def structure_for(batch: float, fan_out: float, rule: Rule) -> tuple[str, str]:
    """The structure for steps of `batch` tuples with `fan_out` partners each, and the reason in one sentence."""
    workload = f"batches of {batch:,.0f} tuples with {fan_out:,.1f} partners each"
    if batch <= rule.tiny_batch:
        return "bisort", f"bisort for {workload}: a batch of up to {rule.tiny_batch:,} tuples is one compiled call"
    if batch >= rule.small_batch:
        return "bisort", f"bisort for {workload}: a batch has {rule.small_batch:,} tuples or more"
    if batch * fan_out >= rule.max_partners:
        return "bisort", f"bisort for {workload}: a batch finds {rule.max_partners:,} partners or more"
    return "wib", f"wib for {workload}: fewer than {rule.small_batch:,} tuples and {rule.max_partners:,} partners"
