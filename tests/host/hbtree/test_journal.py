"""The journal of an update: its memory is reused, and `undo` restores nothing of earlier updates."""

from __future__ import annotations

import numpy as np
import pytest

from millrace.host.hbtree import journal as journal_module
from millrace.host.hbtree.build import fill
from millrace.host.hbtree.editor import Changes, Editor
from millrace.host.hbtree.journal import Journal
from millrace.host.hbtree.regular import RegularTree
from millrace.host.hbtree.tree import helpers
from millrace.host.runtime.allocator import MAX_KEPT, Allocator
from millrace.host.runtime.intrinsics import address


@pytest.fixture
def memory(monkeypatch: pytest.MonkeyPatch) -> Allocator:
    """No memory is kept yet."""
    made = Allocator(max_lent=0)
    monkeypatch.setattr(journal_module, "allocate", made.allocate)
    monkeypatch.setattr(journal_module, "free", made.free)
    return made


def tree_of(words: np.ndarray) -> RegularTree:
    with helpers(2, len(words)) as team:
        leaves, _ = fill(words, 0, words, team)
    return RegularTree.build(leaves, 8, False, 2)


def rows(tree: RegularTree) -> list[tuple[int, int]]:
    words, values = tree.rows()
    return list(zip(words.tolist(), values.tolist(), strict=True))


@pytest.mark.parametrize("block", [1 << 10, 1 << 21, 1 << 25])
def test_only_the_last_update_is_undone(block: int, memory: Allocator, monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks may be smaller than a piece."""
    monkeypatch.setattr(journal_module, "_BLOCK", block)
    tree = tree_of(np.arange(0, 40_000, 4, dtype=np.uint64))
    held = dict(rows(tree))
    rng = np.random.default_rng(block)
    for turn in range(6):
        keys = np.unique(rng.integers(0, 40_000, 2000, dtype=np.uint64))
        with helpers(2, len(keys)) as team, Journal.pooled(tree) as journal:
            assert Editor(tree, team, journal).apply(Changes.of(keys, keys + np.uint64(turn)))
            if turn % 2:
                journal.undo(team)
            else:
                held.update(zip(keys.tolist(), (keys + np.uint64(turn)).tolist(), strict=True))
        assert rows(tree) == sorted(held.items())


def test_memory_is_used_again_by_updates_of_any_size(memory: Allocator) -> None:
    tree = tree_of(np.arange(100, dtype=np.uint64))
    with Journal.pooled(tree) as journal:
        first = journal.pieces(np.array([1 << 20, 1 << 22])).tolist()
    with Journal.pooled(tree) as journal, Journal.pooled(tree) as other:
        again, other_pieces = journal.pieces(np.array([1 << 10])), other.pieces(np.array([1 << 10]))
        assert again.tolist() == first[:1]
        assert other_pieces.tolist() != first[:1]


def test_no_more_memory_is_kept_than_the_allocator_keeps(memory: Allocator) -> None:
    tree = tree_of(np.arange(100, dtype=np.uint64))
    with Journal.pooled(tree) as journal:
        pieces = journal.pieces(np.full(20, MAX_KEPT // 16))
        assert len(set(pieces.tolist())) == 20
        assert all(address(piece) == at for piece, at in zip(journal._pieces, pieces.tolist(), strict=True))
    assert MAX_KEPT // 2 < memory.kept <= MAX_KEPT
