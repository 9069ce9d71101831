"""Puts the pairs of one call in order: by the later tuple, then by its partner, then the newcomer as r first."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from millrace.host.condition import SIDES, Side
from millrace.host.indexes import Positions
from millrace.host.matcher import Found, Newcomers
from millrace.host.reach import Taken


def pair_positions(taken: Taken, new: dict[Side, Newcomers], found: Sequence[Found]) -> dict[Side, Positions]:
    """The positions of all pairs in the two windows. Blocks come in order; inside a block the two sides are merged."""
    blocks = [_block(taken, new, one) for one in found]
    return {side: np.concatenate([b[side] for b in blocks]) for side in SIDES}


def _block(taken: Taken, new: dict[Side, Newcomers], found: Found) -> dict[Side, Positions]:
    own = {side: new[side].first + found.newcomer[side] for side in SIDES}
    parts: dict[Side, list[Positions]] = {
        "r": [own["r"], found.partner["s"]],
        "s": [found.partner["r"], own["s"]],
    }
    if not len(own["r"]) or not len(own["s"]):
        used = 0 if len(own["r"]) else 1
        return {side: parts[side][used] for side in SIDES}
    if taken.self_join:
        order = _self_join_order(found)
        return {side: np.concatenate(parts[side])[order] for side in SIDES}
    places = _places(taken, found)
    merged = {side: np.empty(len(own["r"]) + len(own["s"]), np.int64) for side in SIDES}
    for side in SIDES:
        merged[side][places["r"]], merged[side][places["s"]] = parts[side]
    return merged


def _self_join_order(found: Found) -> Positions:
    """By newcomer, then partner, then role: each newcomer has pairs as r and as s."""
    who = np.concatenate([found.newcomer["r"], found.newcomer["s"]])
    partner = np.concatenate([found.partner["r"], found.partner["s"]])
    role = np.repeat([0, 1], [len(found.newcomer["r"]), len(found.newcomer["s"])])
    return np.lexsort((role, partner, who))


def _places(taken: Taken, found: Found) -> dict[Side, Positions]:
    """Where each side's pairs go: behind those of all tuples taken earlier, r's and s's."""
    at = {side: taken.numbers[side][found.first[side] :][: len(found.counts[side])] for side in SIDES}
    start = min(int(at[side][0]) for side in SIDES)
    per_tuple = np.zeros(sum(len(a) for a in at.values()), np.int64)
    for side in SIDES:
        per_tuple[at[side] - start] = found.counts[side]
    before = np.cumsum(per_tuple) - per_tuple
    places: dict[Side, Positions] = {}
    for side in SIDES:
        counts = found.counts[side]
        shift = before[at[side] - start] - (np.cumsum(counts) - counts)
        places[side] = np.arange(int(counts.sum())) + np.repeat(shift, counts)
    return places


def counts_in_order(taken: Taken, found: Sequence[Found]) -> Positions:
    """For each tuple taken (in a self-join: each tuple once), how many pairs it completes."""
    counts = {side: np.concatenate([f.counts[side] for f in found]) for side in SIDES}
    if taken.self_join:
        both: Positions = counts["r"] + counts["s"]
        return both
    result = np.zeros(len(taken.order), np.int64)
    for side in SIDES:
        result[taken.numbers[side]] = counts[side]
    return result
