"""A merge by all workers together: the blocking merge of the parallel join (PIM-Tree, section 5.2, Figure 13c).

The subindexes are cut into parts; the words of `T_S` that belong to a part follow from its last bound. Workers claim
parts twice: first to count what has not expired, which gives each part its offset in the new `T_S`, then to write. The
worker that began the merge waits for all claimed parts and builds the inner levels. One atomic word holds the round and
the next part, so that a late worker can never claim a part of another round.
"""

from __future__ import annotations

from enum import auto
from typing import Any

import numpy as np

from millrace.host.join.pimtree.insert_trees import COUNT, NEXT, Sub, Trees, ids_of, node_at
from millrace.host.join.pimtree.merge import merge_range
from millrace.host.join.pimtree.static_tree import Static, build_levels
from millrace.host.runtime.intrinsics import (
    atomic_add,
    atomic_load,
    atomic_store,
    atomic_swap_if,
    load,
    load_as,
    load_id,
    store,
)
from millrace.host.runtime.jit import inline, kernel, share
from millrace.host.runtime.kernel_args import KernelArgs
from millrace.host.runtime.thread_sleep import spin_or_nap

PARTS = 32
_COUNTING, _WRITING = 1, 2
_ROUND = 32
"""The bits of `CLAIM` below the round: the next part."""


class Merge(KernelArgs):
    """The words of a shared merge; the last one stands for `PARTS` + 1 words each of the three lists."""

    CLAIM = auto()
    _1 = auto()
    _2 = auto()
    _3 = auto()
    _4 = auto()
    _5 = auto()
    _6 = auto()
    _7 = auto()
    DONE = auto()  # parts of this round
    TREE = auto()
    TREES = auto()
    NEW_TREE = auto()
    OLDEST = auto()
    LISTS = auto()


SUBS, RANKS, SIZES = (Merge.LISTS + n * (PARTS + 1) for n in range(3))
"""The first subindex and the first word of `T_S` of each part, and how many entries it keeps, then its offset."""
MERGE_WORDS = SIZES + PARTS + 1


@inline
def _rank_above(tree: int, bound: Any, like: Any) -> int:
    """How many words of `T_S` are at most `bound`."""
    words, low, high = load(tree, Static.WORDS), 0, load(tree, Static.SIZE)
    while low < high:
        middle = (low + high) // 2
        if load_as(words, middle, like) <= bound:
            low = middle + 1
        else:
            high = middle
    return low


@inline
def _count_kept(merge: int, part: int, like: Any) -> int:
    """How many entries of a part have not expired."""
    tree, trees, oldest = load(merge, Merge.TREE), load(merge, Merge.TREES), load(merge, Merge.OLDEST)
    ids, alive, found = load(tree, Static.IDS), oldest - load(tree, Static.BASE), 0
    for i in range(load(merge, RANKS + part), load(merge, RANKS + part + 1)):
        found += load_id(ids, i) >= alive
    alive = oldest - load(trees, Trees.BASE)
    for sub in range(load(merge, SUBS + part), load(merge, SUBS + part + 1)):
        number = sub
        while number >= 0:
            node = node_at(trees, number, like)
            for i in range(load(node, COUNT)):
                found += load_id(ids_of(node, like), i) >= alive
            number = load(node, NEXT)
    return found


@inline
def _write_part(merge: int, part: int, like: Any) -> None:
    tree, trees, new_tree = load(merge, Merge.TREE), load(merge, Merge.TREES), load(merge, Merge.NEW_TREE)
    subs, ranks, sizes = merge + 8 * (SUBS + part), merge + 8 * (RANKS + part), merge + 8 * (SIZES + part)
    merge_range(tree, trees, subs, ranks, load(merge, Merge.OLDEST), new_tree, load(sizes, 0), load(sizes, 1), like)


@kernel
def help_merge(merge: int, like: Any) -> None:
    """Work on unclaimed parts of the present round, if there is one."""
    while True:
        claim = atomic_load(merge)
        part = claim & ((1 << _ROUND) - 1)
        if claim == 0 or part >= PARTS:
            return
        if atomic_swap_if(merge, claim, claim + 1):
            if claim >> _ROUND == _COUNTING:
                store(merge, SIZES + part, _count_kept(merge, part, like))
            else:
                _write_part(merge, part, like)
            atomic_add(merge + 8 * Merge.DONE, 1)


@inline
def _all_parts(merge: int, number: int, like: Any) -> None:
    """Run a round: publish it, take part, and wait for the others."""
    store(merge, Merge.DONE, 0)
    atomic_store(merge, number << _ROUND)
    help_merge(merge, like)
    spins, done = 0, atomic_load(merge + 8 * Merge.DONE)
    while done < PARTS:
        spins = spin_or_nap(merge + 8 * Merge.DONE, done, spins)
        done = atomic_load(merge + 8 * Merge.DONE)


@kernel
def cut(merge: int, tree: int, trees: int, oldest: int, new_tree: int, like: Any) -> None:
    """Cut `T_S` and `T_I` into parts, to be merged into a new `T_S`."""
    store(merge, Merge.TREE, tree)
    store(merge, Merge.TREES, trees)
    store(merge, Merge.NEW_TREE, new_tree)
    store(merge, Merge.OLDEST, oldest)
    subs = load(trees, Trees.SUBINDEXES)
    for part in range(PARTS + 1):
        sub = part * subs // PARTS
        store(merge, SUBS + part, sub)
        rank = 0 if sub == 0 else load(tree, Static.SIZE)
        if 0 < sub < subs:
            bound = type(like)(load_as(node_at(trees, sub - 1, like), Sub.BOUND, np.uint64(0)))
            rank = _rank_above(tree, bound, like)
        store(merge, RANKS + part, rank)


@kernel
def offset_parts(merge: int) -> int:
    """Replace the sizes of parts by their offsets in the new `T_S`; returns its size."""
    size = 0
    for part in range(PARTS):
        kept = load(merge, SIZES + part)
        store(merge, SIZES + part, size)
        size += kept
    store(merge, SIZES + PARTS, size)
    return size


@kernel
def merge_shared(merge: int, tree: int, trees: int, oldest: int, new_tree: int, like: Any) -> None:
    """Merge `T_S` and `T_I` into a new `T_S`, whose base is set already. Nobody else uses the trees meanwhile."""
    cut(merge, tree, trees, oldest, new_tree, like)
    _all_parts(merge, _COUNTING, like)
    size = offset_parts(merge)
    _all_parts(merge, _WRITING, like)
    atomic_store(merge, 0)
    build_levels(new_tree, size, like)


# The parts as jobs of a team (`team_merge.py`).


@share
def count_32(merge: int, part: int, parts: int) -> None:
    """Count a part, for 32-bit words."""
    store(merge, SIZES + part, _count_kept(merge, part, np.uint32(0)))


@share
def count_64(merge: int, part: int, parts: int) -> None:
    """Count a part, for 64-bit words."""
    store(merge, SIZES + part, _count_kept(merge, part, np.uint64(0)))


@share
def write_32(merge: int, part: int, parts: int) -> None:
    """Write a part, for 32-bit words."""
    _write_part(merge, part, np.uint32(0))


@share
def write_64(merge: int, part: int, parts: int) -> None:
    """Write a part, for 64-bit words."""
    _write_part(merge, part, np.uint64(0))
