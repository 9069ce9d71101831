"""The index-based window join, tuple by tuple: search the other side, insert into the own one (PIM-Tree, 2.2 and 3.3).

A side consists of immutable trees and insert trees: one of each in `im` and `pim`, several in `chain`. Tuples are taken
in tasks of a few. Nothing but insertions changes between merges, so all searches of a task in immutable trees are
interleaved with prefetches; then tuple after tuple scans and inserts, in order. Expired entries are filtered by
position. If a merge is due, the kernel stops before the current task and says for which side.
"""

from __future__ import annotations

from enum import auto
from typing import Any

import numpy as np

from millrace.host.join.baseline.btree_kernel import sort_positions
from millrace.host.join.pimtree.insert_trees import (
    COUNT,
    NEXT,
    SPLIT_NODES,
    UPPER,
    Sub,
    Trees,
    begin_search,
    first_leaf,
    ids_of,
    insert,
    is_unchanged,
    leaf_hits,
    node_at,
    prefetch_leaf,
    sub_of,
)
from millrace.host.join.pimtree.results import append
from millrace.host.join.pimtree.static_tree import Static, descend, find_ranks, largest
from millrace.host.runtime.intrinsics import (
    WIDE_LANES,
    atomic_load,
    load,
    load_as,
    load_byte,
    load_id,
    lowest_bit,
    store,
    store_as,
)
from millrace.host.runtime.jit import inline, kernel
from millrace.host.runtime.kernel_args import KernelArgs
from millrace.host.runtime.spin_lock import spin_acquire, spin_release

DONE, MERGE_R, MERGE_S = range(3)
MAX_TASK = 64
"""The most tuples of a task."""


class Side(KernelArgs):
    """The table of one side."""

    STATICS = auto()  # addresses of the tables of immutable trees
    STATIC_COUNT = auto()
    TREES = auto()  # addresses of the tables of insert trees; the last one takes new tuples
    TREE_COUNT = auto()
    LIMIT = auto()  # entries of the newest insert trees at which a merge is due
    ROOM = auto()  # entries that the insert trees have memory for
    WINDOW = auto()  # rows of a count window, for a merge in a ring
    OLDEST = auto()  # positions below are not visible to any later tuple
    NEW = auto()  # the position of the first new tuple
    MASK = auto()  # the arrays of new tuples are rings: tuple i is at `i & MASK`; -1 if they are no rings
    WORDS = auto()  # of the new tuples
    LIVE = auto()
    BEGIN = auto()  # the visible intervals of the new tuples
    STOP = auto()
    LOW = auto()  # the ranges of the new tuples, RANGES each; 0: a band around the own word
    HIGH = auto()
    RANGES = auto()
    BELOW = auto()
    ABOVE = auto()
    COUNTS = auto()  # out
    OUT = auto()  # partners: the words of a `Slot`
    OUT_CAPACITY = auto()
    OUT_FAILED = auto()
    OUT_USED = auto()
    OUT_LIMIT = auto()
    DONE_TUPLES = auto()
    KEYS = auto()  # scratch: the keys that a task searches in this side's trees, and how many
    KEY_COUNT = auto()
    RANKS = auto()  # their ranks in each immutable tree, and their subindexes
    KEY_SUBS = auto()
    OWN_WORDS = auto()  # the words that a task inserts, and their subindexes
    OWN_COUNT = auto()
    OWN_SUBS = auto()
    TASK_ROWS = auto()


@inline
def range_of(own: int, i: int, k: int, like: Any) -> tuple[Any, Any]:
    """Range k of new tuple i."""
    i &= load(own, Side.MASK)
    if load(own, Side.LOW) != 0:
        at = i * load(own, Side.RANGES) + k
        return load_as(load(own, Side.LOW), at, like), load_as(load(own, Side.HIGH), at, like)
    word = load_as(load(own, Side.WORDS), i, like)
    below, above = type(like)(load(own, Side.BELOW)), type(like)(load(own, Side.ABOVE))
    low = type(like)(word - below) if word >= below else type(like)(0)
    high = type(like)(word + above) if word <= type(like)(largest(like) - above) else largest(like)
    return low, high


