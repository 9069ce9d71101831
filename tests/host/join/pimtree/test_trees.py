"""The trees of PIM-Tree: searches, insertions with splits, subindex bounds and merges, against sorted lists."""

from __future__ import annotations

from bisect import bisect_left
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millrace.host.base.types import Array
from millrace.host.join.pimtree import insert_trees as it
from millrace.host.join.pimtree.insert_trees import NODE, InsertTrees, Sub, Trees
from millrace.host.join.pimtree.merge import merge
from millrace.host.join.pimtree.range_kernel import range_end
from millrace.host.join.pimtree.static_tree import LINE, Static, StaticTree, descend, find_ranks
from millrace.host.join.pimtree.team_merge import MAX_UNUSED, TeamMerge
from millrace.host.runtime.intrinsics import address, load, load_as, load_id, store
from millrace.host.runtime.jit import kernel
from millrace.host.runtime.team import Team

WIDTHS = [np.dtype(np.uint32), np.dtype(np.uint64)]
every_width = pytest.mark.parametrize("word", WIDTHS, ids=str)


@kernel
def ranks_of(tree: int, keys: int, nodes: int, count: int, levels: int, like: Any) -> None:
    descend(tree, 0, levels, keys, nodes, count, like)
    find_ranks(tree, keys, nodes, count, like)


@kernel
def subs_of(tree: int, trees: int, keys: int, nodes: int, count: int, like: Any) -> None:
    descend(tree, 0, load(trees, Trees.DEPTH), keys, nodes, count, like)
    for j in range(count):
        store(nodes, j, it.sub_of(trees, load(nodes, j)))


@kernel
def insert_into(trees: int, subs: int, words: int, ids: int, count: int, like: Any) -> None:
    for i in range(count):
        it.insert(trees, load(subs, i), load_as(words, i, like), load_id(ids, i), like)
    store(trees, Trees.INSERTED, load(trees, Trees.INSERTED) + count)


def ranks(tree: StaticTree, keys: Array) -> list[int]:
    nodes = np.zeros(len(keys), np.int64)
    levels = int(tree.table[Static.LEVELS])
    ranks_of(address(tree.table), address(keys), address(nodes), len(keys), levels, tree.word.type(0))
    return nodes.tolist()


def entries_of(tree: StaticTree) -> list[tuple[int, int]]:
    positions = tree.ids[: len(tree)].astype(np.int64) + tree.base
    return list(zip(tree.words[: len(tree)].tolist(), positions.tolist(), strict=True))


def some_words(rng: np.random.Generator, word: np.dtype[Any], count: int, span: int) -> Array:
    """Words of a small span at either end of the type, so that the largest word occurs."""
    low = rng.integers(0, span, count).astype(word)
    return np.where(rng.random(count) < 0.5, low, word.type(np.iinfo(word).max) - low)


