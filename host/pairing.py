"""Puts the pairs of one call in order: by the later tuple, then by its partner, then the newcomer as r first."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from millrace.host.condition import SIDES, Side
from millrace.host.indexes import Positions
from millrace.host.matcher import Found, Newcomers
from millrace.host.reach import Taken
from millrace.host.words import Array


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
    order = _order(taken, found)
    return {side: np.concatenate(parts[side])[order] for side in SIDES}


def _order(taken: Taken, found: Found) -> Array:
    """How r's newcomers' pairs, then s's, are to be rearranged."""
    if taken.self_join:
        who = np.concatenate([found.newcomer["r"], found.newcomer["s"]])
        partner = np.concatenate([found.partner["r"], found.partner["s"]])
        role = np.repeat([0, 1], [len(found.newcomer["r"]), len(found.newcomer["s"])])
        return np.lexsort((role, partner, who))
    ordinal = np.concatenate([taken.numbers(side)[found.newcomer[side]] for side in SIDES])
    return np.argsort(ordinal, kind="stable")


def counts_in_order(taken: Taken, found: Sequence[Found]) -> Positions:
    """For each tuple taken (in a self-join: each tuple once), how many pairs it completes."""
    counts = {side: np.concatenate([f.counts[side] for f in found]) for side in SIDES}
    if taken.self_join:
        both: Positions = counts["r"] + counts["s"]
        return both
    result = np.zeros(len(taken.order), np.int64)
    for side in SIDES:
        result[taken.numbers(side)] = counts[side]
    return result
