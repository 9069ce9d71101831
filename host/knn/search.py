"""Searches runs of points, and points in columns, for the nearest neighbours of many queries.

A query keeps its k best candidates over all runs. In a run it descends from the root to the nearest boxes first and
skips every box that is farther than the worst of the k best. A box at the same distance is skipped only if its least
tie key is larger, so that ties are exact and a thousand equal points cost no more than one block. Queries run in the
order of the curve: neighbours read the same blocks. The points that are in no run yet are compared one by one.
"""

from __future__ import annotations

from enum import auto

import numpy as np

from millrace.host.knn.best import offer, sort_best, worst_at
from millrace.host.knn.lanes import (
    BLOCK,
    FANOUT,
    LINE_POINTS,
    block_squares,
    box_squares,
    column_squares,
    node_words,
)
from millrace.host.runtime.intrinsics import load, load_as, load_id, lowest_bit, stack_words, store, store_as
from millrace.host.runtime.jit import inline, share
from millrace.host.runtime.kernel_args import KernelArgs

MAX_LEVELS = 8
"""Levels of a run: 16^8 blocks are more than memory holds."""
_STACK = 3 * MAX_LEVELS * FANOUT
"""Words of the stack: distance, level and number of each box that is not visited yet."""


class SearchArgs(KernelArgs):
    """The arguments of `search`."""

    COUNT = auto()  # queries
    ORDER = auto()  # their numbers in the order of the curve
    DIMS = auto()
    STRIDE = auto()  # words between the columns of the queries
    QUERIES = auto()  # the first column
    BEGIN = auto()  # the visible interval of each query, or 0: all positions
    END = auto()
    OWN = auto()  # the position that a query must not find, or 0
    GROUPS = auto()  # the group of each query, or 0
    K = auto()
    LIMIT = auto()  # the largest squared distance, as bits
    SCRATCH = auto()  # per part: the best candidates
    OUT_COUNTS = auto()
    OUT_SQUARES = auto()
    OUT_POSITIONS = auto()
    TAIL_FIRST = auto()  # the points in columns: their first position, number, and the words between columns
    TAIL_COUNT = auto()
    TAIL_STRIDE = auto()
    TAIL_COLUMNS = auto()
    TAIL_TIES = auto()  # 0: the positions
    TAIL_GROUPS = auto()
    RUNS = auto()
    RUN = auto()  # then per run: the words of `RunArgs`


class RunArgs(KernelArgs):
    """The words of a run."""

    CHECKED = auto()  # whether each candidate's position, group and identity must be checked
    LEVELS = auto()
    BLOCKS = auto()
    POSITIONS = auto()
    TIES = auto()
    GROUPS = auto()
    LEVEL = auto()  # the lowest level; the others follow


RUN_WORDS = int(RunArgs.LEVEL) + MAX_LEVELS


class QueryState(KernelArgs):
    """What a query knows, in scratch memory of the kernel."""

    BEGIN = auto()
    END = auto()
    OWN = auto()
    GROUP = auto()
    GROUPED = auto()
    BEST = auto()
    STRIDE = auto()
    K = auto()
    POINT = auto()  # the coordinates follow


_STATE_WORDS = int(QueryState.POINT) + 8


@inline
def _is_candidate(state: int, position: int, group: int) -> bool:
    """Return whether a query may find a point."""
    visible = (position >= load(state, QueryState.BEGIN)) & (position < load(state, QueryState.END))
    same = (load(state, QueryState.GROUPED) == 0) | (group == load(state, QueryState.GROUP))
    return visible & same & (position != load(state, QueryState.OWN))


