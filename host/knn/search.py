"""Searches runs of points, and points in columns, for the nearest neighbours of many queries.

A query keeps its k best candidates over all runs. In a run it descends from the root to the nearest box first and skips
every box that is farther than the worst of the k best. Below `MAX_LANES` neighbours it searches by squared distance
alone, with the candidates in SIMD registers (`best_lanes.py`). If two candidates are equally far, or k is larger, it
searches with exact ties (`best.py`): then a box at the distance of the worst candidate is skipped only if its least tie
key is larger, so that a million equal points cost no more than some blocks. Queries run in the order of the curve:
neighbours read the same blocks. The points that are in no run yet are compared one by one.
"""

from __future__ import annotations

import math
from enum import auto

import numpy as np

from millrace.host.knn.best import offer, sort_best, worst_at
from millrace.host.knn.best_lanes import MAX_LANES, clear_best, copy_best, insert_candidates
from millrace.host.knn.lanes import (
    BLOCK,
    FANOUT,
    LINE_POINTS,
    block_squares,
    column_squares,
    nearest_box,
    node_words,
)
from millrace.host.runtime.intrinsics import (
    load,
    load_as,
    load_id,
    lowest_bit,
    ones,
    prefetch,
    stack_words,
    store,
    store_as,
)
from millrace.host.runtime.jit import inline, share
from millrace.host.runtime.kernel_args import KernelArgs

MAX_LEVELS = 8
"""Levels of a run: 16^8 blocks are more than memory holds."""
_AHEAD = 8
"""Prefetch distance in queries."""
_ROUNDING, _UNDERFLOW = 1e-9, 1e-300
_ALL = (1 << FANOUT) - 1
"""The mask of all children."""
_PATH_WORDS = 2 * MAX_LEVELS
"""For each level the number of the node on the path, and the mask of its children that are not visited yet."""


_LANES_WORDS = 2 * MAX_LANES
_MANY_TIES, _ALWAYS_TIES, _RETRY = 8, 1 << 30, 16
"""If most of the last queries had ties, the next ones are searched exactly at once, but for one in `_RETRY`."""


class SearchArgs(KernelArgs):
    """The arguments of `search`."""

    COUNT = auto()  # queries
    ORDER = auto()  # their numbers in the order of the curve
    DIMS = auto()
    STRIDE = auto()  # words between the columns of the queries
    QUERIES = auto()  # the first column
    BEGIN = auto()  # the visible interval of each query, or 0: all positions
    END = auto()
    OWN = auto()  # the position that is no neighbour of a query, or 0
    GROUPS = auto()  # the group of each query, or 0
    K = auto()  # neighbours that are searched: one more than are wanted if each query has a position of its own
    LIMIT = auto()  # the largest squared distance, as bits
    LIMITS = auto()  # that of each query, or 0
    SCRATCH = auto()  # per part: the best candidates
    OUT_COUNTS = auto()
    OUT_SQUARES = auto()
    OUT_POSITIONS = auto()
    OUT_K = auto()  # neighbours that are wanted
    TAIL_FIRST = auto()  # the points in columns: their first position, number, and the words between columns
    TAIL_COUNT = auto()
    TAIL_STRIDE = auto()
    TAIL_COLUMNS = auto()
    TAIL_POSITIONS = auto()
    TAIL_TIES = auto()
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
    GROUP = auto()
    GROUPED = auto()
    BEST = auto()
    K = auto()
    LIMIT = auto()
    SQUARES = auto()  # scratch for the squared distances of a block, and of the boxes of a node
    BOX_SQUARES = auto()
    PATH = auto()
    POINT = auto()  # the coordinates follow; before a query is read, those of the query before


_COORDINATES = 8
_STATE_WORDS = int(QueryState.POINT) + _COORDINATES
_EQUAL = -1
"""Instead of a number of candidates: two of them are equally far, and exact ties are needed."""


@inline
def _is_candidate(state: int, position: int, group: int) -> bool:
    """Return whether a query may find a point."""
    visible = (position >= load(state, QueryState.BEGIN)) & (position < load(state, QueryState.END))
    same = (load(state, QueryState.GROUPED) == 0) | (group == load(state, QueryState.GROUP))
    return visible & same


