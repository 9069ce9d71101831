"""Chooses the keys that a join of two tables searches: those that leave the fewest candidates.

An index searches as many keys as it can; terms on further keys are checked on what it finds. If a condition has several
keys of the same rank (`r.power < s.power AND r.cool > s.cool`), each is tried on a sample of both tables. Equalities
beside an order key are searched together with it, by one grouped key, unless a row has few partners by them alone.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from millrace.host.base.types import Array, Side, other
from millrace.host.data.tuples import Tuples
from millrace.host.expr.grouped_keys import grouped, is_grouped
from millrace.host.expr.plan import KeySearch, Plan

SAMPLE = 1000
"""Rows of each table that are tried."""
FEW_PARTNERS = 4
"""If a row has at most this many partners by the equality alone, checking the other terms on them is cheaper."""
Samples = dict[Side, dict[tuple[Side, str], Array]]


def table_plan(plan: Plan, sides: dict[Side, Tuples], held: Side) -> Plan:
    """The plan with the most selective keys first, by a sample; the key of the held table is grouped if that pays."""
    plan = most_selective(plan, sides)
    if not is_grouped(grouped(plan, (held,)), held):
        return plan
    samples = {side: _sample(side, sides[side]) for side in sides}
    rows = {side: _rows(samples[side]) for side in sides}
    first, *others = plan.searches[held]
    share = _candidates(first, plan, samples) / max(rows["r"] * rows["s"], 1)
    if share * len(sides[held]) <= FEW_PARTNERS:
        return plan
    counts = {id(one): _candidates(one, plan, samples) for one in others if one.shape not in ("equal", "ranges")}
    others.sort(key=lambda one: counts.get(id(one), 0 if one.shape == "equal" else rows["r"] * rows["s"]))
    return grouped(replace(plan, searches={**plan.searches, held: (first, *others)}), (held,))


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


def _candidates(search: KeySearch, plan: Plan, samples: Samples) -> int:
    """How many pairs of sampled rows a search of one key finds."""
    words, known = search.key.words(samples[search.side], plan.types)
    words = np.sort(words if known is None else words[known])
    probing = samples[other(search.side)]
    low, high = search.word_ranges(probing, plan.types, _rows(probing))
    found = np.searchsorted(words, high, "right") - np.searchsorted(words, low)
    return int(np.maximum(found, 0).sum())


def _rows(sample: dict[tuple[Side, str], Array]) -> int:
    return len(next(iter(sample.values())))


def _sample(side: Side, tuples: Tuples) -> dict[tuple[Side, str], Array]:
    """The condition's columns of some live rows, spread over all."""
    rows = np.flatnonzero(tuples.live)
    rows = rows[:: max(len(rows) // SAMPLE, 1)]
    return {(side, name): column[rows] for name, column in tuples.columns.items()}