@inline
def _scan_block(state: int, run: int, block: int, dims: int, count: int, bound: float, squares: int) -> int:
    """Offer the points of a block; return how many candidates there are."""
    best, stride, k = load(state, QueryState.BEST), load(state, QueryState.STRIDE), load(state, QueryState.K)
    positions, ties, groups = load(run, RunArgs.POSITIONS), load(run, RunArgs.TIES), load(run, RunArgs.GROUPS)
    checked = load(run, RunArgs.CHECKED)
    points = load(run, RunArgs.BLOCKS) + 8 * BLOCK * dims * block
    mask = block_squares(points, state + 8 * QueryState.POINT, dims, bound, squares)
    while mask != 0:
        lane = lowest_bit(mask)
        mask &= mask - 1
        at = BLOCK * block + lane
        position = load(positions, at)
        if checked != 0 and not _is_candidate(state, position, load(groups, at) if groups != 0 else 0):
            continue
        count = offer(best, stride, count, k, load_as(squares, lane, 0.0), load(ties, at), position)
    return count


@inline
def _bound(state: int, count: int, limit: float) -> float:
    """Return the largest squared distance that a candidate may have."""
    k = load(state, QueryState.K)
    return load_as(load(state, QueryState.BEST), worst_at(k), 0.0) if count == k else limit


@inline
def _hidden(state: int, facts: int, child: int) -> bool:
    """Return whether a query may find no point of a child."""
    late, early = (
        load(facts, child) >= load(state, QueryState.END),
        load(facts, FANOUT + child) < load(state, QueryState.BEGIN),
    )
    group = load(state, QueryState.GROUP)
    other = (load(facts, 3 * FANOUT + child) > group) | (load(facts, 4 * FANOUT + child) < group)
    return late | early | ((load(state, QueryState.GROUPED) != 0) & other)


@inline
def _push_children(
    state: int,
    run: int,
    node: int,
    level: int,
    number: int,
    dims: int,
    bound: float,
    squares: int,
    stack: int,
    top: int,
) -> int:
    """Push the children of a node that may hold a candidate, the nearest last; return the new top of the stack."""
    facts = node + 16 * FANOUT * dims
    checked = load(run, RunArgs.CHECKED)
    mask = box_squares(node, state + 8 * QueryState.POINT, dims, bound, squares)
    first = top
    while mask != 0:
        child = lowest_bit(mask)
        mask &= mask - 1
        if checked != 0 and _hidden(state, facts, child):
            continue
        square = load_as(squares, child, 0.0)
        at = top
        while at > first and load_as(stack, 3 * at - 3, 0.0) <= square:
            store(stack, 3 * at, load(stack, 3 * at - 3))
            store(stack, 3 * at + 1, load(stack, 3 * at - 2))
            store(stack, 3 * at + 2, load(stack, 3 * at - 1))
            at -= 1
        store_as(stack, 3 * at, square)
        store(stack, 3 * at + 1, load(facts, 2 * FANOUT + child))
        store(stack, 3 * at + 2, ((FANOUT * number + child) << 4) | level)
        top += 1
    return top


@inline
def _search_run(state: int, run: int, dims: int, count: int, limit: float, stack: int, squares: int) -> int:
    """Search a run; return how many candidates there are."""
    levels = load(run, RunArgs.LEVELS)
    best, stride, k = load(state, QueryState.BEST), load(state, QueryState.STRIDE), load(state, QueryState.K)
    words = 8 * node_words(dims)
    bound = _bound(state, count, limit)
    top = _push_children(
        state, run, load(run, RunArgs.LEVEL + levels - 1), levels - 1, 0, dims, bound, squares, stack, 0
    )
    while top > 0:
        top -= 1
        square = load_as(stack, 3 * top, 0.0)
        if square > bound:
            continue
        if square == bound and count == k and load(stack, 3 * top + 1) > load(best, stride + worst_at(k)):
            continue
        packed = load(stack, 3 * top + 2)
        level, number = packed & 15, packed >> 4
        if level == 0:
            count = _scan_block(state, run, number, dims, count, bound, squares)
            bound = _bound(state, count, limit)
        else:
            node = load(run, RunArgs.LEVEL + level - 1) + words * number
            top = _push_children(state, run, node, level - 1, number, dims, bound, squares, stack, top)
    return count