@inline
def _candidates(state: int, mask: int, positions: int, groups: int) -> int:
    """Return the lanes of a mask whose points the query may find."""
    found, left = 0, mask
    while left != 0:
        lane = lowest_bit(left)
        left &= left - 1
        keep = _is_candidate(state, load(positions, lane), load(groups, lane) if groups != 0 else 0)
        found |= (1 if keep else 0) << lane
    return found


@inline
def _offer_lanes(state: int, mask: int, positions: int, ties: int, count: int, exact: bool) -> int:
    """Offer the points of some lanes; return how many candidates there are, or `_EQUAL`."""
    best, k, squares = load(state, QueryState.BEST), load(state, QueryState.K), load(state, QueryState.SQUARES)
    if not exact:
        met = insert_candidates(mask, squares, positions, best, k)
        return count + ones(mask) if met == 0 else _EQUAL
    while mask != 0:
        lane = lowest_bit(mask)
        mask &= mask - 1
        count = offer(best, k, count, k, load_as(squares, lane, 0.0), load(ties, lane), load(positions, lane))
    return count


@inline
def _bound(state: int, count: int, exact: bool) -> float:
    """Return the largest squared distance that a candidate may have."""
    k = load(state, QueryState.K)
    at = worst_at(k) if exact else k - 1
    bound: float = load_as(state, QueryState.LIMIT, 0.0)
    if count >= k:
        bound = load_as(load(state, QueryState.BEST), at, 0.0)
    return bound


