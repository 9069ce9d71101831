"""The start directory finds the same nodes as a walk from the root; partitioned queries keep their order."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from millrace.host.base.types import Array
from millrace.host.hbtree import query_order
from millrace.host.hbtree.directory import ENTRIES, MAX_NODES_PER_ENTRY, separators_of
from millrace.host.hbtree.layout import LAYOUTS, LayoutName
from millrace.host.hbtree.regular import RegularTree
from millrace.host.hbtree.tree import HBTree
from millrace.host.runtime.allocator import Allocator
from millrace.index import OrderedIndex

SIZE = 150_000
both_layouts = pytest.mark.parametrize("layout", LAYOUTS)
both_widths = pytest.mark.parametrize("word", [np.uint32, np.uint64])


def drawn(kind: str, word: Any, size: int, rng: np.random.Generator) -> Array:
    """Sorted words that are spread evenly, in a narrow range, in clumps, or mostly at one position."""
    most = np.iinfo(word).max
    even = rng.integers(0, most, size, dtype=word, endpoint=True)
    if kind == "even":
        return np.sort(even)
    if kind == "narrow":
        return np.sort(rng.integers(most // 2, most // 2 + 3 * size, size, dtype=word))
    if kind == "clumps":
        clump = rng.integers(0, most - 50_000, 40, dtype=word)[rng.integers(0, 40, size // 3)]
        even[: size // 3] = clump + rng.integers(0, 50_000, size // 3).astype(word)
        return np.sort(even)
    even[: size * 9 // 10] = rng.integers(1000, 1000 + size, size * 9 // 10)
    return np.sort(even)


@both_layouts
@both_widths
@pytest.mark.parametrize("hybrid", [False, True])
@pytest.mark.parametrize("kind", ["even", "narrow", "clumps", "one place"])
def test_every_word_finds_its_position(kind: str, layout: LayoutName, word: Any, hybrid: bool) -> None:
    rng = np.random.default_rng(4)
    words = drawn(kind, word, SIZE, rng)
    tree, most = HBTree.of(words, layout, hybrid), np.iinfo(word).max
    near = np.concatenate([words[::7], words[::11] + word(1), words[::13] - word(1)])
    far = [rng.integers(0, most, 5000, dtype=word), np.array([0, 1, most - 1, most], word)]
    queries = rng.permutation(np.concatenate([near, *far]))
    low, high = np.searchsorted(words, queries), np.searchsorted(words, queries, "right")
    assert (tree.starts is None) == (kind == "one place")
    assert (tree.lookup(queries) == np.where(low < high, low, -1)).all()
    assert (tree.walk(queries, tree.levels) == np.minimum(low // tree.shape.per_leaf, tree.shape.lines - 1)).all()


@both_layouts
@both_widths
def test_results_of_partitioned_queries_are_in_query_order(
    layout: LayoutName, word: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(query_order, "MIN_QUERIES", 1)
    monkeypatch.setattr(query_order, "MIN_BYTES", 1)
    rng = np.random.default_rng(7)
    keys = np.unique(drawn("clumps", word, SIZE, rng)).view(f"i{word().itemsize}")
    values = rng.integers(0, 1 << 60, len(keys))
    index = OrderedIndex(keys, values, layout=layout, device="cpu")
    queries = np.concatenate([keys[rng.integers(0, len(keys), 70_001)], rng.integers(-99, 99, 30, dtype=keys.dtype)])
    rng.shuffle(queries)
    masked = pa.array(queries, mask=rng.random(len(queries)) < 0.01)
    positions = np.minimum(np.searchsorted(np.sort(keys), queries), len(keys) - 1)
    order = np.argsort(keys)
    there = (np.sort(keys)[positions] == queries) & masked.is_valid().to_numpy(zero_copy_only=False)
    wanted = pa.array(values[order][positions], mask=~there)
    assert index.lookup(masked).equals(wanted)
    every = keys[rng.integers(0, len(keys), 5000)]
    assert index.lookup(every).to_pylist() == values[order][np.searchsorted(np.sort(keys), every)].tolist()
    assert index.range(every, every).flatten().equals(index.lookup(every))


def test_partitioned_queries_reuse_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(query_order, "MIN_QUERIES", 1)
    monkeypatch.setattr(query_order, "MIN_BYTES", 1)
    memory = Allocator()
    monkeypatch.setattr(query_order, "allocate", memory.allocate)
    monkeypatch.setattr(query_order, "free", memory.free)
    words = drawn("even", np.uint64, SIZE, np.random.default_rng(9))
    tree = HBTree.of(words, "implicit")

    def lookups_match(seed: int) -> bool:
        queries = np.random.default_rng(seed).permutation(words)
        return bool((words[tree.lookup(queries)] == queries).all())

    assert lookups_match(0)
    kept = memory.kept
    assert kept > 0
    assert lookups_match(1)
    assert memory.kept == kept
    with ThreadPoolExecutor(3) as threads:
        assert all(threads.map(lookups_match, range(12)))
    assert kept <= memory.kept <= 3 * kept


@both_layouts
@both_widths
def test_separators_divide_the_nodes_of_their_level(layout: LayoutName, word: Any) -> None:
    words = drawn("even", word, SIZE, np.random.default_rng(5))
    tree = HBTree.of(words, layout)
    for level in range(tree.levels):
        lines = tree.shape.fanout ** (tree.levels - level)
        last = np.arange(1, tree.shape.counts[level]) * lines * tree.shape.per_leaf - 1
        assert separators_of(tree.shape, tree.nodes, level).tolist() == words[last].tolist()


@both_widths
def test_a_changed_tree_gets_a_new_directory(word: Any) -> None:
    rng = np.random.default_rng(8)
    keys = np.unique(drawn("even", word, SIZE, rng))[:-1]
    index = OrderedIndex(keys, layout="regular", device="cpu")
    held, next_row = {key: row for row, key in enumerate(keys.tolist())}, len(keys)
    for turn in range(3):
        queries = rng.permutation(np.concatenate([keys, keys + word(1)]))
        assert index.lookup(queries).to_pylist() == [held.get(key) for key in queries.tolist()]
        tree = index._rows.tree
        assert isinstance(tree, RegularTree)
        assert tree.starts is not None
        assert tree.starts.order is not None
        assert turn == 0 or (np.diff(tree.starts.order.astype(np.int64)) < 0).any()
        start, gone = int(rng.integers(0, len(keys) - 4000)), keys[rng.integers(0, len(keys), 200)]
        more = np.setdiff1d(keys[start : start + 4000] + word(1 + turn), keys)
        index.update(upsert=more, delete=gone)
        assert index._rows.tree is tree
        assert tree.starts is None
        for key in gone.tolist():
            held.pop(key, None)
        # New keys take the next row numbers in input order.
        held |= dict(zip(more.tolist(), range(next_row, next_row + len(more)), strict=True))
        next_row += len(more)
        assert len(index) == len(held)
    assert index.lookup(np.array(list(held), word)).to_pylist() == list(held.values())


def test_it_is_small_and_most_entries_lead_to_one_node() -> None:
    words = drawn("even", np.uint64, 1 << 20, np.random.default_rng(6))
    starts = HBTree.of(words, "implicit").starts
    assert starts is not None
    nodes = np.diff(starts.directory)
    assert nodes.max() <= MAX_NODES_PER_ENTRY
    assert (nodes == 0).mean() > 1 - 1.1 / ENTRIES
    assert starts.nbytes < 0.01 * words.nbytes
