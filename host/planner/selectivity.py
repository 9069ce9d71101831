"""Which of several comparisons should drive a join of two tables: the one that leaves the fewest candidates.

A search uses one key; further comparisons are checked on what it finds. Where a condition has comparisons on several
keys of the same kind (`r.power < s.power AND r.cool > s.cool`), each is tried on a sample of both tables. An index made
for two inequalities at once would need neither.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pyarrow as pa

from millrace.host.base.types import Array, Side
from millrace.host.data.tuples import Tuples
from millrace.host.expr.condition import Condition, sides_of
from millrace.host.expr.plan import Plan, bind, render

SAMPLE = 1000
"""Rows of each table that are tried."""


def most_selective(condition: Condition, schemas: dict[Side, pa.Schema], sides: dict[Side, Tuples]) -> Plan:
    """The plan whose search finds the fewest candidates, by a sample."""
    plans: dict[str, Plan] = {}
    for plan in _plans(condition, schemas):
        if plan.probes is None:
            return plan
        plans.setdefault(render(plan.probes["s"].key.expression), plan)
    best = list(plans.values())
    return best[0] if len(best) == 1 else min(best, key=lambda plan: _candidates(plan, sides))


def _plans(condition: Condition, schemas: dict[Side, pa.Schema]) -> list[Plan]:
    """A plan for each comparison of both sides: among equals, a plan takes the first."""
    plans = [bind(condition, schemas)]
    if len(condition.bands) == 1:
        terms = condition.bands[0]
        for term in terms:
            if len(sides_of(term)) == 2:
                ordered = (term, *(t for t in terms if t is not term))
                plans.append(bind(replace(condition, bands=(ordered,)), schemas))
    return plans


def _candidates(plan: Plan, sides: dict[Side, Tuples]) -> int:
    """How many pairs of sampled rows a plan's search finds."""
    assert plan.probes is not None
    probe = plan.probes["s"]
    r, s = (_sample(side, sides[side]) for side in ("r", "s"))
    words, known = probe.key.words(s, plan.types)
    words = np.sort(words if known is None else words[known])
    low, high = probe.word_ranges(r, plan.types, len(next(iter(r.values()))))
    found = np.searchsorted(words, high, "right") - np.searchsorted(words, low)
    return int(np.maximum(found, 0).sum())


def _sample(side: Side, tuples: Tuples) -> dict[tuple[Side, str], Array]:
    """The condition's columns of some live rows, spread over all."""
    rows = np.flatnonzero(tuples.live)
    rows = rows[:: max(len(rows) // SAMPLE, 1)]
    return {(side, name): column[rows] for name, column in tuples.columns.items()}
