"""WiB+-Tree: the tree's own invariants, and leaves that stay well filled (PanJoin, III-C)."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import numpy as np
import pytest

from millrace.host.base.types import Array
from millrace.host.join.panjoin import wibtree_nodes as wn
from millrace.host.join.panjoin.llat_entries import FILL, LlatTable
from millrace.host.join.panjoin.wibtree import WibTree
from tests.host.join.panjoin.test_llat import WIDTHS, chain, check_llat, heads, make, put, tuples


def leaves(tree: WibTree) -> list[int]:
    """The leaves from left to right; checks every inner node on the way."""
    table = tree.llat.table
    found: list[int] = []

    def walk(node: int, level: int, floor: int, limit: int) -> None:
        if level == table[wn.Wib.HEIGHT]:
            found.append(node)
            assert int(tree.llat.floors[node]) == floor
            return
        count = int(tree.fills[node])
        assert 2 <= count <= wn.FANOUT or (level > 0 and count == 1)
        keys = [int(key) for key in tree.keys[node, 1:count]]
        bounds = [floor, *keys, limit]
        assert all(a < b for a, b in pairwise(bounds)), "keys must be distinct, and inside"
        for slot in range(count):
            walk(int(tree.children[node, slot]), level + 1, bounds[slot], bounds[slot + 1])

    walk(int(table[wn.Wib.ROOT]), 0, 0, 1 << 64)
    assert int(table[wn.Wib.USED]) <= len(tree.fills)
    return found


def check(tree: WibTree, words: Array) -> None:
    """Every leaf at the same depth (or the walk would leave the tree), in the order of the leaves' own links."""
    assert leaves(tree) == heads(tree.llat)
    check_llat(tree, words, np.arange(len(words)))
    for head in heads(tree.llat):
        if len(chain(tree.llat, head)) > 1:
            assert len(set(tuples(tree.llat, head)[0].tolist())) == 1, "only leaves of one word have chains"


def fill(tree: WibTree) -> float:
    """The share of the used entries' capacity that is used."""
    used = int(tree.llat.table[LlatTable.POINTER])
    return float(tree.llat.metas[:used, FILL].sum() / (used * tree.llat.entry_capacity))


ORDERS: dict[str, Callable[[int, np.random.Generator], Array]] = {
    "random": lambda n, rng: rng.integers(0, 1 << 31, n),
    "increasing": lambda n, rng: 5 * np.arange(n),
    "decreasing": lambda n, rng: 5 * np.arange(n)[::-1],
    "nearly increasing": lambda n, rng: 100 + np.arange(n) + rng.integers(0, 30, n),
    "equal": lambda n, rng: np.full(n, 9),
    "few": lambda n, rng: rng.integers(0, 40, n),
    "heavy": lambda n, rng: np.where(rng.random(n) < 0.9, 1 << 20, rng.integers(0, 1 << 31, n)),
    "above a heavy one": lambda n, rng: np.where(np.arange(n) < 300, 0, n - np.arange(n)),
    "in and out": lambda n, rng: np.where(np.arange(n) % 2, 1 << 20, (1 << 20) + np.arange(n) - n // 2),
}


@pytest.mark.parametrize("word", WIDTHS)
@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("size", [1, 50, 20_000])
def test_the_tree_is_a_tree(word: type[np.unsignedinteger], order: str, size: int) -> None:
    n = 20_000
    words = ORDERS[order](n, np.random.default_rng(7)).astype(word)
    tree = make(WibTree, word, 1000 if order == "random" else n)
    put(tree, words, size)
    check(tree, words)
    least = {"increasing": 0.9, "decreasing": 0.5, "nearly increasing": 0.6, "random": 0.6, "equal": 0.9}
    assert fill(tree) >= least.get(order, 0.4)


def test_the_largest_words() -> None:
    top = 2**64 - 1
    words = np.array([top - i % 300 for i in range(5000)], np.uint64)
    tree = make(WibTree, np.uint64, 5000)
    put(tree, words, 700)
    check(tree, words)


@pytest.mark.parametrize("seed", range(10))
def test_any_mixture(seed: int) -> None:
    rng = np.random.default_rng(seed)
    parts = [ORDERS[str(rng.choice(list(ORDERS)))](int(rng.integers(1, 2000)), rng) for _ in range(6)]
    words = np.concatenate(parts).astype(np.uint32)
    tree = make(WibTree, np.uint32, len(words))
    put(tree, words, int(rng.integers(1, 500)))
    check(tree, words)
    assert fill(tree) >= 0.3


def test_splits_are_counted() -> None:
    tree = make(WibTree, np.uint32, 1000)
    put(tree, np.arange(1000, dtype=np.uint32), 100)
    assert tree.counters() == {"boundaries": len(leaves(tree)) - 1}
