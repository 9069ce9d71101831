"""Which indexes may serve a join, best first: the choice behind `index="auto"` between families of indexes.

Between the structures of one family, `auto.py` chooses while the join runs.
"""

from __future__ import annotations

from millrace.host.expr.plan import PlanKind, SearchShape
from millrace.host.join.registry import serving

SELECTIVE: tuple[PlanKind, ...] = ("equality", "band", "multi-band")
"""Kinds of condition with few partners per tuple, usually."""


def preferred(shape: SearchShape, counting: bool) -> list[str]:
    """The names of the indexes that serve a shape, best first.

    If a tuple matches much of its window and all pairs are wanted, a vectorised scan is faster than any index. If only
    counts are wanted, BI-Sort does not read the tuples that it counts.
    """
    able = serving(shape)
    counts_only = counting and shape.kind != "two inequalities"  # one is checked on the pairs, so they are needed
    return able if shape.kind in SELECTIVE or counts_only else sorted(able, key=lambda name: name != "scan")
