"""Chooses the key that a join of two tables searches first: the one that leaves the fewest candidates.

An index searches as many keys as it can; terms on further keys are checked on what it finds. If a condition has several
keys of the same rank (`r.power < s.power AND r.cool > s.cool`), each is tried on a sample of both tables.
"""

from __future__ import annotations

import numpy as np

from millrace.host.base.types import Array, Side
from millrace.host.data.tuples import Tuples
from millrace.host.expr.plan import KeySearch, Plan

SAMPLE = 1000
"""Rows of each table that are tried."""


def most_selective(plan: Plan, sides: dict[Side, Tuples]) -> Plan:
    """The plan with its most selective keys first, by a sample."""
    if not plan.searchable:
        return plan
    equal = plan.equally_ranked("s")
    if equal == 1:
        return plan.prefer("s", 0)
    samples = {side: _sample(side, sides[side]) for side in sides}
    counts = [_candidates(one, plan, samples) for one in plan.searches["s"][:equal]]
    return plan.prefer("s", int(np.argmin(counts)))


def _candidates(search: KeySearch, plan: Plan, samples: dict[Side, dict[tuple[Side, str], Array]]) -> int:
    """How many pairs of sampled rows a search of one key finds."""
    words, known = search.key.words(samples["s"], plan.types)
    words = np.sort(words if known is None else words[known])
    rows = len(next(iter(samples["r"].values())))
    low, high = search.word_ranges(samples["r"], plan.types, rows)
    found = np.searchsorted(words, high, "right") - np.searchsorted(words, low)
    return int(np.maximum(found, 0).sum())


def _sample(side: Side, tuples: Tuples) -> dict[tuple[Side, str], Array]:
    """The condition's columns of some live rows, spread over all."""
    rows = np.flatnonzero(tuples.live)
    rows = rows[:: max(len(rows) // SAMPLE, 1)]
    return {(side, name): column[rows] for name, column in tuples.columns.items()}
