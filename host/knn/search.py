"""Searches runs of points, and points in columns, for the nearest neighbours of many queries.

Queries run in the order of the curve, in batches of neighbours (`search_batch.py`). A batch searches within a guess of
the k-th distance, from what the queries before have found. Queries for which the guess was too small or far too large
are searched one by one (`search_walk.py`); so are all if k is large, if fewer than k points can be found, and if the
blocks within the guess are too many, as in 8 dimensions.
"""

from __future__ import annotations

import math

import numpy as np

from millrace.host.knn.best import LISTS, sort_best
from millrace.host.knn.lanes import BLOCK, FANOUT
from millrace.host.knn.search_args import QUERY_WORDS, QueryState, SearchArgs
from millrace.host.knn.search_batch import (
    BATCH_WORDS,
    BOX_WORDS,
    ENTRIES_WORDS,
    MAX_BATCH_K,
    QUERIES_WORDS,
    REGION_WORDS,
    ROOM,
    TOO_MANY,
    BatchState,
    collect,
    list_blocks,
    read_batch,
    start_region,
    write_ranked,
)
from millrace.host.knn.search_walk import PATH_WORDS, WALK_WORDS, WalkState, walk_all
from millrace.host.runtime.intrinsics import load, load_as, lowest_bit, stack_words, store
from millrace.host.runtime.jit import inline, share

_EXTENT, _EXTENT_OF_ONE = 3.0, 7.0
"""The box around a batch is at most `_EXTENT + _EXTENT_OF_ONE / sqrt(k)` times as wide as the guess.

Wider, each query reads more boxes; narrower, the tree is read more often.
"""
_SPREAD = 2.0
"""A guess is so many standard deviations above the mean squared distance of the k-th of uniform points in the plane."""
_WEIGHT, _STEP = 0.25, 8.0
"""Of a query in the next guess, and the most that it may ask for: so many times the guess before."""
_NEARER, _WIDER = 0.25, 2.0
"""If a query has too many candidates, or fewer than k, it tries so many times the guess, before it walks."""
_TOO_NEAR, _TOO_FAR = -1.0, -2.0
"""Instead of a squared distance: fewer than k candidates are within a guess, or too many."""


@inline
def _walk(given: int, query: int, walk: int, dims: int) -> float:
    """Search for one query and write its neighbours; return the squared distance of the k-th, or infinity."""
    k, best, number = load(walk, WalkState.K), load(walk, WalkState.BEST), load(query, QueryState.NUMBER)
    count = walk_all(given, query, walk, dims)
    sort_best(best, k, count, k)
    for j in range(count):
        store(load(given, SearchArgs.OUT_SQUARES), k * number + j, load(best, j))
        store(load(given, SearchArgs.OUT_POSITIONS), k * number + j, load(best, 2 * k + j))
    store(load(given, SearchArgs.OUT_COUNTS), number, count)
    worst: float = np.inf
    if count == k:
        worst = load_as(best, k - 1, 0.0)
    return worst


@inline
def _try(given: int, batch: int, query: int, dims: int, guess: float) -> float:
    """Write the neighbours of a query if the listed blocks have them all.

    Returns the squared distance of the k-th neighbour, or the limit if there are fewer; otherwise `_TOO_NEAR` or
    `_TOO_FAR`, which say what is wrong with the guess.
    """
    k, number = load(given, SearchArgs.K), load(query, QueryState.NUMBER)
    limit: float = load_as(query, QueryState.LIMIT, 0.0)
    count = collect(given, batch, query, dims, min(guess, limit))
    if count == TOO_MANY:
        return _TOO_FAR
    if count < k and limit > guess:
        return _TOO_NEAR
    write_ranked(given, batch, query, count)
    if count >= k:
        limit = load_as(load(given, SearchArgs.OUT_SQUARES), k * number + k - 1, 0.0)
    return limit


@inline
def _search_apart(given: int, batch: int, walk: int, query: int, dims: int, guess: float) -> float:
    """Search for a query whose neighbours are not all within the guess: first within a larger one, then by a walk."""
    start_region(batch, query, dims)
    wider = _WIDER * guess
    if list_blocks(given, batch, dims, min(wider, load_as(query, QueryState.LIMIT, 0.0))) != TOO_MANY:
        worst = _try(given, batch, query, dims, wider)
        if worst >= 0:
            return worst
    limit: float = load_as(query, QueryState.LIMIT, 0.0)
    return min(_walk(given, query, walk, dims), limit)


