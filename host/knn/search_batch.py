"""Searches runs of points for a batch of queries that are near each other.

One walk through the tree lists the blocks that are within a guessed distance of the box around the queries. Each
query then reads the listed blocks whose boxes it is within that distance of, collects all points within it, and ranks
them (`ranks.py`). Nothing is sorted, nothing depends on the order of the blocks, and the tree is read once per batch.
If a query has k candidates, the guess was large enough: no other block holds a point as near, since the distance from
a block to the box around the queries is computed in the same order as that to a query, and rounding is monotonic. The
caller searches the other queries one by one (`search_walk.py`), as well as those with more candidates than there is
room for.
"""

from __future__ import annotations

from enum import auto

import numpy as np

from millrace.host.knn.lanes import (
    BLOCK,
    FANOUT,
    LINE_POINTS,
    block_squares,
    column_squares,
    keep_block,
    near_boxes,
    near_children,
    node_words,
)
from millrace.host.knn.ranks import rank, rank_with_ties
from millrace.host.knn.search_args import (
    MAX_LEVELS,
    NO_POSITION,
    QUERY_WORDS,
    RUN_WORDS,
    QueryState,
    RunArgs,
    SearchArgs,
    candidates,
    visible_children,
)
from millrace.host.runtime.intrinsics import load, load_as, load_id, lowest_bit, prefetch, store, store_as
from millrace.host.runtime.jit import inline
from millrace.host.runtime.kernel_args import KernelArgs

BATCH = 16
"""Queries of a batch."""
MAX_LISTED = 256
"""Blocks of a batch."""
ROOM = 256
"""Candidates of a query."""
MAX_BATCH_K = 128
"""Largest k: with more neighbours, ranking costs more than a heap."""
TOO_MANY = -1
"""Instead of a number: there are more than there is room for."""
_ENTRY_WORDS = 3
"""An entry of the list: the addresses of a block's points, of its positions, and of its run."""
_CHECK = 1
"""Added to the address of the run: each candidate of the block must be checked."""


class BatchState(KernelArgs):
    """What is known of a batch, in scratch memory of the kernel."""

    REGION = auto()  # the box around the queries and what they may find together, as a query; the upper ends follow it
    SURE_BEGIN = auto()  # the positions that all queries may find
    SURE_END = auto()
    LIMIT = auto()  # the largest limit of a query, as bits
    QUERIES = auto()
    LISTED = auto()
    BOXES = auto()  # of the listed blocks, in lines of `LINE_POINTS`
    ENTRIES = auto()
    PATH = auto()
    SQUARES = auto()  # room for the squared distances of a block
    FOUND_SQUARES = auto()  # the candidates of a query
    FOUND_SLOTS = auto()  # the addresses of their positions
    FOUND_TIES = auto()  # their tie keys; if those are the positions, they are read only if distances are equal
    TIED = auto()
    RANKS = auto()
    SORTED_SQUARES = auto()  # the candidates in order
    SORTED_SLOTS = auto()


BATCH_WORDS = len(BatchState)
REGION_WORDS = QUERY_WORDS + 8
QUERIES_WORDS = BATCH * QUERY_WORDS
BOX_WORDS = 2 * 8 * MAX_LISTED
ENTRIES_WORDS = _ENTRY_WORDS * MAX_LISTED
HIGH = 8 * QUERY_WORDS
"""Bytes from a region to its upper ends."""


@inline
def read_query(given: int, query: int, number: int, dims: int) -> bool:
    """Load a query; return whether it may find anything."""
    usable = True
    store(query, QueryState.NUMBER, number)
    for i in range(dims):
        value = load_as(load(given, SearchArgs.QUERIES), load(given, SearchArgs.STRIDE) * i + number, 0.0)
        store_as(query, QueryState.POINT + i, value)
        usable &= value == value
    limits, begins = load(given, SearchArgs.LIMITS), load(given, SearchArgs.BEGIN)
    owns, groups = load(given, SearchArgs.OWN), load(given, SearchArgs.GROUPS)
    store(query, QueryState.LIMIT, load(limits, number) if limits != 0 else load(given, SearchArgs.LIMIT))
    store(query, QueryState.BEGIN, load(begins, number) if begins != 0 else np.iinfo(np.int64).min)
    store(query, QueryState.END, load(load(given, SearchArgs.END), number) if begins != 0 else np.iinfo(np.int64).max)
    store(query, QueryState.OWN, load(owns, number) if owns != 0 else NO_POSITION)
    store(query, QueryState.GROUPED, groups != 0)
    store(query, QueryState.GROUP, load(groups, number) if groups != 0 else 0)
    return usable


@inline
def _prefetch_query(given: int, number: int, dims: int) -> None:
    for j in range(dims):
        prefetch(load(given, SearchArgs.QUERIES) + 8 * (load(given, SearchArgs.STRIDE) * j + number))


