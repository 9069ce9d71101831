"""The HB+-Tree on words: both layouts, both fan-outs, both widths, all searches, against `searchsorted`."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from millrace.host.base.errors import ArgumentError
from millrace.host.base.types import Array
from millrace.host.device.cpu import CpuDevice
from millrace.host.hbtree import layout
from millrace.host.hbtree.build import fill
from millrace.host.hbtree.layout import LAYOUTS, LINE, LayoutName, shape_of
from millrace.host.hbtree.leaves import DISTINCT, EQUALS, UNSORTED
from millrace.host.hbtree.tree import HBTree, helpers
from millrace.host.hbtree.values import gather, spread
from millrace.host.runtime.allocator import huge_array

SIZES = (0, 1, 7, 8, 9, 15, 16, 17, 64, 65, 72, 73, 129, 512, 513, 4096, 5000, 40_000)
both_layouts = pytest.mark.parametrize("layout", LAYOUTS)
both_widths = pytest.mark.parametrize("word", [np.uint32, np.uint64])


def draw(rng: np.random.Generator, word: Any, size: int) -> Array:
    """Sorted words: close together with many equal, or far apart; sometimes with the largest."""
    most = np.iinfo(word).max
    words = rng.integers(0, size + 1, size, dtype=word) if size % 2 else rng.integers(0, most, size, dtype=word)
    if size % 3 == 0:
        words[-2:] = most
    return np.sort(words)


def queries_for(rng: np.random.Generator, words: Array) -> Array:
    most = np.iinfo(words.dtype).max
    drawn = [rng.integers(0, most, 99, dtype=words.dtype), rng.integers(0, len(words) + 3, 99, dtype=words.dtype)]
    return np.concatenate([words, *drawn, np.array([0, 1, most - 1, most], words.dtype)])


@both_layouts
@both_widths
@pytest.mark.parametrize("hybrid", [False, True])
def test_all_searches_agree_with_searchsorted(layout: LayoutName, word: Any, hybrid: bool) -> None:
    rng = np.random.default_rng(1)
    for size in SIZES:
        words = draw(rng, word, size)
        queries = queries_for(rng, words)
        tree = HBTree.of(words, layout, hybrid)
        low, high = np.searchsorted(words, queries), np.searchsorted(words, queries, "right")
        assert (tree.lookup(queries) == np.where(low < high, low, -1)).all()
        assert (tree.lookup(queries, last=True) == np.where(low < high, high - 1, -1)).all()
        lines = tree.walk(queries, tree.levels)
        assert (tree.leaf(queries, lines) == np.where(low < high, low, -1)).all()
        assert (tree.lower(queries, lines) == low).all()
        for depth in range(tree.levels):
            assert (tree.walk(queries, tree.levels, tree.walk(queries, depth), depth) == lines).all()
        others = rng.permutation(queries)
        starts, ends = tree.range(queries, others)
        wanted = np.maximum(np.searchsorted(words, others, "right"), low)
        assert (starts == low).all()
        assert (ends == np.where(queries > others, low, wanted)).all()


@both_layouts
@both_widths
def test_threads_change_nothing(layout: LayoutName, word: Any) -> None:
    rng = np.random.default_rng(2)
    words = draw(rng, word, 30_000)
    queries = rng.permutation(queries_for(rng, words))
    found = [HBTree.of(words, layout, threads=threads).lookup(queries) for threads in (1, 2, 3)]
    assert (found[0] == found[1]).all()
    assert (found[0] == found[2]).all()


def test_shapes_are_the_papers() -> None:
    wide, narrow = np.dtype(np.uint64), np.dtype(np.uint32)
    assert [shape_of("implicit", w, 10**6, h).fanout for w in (wide, narrow) for h in (False, True)] == [9, 8, 17, 16]
    assert [shape_of("regular", w, 10**6, False).fanout for w in (wide, narrow)] == [64, 256]
    regular = shape_of("regular", wide, 10**6, False)
    assert (regular.upper_stride * 8, regular.last_stride * 8) == (17 * LINE, 9 * LINE)
    assert shape_of("implicit", wide, 0, False).counts == (1, 1)
    assert shape_of("implicit", wide, 73 * 8, False).counts == (1, 9, 73)


def test_a_separator_is_the_largest_word_below_its_child() -> None:
    words = np.arange(0, 2 * 100, 2, dtype=np.uint64)
    tree = HBTree.of(words, "implicit")
    assert tree.shape.counts == (1, 2, 13)
    last_level = tree.nodes.reshape(-1, 8)[1:]
    assert last_level[0].tolist() == [14, 30, 46, 62, 78, 94, 110, 126]
    assert last_level[1].tolist() == [158, 174, 190, *[2**64 - 1] * 5]


@both_widths
def test_building_reports_the_order_of_the_keys(word: Any) -> None:
    for few, wanted in (([1, 2, 9], DISTINCT), ([1, 2, 2], EQUALS), ([2, 1], UNSORTED), ([], DISTINCT)):
        with helpers(2, 0) as team:
            assert fill(np.array(few, word), 0, None, team)[1] == wanted
    rng = np.random.default_rng(3)
    for position in (1, 8, 16, 300_000, 599_999):
        keys = np.arange(600_000, dtype=word) * 2 + 10
        keys[position] -= rng.choice([2, 3])
        with helpers(2, len(keys)) as team:
            known = fill(keys, 0, None, team)[1]
        assert known == (EQUALS if keys[position] == keys[position - 1] else UNSORTED)


@both_widths
@pytest.mark.parametrize("value", [np.uint32, np.uint64])
def test_values_are_stored_inline(word: Any, value: Any) -> None:
    keys, values = np.arange(1000, dtype=word) * 3, np.arange(1000, dtype=value) + 7
    with helpers(2, 0) as team:
        leaves, _ = fill(keys, 1, values, team)
        assert (leaves.words == keys ^ 1).all()
        assert (leaves.values == values).all()
        starts, counts = np.array([5, 999, 0, 990]), np.array([20, 1, 0, 10])
        offsets = np.append(0, np.cumsum(counts)).astype(np.int32)
        out = np.empty(31, value)
        spread(leaves, starts, offsets, out, team)
    wanted = np.concatenate([values[a : a + n] for a, n in zip(starts, counts, strict=True)])
    assert (out == wanted).all()
    assert (gather(leaves, starts) == values[starts]).all()


def test_too_many_keys_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(layout, "MAX_KEYS", 4)
    monkeypatch.setattr("millrace.host.hbtree.tree.MAX_KEYS", 4)
    with pytest.raises(ArgumentError, match="5 keys are too many; allowed are 4"):
        HBTree.of(np.arange(5, dtype=np.uint64), "implicit")


def test_huge_arrays_begin_at_a_line_and_are_zero() -> None:
    for size in (1, 1000, 1 << 20):
        array = huge_array(size, np.uint64)
        assert len(array) == size
        assert array.ctypes.data % LINE == 0
        assert not array.any()


@both_layouts
@both_widths
def test_units_walk_as_the_tree_does(layout: LayoutName, word: Any) -> None:
    rng = np.random.default_rng(4)
    words = draw(rng, word, 40_001)
    tree, device, queries = HBTree.of(words, layout, hybrid=True), CpuDevice(2), queries_for(rng, words)
    lines = tree.walk(queries, tree.levels)
    head = [device.adopt(tree.nodes)] + ([device.adopt(tree.offsets)] if layout == "implicit" else [])
    tail = (tree.levels,) if layout == "implicit" else (tree.levels, tree.last)
    for start in range(tree.levels + 1):
        out = device.alloc(len(queries), np.dtype(np.uint32))
        buffers = [*head, device.adopt(queries), device.adopt(tree.walk(queries, start)), out]
        done = device.wait(device.launch(f"hb_search_{layout}", buffers, (len(queries), start, *tail)))
        assert done["rows"] == len(queries)
        assert (device.view(out, len(queries)) == lines).all()
    if layout == "implicit":
        out = device.alloc(len(queries), np.dtype(np.uint32))
        buffers = [*head, device.adopt(tree.leaf_words), device.adopt(queries), out]
        device.wait(device.launch("hb_lookup", buffers, (len(queries), tree.levels, tree.size)))
        assert (device.view(out, len(queries)) == np.searchsorted(words, queries)).all()
    device.close()