@inline
def gather_keys(order: int, at: int, count: int, r: int, s: int, like: Any) -> None:
    """List the keys that a task's tuples search, and the words that they insert."""
    for side in (r, s):
        store(side, Side.KEY_COUNT, 0)
        store(side, Side.OWN_COUNT, 0)
    i_r, i_s = load(r, Side.DONE_TUPLES), load(s, Side.DONE_TUPLES)
    for t in range(at, at + count):
        of_s = load_byte(order, t & load(r, Side.MASK)) != 0
        own, other, i = (s, r, i_s) if of_s else (r, s, i_r)
        i_r, i_s = (i_r, i_s + 1) if of_s else (i_r + 1, i_s)
        if load_byte(load(own, Side.LIVE), i & load(own, Side.MASK)):
            list_keys(own, other, i, like)


@inline
def list_keys(own: int, other: int, i: int, like: Any) -> None:
    """Add the keys that a tuple searches in the other side, and the word that it inserts into its own."""
    n = load(own, Side.OWN_COUNT)
    store_as(load(own, Side.OWN_WORDS), n, load_as(load(own, Side.WORDS), i & load(own, Side.MASK), like))
    store(own, Side.OWN_COUNT, n + 1)
    n = load(other, Side.KEY_COUNT)
    for k in range(load(own, Side.RANGES)):
        low, _ = range_of(own, i, k, like)
        store_as(load(other, Side.KEYS), n + k, low)
    store(other, Side.KEY_COUNT, n + load(own, Side.RANGES))


@inline
def search_group(side: int, like: Any) -> None:
    """Search a task's keys in the immutable trees of a side, and find the subindexes of keys and own words."""
    keys, count, subs = load(side, Side.KEYS), load(side, Side.KEY_COUNT), load(side, Side.KEY_SUBS)
    own_words, own_count, own_subs = load(side, Side.OWN_WORDS), load(side, Side.OWN_COUNT), load(side, Side.OWN_SUBS)
    trees = load(load(side, Side.TREES), load(side, Side.TREE_COUNT) - 1)
    depth = load(trees, Trees.DEPTH)
    _clear(own_subs, own_count)
    _clear(subs, count)
    for c in range(load(side, Side.STATIC_COUNT)):
        tree, ranks = load(load(side, Side.STATICS), c), load(side, Side.RANKS) + 8 * c * count
        _clear(ranks, count)
        descend(tree, 0, depth, keys, ranks, count, like)
        if depth > 0:
            descend(tree, 0, depth, own_words, own_subs, own_count, like)
            for j in range(own_count):
                sub = sub_of(trees, load(own_subs, j))
                store(own_subs, j, sub)
                prefetch_leaf(trees, sub, True, like)
            for j in range(count):
                sub = sub_of(trees, load(ranks, j))
                store(subs, j, sub)
                prefetch_leaf(trees, sub, False, like)
        descend(tree, depth, load(tree, Static.LEVELS), keys, ranks, count, like)
        find_ranks(tree, keys, ranks, count, like)


@inline
def _clear(where: int, count: int) -> None:
    for j in range(count):
        store(where, j, 0)


@inline
def scan_static(tree: int, rank: int, high: Any, begin: int, end: int, slot: int, at: int, like: Any) -> int:
    """Append the positions of the entries from `rank` to `high` that are visible; returns the number of results."""
    words, ids, size, base = (
        load(tree, Static.WORDS),
        load(tree, Static.IDS),
        load(tree, Static.SIZE),
        load(tree, Static.BASE),
    )
    while rank < size and load_as(words, rank, like) <= high:
        position = load_id(ids, rank) + base
        if begin <= position < end:
            at = append(slot, at, position)
        rank += 1
    return at


@inline
def scan_leaf(node: int, low: Any, high: Any, begin: int, end: int, base: int, slot: int, at: int, like: Any) -> int:
    """The same for the entries of a leaf."""
    count = atomic_load(node + 8 * COUNT)
    for chunk in range(0, count, WIDE_LANES):
        hits = leaf_hits(node, chunk, count, low, high, like)
        while hits != 0:
            position = load_id(ids_of(node, like), chunk + lowest_bit(hits)) + base
            hits &= hits - 1
            if begin <= position < end:
                at = append(slot, at, position)
    return at


@inline
def scan_trees(trees: int, sub: int, low: Any, high: Any, begin: int, end: int, slot: int, at: int, like: Any) -> int:
    """The same for insert trees, from the subindex of `low` on; other threads may insert meanwhile."""
    base, found = load(trees, Trees.BASE), at
    header = node_at(trees, sub, like)
    version = begin_search(header)
    number = first_leaf(trees, header, version, low, like)
    while True:
        node = node_at(trees, number, like)
        at = scan_leaf(node, low, high, begin, end, base, slot, at, like)
        number = load(node, NEXT)
        if number >= 0 and type(like)(load_as(node, UPPER, np.uint64(0))) <= high:
            continue
        if is_unchanged(header, version):
            if type(like)(load_as(header, Sub.BOUND, np.uint64(0))) >= high:
                return at
            sub += 1
            header, found = node_at(trees, sub, like), at
        at = found
        version = begin_search(header)
        number = first_leaf(trees, header, version, low, like)