@inline
def _prefetch_results(given: int, number: int) -> None:
    k = load(given, SearchArgs.K)
    prefetch(load(given, SearchArgs.OUT_COUNTS) + 8 * number)
    for at in range(8 * k * number, 8 * k * (number + 1), 64):
        prefetch(load(given, SearchArgs.OUT_SQUARES) + at)
        prefetch(load(given, SearchArgs.OUT_POSITIONS) + at)


@inline
def read_batch(given: int, batch: int, first: int, stop: int, dims: int, width: float) -> int:
    """Load queries from number `first` of the order on, with a box of at most `width` around them; return how many."""
    order, size = load(given, SearchArgs.ORDER), 0
    for i in range(first + BATCH, min(first + 2 * BATCH, load(given, SearchArgs.COUNT))):
        _prefetch_query(given, load_id(order, i), dims)
    for i in range(first, min(stop, first + BATCH)):
        query = load(batch, BatchState.QUERIES) + 8 * QUERY_WORDS * size
        number = load_id(order, i)
        if not read_query(given, query, number, dims):
            return size
        if size == 0:
            start_region(batch, query, dims)
        elif not _extend(batch, query, dims, width):
            return size
        _prefetch_results(given, number)
        size += 1
    return size


@inline
def start_region(batch: int, query: int, dims: int) -> None:
    """Begin a batch with a query."""
    point, region = query + 8 * QueryState.POINT, load(batch, BatchState.REGION)
    for i in range(dims):
        store(region + 8 * QueryState.POINT, i, load(point, i))
        store(region + HIGH, i, load(point, i))
    store(region, QueryState.BEGIN, load(query, QueryState.BEGIN))
    store(region, QueryState.END, load(query, QueryState.END))
    store(region, QueryState.GROUP, load(query, QueryState.GROUP))
    store(region, QueryState.GROUPED, load(query, QueryState.GROUPED))
    store(batch, BatchState.SURE_BEGIN, load(query, QueryState.BEGIN))
    store(batch, BatchState.SURE_END, load(query, QueryState.END))
    store(batch, BatchState.LIMIT, load(query, QueryState.LIMIT))


@inline
def _extend(batch: int, query: int, dims: int, width: float) -> bool:
    """Take another query into the batch, if it is near enough and of the same group."""
    region = load(batch, BatchState.REGION)
    point, low, high = query + 8 * QueryState.POINT, region + 8 * QueryState.POINT, region + HIGH
    fits = load(query, QueryState.GROUP) == load(region, QueryState.GROUP)
    for i in range(dims):
        value = load_as(point, i, 0.0)
        fits &= (value - load_as(low, i, 0.0) <= width) & (load_as(high, i, 0.0) - value <= width)
    if not fits:
        return False
    for i in range(dims):
        value = load_as(point, i, 0.0)
        store_as(low, i, min(load_as(low, i, 0.0), value))
        store_as(high, i, max(load_as(high, i, 0.0), value))
    begin, end = load(query, QueryState.BEGIN), load(query, QueryState.END)
    limit: float = load_as(query, QueryState.LIMIT, 0.0)
    store(region, QueryState.BEGIN, min(load(region, QueryState.BEGIN), begin))
    store(region, QueryState.END, max(load(region, QueryState.END), end))
    store(batch, BatchState.SURE_BEGIN, max(load(batch, BatchState.SURE_BEGIN), begin))
    store(batch, BatchState.SURE_END, min(load(batch, BatchState.SURE_END), end))
    store_as(batch, BatchState.LIMIT, max(load_as(batch, BatchState.LIMIT, 0.0), limit))
    return True


