"""The regular HB+-Tree under changes: rows and structure after batches of every kind, against a dictionary."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from millrace.host.hbtree import editor, regular
from millrace.host.hbtree import fragments as hf
from millrace.host.hbtree.build import fill
from millrace.host.hbtree.editor import Changes, Editor
from millrace.host.hbtree.journal import Journal
from millrace.host.hbtree.regular import RegularTree
from millrace.host.hbtree.tree import helpers
from millrace.host.hbtree.update_batch import make_batch
from tests.host.trees_checked import TreeChecker

WIDTHS = [(np.uint64, 8), (np.uint64, 4), (np.uint32, 4), (np.uint32, 8)]
every_width = pytest.mark.parametrize(("word", "width"), WIDTHS)


@pytest.fixture(autouse=True)
def spare_nodes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small trees with spare capacity for many nodes."""
    monkeypatch.setattr(regular, "SPARE_NODES", 1500)


def build(words: Any, width: int, threads: int = 2) -> RegularTree:
    with helpers(threads, len(words)) as team:
        leaves, _ = fill(words, 0, np.arange(len(words)).astype(f"u{width}"), team)
    return RegularTree.build(leaves, width, bool((words[1:] == words[:-1]).any()), threads)


def change(tree: RegularTree, deletes: Any, upserts: Any, values: Any, journal: bool = False) -> Journal | None:
    with helpers(2, editor.GROUP) as team:
        batch = make_batch(np.array(deletes, tree.word), np.array(upserts, tree.word), team)
        kept = Journal(tree) if journal else None
        changer = Editor(tree, team, kept)
        assert changer.apply(batch.changes(np.array(values, f"u{tree.width}")))
        changer.merge()
    return kept


def check(tree: RegularTree, rows: dict[int, list[int]]) -> None:
    TreeChecker(tree).check()
    words, values = tree.rows()
    wanted = [(word, value) for word in sorted(rows) for value in rows[word]]
    assert list(zip(words.tolist(), values.tolist(), strict=True)) == wanted
    queries = np.array([*rows, 0, 5, tree.largest - 1], tree.word)
    positions = tree.lookup(queries)
    found = np.where(positions < 0, -1, tree.values_at(np.maximum(positions, 0)).astype(np.int64))
    assert found.tolist() == [rows.get(int(q), [-1])[0] for q in queries]


