"""Puts a large batch of queries into the order of the tree's parts before it is searched, and their answers back.

In a tree many times larger than the caches each query reads lines of the directory, of two inner levels and of the
leaves that no other query near it reads. Queries that are cut into `PARTS` by the directory find all but two of those
lines in the nearest caches, and the two in a few pages: two passes over the queries and answers written out of order
cost less than that saves. (The paper searches in the order given; its authors sort nothing.)
"""

from __future__ import annotations

from typing import Any

import numpy as np

from millrace.host.base.types import Array
from millrace.host.hbtree import search as hs
from millrace.host.hbtree.directory import Starts
from millrace.host.hbtree.search_call import run_search
from millrace.host.runtime.arena import Arena, Workroom
from millrace.host.runtime.intrinsics import load_as, store_as, table
from millrace.host.runtime.jit import Share, inline, share
from millrace.host.runtime.team import Team

PARTS = 512
"""Parts of the tree: a part's inner nodes fit the nearest caches, and as many places to write to do."""
LEAST_QUERIES = 1 << 17
LEAST_BYTES = 1 << 26
"""Batches and trees from which on parting pays."""
_SLICES = 8
_ROOM = Workroom()
"""Memory for the next call to work in: in fresh memory every page is a fault."""
MOST_KEPT = 1 << 22
"""Queries up to which memory is kept: 13 bytes each."""
_QUERIES, _FLIP, _COUNT, _TREE, _COUNTS, _WORDS, _PLACES, _SHIFT = range(8)


@inline
def _count(given: int, part: int, parts: int, like: Any) -> None:
    """How many queries of a slice belong to each part."""
    queries, flip = load_as(given, _QUERIES, 0), type(like)(load_as(given, _FLIP, np.uint64(0)))
    count, counts = load_as(given, _COUNT, 0), load_as(given, _COUNTS, 0) + 8 * PARTS * part
    rule, shift = hs.entry_rule(load_as(given, _TREE, 0)), load_as(given, _SHIFT, 0)
    for i in range(count * part // parts, count * (part + 1) // parts):
        where = hs.entry_of(type(like)(load_as(queries, i, like) ^ flip), rule) >> shift
        store_as(counts, where, load_as(counts, where, 0) + 1)


@inline
def _move(given: int, part: int, parts: int, like: Any) -> None:
    """Words of a slice, and where they come from, to their parts; `counts` is where the next one goes."""
    queries, flip = load_as(given, _QUERIES, 0), type(like)(load_as(given, _FLIP, np.uint64(0)))
    count, nexts = load_as(given, _COUNT, 0), load_as(given, _COUNTS, 0) + 8 * PARTS * part
    words, places = load_as(given, _WORDS, 0), load_as(given, _PLACES, 0)
    rule, shift = hs.entry_rule(load_as(given, _TREE, 0)), load_as(given, _SHIFT, 0)
    for i in range(count * part // parts, count * (part + 1) // parts):
        word = type(like)(load_as(queries, i, like) ^ flip)
        where = hs.entry_of(word, rule) >> shift
        at = load_as(nexts, where, 0)
        store_as(nexts, where, at + 1)
        store_as(words, at, word)
        store_as(places, at, np.uint32(i))


@share
def _count_32(given: int, part: int, parts: int) -> None:
    _count(given, part, parts, np.uint32(0))


@share
def _count_64(given: int, part: int, parts: int) -> None:
    _count(given, part, parts, np.uint64(0))


@share
def _move_32(given: int, part: int, parts: int) -> None:
    _move(given, part, parts, np.uint32(0))


@share
def _move_64(given: int, part: int, parts: int) -> None:
    _move(given, part, parts, np.uint64(0))


def part_queries(tree: Array, entries: int, queries: Array, flip: int, team: Team, arena: Arena) -> tuple[Array, Array]:
    """Words of the queries in the order of the tree's parts, and where each came from; in arrays of the arena's."""
    count, wide = len(queries), queries.itemsize == 8
    words, places = arena.take(count, queries.dtype), arena.take(count, np.dtype(np.uint32))
    shift = max((entries - 1).bit_length() - PARTS.bit_length() + 1, 0)
    counts = np.zeros((_SLICES, PARTS), np.int64)
    given = table(queries, 0, count, tree, counts, words, places, shift)
    given.view(np.uint64)[_FLIP] = flip
    team.run(_count_64 if wide else _count_32, given, _SLICES)
    # Part by part, and in each the slices in order.
    ends = np.cumsum(counts.T.reshape(-1)).reshape(PARTS, _SLICES).T
    counts[:] = ends - counts
    team.run(_move_64 if wide else _move_32, given, _SLICES)
    return words, places


def run_led(
    share: Share,
    team: Team,
    tree: Array,
    starts: Starts | None,
    nbytes: int,
    queries: Array,
    flip: int,
    given: dict[str, Any],
) -> int:
    """Run a kernel of `hbtree_search` over queries of a tree of so many bytes, parted where that pays."""
    searched = "START" not in given and given.get("MODE", hs.NODES) != hs.NODES
    if starts is None or not searched or len(queries) < LEAST_QUERIES or nbytes < LEAST_BYTES:
        return run_search(share, team, tree, queries, flip, **given)
    with _ROOM.use(keep=len(queries) <= MOST_KEPT) as arena:
        words, places = part_queries(tree, len(starts.directory) - 1, queries, flip, team, arena)
        there = arena.take(len(queries), np.uint8)
        there[:] = 1
        hits = run_search(share, team, tree, words, PLACES=places, THERE=there, **given)
        if "BITS" in given and hits < len(there):
            bits = np.packbits(there, bitorder="little")
            given["BITS"][: len(bits)] = bits
        for array in (words, places, there):
            arena.give(array)
    return hits
