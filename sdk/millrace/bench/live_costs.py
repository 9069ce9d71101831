"""The cost equations of the PIM-Tree paper (1 to 6) beside measurements: cases `costs-…` of bench `live`.

An equation adds up the steps of one tuple: search the other side's window and scan its matches, delete what has expired
(or merge), insert. Its constants are measured in the same run, in the joins' own kernels and in structures of the
the join's sizes, so that cache misses are in them: the time of an operation per node on its path, for each kind of
tree (B+-tree, the chain's trees, insert tree `T_I`, immutable tree `T_S`), a merge, and what a match costs more. A
search waits for the one before, as in a join, but for the groups of `T_S`. The measured joins run on one thread with
pairs emitted; they also pay for what the equations leave out: the push around the index, and structures that compete
for the caches.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from functools import cache, partial
from math import log
from typing import Any

import numpy as np

from millrace.bench.harness import Case, Contender
from millrace.bench.inequality_stream import Bar
from millrace.bench.live_threads import ours, start
from millrace.bench.live_workload import Engine, LiveWorkload
from millrace.bench.workload import DOMAIN
from millrace.host.base.types import Array
from millrace.host.join.baseline import btree_kernel as bk
from millrace.host.join.pimtree.index import MERGE_RATIO, TASK_ROWS
from millrace.host.join.pimtree.insert_trees import (
    COUNT,
    NODE,
    InsertTrees,
    begin_search,
    first_leaf,
    leaf_hits,
    node_at,
)
from millrace.host.join.pimtree.merge import merge
from millrace.host.join.pimtree.sides import ENTRIES_PER_SUBINDEX
from millrace.host.join.pimtree.static_tree import LINE, Static, StaticTree, descend, find_ranks
from millrace.host.runtime.intrinsics import WIDE_LANES, address, load, load_as, store
from millrace.host.runtime.jit import kernel

FILL = 0.69
"""The share of a B+-tree's nodes that is in use after random insertions."""
WORD = np.dtype(np.uint64)
OPERATIONS = 1 << 14
"""Operations that are timed together; a smaller window times as many as it has tuples."""
SCAN_WINDOW, SCAN_RATES = 1 << 14, (2, 18)
"""Where the cost of a match is measured: the slope between two match rates."""
PARTITIONS, LENGTH = 2, 2


@dataclass(frozen=True)
class Constants:
    """Seconds. Per node: of a B+-tree, of a chain's tree, of T_I, of T_S; per match; per merge."""

    search: float
    insert: float
    delete: float
    search_chain: float
    insert_chain: float
    search_new: float
    insert_new: float
    search_static: float
    match: float
    merge: float


@dataclass(frozen=True)
class Steps:
    """Seconds of the steps of one tuple."""

    search: float
    scan: float
    delete: float
    insert: float

    @property
    def total(self) -> float:
        """Equation 1."""
        return self.search + self.scan + self.delete + self.insert


def btree_height(entries: float) -> float:
    """Levels of a B+-tree, leaves included."""
    return 1 + max(log(entries / (FILL * bk.LEAF), FILL * bk.INNER), 0.0)


def insert_height(entries: float) -> float:
    """Levels of an insert tree."""
    return 1 + max(log(entries / (FILL * NODE), FILL * NODE), 0.0)


def static_height(entries: float) -> float:
    """Levels of an immutable tree; child references take no room in its nodes, and all of them are full."""
    fanout = LINE // WORD.itemsize
    return max(log(entries, fanout), 1.0)


def equation_2(c: Constants, window: int, rate: float) -> Steps:
    """B+-tree."""
    height = btree_height(window)
    return Steps(height * c.search, rate * c.match, height * c.delete, height * c.insert)


def equation_3(c: Constants, window: int, rate: float, length: int = LENGTH) -> Steps:
    """Chained index of B+-trees; the deletion of a whole subindex costs nothing."""
    height = insert_height(window / (length - 1))
    expired = 1 + 1 / (2 * (length - 1))
    return Steps(length * height * c.search_chain, rate * c.match * expired, 0.0, height * c.insert_chain)


def equation_4(c: Constants, window: int, rate: float, partitions: int = PARTITIONS) -> Steps:
    """Round-robin partitioning: the work of all threads together."""
    height = btree_height(window / partitions)
    return Steps(partitions * height * c.search, rate * c.match, height * c.delete, height * c.insert)