@inline
def find_partners(own: int, other: int, i: int, key: int, like: Any) -> None:
    """Find the partners of tuple i, whose keys are the task's from `key` on."""
    begin, end = load(load(own, Side.BEGIN), i), load(load(own, Side.STOP), i)
    used, keys, slot = load(own, Side.OUT_USED), load(other, Side.KEY_COUNT), own + 8 * Side.OUT
    at = used
    for k in range(load(own, Side.RANGES)):
        low, high = range_of(own, i, k, like)
        if low > high:
            continue
        for c in range(load(other, Side.STATIC_COUNT)):
            tree, rank = load(load(other, Side.STATICS), c), load(load(other, Side.RANKS), c * keys + key + k)
            at = scan_static(tree, rank, high, begin, end, slot, at, like)
        sub = load(load(other, Side.KEY_SUBS), key + k)
        for c in range(load(other, Side.TREE_COUNT)):
            at = scan_trees(load(load(other, Side.TREES), c), sub, low, high, begin, end, slot, at, like)
    store(load(own, Side.COUNTS), i, at - used)
    if load(own, Side.OUT_CAPACITY) >= 0:
        sort_positions(load(own, Side.OUT), used, at)
        store(own, Side.OUT_USED, at)


@inline
def insert_locked(own: int, sub: int, i: int, like: Any) -> None:
    """Insert new tuple i into its subindex, which other threads may use."""
    trees = load(load(own, Side.TREES), 0)
    lock = node_at(trees, sub, like) + 8 * Sub.LOCK
    word = load_as(load(own, Side.WORDS), i & load(own, Side.MASK), like)
    spin_acquire(lock)
    insert(trees, sub, word, load(own, Side.NEW) + i - load(trees, Trees.BASE), like)
    spin_release(lock)


@inline
def _process_task(order: int, at: int, count: int, r: int, s: int, like: Any) -> None:
    """Process a task's tuples in order."""
    key_r = key_s = own_r = own_s = 0
    for t in range(at, at + count):
        of_s = load_byte(order, t) != 0
        own, other, key, number = (s, r, key_r, own_s) if of_s else (r, s, key_s, own_r)
        i = load(own, Side.DONE_TUPLES)
        store(other, Side.OLDEST, max(load(other, Side.OLDEST), load(load(own, Side.BEGIN), i)))
        if load_byte(load(own, Side.LIVE), i):
            find_partners(own, other, i, key, like)
            trees = load(load(own, Side.TREES), load(own, Side.TREE_COUNT) - 1)
            one = load(own, Side.NEW) + i - load(trees, Trees.BASE)
            insert(trees, load(load(own, Side.OWN_SUBS), number), load_as(load(own, Side.WORDS), i, like), one, like)
            store(trees, Trees.INSERTED, load(trees, Trees.INSERTED) + 1)
            if of_s:
                key_r, own_s = key_r + load(own, Side.RANGES), own_s + 1
            else:
                key_s, own_r = key_s + load(own, Side.RANGES), own_r + 1
        store(own, Side.DONE_TUPLES, i + 1)


@inline
def _merge_due(side: int, count: int) -> bool:
    """Whether the newest insert trees cannot take `count` entries more."""
    trees = load(load(side, Side.TREES), load(side, Side.TREE_COUNT) - 1)
    full = load(trees, Trees.INSERTED) + count > load(side, Side.LIMIT)
    return full | (load(trees, Trees.USED) + count * SPLIT_NODES > load(trees, Trees.CAPACITY))


@kernel
def run(order: int, tuples: int, task: int, r: int, s: int, like: Any) -> int:
    """Process tuples in order, `task` at a time, until all are done or a merge is due: which."""
    at = load(r, Side.DONE_TUPLES) + load(s, Side.DONE_TUPLES)
    while at < tuples:
        count = min(task, tuples - at)
        if _merge_due(r, count):
            return MERGE_R
        if _merge_due(s, count):
            return MERGE_S
        gather_keys(order, at, count, r, s, like)
        search_group(r, like)
        search_group(s, like)
        _process_task(order, at, count, r, s, like)
        at += count
    return DONE
