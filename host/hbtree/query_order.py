"""Partitions a large batch of queries by the parts of the tree before the search; results stay in query order.

In a tree much larger than the caches, each query reads lines of the directory, of two inner levels and of the leaves
that no nearby query reads. Queries partitioned into `PARTS` by the directory find all but two of those lines in the
L1/L2 caches, and these two in a few pages. This saves more than it costs: two passes over the queries, and results
written out of order. (The paper searches in the given order, without any sorting.) Limit: only for trees with a
directory (`directory.py`).
"""

from __future__ import annotations

from enum import auto
from typing import Any

import numpy as np

from millrace.host.base.types import Array
from millrace.host.hbtree import search_args as ha
from millrace.host.hbtree.directory import StartDirectory
from millrace.host.hbtree.search_call import run_search
from millrace.host.runtime.allocator import allocate, free
from millrace.host.runtime.intrinsics import load, load_as, store_as
from millrace.host.runtime.jit import Share, inline, share
from millrace.host.runtime.kernel_args import KernelArgs
from millrace.host.runtime.team import Team

PARTS = 512
"""Partitions: the inner nodes of one fit the L1/L2 caches, and so do this many write positions."""
MIN_QUERIES = 1 << 17
MIN_BYTES = 1 << 26
"""Minimum batch and tree sizes for which partitioning pays off."""
_SLICES = 8
"""Working memory that calls reuse: in fresh memory each page is a page fault."""


class _Args(KernelArgs):
    """The arguments of the partitioning."""

    QUERIES = auto()
    FLIP = auto()
    COUNT = auto()
    TREE = auto()
    COUNTS = auto()
    WORDS = auto()
    ROWS = auto()
    SHIFT = auto()


@inline
def _count(args: int, part: int, parts: int, like: Any) -> None:
    """Count the queries of a slice in each partition."""
    queries, flip = load(args, _Args.QUERIES), type(like)(load_as(args, _Args.FLIP, np.uint64(0)))
    count, counts = load(args, _Args.COUNT), load(args, _Args.COUNTS) + 8 * PARTS * part
    rule, shift = ha.entry_rule(load(args, _Args.TREE)), load(args, _Args.SHIFT)
    for i in range(count * part // parts, count * (part + 1) // parts):
        where = ha.entry_of(type(like)(load_as(queries, i, like) ^ flip), rule) >> shift
        store_as(counts, where, load_as(counts, where, 0) + 1)


@inline
def _move(args: int, part: int, parts: int, like: Any) -> None:
    """Move the words of a slice, and their query numbers, to their partitions; `counts` holds the next positions."""
    queries, flip = load(args, _Args.QUERIES), type(like)(load_as(args, _Args.FLIP, np.uint64(0)))
    count, nexts = load(args, _Args.COUNT), load(args, _Args.COUNTS) + 8 * PARTS * part
    words, rows = load(args, _Args.WORDS), load(args, _Args.ROWS)
    rule, shift = ha.entry_rule(load(args, _Args.TREE)), load(args, _Args.SHIFT)
    for i in range(count * part // parts, count * (part + 1) // parts):
        word = type(like)(load_as(queries, i, like) ^ flip)
        where = ha.entry_of(word, rule) >> shift
        at = load_as(nexts, where, 0)
        store_as(nexts, where, at + 1)
        store_as(words, at, word)
        store_as(rows, at, np.uint32(i))


@share
def _count_32(args: int, part: int, parts: int) -> None:
    _count(args, part, parts, np.uint32(0))


@share
def _count_64(args: int, part: int, parts: int) -> None:
    _count(args, part, parts, np.uint64(0))


@share
def _move_32(args: int, part: int, parts: int) -> None:
    _move(args, part, parts, np.uint32(0))


@share
def _move_64(args: int, part: int, parts: int) -> None:
    _move(args, part, parts, np.uint64(0))


def partition_queries(tree: Array, entries: int, queries: Array, flip: int, team: Team) -> tuple[Array, Array]:
    """The words of the queries in partition order, and their query numbers; both in arrays of the allocator."""
    count, wide = len(queries), queries.itemsize == 8
    words, rows = allocate(count, queries.dtype), allocate(count, np.dtype(np.uint32))
    shift = max((entries - 1).bit_length() - PARTS.bit_length() + 1, 0)
    counts = np.zeros((_SLICES, PARTS), np.int64)
    args = _Args.pack(
        QUERIES=queries, FLIP=flip, COUNT=count, TREE=tree, COUNTS=counts, WORDS=words, ROWS=rows, SHIFT=shift
    )
    team.run(_count_64 if wide else _count_32, args, _SLICES)
    # By partition, and within a partition by slice.
    ends = np.cumsum(counts.T.reshape(-1)).reshape(PARTS, _SLICES).T
    counts[:] = ends - counts
    team.run(_move_64 if wide else _move_32, args, _SLICES)
    return words, rows


def run_partitioned(
    share: Share,
    team: Team,
    tree: Array,
    starts: StartDirectory | None,
    nbytes: int,
    queries: Array,
    flip: int,
    args: dict[str, Any],
) -> int:
    """Run a kernel of `search.py` over queries; partition them if the tree (`nbytes`) and the batch are large."""
    searched = "START" not in args and args.get("MODE", ha.NODES) != ha.NODES
    if starts is None or not searched or len(queries) < MIN_QUERIES or nbytes < MIN_BYTES:
        return run_search(share, team, tree, queries, flip, **args)
    words, rows = partition_queries(tree, len(starts.directory) - 1, queries, flip, team)
    there = allocate(len(queries), np.uint8)
    there[:] = 1
    hits = run_search(share, team, tree, words, ROWS=rows, THERE=there, **args)
    if "BITS" in args and hits < len(there):
        bits = np.packbits(there, bitorder="little")
        args["BITS"][: len(bits)] = bits
    for array in (words, rows, there):
        free(array)
    return hits