@pytest.mark.parametrize("leaves", [1, 2, 5, 40, 1000])
def test_groups_end_where_a_big_leaf_ends(leaves: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """At the first end of a big leaf within a group after its nominal end; without one, groups are joined."""
    monkeypatch.setattr(editor, "GROUP", 64)
    rng, fanout = np.random.default_rng(leaves), 64
    for size in (1, 63, 64, 65, 128, 300, 1500):
        lines = np.sort(rng.integers(0, leaves * fanout, size)).astype(np.uint32)
        wanted = [0]
        for nominal in range(64, size, 64):
            near = range(nominal, min(nominal + 64, size))
            ends = [i for i in near if lines[i] // fanout != lines[nominal - 1] // fanout]
            if nominal > wanted[-1] and ends:
                wanted.append(ends[0])
        assert editor._bounds(lines, fanout).tolist() == [*wanted, size]


@every_width
@pytest.mark.parametrize("journal", [False, True])
def test_random_batches_leave_what_a_dictionary_has(word: Any, width: int, journal: bool) -> None:
    rng = np.random.default_rng([1, width, np.dtype(word).itemsize])
    start = np.sort(rng.choice(200_000, 3000, replace=False)).astype(word)
    tree = build(start, width)
    rows = {int(w): [i] for i, w in enumerate(start)}
    number = 10_000
    for step in range(25):
        size = int(rng.choice([1, 10, 300, 2000, 9000]))
        keys = rng.integers(0, 200_000, size) if step % 3 else rng.integers(0, 300, size) + int(rng.integers(200_000))
        upserts = keys if step % 4 else keys[:0]
        deletes: Any = rng.permutation(list(rows))[: int(rng.integers(0, size + 1))] if step % 2 else []
        values = np.arange(number, number + len(upserts))
        number += len(upserts)
        change(tree, deletes, upserts, values, journal)
        for key in np.asarray(deletes).tolist():
            rows.pop(key, None)
        rows.update({int(k): [int(v)] for k, v in zip(upserts, values, strict=True)})
        check(tree, rows)


@every_width
def test_a_tree_grows_level_by_level_and_shrinks_to_nothing(word: Any, width: int) -> None:
    tree = build(np.array([7], word), width)
    rows, levels = {7: [0]}, []
    rng = np.random.default_rng(2)
    keys = rng.permutation(40_000 if width == 8 else 60_000) + 1
    for first in range(0, len(keys), 4000):
        part = keys[first : first + 4000]
        change(tree, [], part, part)
        rows.update({int(k): [int(k)] for k in part})
        levels.append(tree.levels)
    check(tree, rows)
    assert levels[-1] > 1
    for first in range(0, len(keys), 3000):
        part = keys[first : first + 3000]
        change(tree, part, [], [])
        for key in part.tolist():
            rows.pop(key, None)
        if first % 9000 == 0:
            check(tree, rows)
    change(tree, [7], [], [])
    check(tree, {})
    assert tree.levels == 1


@every_width
@pytest.mark.parametrize("pattern", ["up", "down", "middle"])
def test_keys_that_come_in_order(word: Any, width: int, pattern: str) -> None:
    tree = build(np.array([10**6], word), width)
    keys = {
        "up": np.arange(1, 12_000) + 10**6,
        "down": 10**6 - np.arange(1, 12_000),
        "middle": np.concatenate([np.arange(1, 6000), 12_000 - np.arange(1, 6000)]),
    }[pattern]
    rows = {10**6: [0]}
    for first in range(0, len(keys), 500):
        change(tree, [], keys[first : first + 500], keys[first : first + 500])
    rows.update({int(k): [int(k)] for k in keys})
    check(tree, rows)
    if pattern == "up":
        assert not tree.is_wasteful


@every_width
@pytest.mark.parametrize("journal", [False, True])
def test_equal_words_in_many_lines_and_leaves(word: Any, width: int, journal: bool) -> None:
    rng = np.random.default_rng(3)
    counts = rng.choice([1, 1, 2, 5, 40, 700, 5000], 60)
    words = np.repeat(np.arange(60) * 10 + 5, counts).astype(word)
    tree = build(words, width)
    rows: dict[int, list[int]] = {}
    for i, w in enumerate(words.tolist()):
        rows.setdefault(w, []).append(i)
    check(tree, rows)
    for _ in range(12):
        deletes = rng.choice(60, 3) * 10 + 5
        upserts = np.concatenate([rng.choice(60, 3) * 10 + 5, rng.integers(0, 600, 5)])
        change(tree, deletes, upserts, upserts + 7, journal)
        for key in deletes.tolist():
            rows.pop(key, None)
        rows.update({int(k): [int(k) + 7] for k in upserts})
        check(tree, rows)


@every_width
def test_undo_restores_everything(word: Any, width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(editor, "JOURNAL", 1 << 19)
    rng = np.random.default_rng(4)
    words = np.sort(rng.integers(0, 30_000, 9000)).astype(word)
    tree = build(words, width)
    rows: dict[int, list[int]] = {}
    for i, w in enumerate(words.tolist()):
        rows.setdefault(w, []).append(i)
    for size in (10, 3000, 20_000):
        before = [array.copy() for array in (tree.pools.leaves, tree.pools.lasts, tree.pools.uppers)]
        used = tree.used_sizes()
        upserts = rng.integers(0, 30_000, size)
        deletes = rng.integers(0, 30_000, size)
        journal = change(tree, deletes, upserts, upserts, journal=True)
        assert journal is not None
        with helpers(1, 0) as team:
            journal.undo(team)
        assert tree.used_sizes() == used
        for old, new, length in zip(
            before, (tree.pools.leaves, tree.pools.lasts, tree.pools.uppers), used, strict=False
        ):
            assert (old[:length] == new[:length]).all()
        check(tree, rows)


def test_no_space_for_nodes_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    tree = build(np.arange(1000, dtype=np.uint64), 8)
    tree.table[hf.Pools.MAX_LEAVES] = tree.used_leaves
    keys = np.arange(1000, 9000, dtype=np.uint64)
    with helpers(2, 0) as team:
        kept = Journal(tree)
        changes = Changes.of(keys, keys)
        assert not Editor(tree, team, kept).apply(changes)
        kept.undo(team)
    check(tree, {i: [i] for i in range(1000)})


def test_the_thread_count_changes_nothing() -> None:
    rng = np.random.default_rng(5)
    words = np.unique(rng.integers(0, 1 << 40, 100_000, dtype=np.uint64))
    keys = np.unique(rng.integers(0, 1 << 40, 60_000, dtype=np.uint64))
    found = []
    for threads in (1, 2, 3):
        tree = build(words, 8, threads)
        with helpers(threads, len(keys)) as team:
            assert Editor(tree, team).apply(Changes.of(keys, keys))
        found.append(tree.rows())
    for other in found[1:]:
        assert (found[0][0] == other[0]).all()
        assert (found[0][1] == other[1]).all()


def test_a_group_is_searched_in_the_tree_that_the_last_one_left() -> None:
    """Guards: a root that grew in one group must be known to the next."""
    tree = build(np.arange(200, dtype=np.uint64), 8)
    keys = np.arange(200, 40_000, dtype=np.uint64)
    with helpers(2, 0) as team:
        editor, levels = Editor(tree, team), set()
        for first in range(0, len(keys), 512):
            part = keys[first : first + 512]
            assert editor.apply(Changes.of(part, part))
            levels.add(tree.levels)
    assert levels >= {2, 3}
    check(tree, {i: [i] for i in range(40_000)})


def test_a_batch_keeps_the_last_of_equal_words() -> None:
    with helpers(1, 0) as team:
        batch = make_batch(np.array([5, 1], np.uint32), np.array([9, 5, 9], np.uint32), team)
    assert batch.words.tolist() == [1, 5, 9]
    assert batch.upserts.tolist() == [0, 1, 1]
    assert batch.rows.tolist() == [0, 1, 2]
