"""Puts the pairs of one call in order: by the later tuple, then by its partner, then the newcomer as r first."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from millrace.host.condition import SIDES, Side
from millrace.host.indexes import Positions
from millrace.host.matcher import Found, Newcomers
from millrace.host.pair_merger import merge_pairs
from millrace.host.reach import Taken


def pair_positions(taken: Taken, new: dict[Side, Newcomers], found: Sequence[Found]) -> dict[Side, Positions]:
    """The positions of all pairs in the two windows. Blocks come in order; inside a block the two sides are merged."""
    blocks = [_block(taken, new, one) for one in found]
    return {side: np.concatenate([b[side] for b in blocks]) for side in SIDES}


def _block(taken: Taken, new: dict[Side, Newcomers], found: Found) -> dict[Side, Positions]:
    if not taken.self_join:
        return _merged(taken, new, found)
    own = {side: new[side].first + found.newcomer[side] for side in SIDES}
    order = _self_join_order(found)
    return {
        "r": np.concatenate([own["r"], found.partner["s"]])[order],
        "s": np.concatenate([found.partner["r"], own["s"]])[order],
    }


def _merged(taken: Taken, new: dict[Side, Newcomers], found: Found) -> dict[Side, Positions]:
    """The pairs of two streams, tuple by tuple in the order they were taken."""
    start = found.first["r"] + found.first["s"]
    order = taken.order[start : start + len(found.counts["r"]) + len(found.counts["s"])]
    first = {side: new[side].first + found.first[side] for side in SIDES}
    pairs = len(found.partner["r"]) + len(found.partner["s"])
    merged = {side: np.empty(pairs, np.int64) for side in SIDES}
    counts, partners = found.counts, found.partner
    merge_pairs(
        order, counts["r"], counts["s"], partners["r"], partners["s"], first["r"], first["s"], merged["r"], merged["s"]
    )
    return merged


def _self_join_order(found: Found) -> Positions:
    """By newcomer, then partner, then role: each newcomer has pairs as r and as s."""
    who = np.concatenate([found.newcomer["r"], found.newcomer["s"]])
    partner = np.concatenate([found.partner["r"], found.partner["s"]])
    role = np.repeat([0, 1], [len(found.newcomer["r"]), len(found.newcomer["s"])])
    return np.lexsort((role, partner, who))


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