def equation_5(c: Constants, window: int, rate: float, ratio: float = MERGE_RATIO) -> Steps:
    """IM-Tree; its insert tree is half full on average."""
    height = insert_height(ratio * window / 2)
    search = static_height(window) * c.search_static + height * c.search_new
    return Steps(search, rate * c.match * (1 + ratio / 2), c.merge / (ratio * window), height * c.insert_new)


def equation_6(c: Constants, window: int, rate: float, ratio: float = MERGE_RATIO) -> Steps:
    """PIM-Tree; subindexes are half full on average, at the level of T_S that has as many nodes."""
    height = insert_height(ENTRIES_PER_SUBINDEX / 2)
    depth = static_height(max(ratio * window / ENTRIES_PER_SUBINDEX, 1.0))
    search = static_height(window) * c.search_static + height * c.search_new
    insert = depth * c.search_static + height * c.insert_new
    return Steps(search, rate * c.match * (1 + ratio / 2), c.merge / (ratio * window), insert)


Equation = Callable[[Constants, int, float], Steps]
JOINS: tuple[tuple[str, Engine, str, Equation], ...] = (
    ("btree", Engine("btree"), "equation 2", equation_2),
    ("chain", Engine("chain", options={"variant": "b", "length": LENGTH}), "equation 3", equation_3),
    ("partitions", Engine("btree", "2 partitions", {"partitions": PARTITIONS}), "equation 4", equation_4),
    ("im", Engine("im"), "equation 5", equation_5),
    ("pim", Engine("pim"), "equation 6", equation_6),
)


def cases(window: int, batch: int, slice_share: float) -> Iterator[Case]:
    """One case per index."""
    work = LiveWorkload(window, batch, "tuples")
    for name, engine, peer, equation in JOINS:
        facts = {**work.facts, "costs": name}
        predicted = Contender(peer, partial(_predict, work, equation, facts), answers=False)
        yield Case(
            f"costs-2^{window.bit_length() - 1}-{name}",
            "tuples/s",
            [ours(engine, work), predicted],
            facts,
            slice_share=slice_share,
            warm_work=2 * window,
        )


def _predict(work: LiveWorkload, equation: Equation, facts: dict[str, Any]) -> Bar:
    """A yardstick that takes as long as an equation says; its steps become facts of the case, in nanoseconds."""
    steps = equation(constants(work.window, work.batch), work.window, work.rate)
    facts["steps_ns"] = {name: 1e9 * seconds for name, seconds in asdict(steps).items()}
    return Bar(lambda: steps.total * work.batch, work.batch)


# Measuring the constants.


@kernel
def _search_btree(tree: int, words: int, count: int, none: int) -> int:
    """Search leaves one after the other; each search depends on the one before, by `none`, which is 0."""
    total = 0
    for i in range(count):
        word = load(words, i) + (total & none)
        total += bk.count_upto(tree, bk.descend(tree, word, -1), 0, bk.LEAF, word, -1)
    return total


@kernel
def _search_inserted(trees: int, words: int, count: int, none: int, like: Any) -> int:
    """The same in an insert tree: a leaf is compared as a whole."""
    total, header = 0, node_at(trees, 0, like)
    for i in range(count):
        word = type(like)(load_as(words, i, like) + type(like)(total & none))
        node = node_at(trees, first_leaf(trees, header, begin_search(header), word, like), like)
        entries = load(node, COUNT)
        for chunk in range(0, entries, WIDE_LANES):
            total += leaf_hits(node, chunk, entries, word, word, like)
    return total


@kernel
def _search_static(tree: int, words: int, ranks: int, count: int, task: int, like: Any) -> None:
    """The same in an immutable tree, in groups of `task`."""
    for first in range(0, count, task):
        keys, group = words + 8 * first, ranks + 8 * first
        size = min(task, count - first)
        for j in range(size):
            store(group, j, 0)
        descend(tree, 0, load(tree, Static.LEVELS), keys, group, size, like)
        find_ranks(tree, keys, group, size, like)


def _seconds(call: Callable[[], Any]) -> float:
    begin = time.perf_counter()
    call()
    return time.perf_counter() - begin


def _median(call: Callable[[int], float]) -> float:
    """The median over some turns; the first one compiles and warms up."""
    return float(np.median([call(turn) for turn in range(6)][1:]))