@inline
def _scan_block(state: int, run: int, block: int, dims: int, count: int, bound: float, exact: bool) -> int:
    """Offer the points of a block; return how many candidates there are, or `_EQUAL`."""
    positions, ties, groups = load(run, RunArgs.POSITIONS), load(run, RunArgs.TIES), load(run, RunArgs.GROUPS)
    points, at = load(run, RunArgs.BLOCKS) + 8 * BLOCK * dims * block, 8 * BLOCK * block
    for line in range(BLOCK // LINE_POINTS):
        prefetch(positions + at + 64 * line)
    mask = block_squares(points, state + 8 * QueryState.POINT, dims, bound, load(state, QueryState.SQUARES))
    if load(run, RunArgs.CHECKED) != 0:
        mask = _candidates(state, mask, positions + at, groups + at if groups != 0 else 0)
    return _offer_lanes(state, mask, positions + at, ties + at, count, exact)


@inline
def _visible_children(state: int, facts: int, mask: int) -> int:
    """Return the children of a mask in which the query may find a point."""
    begin, end = load(state, QueryState.BEGIN), load(state, QueryState.END)
    grouped, group = load(state, QueryState.GROUPED) != 0, load(state, QueryState.GROUP)
    found, left = 0, mask
    while left != 0:
        child = lowest_bit(left)
        left &= left - 1
        visible = (load(facts, child) < end) & (load(facts, FANOUT + child) >= begin)
        same = (load(facts, 3 * FANOUT + child) <= group) & (load(facts, 4 * FANOUT + child) >= group)
        found |= (1 if visible & (same | (not grouped)) else 0) << child
    return found


@inline
def _only_later_ties(state: int, facts: int, child: int, count: int, bound: float) -> bool:
    """Return whether a child has no candidate that comes before the worst one."""
    k, square = load(state, QueryState.K), load_as(load(state, QueryState.BOX_SQUARES), child, 0.0)
    worst = load(state, QueryState.BEST) + 8 * (k + worst_at(k))
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
def _search_run(state: int, run: int, dims: int, count: int, exact: bool) -> int:
    """Search a run; return how many candidates there are, or `_EQUAL`."""
    path, words, top = load(state, QueryState.PATH), 8 * node_words(dims), load(run, RunArgs.LEVELS) - 1
    checked, level, bound = load(run, RunArgs.CHECKED) != 0, top, _bound(state, count, exact)
    store(path, top, 0)
    store(path, MAX_LEVELS + top, _ALL)
    while level <= top:
        number, allowed = load(path, level), load(path, MAX_LEVELS + level)
        if allowed == 0:
            level += 1
            continue
        node = load(run, RunArgs.LEVEL + level) + words * number
        facts = node + 16 * FANOUT * dims
        squares = load(state, QueryState.BOX_SQUARES)
        found = nearest_box(node, state + 8 * QueryState.POINT, dims, bound, allowed, squares)
        mask, child = found & _ALL, found >> FANOUT
        if checked:
            mask = _visible_children(state, facts, mask)
        if mask == 0:
            level += 1
            continue
        if level > 0:
            store(path, MAX_LEVELS + level, mask & ~(1 << child))
            if (mask >> child) & 1 == 0 or (exact and _only_later_ties(state, facts, child, count, bound)):
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
            if load_as(squares, child, 0.0) > bound or (exact and _only_later_ties(state, facts, child, count, bound)):
                continue
            count = _scan_block(state, run, FANOUT * number + child, dims, count, bound, exact)
            if count == _EQUAL:
                return count
            bound = _bound(state, count, exact)
    return count


@inline
def _scan_tail(given: int, state: int, dims: int, count: int, exact: bool) -> int:
    """Offer the visible points that are in columns; return how many candidates there are, or `_EQUAL`."""
    first, step = load(given, SearchArgs.TAIL_FIRST), load(given, SearchArgs.TAIL_STRIDE)
    columns, ties = load(given, SearchArgs.TAIL_COLUMNS), load(given, SearchArgs.TAIL_TIES)
    groups, positions = load(given, SearchArgs.TAIL_GROUPS), load(given, SearchArgs.TAIL_POSITIONS)
    start = max(load(state, QueryState.BEGIN) - first, 0)
    stop = min(load(state, QueryState.END) - first, load(given, SearchArgs.TAIL_COUNT))
    squares = load(state, QueryState.SQUARES)
    for at in range(start, stop, LINE_POINTS):
        bound = _bound(state, count, exact)
        mask = column_squares(columns + 8 * at, step, state + 8 * QueryState.POINT, dims, bound, squares)
        if stop - at < LINE_POINTS:
            mask &= (1 << (stop - at)) - 1
        if mask != 0:
            mask = _candidates(state, mask, positions + 8 * at, groups + 8 * at if groups != 0 else 0)
            count = _offer_lanes(state, mask, positions + 8 * at, ties + 8 * at, count, exact)
            if count == _EQUAL:
                return count
    return count


@inline
def _search_all(given: int, state: int, dims: int, exact: bool) -> int:
    """Search all runs, then the points in columns; return how many candidates there are, or `_EQUAL`."""
    count = 0
    for j in range(load(given, SearchArgs.RUNS)):
        count = _search_run(state, given + 8 * (SearchArgs.RUN + RUN_WORDS * j), dims, count, exact)
        if count == _EQUAL:
            return count
    return _scan_tail(given, state, dims, count, exact)


@inline
def _read_query(given: int, state: int, query: int, dims: int, worst: float) -> bool:
    """Load a query into `state`, with a limit from the query before; return whether it may find anything.

    `worst` is the squared distance of the last neighbour of the query before, or infinity. What that query found is as
    near to this one as that distance and the way between the two queries together, if this query may find it too.
    """
    usable, way, limit = True, 0.0, load_as(given, SearchArgs.LIMIT, 0.0)
    for i in range(dims):
        value = load_as(load(given, SearchArgs.QUERIES), load(given, SearchArgs.STRIDE) * i + query, 0.0)
        gap = value - load_as(state, QueryState.POINT + i, 0.0)
        way += gap * gap
        store_as(state, QueryState.POINT + i, value)
        usable &= value == value
    if load(given, SearchArgs.LIMITS) != 0:
        limit = load_as(load(given, SearchArgs.LIMITS), query, 0.0)
    if load(given, SearchArgs.BEGIN) != 0:
        begin, end = load(load(given, SearchArgs.BEGIN), query), load(load(given, SearchArgs.END), query)
        if load(state, QueryState.BEGIN) < begin or load(state, QueryState.END) > end:
            worst = np.inf
        store(state, QueryState.BEGIN, begin)
        store(state, QueryState.END, end)
    if load(given, SearchArgs.GROUPS) != 0:
        group = load(load(given, SearchArgs.GROUPS), query)
        if load(state, QueryState.GROUP) != group:
            worst = np.inf
        store(state, QueryState.GROUP, group)
    near = math.sqrt(worst) + math.sqrt(way)
    # Slightly more than the sum's square: far more than what rounding and underflow can lose.
    near = near * near * (1 + _ROUNDING) + _UNDERFLOW
    store_as(state, QueryState.LIMIT, near if near < limit else limit)
    return usable


@inline
def _write_result(given: int, query: int, count: int, squares: int, positions: int) -> None:
    """Write the neighbours of a query, without its own position."""
    k, to = load(given, SearchArgs.OUT_K), 0
    if load(given, SearchArgs.OWN) == 0:
        copy_best(squares, load(given, SearchArgs.OUT_SQUARES) + 8 * k * query, count)
        copy_best(positions, load(given, SearchArgs.OUT_POSITIONS) + 8 * k * query, count)
        store(load(given, SearchArgs.OUT_COUNTS), query, count)
        return
    own = load(load(given, SearchArgs.OWN), query)
    for j in range(count):
        if to < k and load(positions, j) != own:
            store(load(given, SearchArgs.OUT_SQUARES), k * query + to, load(squares, j))
            store(load(given, SearchArgs.OUT_POSITIONS), k * query + to, load(positions, j))
            to += 1
    store(load(given, SearchArgs.OUT_COUNTS), query, to)


@share
def search(given: int, part: int, parts: int) -> None:
    """Find the nearest neighbours of a part of the queries."""
    n, dims, k = load(given, SearchArgs.COUNT), load(given, SearchArgs.DIMS), load(given, SearchArgs.K)
    state, lanes = stack_words(_STATE_WORDS), stack_words(_LANES_WORDS)
    best = load(given, SearchArgs.SCRATCH) + 8 * 3 * k * part
    store(state, QueryState.BEGIN, np.iinfo(np.int64).min)
    store(state, QueryState.END, np.iinfo(np.int64).max)
    store(state, QueryState.GROUPED, load(given, SearchArgs.GROUPS) != 0)
    store(state, QueryState.K, k)
    store(state, QueryState.SQUARES, stack_words(BLOCK))
    store(state, QueryState.BOX_SQUARES, stack_words(FANOUT))
    store(state, QueryState.PATH, stack_words(_PATH_WORDS))
    ties, worst = 0 if k < MAX_LANES else _ALWAYS_TIES, np.inf
    stop = n * (part + 1) // parts
    for i in range(n * part // parts, stop):
        query = load_id(load(given, SearchArgs.ORDER), i)
        later = load_id(load(given, SearchArgs.ORDER), min(i + _AHEAD, stop - 1))
        for j in range(dims):
            prefetch(load(given, SearchArgs.QUERIES) + 8 * (load(given, SearchArgs.STRIDE) * j + later))
        if not _read_query(given, state, query, dims, worst):
            store(load(given, SearchArgs.OUT_COUNTS), query, 0)
            worst = np.inf
            continue
        if ties < _MANY_TIES or (ties < _ALWAYS_TIES and i % _RETRY == 0):
            store(state, QueryState.BEST, lanes)
            clear_best(lanes, k)
            count = _search_all(given, state, dims, False)
            if count != _EQUAL:
                ties = max(ties - 1, 0)
                worst = load_as(lanes, k - 1, 0.0) if count >= k else np.inf
                _write_result(given, query, min(count, k), lanes, lanes + 8 * MAX_LANES)
                continue
            ties = min(ties + 2, 2 * _MANY_TIES)
        store(state, QueryState.BEST, best)
        count = _search_all(given, state, dims, True)
        sort_best(best, k, count, k)
        worst = load_as(best, k - 1, 0.0) if count == k else np.inf
        _write_result(given, query, count, best, best + 16 * k)