@inline
def list_blocks(given: int, batch: int, dims: int, bound: float) -> int:
    """List the blocks of all runs within a squared distance of the batch; return how many, or `TOO_MANY`."""
    store(batch, BatchState.LISTED, 0)
    for j in range(load(given, SearchArgs.RUNS)):
        if not _list_run(batch, given + 8 * (SearchArgs.RUN + RUN_WORDS * j), dims, bound):
            return TOO_MANY
    listed = load(batch, BatchState.LISTED)
    for at in range(listed, -(-listed // LINE_POINTS) * LINE_POINTS):
        box = _box(batch, at, dims)
        store_as(box, 0, np.nan)
        store_as(box, LINE_POINTS, np.nan)
    return listed


@inline
def _box(batch: int, at: int, dims: int) -> int:
    """Return the address of the first end of a listed box; the others follow in steps of `LINE_POINTS`."""
    line, lane = at // LINE_POINTS, at % LINE_POINTS
    return load(batch, BatchState.BOXES) + 8 * (2 * dims * LINE_POINTS * line + lane)


@inline
def _list_run(batch: int, run: int, dims: int, bound: float) -> bool:
    """List the blocks of a run; return whether there is room for them."""
    region, path = load(batch, BatchState.REGION), load(batch, BatchState.PATH)
    low, high = region + 8 * QueryState.POINT, region + HIGH
    top, level, number = load(run, RunArgs.LEVELS) - 1, load(run, RunArgs.LEVELS) - 1, 0
    while True:
        node = load(run, RunArgs.LEVEL + level) + 8 * node_words(dims) * number
        mask = near_children(node, low, high, dims, bound)
        if load(run, RunArgs.CHECKED) != 0:
            mask = visible_children(region, node + 16 * FANOUT * dims, mask)
        if level == 0:
            while mask != 0:
                child = lowest_bit(mask)
                mask &= mask - 1
                if not _list_block(batch, run, node, child, FANOUT * number + child, dims):
                    return False
        store(path, level, number)
        store(path, MAX_LEVELS + level, mask)
        while level <= top and load(path, MAX_LEVELS + level) == 0:
            level += 1
        if level > top:
            return True
        mask = load(path, MAX_LEVELS + level)
        store(path, MAX_LEVELS + level, mask & (mask - 1))
        number = FANOUT * load(path, level) + lowest_bit(mask)
        level -= 1


@inline
def _list_block(batch: int, run: int, node: int, child: int, block: int, dims: int) -> bool:
    """List a block, and prefetch its points; return whether there is room for it."""
    at = load(batch, BatchState.LISTED)
    if at == MAX_LISTED:
        return False
    box = _box(batch, at, dims)
    for end in range(2 * dims):
        store(box, LINE_POINTS * end, load(node, FANOUT * end + child))
    points = load(run, RunArgs.BLOCKS) + 8 * BLOCK * dims * block
    for line in range(BLOCK * dims // LINE_POINTS):
        prefetch(points + 64 * line)
    positions = load(run, RunArgs.POSITIONS) + 8 * BLOCK * block
    for line in range(BLOCK // LINE_POINTS):
        prefetch(positions + 64 * line)
    entry = load(batch, BatchState.ENTRIES) + 8 * _ENTRY_WORDS * at
    store(entry, 0, points)
    store(entry, 1, positions)
    check = load(run, RunArgs.CHECKED) != 0 and not _sure(batch, node + 16 * FANOUT * dims, child)
    store(entry, 2, run + (_CHECK if check else 0))
    store(batch, BatchState.LISTED, at + 1)
    return True


@inline
def _sure(batch: int, facts: int, child: int) -> bool:
    """Return whether all queries may find all points of a block."""
    region = load(batch, BatchState.REGION)
    group, first, last = load(region, QueryState.GROUP), 3 * FANOUT + child, 4 * FANOUT + child
    visible = (load(facts, child) >= load(batch, BatchState.SURE_BEGIN)) & (
        load(facts, FANOUT + child) < load(batch, BatchState.SURE_END)
    )
    same = (load(facts, first) == group) & (load(facts, last) == group)
    return visible & (same | (load(region, QueryState.GROUPED) == 0))


@inline
def collect(given: int, batch: int, query: int, dims: int, bound: float) -> int:
    """Collect the candidates of a query within a squared distance; return how many, or `TOO_MANY`."""
    point, count = query + 8 * QueryState.POINT, 0
    boxes, entries = load(batch, BatchState.BOXES), load(batch, BatchState.ENTRIES)
    squares, found = load(batch, BatchState.SQUARES), load(batch, BatchState.FOUND_SQUARES)
    slots = load(batch, BatchState.FOUND_SLOTS)
    plain = load(batch, BatchState.TIED) + load(given, SearchArgs.OWN) == 0
    for first in range(0, load(batch, BatchState.LISTED), LINE_POINTS):
        near = near_boxes(boxes + 16 * dims * first, point, point, dims, bound)
        while near != 0:
            entry = entries + 8 * _ENTRY_WORDS * (first + lowest_bit(near))
            near &= near - 1
            if count > ROOM - BLOCK:
                return TOO_MANY
            positions, run = load(entry, 1), load(entry, 2)
            if plain & ((run & _CHECK) == 0):
                count += keep_block(load(entry, 0), point, dims, bound, positions, found + 8 * count, slots + 8 * count)
                continue
            run &= ~_CHECK
            mask = block_squares(load(entry, 0), point, dims, bound, squares)
            groups, at = load(run, RunArgs.GROUPS), positions - load(run, RunArgs.POSITIONS)
            mask = candidates(query, mask, positions, groups + at if groups != 0 else 0)
            ties = positions + load(run, RunArgs.TIES) - load(run, RunArgs.POSITIONS)
            count = _take(batch, mask, positions, ties, count)
    return _collect_tail(given, batch, query, dims, bound, count)


@inline
def _take(batch: int, mask: int, positions: int, ties: int, count: int) -> int:
    """Add the points of some lanes to the candidates; return how many there are."""
    squares, found = load(batch, BatchState.SQUARES), load(batch, BatchState.FOUND_SQUARES)
    slots, found_ties = load(batch, BatchState.FOUND_SLOTS), load(batch, BatchState.FOUND_TIES)
    tied = load(batch, BatchState.TIED) != 0
    while mask != 0:
        lane = lowest_bit(mask)
        mask &= mask - 1
        store(found, count, load(squares, lane))
        store(slots, count, positions + 8 * lane)
        if tied:
            store(found_ties, count, load(ties, lane))
        count += 1
    return count


@inline
def _collect_tail(given: int, batch: int, query: int, dims: int, bound: float, count: int) -> int:
    """Collect the candidates among the points in columns; return how many there are now, or `TOO_MANY`."""
    first, step = load(given, SearchArgs.TAIL_FIRST), load(given, SearchArgs.TAIL_STRIDE)
    columns, ties = load(given, SearchArgs.TAIL_COLUMNS), load(given, SearchArgs.TAIL_TIES)
    groups, positions = load(given, SearchArgs.TAIL_GROUPS), load(given, SearchArgs.TAIL_POSITIONS)
    start = max(load(query, QueryState.BEGIN) - first, 0)
    stop = min(load(query, QueryState.END) - first, load(given, SearchArgs.TAIL_COUNT))
    squares = load(batch, BatchState.SQUARES)
    for at in range(start, stop, LINE_POINTS):
        mask = column_squares(columns + 8 * at, step, query + 8 * QueryState.POINT, dims, bound, squares)
        if mask != 0:
            mask = candidates(query, mask, positions + 8 * at, groups + 8 * at if groups != 0 else 0)
            if count > ROOM - LINE_POINTS:
                return TOO_MANY
            count = _take(batch, mask, positions + 8 * at, ties + 8 * at, count)
    return count


@inline
def write_ranked(given: int, batch: int, query: int, count: int) -> None:
    """Write the first k candidates of a query, in order."""
    k, number = load(given, SearchArgs.K), load(query, QueryState.NUMBER)
    squares, ties = load(batch, BatchState.FOUND_SQUARES), load(batch, BatchState.FOUND_TIES)
    ranks = load(batch, BatchState.RANKS)
    store(load(given, SearchArgs.OUT_COUNTS), number, min(count, k))
    if k == 1:
        _write_nearest(given, batch, number, count)
        return
    rank(squares, count, ranks)
    if _write_by_rank(given, batch, number, count) != count * (count - 1) // 2:
        if load(batch, BatchState.TIED) == 0:
            for i in range(count):
                store(ties, i, load(load(load(batch, BatchState.FOUND_SLOTS), i), 0))
        rank_with_ties(squares, ties, count, ranks)
        _write_by_rank(given, batch, number, count)


@inline
def _write_nearest(given: int, batch: int, number: int, count: int) -> None:
    """Write the nearest of the candidates, without ranks."""
    squares, slots = load(batch, BatchState.FOUND_SQUARES), load(batch, BatchState.FOUND_SLOTS)
    ties, tied = load(batch, BatchState.FOUND_TIES), load(batch, BatchState.TIED) != 0
    best, square = 0, load_as(squares, 0, 0.0)
    for i in range(1, count):
        other = load_as(squares, i, 0.0)
        before = other < square
        if other == square:
            before = load(ties, i) < load(ties, best) if tied else load(load(slots, i), 0) < load(load(slots, best), 0)
        best = i if before else best
        square = other if before else square
    if count > 0:
        store_as(load(given, SearchArgs.OUT_SQUARES), number, square)
        store(load(given, SearchArgs.OUT_POSITIONS), number, load(load(slots, best), 0))


@inline
def _write_by_rank(given: int, batch: int, number: int, count: int) -> int:
    """Put the candidates in the order of their ranks, and write the first k; return the sum of the ranks."""
    k, total = load(given, SearchArgs.K), 0
    squares, slots = load(batch, BatchState.FOUND_SQUARES), load(batch, BatchState.FOUND_SLOTS)
    ranks, sorted_slots = load(batch, BatchState.RANKS), load(batch, BatchState.SORTED_SLOTS)
    sorted_squares = load(batch, BatchState.SORTED_SQUARES)
    for i in range(count):
        to = load(ranks, i)
        total += to
        store(sorted_squares, to, load(squares, i))
        store(sorted_slots, to, load(slots, i))
    out_squares = load(given, SearchArgs.OUT_SQUARES) + 8 * k * number
    out_positions = load(given, SearchArgs.OUT_POSITIONS) + 8 * k * number
    if total == count * (count - 1) // 2:
        for i in range(min(count, k)):
            store(out_squares, i, load(sorted_squares, i))
            store(out_positions, i, load(load(sorted_slots, i), 0))
    return total
