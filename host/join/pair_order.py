"""Orders the pairs of one call: by the new tuple, then by its partner, then by role (the new tuple as r first)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from millrace.host.base.types import SIDES, Positions, Side, other
from millrace.host.join.matcher import PairBlock
from millrace.host.join.pair_merger import SLACK, merge_pairs, repeat_numbers
from millrace.host.runtime.allocator import result_array
from millrace.host.runtime.intrinsics import address
from millrace.host.stream.window_bounds import NewTuples, TakenTuples


def pair_positions(
    taken: TakenTuples, new: dict[Side, NewTuples], blocks: Sequence[PairBlock]
) -> dict[Side, Positions]:
    """The positions of all pairs in the two windows. Blocks are in order; inside a block the two sides are merged."""
    ordered = [_ordered(taken, new, block) for block in blocks]
    if len(ordered) == 1:
        return ordered[0]
    return {side: np.concatenate([pairs[side] for pairs in ordered]) for side in SIDES}


def _ordered(taken: TakenTuples, new: dict[Side, NewTuples], block: PairBlock) -> dict[Side, Positions]:
    if taken.only is not None:
        return _one_sided(taken.only, new, block)
    if not taken.self_join:
        return _merged(taken, new, block)
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


def _merged(taken: TakenTuples, new: dict[Side, NewTuples], block: PairBlock) -> dict[Side, Positions]:
    """The pairs of two streams, tuple by tuple in the order they were taken."""
    start = block.first["r"] + block.first["s"]
    order = taken.order[start : start + len(block.counts["r"]) + len(block.counts["s"])]
    first = {side: new[side].first + block.first[side] for side in SIDES}
    words = {
        name: [np.ascontiguousarray(of_side[side], np.int64) for side in SIDES]
        for name, of_side in (("counts", block.counts), ("partners", block.partner))
    }
    sizes = len(words["partners"][0]), len(words["partners"][1])
    merged = result_array(sum(sizes), np.int64), result_array(sum(sizes), np.int64)
    where = [address(one) for one in (*words["counts"], *words["partners"])]
    merge_pairs(order, *where, sizes, first["r"], first["s"], merged)
    return dict(zip(SIDES, merged, strict=True))


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
