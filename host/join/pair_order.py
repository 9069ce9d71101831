"""Orders the pairs of one call: by the new tuple, then by its partner, then by role (the new tuple as r first)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from millrace.host.base.types import SIDES, Order, Positions, Side, other
from millrace.host.join.matcher import PairBlock
from millrace.host.join.pair_merger import PART_WORDS, SLACK, PairMerge, merge_pairs, repeat_numbers
from millrace.host.runtime.allocator import result_array
from millrace.host.runtime.team import MIN_SHARED_ROWS, Team
from millrace.host.stream.window_bounds import NewTuples, TakenTuples


def pair_positions(
    taken: TakenTuples, new: dict[Side, NewTuples], blocks: Sequence[PairBlock], team: Team
) -> dict[Side, Positions]:
    """The positions of all pairs in the two windows. Blocks are in order; inside a block the two sides are merged."""
    ordered = [_ordered(taken, new, block, team) for block in blocks]
    if len(ordered) == 1:
        return ordered[0]
    return {side: np.concatenate([pairs[side] for pairs in ordered]) for side in SIDES}


def _ordered(taken: TakenTuples, new: dict[Side, NewTuples], block: PairBlock, team: Team) -> dict[Side, Positions]:
    if taken.only is not None:
        return _one_sided(taken.only, new, block)
    if not taken.self_join:
        return _merged(taken, new, block, team)
    tuple_numbers = {side: block.tuple_numbers(side) for side in SIDES}
    own_positions = {side: new[side].first + tuple_numbers[side] for side in SIDES}
    order = _self_join_order(block, tuple_numbers)
    return {
        "r": np.concatenate([own_positions["r"], block.partner["s"]])[order],
        "s": np.concatenate([block.partner["r"], own_positions["s"]])[order],
    }


def _one_sided(side: Side, new: dict[Side, NewTuples], block: PairBlock) -> dict[Side, Positions]:
    """The pairs of one side's tuples, which are in order already."""
    partner, own_positions = block.partner[side], block.own_positions[side]
    if own_positions is not None:
        return {side: own_positions, other(side): partner}
    tuple_numbers = np.empty(len(partner) + SLACK, np.int64)
    repeat_numbers(block.counts[side], new[side].first + block.first[side], tuple_numbers)
    return {side: tuple_numbers[: len(partner)], other(side): partner}


def _merged(taken: TakenTuples, new: dict[Side, NewTuples], block: PairBlock, team: Team) -> dict[Side, Positions]:
    """The pairs of two streams, tuple by tuple in the order they were taken."""
    start = block.first["r"] + block.first["s"]
    counts, partners = (
        [np.ascontiguousarray(of_side[side], np.int64) for side in SIDES] for of_side in (block.counts, block.partner)
    )
    order = np.ascontiguousarray(taken.order[start : start + len(counts[0]) + len(counts[1])])
    sizes = len(partners[0]), len(partners[1])
    merged = {side: result_array(sum(sizes), np.int64) for side in SIDES}
    parts = team.threads if len(order) >= MIN_SHARED_ROWS else 1
    given = PairMerge.pack(
        ORDER=order,
        COUNTS_R=counts[0],
        COUNTS_S=counts[1],
        PARTNERS_R=partners[0],
        PARTNERS_S=partners[1],
        PAIRS_R=sizes[0],
        PAIRS_S=sizes[1],
        R=new["r"].first + block.first["r"],
        S=new["s"].first + block.first["s"],
        TO_R=merged["r"],
        TO_S=merged["s"],
        PARTS=(cuts := _cuts(order, counts, sizes, parts)),
    )
    team.run(merge_pairs, given, parts)
    del cuts
    return merged


def _cuts(order: Order, counts: list[Positions], sizes: tuple[int, int], parts: int) -> Positions:
    """Where parts of the tuples begin: tuples before them, r's and s's among them, and the pairs of these."""
    cuts = np.zeros((parts + 1, PART_WORDS), np.int64)
    for part in range(1, parts):
        first, stop = cuts[part - 1, 0], part * len(order) // parts
        of_s = np.count_nonzero(order[first:stop])
        new = np.array([stop - first - of_s, of_s])
        before, after = cuts[part - 1, 1:3], cuts[part - 1, 1:3] + new
        pairs = [one[i:k].sum() for one, i, k in zip(counts, before, after, strict=True)]
        cuts[part] = stop, *after, *(cuts[part - 1, 3:] + pairs)
    cuts[parts] = len(order), len(counts[0]), len(counts[1]), *sizes
    return cuts


def _self_join_order(block: PairBlock, tuple_numbers: dict[Side, Positions]) -> Positions:
    """By new tuple, then partner, then role: each new tuple has pairs as r and as s."""
    probe_tuple = np.concatenate([tuple_numbers["r"], tuple_numbers["s"]])
    partner = np.concatenate([block.partner["r"], block.partner["s"]])
    role = np.repeat([0, 1], [len(tuple_numbers["r"]), len(tuple_numbers["s"])])
    return np.lexsort((role, partner, probe_tuple))


def counts_in_order(taken: TakenTuples, blocks: Sequence[PairBlock]) -> Positions:
    """For each tuple taken (in a self-join: each tuple once), how many pairs it completes."""
    counts = {side: np.concatenate([block.counts[side] for block in blocks]) for side in SIDES}
    if taken.only is not None:
        return counts[taken.only]
    if taken.self_join:
        both: Positions = counts["r"] + counts["s"]
        return both
    result = np.zeros(len(taken.order), np.int64)
    for side in SIDES:
        result[taken.numbers[side]] = counts[side]
    return result
