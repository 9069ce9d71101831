"""Merges insert trees into a new `T_S` and drops expired entries (PIM-Tree, sections 3.2 and 3.3).

Leaves of `T_I` are sorted one by one; their order is the order of words, so the merge reads both trees once. Entries of
equal words stay in order of position where insertions were. The old trees do not change: probes may go on meanwhile.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from millrace.host.join.pimtree.insert_trees import COUNT, NEXT, NODE, InsertTrees, Trees, ids_of, node_at
from millrace.host.join.pimtree.static_tree import LINE, Static, StaticTree, build_levels
from millrace.host.runtime.intrinsics import address, load, load_as, load_id, stack_words, store, store_as
from millrace.host.runtime.jit import inline, kernel


@inline
def _sort_leaf(node: int, order: int, like: Any) -> int:
    """Write the slots of a leaf's entries in order of word, then id; returns their number."""
    words, ids, count = node + LINE, ids_of(node, like), load(node, COUNT)
    for i in range(count):
        word, one = load_as(words, i, like), load_id(ids, i)
        j = i
        while j > 0:
            before = load_as(order, j - 1, np.int64(0))
            other = load_as(words, before, like)
            if other < word or (other == word and load_id(ids, before) < one):
                break
            store_as(order, j, before)
            j -= 1
        store_as(order, j, np.int64(i))
    return count


@inline
def _put(words: int, ids: int, at: int, word: Any, one: int, alive: int, end: int) -> int:
    """Write an entry; count it if it has not expired. A branch on that would be mispredicted."""
    if at < end:
        store_as(words, at, word)
        store_as(ids, at, np.uint32(one))
    return at + (one >= alive)


@kernel
def merge_range(
    tree: int, trees: int, subs: int, ranks: int, oldest: int, out: int, at: int, end: int, like: Any
) -> int:
    """Merge some subindexes with some entries of T_S: from the first to the second number at `subs` and at `ranks`.

    Writes what is not older than `oldest` to a new T_S from number `at` on, nothing from `end` on, and returns the
    number after the last.
    """
    words, ids, i, stop = load(tree, Static.WORDS), load(tree, Static.IDS), load(ranks, 0), load(ranks, 1)
    out_words, out_ids, base = load(out, Static.WORDS), load(out, Static.IDS), load(out, Static.BASE)
    from_tree, from_trees, alive = load(tree, Static.BASE) - base, load(trees, Trees.BASE) - base, oldest - base
    order = stack_words(NODE)
    for sub in range(load(subs, 0), load(subs, 1)):
        number = sub
        while number >= 0:
            node = node_at(trees, number, like)
            for k in range(_sort_leaf(node, order, like)):
                slot = load_as(order, k, np.int64(0))
                word = load_as(node + LINE, slot, like)
                while i < stop and load_as(words, i, like) <= word:
                    at = _put(out_words, out_ids, at, load_as(words, i, like), load_id(ids, i) + from_tree, alive, end)
                    i += 1
                at = _put(out_words, out_ids, at, word, load_id(ids_of(node, like), slot) + from_trees, alive, end)
            number = load(node, NEXT)
    while i < stop:
        at = _put(out_words, out_ids, at, load_as(words, i, like), load_id(ids, i) + from_tree, alive, end)
        i += 1
    return at


@kernel
def merge_trees(tree: int, trees: int, oldest: int, out: int, like: Any) -> None:
    """Write the entries of T_S and T_I from position `oldest` on into a new T_S, whose base is set already."""
    ends = stack_words(4)
    store(ends, 0, 0)
    store(ends, 1, load(trees, Trees.SUBINDEXES))
    store(ends, 2, 0)
    store(ends, 3, load(tree, Static.SIZE))
    size = merge_range(tree, trees, ends, ends + 16, oldest, out, 0, load(out, Static.CAPACITY), like)
    build_levels(out, size, like)


def merge(tree: StaticTree, trees: InsertTrees, oldest: int) -> StaticTree:
    """A new T_S with the entries of both from position `oldest` on."""
    merged = StaticTree(tree.word, len(tree) + len(trees), oldest)
    merge_trees(address(tree.table), address(trees.table), oldest, address(merged.table), tree.word.type(0))
    return merged
