"""Applies sorted changes to a regular HB+-Tree: groups with all threads, the rest with one (thesis, appendix A, 5.6).

Changes are sorted by word, with one change per word. A group (16 Ki changes, as in the paper) ends where the changes of
a big leaf end. So each inner node is changed by one thread, and no lock is needed. The kernels are in `update.py`.
Changes may be applied in any order, and applying one twice has no further effect.

If a journal (`journal.py`) is given, it saves everything before it changes, and its `undo` restores it. Limit: one
thread at a time may edit a tree, and no thread may search it during the edit (`runtime/rwlock.py`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from millrace.host.base.types import Array
from millrace.host.hbtree import fragments as hf
from millrace.host.hbtree import update as hu
from millrace.host.hbtree.journal import Journal
from millrace.host.runtime.allocator import allocate, free
from millrace.host.runtime.intrinsics import address
from millrace.host.runtime.team import Team

if TYPE_CHECKING:
    from millrace.host.hbtree.regular import RegularTree

GROUP = 1 << 14
"""Changes of a group, which is one thread's task."""
_NEAR = 16
"""Changes searched first for the end of a big leaf."""
JOURNAL = 1 << 22
"""Bytes of a journal piece for the single-threaded changes."""


@dataclass(frozen=True)
class Changes:
    """Sorted, distinct words, none the maximum; an upsert (1) or a delete (0) each; and where its value is."""

    words: Array
    upserts: npt.NDArray[np.uint8]
    rows: npt.NDArray[np.uint32]
    """For an upsert, the index of its value in `values`."""
    values: Array

    @classmethod
    def of(cls, words: Array, values: Array, upserts: bool = True) -> Changes:
        """Upserts with a value each, or deletes."""
        count = len(words)
        return cls(words, np.full(count, upserts, np.uint8), np.arange(count, dtype=np.uint32), values)

    def __len__(self) -> int:
        """Number of changes."""
        return len(self.words)

    def part(self, first: int, stop: int) -> Changes:
        """Changes `first` to `stop - 1`."""
        return Changes(self.words[first:stop], self.upserts[first:stop], self.rows[first:stop], self.values)


@dataclass(frozen=True)
class Leftover:
    """Numbers of the changes that the parallel phase did not apply, and the kernel arguments."""

    numbers: npt.NDArray[np.int64]
    args: Array
    changes: Changes


class Editor:
    """Applies changes to a tree."""

    def __init__(self, tree: RegularTree, team: Team, journal: Journal | None = None) -> None:
        """Without a journal, changes cannot be undone."""
        self._tree, self._team, self._journal = tree, team, journal
        self._wide = tree.word.itemsize == 8
        self.left = 0
        """Number of changes that were applied by one thread."""

    def apply(self, changes: Changes) -> bool:
        """Apply all; false if the pools are full: then only some changes are applied."""
        return not len(changes) or self.apply_leftover(self.in_groups(changes))

    def apply_leftover(self, left: Leftover) -> bool:
        """Apply the remaining changes with one thread; false if the pools are full."""
        self.left += len(left.numbers)
        done = self._alone(hu.leftover_64 if self._wide else hu.leftover_32, left.args, left.numbers)
        self._tree.refresh()
        return done

    def merge(self) -> None:
        """Merge sparse big leaves."""
        sparse = np.flatnonzero(self._tree.is_sparse())
        if len(sparse) and self._tree.levels > 1:
            scratch = np.empty(self._scratch_words, np.uint64)
            args = hu.Args.partly(TREE=self._tree.table, SCRATCH=scratch)
            self._alone(hu.merge_64 if self._wide else hu.merge_32, args, sparse)
            self._tree.refresh()

    @property
    def _scratch_words(self) -> int:
        """Scratch size in 64-bit units: words and values of two big leaves."""
        tree = self._tree
        return (2 * tree.fanout * tree.per_leaf + 16) * 2

    def in_groups(self, changes: Changes) -> Leftover:
        """Apply with all threads the changes that need no split; there must be at least one change."""
        tree, team = self._tree, self._team
        lines = tree.lines_of(changes.words, team)
        bounds = _bounds(lines, tree.fanout)
        parts, left = len(bounds) - 1, np.zeros(len(changes), np.uint8)
        grown, size = np.zeros(parts, np.int64), self._scratch_words
        scratch = allocate(parts * size, np.uint64)
        args = hu.Args.partly(
            TREE=tree.table,
            WORDS=changes.words,
            UPSERTS=changes.upserts,
            VALUES=changes.values,
            LINES=lines,
            BOUNDS=bounds,
            LEFT=left,
            GROWN=grown,
            SCRATCH=scratch,
            SCRATCH_SIZE=8 * size,
            ROWS=changes.rows,
        )
        if self._journal is not None:
            journals = self._journal.pieces(self._journal_sizes(np.diff(bounds)))
            args[hu.Args.JOURNALS] = address(journals)
        team.run(hu.group_64 if self._wide else hu.group_32, args, parts)
        tree.table[hf.Pools.SIZE] += int(grown.sum())
        free(scratch)
        return Leftover(np.flatnonzero(left), args, changes)

    def _journal_sizes(self, counts: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """Journal bytes per group: a line for each change, a window for some, and a reserve."""
        tree = self._tree
        leaf = tree.fanout * tree.stride + tree.last_bytes
        sizes: npt.NDArray[np.int64] = counts * (tree.stride + 64) + counts // 16 * leaf // 4 + 8 * leaf + (1 << 19)
        return sizes

    def _alone(self, share: Any, args: Array, numbers: Array) -> bool:
        """Run a kernel with one thread and as many journal pieces as it needs."""
        if not len(numbers):
            return True
        scratch = np.empty(self._scratch_words, np.uint64)
        args[hu.Args.SCRATCH], args[hu.Args.NUMBERS] = address(scratch), address(numbers)
        args[hu.Args.FIRST], args[hu.Args.NUMBERED], args[hu.Args.STATUS] = 0, len(numbers), hu.NO_JOURNAL
        while args[hu.Args.STATUS] == hu.NO_JOURNAL:
            if self._journal is not None:
                journals = self._journal.pieces(np.array([JOURNAL]))
                args[hu.Args.JOURNALS] = address(journals)
            self._team.run(share, args, 1)
        return bool(args[hu.Args.STATUS] == hu.DONE)


def compile_kernels(word: np.dtype[Any]) -> None:
    """Compile the update kernels for a word type, unless they are compiled already."""
    wide = word.itemsize == 8
    shares = (hu.group_64, hu.leftover_64, hu.merge_64) if wide else (hu.group_32, hu.leftover_32, hu.merge_32)
    for share in shares:
        assert share.address


def _bounds(lines: Array, fanout: int) -> Array:
    """Group boundaries: after every 16 Ki changes, the next end of a big leaf, if one follows within a group."""
    nominal = np.arange(GROUP, len(lines), GROUP)
    ends, open_, near = np.full(len(nominal), len(lines)), np.arange(len(nominal)), _NEAR
    while len(open_):
        at = np.minimum(nominal[open_, None] + np.arange(-1, near), len(lines) - 1)
        leaves = lines[at] // fanout
        other = leaves != leaves[:, :1]
        found = other.any(axis=1)
        ends[open_[found]] = at[found, other[found].argmax(axis=1)]
        open_ = open_[~found] if near < GROUP else open_[:0]
        near = min(4 * near, GROUP)
    bounds = [0]
    for first, end in zip(nominal.tolist(), ends.tolist(), strict=True):
        if bounds[-1] < first and end < len(lines):
            bounds.append(end)
    return np.array([*bounds, len(lines)], np.int64)
