"""Searches runs of points for the nearest neighbours of one query, by a walk to the nearest boxes first.

The query keeps its k best candidates over all runs (`best.py`). In a run it descends from the root to the nearest box
first and skips every box that is farther than the worst of the k best. A box at the distance of the worst candidate is
skipped only if its least tie key is larger, so that a million equal points cost no more than some blocks. The points
that are in no run yet are compared one by one.
"""

from __future__ import annotations

from enum import auto

from millrace.host.knn.best import offer, worst_at
from millrace.host.knn.lanes import BLOCK, FANOUT, LINE_POINTS, block_squares, column_squares, nearest_box, node_words
from millrace.host.knn.search_args import (
    MAX_LEVELS,
    RUN_WORDS,
    QueryState,
    RunArgs,
    SearchArgs,
    candidates,
    visible_children,
)
from millrace.host.runtime.intrinsics import load, load_as, lowest_bit, prefetch, store
from millrace.host.runtime.jit import inline
from millrace.host.runtime.kernel_args import KernelArgs

_ALL = (1 << FANOUT) - 1
"""The mask of all children."""
PATH_WORDS = 2 * MAX_LEVELS
"""For each level the number of the node on the path, and the mask of its children that are not visited yet."""


class WalkState(KernelArgs):
    """The memory of a walk, in scratch memory of the kernel."""

    BEST = auto()
    K = auto()
    SQUARES = auto()  # room for the squared distances of a block, and of the boxes of a node
    BOX_SQUARES = auto()
    PATH = auto()


WALK_WORDS = len(WalkState)


@inline
def _offer_lanes(walk: int, mask: int, positions: int, ties: int, count: int) -> int:
    """Offer the points of some lanes; return how many candidates there are."""
    best, k, squares = load(walk, WalkState.BEST), load(walk, WalkState.K), load(walk, WalkState.SQUARES)
    while mask != 0:
        lane = lowest_bit(mask)
        mask &= mask - 1
        count = offer(best, k, count, k, load_as(squares, lane, 0.0), load(ties, lane), load(positions, lane))
    return count


@inline
def _bound(query: int, walk: int, count: int) -> float:
    """Return the largest squared distance that a candidate may have."""
    k = load(walk, WalkState.K)
    bound: float = load_as(query, QueryState.LIMIT, 0.0)
    if count >= k:
        bound = load_as(load(walk, WalkState.BEST), worst_at(k), 0.0)
    return bound


@inline
def _scan_block(query: int, walk: int, run: int, block: int, dims: int, count: int, bound: float) -> int:
    """Offer the points of a block; return how many candidates there are."""
    positions, ties, groups = load(run, RunArgs.POSITIONS), load(run, RunArgs.TIES), load(run, RunArgs.GROUPS)
    points, at = load(run, RunArgs.BLOCKS) + 8 * BLOCK * dims * block, 8 * BLOCK * block
    mask = block_squares(points, query + 8 * QueryState.POINT, dims, bound, load(walk, WalkState.SQUARES))
    if load(run, RunArgs.CHECKED) != 0:
        mask = candidates(query, mask, positions + at, groups + at if groups != 0 else 0)
    return _offer_lanes(walk, mask, positions + at, ties + at, count)


@inline
def _only_later_ties(walk: int, facts: int, child: int, count: int, bound: float) -> bool:
    """Return whether a child has no candidate that comes before the worst one."""
    k, square = load(walk, WalkState.K), load_as(load(walk, WalkState.BOX_SQUARES), child, 0.0)
    worst = load(walk, WalkState.BEST) + 8 * (k + worst_at(k))
    return (square == bound) & (count == k) and load(facts, 2 * FANOUT + child) > load(worst, 0)


@inline
def _prefetch_blocks(blocks: int, first: int, mask: int, dims: int) -> None:
    """Prefetch the points of the blocks in a mask, of which the lowest bit is block number `first`."""
    while mask != 0:
        block = blocks + 8 * BLOCK * dims * (first + lowest_bit(mask))
        mask &= mask - 1
        for line in range(BLOCK * dims // LINE_POINTS):
            prefetch(block + 64 * line)


@inline
def _walk_run(query: int, walk: int, run: int, dims: int, count: int) -> int:
    """Search a run; return how many candidates there are."""
    path, words, top = load(walk, WalkState.PATH), 8 * node_words(dims), load(run, RunArgs.LEVELS) - 1
    checked, level, bound = load(run, RunArgs.CHECKED) != 0, top, _bound(query, walk, count)
    squares = load(walk, WalkState.BOX_SQUARES)
    store(path, top, 0)
    store(path, MAX_LEVELS + top, _ALL)
    while level <= top:
        number, allowed = load(path, level), load(path, MAX_LEVELS + level)
        if allowed == 0:
            level += 1
            continue
        node = load(run, RunArgs.LEVEL + level) + words * number
        facts = node + 16 * FANOUT * dims
        found = nearest_box(node, query + 8 * QueryState.POINT, dims, bound, allowed, squares)
        mask, child = found & _ALL, found >> FANOUT
        if checked:
            mask = visible_children(query, facts, mask)
        if mask == 0:
            level += 1
            continue
        if level > 0:
            store(path, MAX_LEVELS + level, mask & ~(1 << child))
            if (mask >> child) & 1 == 0 or _only_later_ties(walk, facts, child, count, bound):
                continue
            level -= 1
            store(path, level, FANOUT * number + child)
            store(path, MAX_LEVELS + level, _ALL)
            continue
        level += 1
        _prefetch_blocks(load(run, RunArgs.BLOCKS), FANOUT * number, mask & ~(1 << child), dims)
        while mask != 0:  # the nearest block first, then the others as they are
            child = child if (mask >> child) & 1 != 0 else lowest_bit(mask)
            mask &= ~(1 << child)
            if load_as(squares, child, 0.0) > bound or _only_later_ties(walk, facts, child, count, bound):
                continue
            count = _scan_block(query, walk, run, FANOUT * number + child, dims, count, bound)
            bound = _bound(query, walk, count)
    return count


@inline
def _scan_tail(given: int, query: int, walk: int, dims: int, count: int) -> int:
    """Offer the visible points that are in columns; return how many candidates there are."""
    first, step = load(given, SearchArgs.TAIL_FIRST), load(given, SearchArgs.TAIL_STRIDE)
    columns, ties = load(given, SearchArgs.TAIL_COLUMNS), load(given, SearchArgs.TAIL_TIES)
    groups, positions = load(given, SearchArgs.TAIL_GROUPS), load(given, SearchArgs.TAIL_POSITIONS)
    start = max(load(query, QueryState.BEGIN) - first, 0)
    stop = min(load(query, QueryState.END) - first, load(given, SearchArgs.TAIL_COUNT))
    squares = load(walk, WalkState.SQUARES)
    for at in range(start, stop, LINE_POINTS):
        bound = _bound(query, walk, count)
        mask = column_squares(columns + 8 * at, step, query + 8 * QueryState.POINT, dims, bound, squares)
        if mask != 0:
            mask = candidates(query, mask, positions + 8 * at, groups + 8 * at if groups != 0 else 0)
            count = _offer_lanes(walk, mask, positions + 8 * at, ties + 8 * at, count)
    return count


@inline
def walk_all(given: int, query: int, walk: int, dims: int) -> int:
    """Search all runs, then the points in columns; return how many candidates there are."""
    count = 0
    for j in range(load(given, SearchArgs.RUNS)):
        count = _walk_run(query, walk, given + 8 * (SearchArgs.RUN + RUN_WORDS * j), dims, count)
    return _scan_tail(given, query, walk, dims, count)