@cache
def constants(window: int, batch: int) -> Constants:
    """Measure the constants in structures of a window's size."""
    rng = np.random.default_rng(window)
    chain = dict(zip(("search_chain", "insert_chain"), _insert_tree(rng, window), strict=True))
    found = _btree_constants(rng, window) | chain | _merge_constants(rng, window)
    return Constants(**found, match=_match_seconds(batch))


def _words(rng: np.random.Generator, count: int) -> Array:
    words: Array = rng.integers(0, DOMAIN, count).astype(WORD)
    return words


def _btree_constants(rng: np.random.Generator, window: int) -> dict[str, float]:
    """Search, insert, delete, per node. Each turn inserts as many entries as it deletes: the window slides."""
    count, turns = min(OPERATIONS, window), 6
    size = window + turns * count
    words, held = _words(rng, size).view(np.int64), np.ones(size, np.bool_)
    tree = bk.new_tree(2 * size // bk.LEAF + 64)
    table = bk.Side.partly(TREE=tree, WORDS=words, HELD=held, END=size)
    bk.insert_all(address(table), 0, window)
    keys = [_words(rng, count).view(np.int64) for _ in range(turns)]
    height = btree_height(window)

    def turn(number: int) -> tuple[float, float, float]:
        first = number * count
        return (
            _seconds(lambda: _search_btree(address(tree), address(keys[number]), count, 0)),
            _seconds(lambda: bk.insert_all(address(table), window + first, window + first + count)),
            _seconds(lambda: bk.expire(address(table), first + count)),
        )

    times = np.median([turn(number) for number in range(turns)][1:], axis=0) / (count * height)
    return dict(zip(("search", "insert", "delete"), times.tolist(), strict=True))


def _insert_tree(rng: np.random.Generator, entries: int) -> tuple[float, float]:
    """Search and insert in an insert tree of so many entries, per node."""
    like, count, turns = WORD.type(0), min(OPERATIONS, entries), 6
    size = entries + turns * count
    trees = InsertTrees(StaticTree(WORD, 0), 1, size, 0)
    words, positions = _words(rng, size), np.arange(size)
    trees.insert_all(words[:entries], positions[:entries])

    def turn(number: int) -> tuple[float, float]:
        part = slice(entries + number * count, entries + (number + 1) * count)
        keys, fresh = _words(rng, count), words[part]
        return (
            _seconds(lambda: _search_inserted(address(trees.table), address(keys), count, 0, like)),
            _seconds(lambda: trees.insert_all(fresh, positions[part])),
        )

    times = np.median([turn(number) for number in range(turns)][1:], axis=0) / (count * insert_height(entries))
    return float(times[0]), float(times[1])


def _merge_constants(rng: np.random.Generator, window: int) -> dict[str, float]:
    """Search and insert in a T_I of average size, search in T_S, per node; and a merge of both."""
    like, inserted = WORD.type(0), max(int(MERGE_RATIO * window), TASK_ROWS)
    static, count = StaticTree.of(_words(rng, window), np.arange(window), 0), min(OPERATIONS, window)
    ranks = np.zeros(count, np.int64)

    def turn(_: int) -> tuple[float, float]:
        trees = InsertTrees(StaticTree(WORD, 0), 1, inserted, window)
        trees.insert_all(_words(rng, inserted), np.arange(window, window + inserted))
        keys = _words(rng, count)
        given = address(static.table), address(keys), address(ranks), count, TASK_ROWS, like
        return _seconds(lambda: _search_static(*given)), _seconds(lambda: merge(static, trees, inserted))

    search, merging = np.median([turn(number) for number in range(5)][1:], axis=0).tolist()
    new = dict(zip(("search_new", "insert_new"), _insert_tree(rng, max(inserted // 2, 1)), strict=True))
    return new | {"search_static": search / (count * static_height(window)), "merge": merging}


@cache
def _match_seconds(batch: int) -> float:
    """What one match more costs in a join, its place in the output included."""
    low, high = (_join_seconds(LiveWorkload(SCAN_WINDOW, batch, "tuples", rate=rate)) for rate in SCAN_RATES)
    return max(high - low, 0.0) / (SCAN_RATES[1] - SCAN_RATES[0])


def _join_seconds(work: LiveWorkload) -> float:
    """The seconds per tuple of a join."""
    join = start(work, Engine("pim"))
    try:
        return _median(lambda _: join.step()[1]) / work.batch
    finally:
        join.close()
