"""Chooses the keys that a join of two tables searches: those that leave the fewest candidates.

An index searches as many keys as it can; terms on further keys are checked on what it finds. If a condition has several
keys of the same rank (`r.power < s.power AND r.cool > s.cool`), each is tried on a sample of both tables. Equalities
beside an order key are searched together with it, by one grouped key, unless a row has few partners by them alone. An
index of two keys gets the pair of keys that leaves the fewest; if one key alone leaves few, one is enough.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import combinations

import numpy as np

from millrace.host.base.types import Array, Mask, Side, other
from millrace.host.data.tuples import Tuples
from millrace.host.expr.grouped_keys import grouped, is_grouped
from millrace.host.expr.plan import KeySearch, Plan

SPO, SCAN = "spo", "scan"
SAMPLE = 1000
"""Rows of each table that are tried."""
FEW_PARTNERS = 4
"""If a row has at most this many partners by the equality alone, checking the other terms on them is cheaper."""
FEW_CANDIDATES = 0.25
"""If a row has at most this many partners by its best key, checking the other terms on them beats a second key: a
candidate costs about 40 ns, a second key about 10 ns per row (bench `inequality_join`, cases `crossover-…`)."""
FEW_PAIRS = 1 << 14
"""With at most this many pairs of rows, comparing all of them beats building an index."""
Samples = dict[Side, dict[tuple[Side, str], Array]]


def table_index(candidates: Sequence[str], plan: Plan, sides: dict[Side, Tuples], held: Side) -> str:
    """The index for a join of tables: the first candidate, unless a sample shows that two keys are one too many."""
    pairs = len(sides["r"]) * len(sides["s"])
    if SPO not in candidates or len(candidates) == 1:
        return candidates[0]
    if pairs <= FEW_PAIRS and SCAN in candidates:
        return SCAN
    if is_grouped(grouped(plan, (held,)), held):
        return SPO
    samples = {side: _sample(side, sides[side]) for side in sides}
    sampled = _rows(samples["r"]) * _rows(samples["s"])
    best = min(_candidates(one, plan, samples) for one in plan.searches[held] if one.shape != "ranges")
    few = best * len(sides[held]) <= FEW_CANDIDATES * sampled
    return next(name for name in candidates if (name == SPO) != few)


def table_plan(plan: Plan, sides: dict[Side, Tuples], held: Side, keys: int = 1) -> Plan:
    """The plan with the most selective keys first, by a sample; the key of the held table is grouped if that pays.

    `keys`: how many keys the index searches.
    """
    plan = most_selective(plan, sides)
    if keys == 2 and len(plan.searches[held]) > 2 and not is_grouped(grouped(plan, (held,)), held):
        return _best_pair(plan, sides, held)
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


def _best_pair(plan: Plan, sides: dict[Side, Tuples], held: Side) -> Plan:
    """The plan with the two keys first that leave the fewest candidates together."""
    samples = {side: _sample(side, sides[side]) for side in sides}
    searches = [one for one in plan.searches[held] if one.shape != "ranges"]
    found = [_candidate_pairs(one, plan, samples) for one in searches]
    first, second = min(combinations(range(len(searches)), 2), key=lambda pair: (found[pair[0]] & found[pair[1]]).sum())
    chosen = (searches[first], searches[second])
    others = tuple(one for one in plan.searches[held] if all(one is not used for used in chosen))
    return replace(plan, searches={**plan.searches, held: (*chosen, *others)})


def _candidate_pairs(search: KeySearch, plan: Plan, samples: Samples) -> Mask:
    """Which pairs of sampled rows a search of one key finds."""
    words, known = search.key.words(samples[search.side], plan.types)
    probing = samples[other(search.side)]
    low, high = search.word_ranges(probing, plan.types, _rows(probing))
    found: Mask = (low[0][:, None] <= words) & (words <= high[0][:, None])
    return found if known is None else found & known


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