@inline
def _scan_tail(given: int, state: int, dims: int, count: int, limit: float, squares: int) -> int:
    """Offer the visible points that are in columns, in the order of their positions."""
    best, stride, k = load(state, QueryState.BEST), load(state, QueryState.STRIDE), load(state, QueryState.K)
    first, step = load(given, SearchArgs.TAIL_FIRST), load(given, SearchArgs.TAIL_STRIDE)
    columns, ties = load(given, SearchArgs.TAIL_COLUMNS), load(given, SearchArgs.TAIL_TIES)
    groups = load(given, SearchArgs.TAIL_GROUPS)
    start = max(load(state, QueryState.BEGIN) - first, 0)
    stop = min(load(state, QueryState.END) - first, load(given, SearchArgs.TAIL_COUNT))
    for at in range(start, stop, LINE_POINTS):
        bound = _bound(state, count, limit)
        mask = column_squares(columns + 8 * at, step, state + 8 * QueryState.POINT, dims, bound, squares)
        if stop - at < LINE_POINTS:
            mask &= (1 << (stop - at)) - 1
        while mask != 0:
            lane = lowest_bit(mask)
            mask &= mask - 1
            row = at + lane
            if _is_candidate(state, first + row, load(groups, row) if groups != 0 else 0):
                tie = load(ties, row) if ties != 0 else first + row
                count = offer(best, stride, count, k, load_as(squares, lane, 0.0), tie, first + row)
    return count


@inline
def _read_query(given: int, state: int, query: int, dims: int) -> bool:
    """Load a query into `state`; return whether it may find anything: all its coordinates are numbers."""
    usable = True
    for i in range(dims):
        value = load_as(load(given, SearchArgs.QUERIES), load(given, SearchArgs.STRIDE) * i + query, 0.0)
        store_as(state, QueryState.POINT + i, value)
        usable &= value == value
    if load(given, SearchArgs.BEGIN) != 0:
        store(state, QueryState.BEGIN, load(load(given, SearchArgs.BEGIN), query))
        store(state, QueryState.END, load(load(given, SearchArgs.END), query))
    if load(given, SearchArgs.OWN) != 0:
        store(state, QueryState.OWN, load(load(given, SearchArgs.OWN), query))
    if load(given, SearchArgs.GROUPS) != 0:
        store(state, QueryState.GROUP, load(load(given, SearchArgs.GROUPS), query))
    return usable


@share
def search(given: int, part: int, parts: int) -> None:
    """Find the nearest neighbours of a part of the queries."""
    n, dims, k = load(given, SearchArgs.COUNT), load(given, SearchArgs.DIMS), load(given, SearchArgs.K)
    limit, runs = load_as(given, SearchArgs.LIMIT, 0.0), load(given, SearchArgs.RUNS)
    state, stack, squares = stack_words(_STATE_WORDS), stack_words(_STACK), stack_words(BLOCK)
    best = load(given, SearchArgs.SCRATCH) + 8 * 3 * k * part
    store(state, QueryState.BEGIN, np.iinfo(np.int64).min)
    store(state, QueryState.END, np.iinfo(np.int64).max)
    store(state, QueryState.OWN, -1)
    store(state, QueryState.GROUPED, load(given, SearchArgs.GROUPS) != 0)
    store(state, QueryState.BEST, best)
    store(state, QueryState.STRIDE, k)
    store(state, QueryState.K, k)
    for i in range(n * part // parts, n * (part + 1) // parts):
        query = load_id(load(given, SearchArgs.ORDER), i)
        count = 0
        if _read_query(given, state, query, dims):
            for j in range(runs):
                run = given + 8 * (SearchArgs.RUN + RUN_WORDS * j)
                count = _search_run(state, run, dims, count, limit, stack, squares)
            count = _scan_tail(given, state, dims, count, limit, squares)
        sort_best(best, k, count, k)
        store(load(given, SearchArgs.OUT_COUNTS), query, count)
        for j in range(count):
            store(load(given, SearchArgs.OUT_SQUARES), k * query + j, load(best, j))
            store(load(given, SearchArgs.OUT_POSITIONS), k * query + j, load(best, 2 * k + j))
