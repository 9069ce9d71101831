"""The B+-trees of `index="btree"`: against a plain list, over any order of keys, with freed nodes, in partitions."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, cast

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millrace.host.base.types import SIDES, Array, Mask, Positions, Side, other
from millrace.host.join.baseline import btree_kernel as bk
from millrace.host.join.baseline.btree import BTreeIndex
from millrace.host.join.contract import IndexContext, KeyProbe, Matches, ProbeBatch, SideProbes
from millrace.host.runtime.team import Team

TOP = 2**64 - 1


def side_probes(
    first: int, words: Array, live: Mask, begin: Positions, end: Positions, low: Array, high: Array
) -> SideProbes:
    return SideProbes(first, live, begin, end, (words,), (KeyProbe.of(low, high),))


def new_index(partitions: int = 1) -> BTreeIndex:
    nothing = cast(Any, None)
    return BTreeIndex(IndexContext(nothing, nothing, Team(2), options={"partitions": partitions}))


def entries(index: BTreeIndex, side: Side) -> list[tuple[int, int]]:
    """Every (word, position) of a side in order; each partition has its share."""
    parts = [tree_entries(one.tree) for one in index._sides[side]]
    for part, found in enumerate(parts):
        assert all(position % len(parts) == part for _, position in found)
    return sorted(entry for found in parts for entry in found)


def tree_entries(tree: Array) -> list[tuple[int, int]]:
    """Every (word, position) of a tree in order; checks its structure on the way."""
    leaves: list[int] = []
    inner: list[int] = []

    def walk(node: int, level: int) -> None:
        if level == tree[bk.HEIGHT]:
            leaves.append(node)
            return
        inner.append(node)
        assert 0 < tree[node + bk.COUNT] <= bk.INNER, "an inner node without children, or with too many"
        for slot in range(tree[node + bk.COUNT]):
            walk(int(tree[node + bk.WORDS + 2 * bk.INNER + slot]), level + 1)

    walk(int(tree[bk.ROOT]), 0)
    sizes = [int(tree[leaf + bk.COUNT]) for leaf in leaves]
    assert len(leaves) == 1 or min(sizes) > 0, "an empty leaf was not freed"
    assert max(sizes) <= bk.LEAF, "a leaf is too full"
    for before, after in zip([-1, *leaves], [*leaves, -1], strict=True):
        assert before < 0 or tree[before + bk.NEXT] == after, "the chain of leaves does not follow the tree"
        assert after < 0 or tree[after + bk.PREVIOUS] == before, "the chain of leaves has no way back"
    free = []
    node = int(tree[bk.FREE])
    while node >= 0:
        free.append(node)
        node = int(tree[node + bk.NEXT])
    used = [bk.HEADER + n * bk.STRIDE for n in range(tree[bk.USED])]
    assert sorted([*leaves, *inner, *free]) == used, "a node is lost or used twice"
    assert tree[bk.USED] <= tree[bk.CAPACITY]
    assert len(tree) == bk.HEADER + tree[bk.CAPACITY] * bk.STRIDE
    found = []
    for leaf, size in zip(leaves, sizes, strict=True):
        at = leaf + bk.WORDS
        words, positions = tree[at : at + size], tree[at + bk.LEAF : at + bk.LEAF + size]
        found += [(int(w) + 2**63, int(p)) for w, p in zip(words, positions, strict=True)]
    assert found == sorted(found), "entries are out of order"
    return found


@dataclass
class Model:
    """The same two trees as lists, and the same matches by comparing everything."""

    words: dict[Side, list[int]] = field(default_factory=lambda: {"r": [], "s": []})
    live: dict[Side, list[bool]] = field(default_factory=lambda: {"r": [], "s": []})

    def held(self, side: Side, oldest: int) -> list[tuple[int, int]]:
        rows = enumerate(zip(self.words[side], self.live[side], strict=True))
        return sorted((word, p) for p, (word, alive) in rows if alive and p >= oldest)

    def partners(self, side: Side, begin: int, end: int, ranges: list[tuple[int, int]]) -> list[int]:
        return [
            p
            for p in range(max(begin, 0), end)
            if self.live[side][p] and any(low <= self.words[side][p] <= high for low, high in ranges)
        ]


@dataclass
class Stream:
    """Feeds an index and the model step by step with a count window."""

    window: int
    index: BTreeIndex = field(default_factory=new_index)
    model: Model = field(default_factory=Model)

    def step(
        self, order: list[int], words: list[int], live: list[bool], spans: list[list[tuple[int, int]]], want: bool
    ) -> None:
        """Tuples in order, with the side, word and liveness of each, and the ranges each searches."""
        ranges = max((len(r) for r in spans), default=1)
        parts: dict[Side, list[int]] = {
            "r": [i for i, o in enumerate(order) if o == 0],
            "s": [i for i, o in enumerate(order) if o],
        }
        first = {side: len(self.model.words[side]) for side in parts}
        wanted: dict[Side, list[list[int]]] = {"r": [], "s": []}
        limits: dict[Side, list[tuple[int, int]]] = {"r": [], "s": []}
        for i, which in enumerate(order):
            side: Side = "s" if which else "r"
            partner = other(side)
            end = len(self.model.words[partner])
            begin = max(end - self.window, 0)
            limits[side].append((begin, end))
            wanted[side].append(self.model.partners(partner, begin, end, spans[i]) if live[i] else [])
            self.model.words[side].append(words[i])
            self.model.live[side].append(live[i])
        sides: dict[Side, SideProbes] = {}
        for side, at in parts.items():
            low = np.array([[([*spans[i], *[(1, 0)] * ranges])[k][0] for i in at] for k in range(ranges)], np.uint64)
            high = np.array([[([*spans[i], *[(1, 0)] * ranges])[k][1] for i in at] for k in range(ranges)], np.uint64)
            sides[side] = side_probes(
                first[side],
                np.array([words[i] for i in at], np.uint64),
                np.array([live[i] for i in at], np.bool_),
                np.array([b for b, _ in limits[side]], np.int64),
                np.array([e for _, e in limits[side]], np.int64),
                low.reshape(ranges, len(at)),
                high.reshape(ranges, len(at)),
            )
        r, s = (max(len(self.model.words[one]) - self.window, 0) for one in SIDES)
        found = self.index.step(ProbeBatch(sides["r"], sides["s"], np.array(order, np.uint8), (r, s)), want)
        for one, matches in zip(SIDES, found, strict=True):
            check(matches, wanted[one], want)
        for one, oldest in zip(SIDES, (r, s), strict=True):
            assert entries(self.index, one) == self.model.held(one, oldest)


def check(matches: Matches, wanted: list[list[int]], want: bool) -> None:
    assert matches.counts.tolist() == [len(w) for w in wanted]
    if want:
        assert matches.positions is not None
        assert matches.positions.tolist() == [p for w in wanted for p in w]
    else:
        assert matches.positions is None


tuples = st.tuples(
    st.integers(0, 1),
    st.integers(0, 12) | st.sampled_from([0, 1, TOP - 1, TOP]),
    st.sampled_from([True, True, True, False]),
)


@settings(deadline=None, max_examples=60)
@given(
    window=st.integers(1, 40),
    steps=st.lists(st.tuples(st.lists(tuples, max_size=40), st.booleans()), min_size=1, max_size=5),
    width=st.integers(0, 4),
    partitions=st.integers(1, 3),
)
def test_random_small_streams_agree_with_a_list(
    window: int, steps: list[tuple[list[tuple[int, int, bool]], bool]], width: int, partitions: int
) -> None:
    stream = Stream(window, new_index(partitions))
    for rows, want in steps:
        spans = [[(max(w - width, 0), min(w + width, TOP)), (min(w + 20, TOP), min(w + 22, TOP))] for _, w, _ in rows]
        # Ranges of one tuple are disjoint: at the top end the second is left out.
        spans = [ranges if ranges[0][1] < ranges[1][0] else ranges[:1] for ranges in spans]
        stream.step([o for o, _, _ in rows], [w for _, w, _ in rows], [a for _, _, a in rows], spans, want)


ORDERS = {
    "increasing": np.arange(6000),
    "decreasing": np.arange(6000)[::-1],
    "all equal": np.full(6000, 7),
    "few values": np.arange(6000) % 3,
    "saw": np.arange(6000) % 500,
    "falling saw": (-np.arange(6000)) % 500,
    "up then down": np.concatenate([np.arange(3000), np.arange(3000)[::-1]]),
    "outside in": np.stack([np.arange(3000), 5999 - np.arange(3000)], 1).ravel(),
    "inside out": np.stack([2999 - np.arange(3000), 3000 + np.arange(3000)], 1).ravel(),
    "random": np.random.default_rng(5).integers(0, 4000, 6000),
    "extremes": np.array([0, TOP], np.uint64)[np.random.default_rng(6).integers(0, 2, 6000)],
    "drifting": np.arange(6000) + np.random.default_rng(7).integers(0, 900, 6000),
}


@pytest.mark.parametrize("window", [50, 700, 6000])
@pytest.mark.parametrize("name", ORDERS)
def test_any_order_of_keys_is_searched_and_expired(name: str, window: int) -> None:
    """One side is filled and slides; now and then the other side searches ranges of every width."""
    keys = ORDERS[name].astype(np.uint64)
    index, held = new_index(), 0
    rng = np.random.default_rng(window)
    for start in range(0, len(keys), 500):
        fresh, n = keys[start : start + 500], 500
        end = start + n
        oldest = max(end - window, 0)
        probes = rng.choice(keys[oldest:end], 12)
        low = np.where(probes > 40, probes - np.uint64(40), np.uint64(0))
        low[:4] = probes[:4]
        high = np.where(probes < TOP - 40, probes + np.uint64(rng.integers(0, 80)), np.uint64(TOP))
        r = side_probes(
            start,
            fresh,
            np.ones(n, np.bool_),
            np.zeros(n, np.int64),
            np.zeros(n, np.int64),
            np.ones((1, n), np.uint64),
            np.zeros((1, n), np.uint64),
        )
        s = side_probes(
            held, probes, np.zeros(12, np.bool_) | True, np.full(12, oldest), np.full(12, end), low[None], high[None]
        )
        order = np.repeat(np.array([0, 1], np.uint8), [n, 12])
        found = index.step(ProbeBatch(r, s, order, (oldest, held + 12)), True)[1]
        held += 12
        alive = np.arange(oldest, end)
        wanted = [alive[(keys[alive] >= a) & (keys[alive] <= b)].tolist() for a, b in zip(low, high, strict=True)]
        check(found, wanted, True)
        assert entries(index, "r") == sorted(zip(keys[alive].tolist(), alive.tolist(), strict=True))


@pytest.mark.parametrize("name", ORDERS)
def test_nodes_are_freed_so_that_memory_stays_flat(name: str) -> None:
    """Ten times around: the arrays reach a size that the window sets, and stay there."""
    keys = np.tile(ORDERS[name], 10).astype(np.uint64)
    index, window, sizes = new_index(), 2000, list[int]()
    for start in range(0, len(keys), 1000):
        fresh, n = keys[start : start + 1000], 1000
        longs, none = np.zeros(n, np.int64), np.zeros((0, 0), np.uint64)
        nothing = side_probes(
            0,
            np.zeros(0, np.uint64),
            np.zeros(0, np.bool_),
            longs[:0],
            longs[:0],
            none.reshape(0, 0),
            none.reshape(0, 0),
        )
        never = np.ones((1, n), np.uint64), np.zeros((1, n), np.uint64)
        r = side_probes(start, fresh, np.ones(n, np.bool_), longs, longs, *never)
        index.step(ProbeBatch(r, nothing, np.zeros(n, np.uint8), (max(start + n - window, 0), 0)), True)
        sizes.append(index._sides["r"][0].tree.nbytes + index._sides["r"][0]._words._data.nbytes)
    assert len(entries(index, "r")) == window
    assert max(sizes) == max(sizes[: len(sizes) // 3]), "memory still grows long after the window is full"


def test_an_emptied_tree_is_one_empty_leaf_and_goes_on() -> None:
    stream = Stream(300)
    for _ in range(3):
        n = 300
        stream.step([0] * n, list(range(n)), [True] * n, [[(0, TOP)]] * n, True)
        # Three hundred dead tuples push every live one out.
        stream.step([0] * n, [0] * n, [False] * n, [[(0, TOP)]] * n, True)
        assert entries(stream.index, "r") == []
        assert stream.index._sides["r"][0].tree[bk.HEIGHT] == 0


@pytest.mark.parametrize("partitions", [1, 5])
def test_loading_is_the_same_as_having_taken_the_tuples(partitions: int) -> None:
    rng = np.random.default_rng(3)
    words = rng.integers(0, 100, 3000).astype(np.uint64)
    live = rng.random(3000) < 0.9
    index = new_index(partitions)
    index.load("r", 41, (words,), live)
    wanted = sorted((int(w), 41 + p) for p, (w, a) in enumerate(zip(words, live, strict=True)) if a)
    assert entries(index, "r") == wanted


@pytest.mark.parametrize("partitions", [1, 2])
def test_more_matches_than_the_output_had_room_for_are_all_given(partitions: int) -> None:
    n = 3000
    stream = Stream(n, new_index(partitions))
    stream.step([0] * n, [5] * n, [True] * n, [[(0, 0)]] * n, True)
    stream.step([1] * 3, [5] * 3, [True] * 3, [[(5, 5)]] * 3, True)
    stream.step([1] * 3, [5] * 3, [True] * 3, [[(5, 5)]] * 3, False)
    assert stream.index.counters()["boundaries"] > 0