@every_width
@given(count=st.integers(0, 3000), span=st.sampled_from([1, 5, 10**4]), seed=st.integers(0, 99))
@settings(max_examples=25, deadline=None)
def test_a_search_counts_the_smaller_words(word: np.dtype[Any], count: int, span: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    words = some_words(rng, word, count, span)
    tree = StaticTree.of(words, np.arange(count), 0)
    held = sorted(words.tolist())
    keys = np.concatenate([some_words(rng, word, 50, span + 2), np.array([0, np.iinfo(word).max], word)])
    assert ranks(tree, keys) == [bisect_left(held, int(key)) for key in keys]
    assert [w for w, _ in entries_of(tree)] == held


def leaves(trees: InsertTrees, word: np.dtype[Any], sub: int) -> list[list[tuple[int, int]]]:
    """The entries of each leaf of a subindex, in the order of the chain."""
    size = LINE + NODE * (word.itemsize + 4)
    found, number = [], sub
    while number >= 0:
        node = trees._pool[number * size : (number + 1) * size]
        count, number = node[:16].view(np.int64).tolist()
        words = node[LINE : LINE + NODE * word.itemsize].view(word)[:count]
        ids = node[LINE + NODE * word.itemsize :].view(np.uint32)[:count]
        found.append(list(zip(words.tolist(), ids.tolist(), strict=True)))
    return found


@every_width
@given(
    count=st.sampled_from([0, 31, 33, 400, 6000]),
    span=st.sampled_from([1, 40, 10**6]),
    subindexes=st.sampled_from([1, 2, 5, 100]),
    spread=st.sampled_from(["random", "ascending", "descending"]),
    seed=st.integers(0, 99),
)
@settings(max_examples=25, deadline=None)
def test_insertions_keep_every_entry_in_its_subindex_and_leaf(
    word: np.dtype[Any], count: int, span: int, subindexes: int, spread: str, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    tree = StaticTree.of(some_words(rng, word, 700, span), np.arange(700), 0)
    trees = InsertTrees(tree, subindexes, count, 700)
    words = some_words(rng, word, count, span)
    if spread != "random":
        words = np.sort(words)[:: 1 if spread == "ascending" else -1].copy()
    ids, subs = np.arange(count, dtype=np.uint32), np.zeros(count, np.int64)
    like = word.type(0)
    subs_of(address(tree.table), address(trees.table), address(words), address(subs), count, like)
    insert_into(address(trees.table), address(subs), address(words), address(ids), count, like)

    held = int(trees.table[Trees.SUBINDEXES])
    assert held <= subindexes
    assert trees.table[Trees.USED] <= trees.table[Trees.CAPACITY]
    headers = trees._pool.reshape(trees._nodes, -1)[:held, : 8 * len(Sub)].copy().view(np.uint64)
    bounds = headers[:, Sub.BOUND].tolist()
    assert bounds == sorted(bounds)
    assert bounds[-1] == np.iinfo(word).max
    found: list[tuple[int, int]] = []
    for sub in range(held):
        chain = leaves(trees, word, sub)
        for before, after in pairwise(chain):
            assert max(w for w, _ in before) <= min(w for w, _ in after), "leaves are out of order"
        inside = [entry for leaf in chain for entry in leaf]
        assert all(w <= bounds[sub] for w, _ in inside)
        assert sub == 0 or all(w > bounds[sub - 1] for w, _ in inside)
        found += inside
    assert sorted(found) == sorted(zip(words.tolist(), ids.tolist(), strict=True))


@every_width
@pytest.mark.parametrize("oldest", [0, 300, 1000, 1500])
def test_a_merge_keeps_exactly_what_has_not_expired(word: np.dtype[Any], oldest: int) -> None:
    rng = np.random.default_rng(oldest)
    words = some_words(rng, word, 1500, 100)
    tree = StaticTree.of(words[:1000], np.arange(1000), 0)
    trees = InsertTrees(tree, 1, 500, 1000)
    trees.insert_all(words[1000:], np.arange(1000, 1500))
    merged = merge(tree, trees, oldest)
    assert entries_of(merged) == sorted(zip(words[oldest:].tolist(), range(oldest, 1500), strict=True))
    assert merged.base == oldest
    keys = some_words(rng, word, 100, 102)
    held = sorted(words[oldest:].tolist())
    assert ranks(merged, keys) == [bisect_left(held, int(key)) for key in keys]


def test_the_last_words_belong_to_the_last_subindex() -> None:
    """With one subindex less than there are nodes, of so many that the fraction of 2**32 is not exact."""
    lines, word = 70_003, np.dtype(np.uint64)
    tree = StaticTree.of(
        np.arange(lines * LINE // word.itemsize, dtype=word), np.arange(lines * LINE // word.itemsize), 0
    )
    trees = InsertTrees(tree, lines - 1, 64, 0)
    assert trees.table[Trees.SUBINDEXES] == lines - 1
    assert range_end(address(tree.table), address(trees.table), tree.words[len(tree) - 1]) == np.iinfo(word).max


def test_a_merge_uses_the_spare_memory_unless_it_is_that_of_a_much_larger_window() -> None:
    word, merge_by = np.dtype(np.uint32), TeamMerge(Team(1)).run
    tree = StaticTree.of(np.arange(1000, dtype=word), np.arange(1000), 0)
    suits, too_small, too_large = (StaticTree(word, size) for size in (1200, 900, MAX_UNUSED * 1000 + 1))
    for spare, used in ((suits, True), (too_small, False), (too_large, False), (None, False)):
        merged = merge_by(tree, InsertTrees(tree, 4, 64, 0), 300, spare)
        assert (merged is spare) == used
        assert entries_of(merged) == [(one, one) for one in range(300, 1000)]
