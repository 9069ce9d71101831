"""Puts the pairs of one call in order: by the later tuple, then by its partner, then the newcomer as r first."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from millrace.host.base.types import SIDES, Positions, Side, other
from millrace.host.join.matcher import Found
from millrace.host.join.pair_merger import SLACK, merge_pairs, repeat_numbers
from millrace.host.stream.visible import Newcomers, Taken


def pair_positions(taken: Taken, new: dict[Side, Newcomers], found: Sequence[Found]) -> dict[Side, Positions]:
    """The positions of all pairs in the two windows. Blocks come in order; inside a block the two sides are merged."""
    blocks = [_block(taken, new, one) for one in found]
    if len(blocks) == 1:
        return blocks[0]
    return {side: np.concatenate([b[side] for b in blocks]) for side in SIDES}


def _block(taken: Taken, new: dict[Side, Newcomers], found: Found) -> dict[Side, Positions]:
    if taken.only is not None:
        return _one_sided(taken.only, new, found)
    if not taken.self_join:
        return _merged(taken, new, found)
    newcomer = {side: found.newcomer(side) for side in SIDES}
    own = {side: new[side].first + newcomer[side] for side in SIDES}
    order = _self_join_order(found, newcomer)
    return {
        "r": np.concatenate([own["r"], found.partner["s"]])[order],
        "s": np.concatenate([found.partner["r"], own["s"]])[order],
    }


def _one_sided(side: Side, new: dict[Side, Newcomers], found: Found) -> dict[Side, Positions]:
    """The pairs of one side's tuples are in order as they are."""
    partner, own = found.partner[side], found.own[side]
    if own is not None:
        return {side: own, other(side): partner}
    newcomer = np.empty(len(partner) + SLACK, np.int64)
    repeat_numbers(found.counts[side], new[side].first + found.first[side], newcomer)
    return {side: newcomer[: len(partner)], other(side): partner}


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


def _self_join_order(found: Found, newcomer: dict[Side, Positions]) -> Positions:
    """By newcomer, then partner, then role: each newcomer has pairs as r and as s."""
    who = np.concatenate([newcomer["r"], newcomer["s"]])
    partner = np.concatenate([found.partner["r"], found.partner["s"]])
    role = np.repeat([0, 1], [len(newcomer["r"]), len(newcomer["s"])])
    return np.lexsort((role, partner, who))


def counts_in_order(taken: Taken, found: Sequence[Found]) -> Positions:
    """For each tuple taken (in a self-join: each tuple once), how many pairs it completes."""
    counts = {side: np.concatenate([f.counts[side] for f in found]) for side in SIDES}
    if taken.only is not None:
        return counts[taken.only]
    if taken.self_join:
        both: Positions = counts["r"] + counts["s"]
        return both
    result = np.zeros(len(taken.order), np.int64)
    for side in SIDES:
        result[taken.numbers[side]] = counts[side]
    return result
