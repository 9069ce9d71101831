"""HB+-Tree's units against `searchsorted`: both layouts and widths, every start level, group edges, largest word.

On PoCL the kernels are executed as OpenCL; the emulated CUDA runs the same files with ballots and with barriers.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import Any

import numpy as np
import pytest

from millrace.host.base.types import Array
from millrace.host.device.contract import Device
from tests.gpu import devices, trees

# One worker runs all of these: on a cold cache PoCL builds each kernel once, not once per worker.
pytestmark = pytest.mark.xdist_group("opencl")

WIDTHS = (np.uint32, np.uint64)
SIZES = (0, 1, 7, 8, 9, 15, 16, 17, 63, 64, 65, 127, 129, 256, 257, 513, 4096, 4097, 20_000)
LAYOUTS = ("implicit", "regular, full", "regular, random")


@pytest.fixture(scope="module", params=devices.KINDS)
def device(request: pytest.FixtureRequest) -> Iterator[Device]:
    with devices.opened(request.param) as opened:
        yield opened


def draw(rng: np.random.Generator, size: int, dtype: Any, largest: bool) -> Array:
    """Distinct sorted words, the largest among them or not."""
    top = int(np.iinfo(dtype).max)
    words = np.unique(rng.integers(0, top, size * 2, dtype=dtype))[:size]
    if largest and size:
        words[-1] = top
    return words


def tree_of(layout: str, words: Array, rng: np.random.Generator) -> trees.Tree:
    return trees.implicit(words) if layout == "implicit" else trees.regular(words, rng, "full" in layout)


def queries_of(words: Array, rng: np.random.Generator, size: int) -> Array:
    """Words of the tree, their neighbours, and the ends of the type, in no order."""
    info = np.iinfo(words.dtype)
    ends = np.array([0, 1, info.max - 1, info.max], words.dtype)
    some = rng.choice(words, size) if len(words) else ends
    with np.errstate(over="ignore"):
        return rng.permutation(np.concatenate([some, some + words.dtype.type(1), some - words.dtype.type(1), ends]))[
            :size
        ]


def check_search(device: Device, tree: trees.Tree, layout: str, queries: Array, start: int) -> None:
    line = tree.lines(queries)
    at = tree.paths[start][line] if start else np.full(len(queries), 0xFFFFFFFF, np.uint32)
    m = len(queries)
    if layout == "implicit":
        inputs, scalars = [tree.nodes, tree.offsets, queries, at], [m, start, tree.levels]
        unit = "hb_search_implicit"
    else:
        inputs, scalars = [tree.nodes, queries, at], [m, start, tree.levels, tree.last]
        unit = "hb_search_regular"
    (leaves,), rows = devices.run(device, unit, inputs, [(m, np.uint32)], scalars)
    assert np.array_equal(leaves, tree.paths[-1][line])
    assert rows == m


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", WIDTHS)
def test_a_search_ends_at_the_line_of_each_query(device: Device, layout: str, dtype: Any) -> None:
    for size, largest in product(SIZES, (False, True)):
        rng = np.random.default_rng([size, largest])
        words = draw(rng, size, dtype, largest)
        check_search(device, tree_of(layout, words, rng), layout, queries_of(words, rng, 150), 0)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", WIDTHS)
def test_a_search_begins_at_any_level(device: Device, layout: str, dtype: Any) -> None:
    rng = np.random.default_rng(3)
    words = draw(rng, 70_000, dtype, True)
    tree = tree_of(layout, words, rng)
    assert tree.levels >= (4 if layout == "implicit" else 2)
    for start in range(tree.levels + 1):
        check_search(device, tree, layout, queries_of(words, rng, 200), start)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", WIDTHS)
def test_numbers_of_queries_around_the_size_of_a_group(device: Device, layout: str, dtype: Any) -> None:
    rng = np.random.default_rng(4)
    words = draw(rng, 3000, dtype, False)
    tree = tree_of(layout, words, rng)
    for m in (0, 1, 2, 7, 8, 9, 15, 16, 17, 31, 32, 33, 64, 65):
        for start in (0, 1):
            check_search(device, tree, layout, queries_of(words, rng, m), start)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", WIDTHS)
def test_every_word_and_its_neighbours(device: Device, layout: str, dtype: Any) -> None:
    rng = np.random.default_rng(5)
    words = np.arange(10, 2010, 3).astype(dtype)
    words[-1] = np.iinfo(dtype).max
    check_search(device, tree_of(layout, words, rng), layout, rng.permutation(2100).astype(dtype), 0)


@pytest.mark.parametrize("dtype", WIDTHS)
def test_equal_words_are_searched_for_from_the_first(device: Device, dtype: Any) -> None:
    top = np.iinfo(dtype).max
    for words in (np.sort(np.repeat(np.array([3, 9, top], dtype), 100)), np.full(1000, top, dtype)):
        tree = trees.implicit(words)
        queries = np.array([0, 3, 4, 9, 10, top - 1, top], dtype)
        check_search(device, tree, "implicit", queries, 0)
        check_lookup(device, tree, queries)


def check_lookup(device: Device, tree: trees.Tree, queries: Array) -> None:
    m, n = len(queries), len(tree.words)
    inputs = [tree.nodes, tree.offsets, tree.leaf_words, queries]
    (found,), rows = devices.run(device, "hb_lookup", inputs, [(m, np.uint32)], [m, tree.levels, n])
    assert np.array_equal(found, np.searchsorted(tree.words, queries))
    assert rows == m


@pytest.mark.parametrize("dtype", WIDTHS)
def test_a_lookup_finds_the_position_of_each_query(device: Device, dtype: Any) -> None:
    for size, largest, m in product(SIZES, (False, True), (0, 1, 17, 130)):
        rng = np.random.default_rng([size, largest, m])
        words = draw(rng, size, dtype, largest)
        check_lookup(device, trees.implicit(words), queries_of(words, rng, m))


@pytest.mark.parametrize("device", devices.GPUS, indirect=True)
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", WIDTHS)
def test_kernels_do_not_look_at_what_need_not_be_there(device: Device, layout: str, dtype: Any) -> None:
    """The last word of a line of a node, and what fills up the last leaf line."""
    rng = np.random.default_rng(6)
    for size in (1, 100, 5003):
        words = draw(rng, size, dtype, False)
        tree = tree_of(layout, words, rng)
        queries = queries_of(words, rng, 100)
        if layout == "implicit":
            tree.leaf_words = words
            tree.nodes.reshape(-1, 64 // words.itemsize)[:, -1] = 0
            check_lookup(device, tree, queries)
        else:
            spoil_regular(tree)
        check_search(device, tree, layout, queries, 0)


def spoil_regular(tree: trees.Tree) -> None:
    """Make the last word of every index line and key line 0."""
    per_line = 64 // tree.words.itemsize
    for part, lines in ((tree.nodes[: tree.last], 1 + 2 * per_line), (tree.nodes[tree.last :], 1 + per_line)):
        part.reshape(-1, lines, per_line)[:, : 1 + per_line, -1] = 0
