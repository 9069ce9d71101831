"""The static rule of `index="auto"`: which structure a new subwindow gets (PanJoin, V-A4).

The paper's rule: BI-Sort for large batches or many partners, RaP-Table for small ones, WiB+-Tree if keys drift. Here
`rap` is never chosen: `wib` is as fast within a few percent and does not depend on how keys are distributed, so that
nobody has to measure drift. The constants hold on the machine of `benchmarks/results`; `millrace calibrate` refines
`small_batch`. Limit: the rule knows nothing of the window's size, and near its limits both structures are close.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Rule:
    """`wib` for steps of few tuples that find few partners, else `bisort`."""

    small_batch: int = 1024
    """A step of fewer tuples is small: finding the few right leaves is cheaper than merging and probing runs."""
    max_partners: int = 1 << 19
    """If a step finds more partners, `bisort` is faster: it returns them as ranges, `wib` visits each one."""


def structure_for(batch: float, fan_out: float, rule: Rule) -> tuple[str, str]:
    """The structure for steps of `batch` tuples with `fan_out` partners each, and the reason in one sentence."""
    workload = f"batches of {batch:,.0f} tuples with {fan_out:,.1f} partners each"
    if batch >= rule.small_batch:
        return "bisort", f"bisort for {workload}: a batch has {rule.small_batch:,} tuples or more"
    if batch * fan_out >= rule.max_partners:
        return "bisort", f"bisort for {workload}: a batch finds {rule.max_partners:,} partners or more"
    return "wib", f"wib for {workload}: fewer than {rule.small_batch:,} tuples and {rule.max_partners:,} partners"