@inline
def _search_batch(given: int, batch: int, walk: int, size: int, dims: int, listed: float, spread: float) -> float:
    """Search for the queries of a batch, within a guess that is at most `listed`; return the next one, or infinity."""
    queries, failed, guess, worst = load(batch, BatchState.QUERIES), 0, listed, 0.0
    fits = list_blocks(given, batch, dims, listed) != TOO_MANY
    for j in range(size):
        query = queries + 8 * QUERY_WORDS * j
        worst = _TOO_FAR
        if fits:
            worst = _try(given, batch, query, dims, min(guess, listed))
            if worst == _TOO_FAR:
                worst = _try(given, batch, query, dims, _NEARER * min(guess, listed))
        if worst == _TOO_FAR:
            worst = min(_walk(given, query, walk, dims), load_as(query, QueryState.LIMIT, 0.0))
        if worst == _TOO_NEAR:
            failed |= 1 << j
        else:
            guess = _next_guess(guess, spread * worst)
    while failed != 0:
        query = queries + 8 * QUERY_WORDS * lowest_bit(failed)
        failed &= failed - 1
        worst = _search_apart(given, batch, walk, query, dims, guess)
        guess = _next_guess(guess, spread * worst)
    return guess if worst < np.inf else np.inf


@inline
def _next_guess(guess: float, wanted: float) -> float:
    """Return the next guess, where `wanted` would have been right for a query; one query changes it a little."""
    if wanted == np.inf:
        return guess
    return guess + _WEIGHT * (min(wanted, _STEP * guess) - guess) if guess > 0 else wanted


@share
def search(given: int, part: int, parts: int) -> None:
    """Find the nearest neighbours of a part of the queries."""
    n, dims, k = load(given, SearchArgs.COUNT), load(given, SearchArgs.DIMS), load(given, SearchArgs.K)
    batch, walk, queries = stack_words(BATCH_WORDS), stack_words(WALK_WORDS), stack_words(QUERIES_WORDS)
    store(walk, WalkState.BEST, load(given, SearchArgs.SCRATCH) + 8 * LISTS * k * part)
    store(walk, WalkState.K, k)
    store(walk, WalkState.SQUARES, stack_words(BLOCK))
    store(walk, WalkState.BOX_SQUARES, stack_words(FANOUT))
    path = stack_words(PATH_WORDS)
    store(walk, WalkState.PATH, path)
    store(batch, BatchState.PATH, path)
    store(batch, BatchState.REGION, stack_words(REGION_WORDS))
    store(batch, BatchState.QUERIES, queries)
    store(batch, BatchState.BOXES, stack_words(BOX_WORDS))
    store(batch, BatchState.ENTRIES, stack_words(ENTRIES_WORDS))
    store(batch, BatchState.SQUARES, load(walk, WalkState.SQUARES))
    store(batch, BatchState.FOUND_SQUARES, stack_words(ROOM))
    store(batch, BatchState.FOUND_SLOTS, stack_words(ROOM))
    store(batch, BatchState.FOUND_TIES, stack_words(ROOM))
    store(batch, BatchState.TIED, load(given, SearchArgs.TAIL_TIES) != load(given, SearchArgs.TAIL_POSITIONS))
    store(batch, BatchState.RANKS, stack_words(ROOM))
    store(batch, BatchState.SORTED_SQUARES, stack_words(ROOM))
    store(batch, BatchState.SORTED_SLOTS, stack_words(ROOM))
    spread, extent = 1 + _SPREAD / math.sqrt(k), _EXTENT + _EXTENT_OF_ONE / math.sqrt(k)
    guess, at, stop = np.inf, n * part // parts, n * (part + 1) // parts
    while at < stop:
        known = guess < np.inf and k <= MAX_BATCH_K
        size = read_batch(given, batch, at, stop if known else at + 1, dims, extent * math.sqrt(guess))
        if size == 0:  # a coordinate is NaN
            store(load(given, SearchArgs.OUT_COUNTS), load(queries, QueryState.NUMBER), 0)
            at += 1
            continue
        if known:
            guess = min(guess, load_as(batch, BatchState.LIMIT, 0.0))
            guess = _search_batch(given, batch, walk, size, dims, guess, spread)
        else:
            guess = spread * min(_walk(given, queries, walk, dims), load_as(queries, QueryState.LIMIT, 0.0))
        at += size
