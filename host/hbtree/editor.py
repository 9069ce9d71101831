"""Applies sorted changes to a regular HB+-Tree: in groups by all threads, the rest by one (thesis, appendix A, 5.6).

Changes are sorted by their words, one for each word. A group (16 Ki changes, as in the paper) ends where the changes of
a big leaf end: so every inner node has one owner, which needs no lock. The kernels are in `hbtree_update`. The order in
which changes are applied does not matter, and applying one twice changes nothing.

Where a journal (`hbtree_journal`) is given, everything that changes is kept first, and its `undo` puts it back. One
thread at a time may edit a tree, and nobody may search it meanwhile (`runtime/rwlock.py`).
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
from millrace.host.runtime.intrinsics import address
from millrace.host.runtime.team import Team

if TYPE_CHECKING:
    from millrace.host.hbtree.regular import RegularTree

GROUP = 1 << 14
"""Changes that one thread takes at a time."""
_NEAR = 16
"""Changes among which the end of a big leaf is looked for first."""
JOURNAL = 1 << 22
"""Bytes of a piece of journal for the changes that one thread does alone."""


@dataclass(frozen=True)
class Changes:
    """Sorted, distinct words, none the largest; whether each is an upsert (1) or a delete (0); where its value is."""

    words: Array
    upserts: npt.NDArray[np.uint8]
    rows: npt.NDArray[np.uint32]
    """Of an upsert the place of its value among `values`."""
    values: Array

    @classmethod
    def of(cls, words: Array, values: Array, upserts: bool = True) -> Changes:
        """Upserts, or deletes, with a value each."""
        count = len(words)
        return cls(words, np.full(count, upserts, np.uint8), np.arange(count, dtype=np.uint32), values)

    def __len__(self) -> int:
        """How many."""
        return len(self.words)

    def part(self, first: int, stop: int) -> Changes:
        """Some of them."""
        return Changes(self.words[first:stop], self.upserts[first:stop], self.rows[first:stop], self.values)


@dataclass(frozen=True)
class Left:
    """Changes that are left over, by number, and what the kernels were given."""

    numbers: npt.NDArray[np.int64]
    given: Array
    changes: Changes


class Editor:
    """Applies changes to a tree."""

    def __init__(self, tree: RegularTree, team: Team, journal: Journal | None = None) -> None:
        """Without a journal nothing can be undone."""
        self._tree, self._team, self._journal = tree, team, journal
        self._wide = tree.word.itemsize == 8
        self.left = 0
        """Changes that one thread had to do."""

    def apply(self, changes: Changes) -> bool:
        """Apply all; false if there was no room for nodes: then some are applied and some are not."""
        return not len(changes) or self.rest(self.in_groups(changes))

    def rest(self, left: Left) -> bool:
        """Apply by one thread what is left over; false if there was no room for nodes."""
        self.left += len(left.numbers)
        done = self._alone(hu.rest_64 if self._wide else hu.rest_32, left.given, left.numbers)
        self._tree.refresh()
        return done

    def merge(self) -> None:
        """Merge big leaves that have few words."""
        few = np.flatnonzero(self._tree.is_sparse())
        if len(few) and self._tree.levels > 1:
            given = np.zeros(hu.ARGUMENTS, np.int64)
            scratch = np.empty(self._scratch_words, np.uint64)
            given[[hu.TREE, hu.SCRATCH]] = address(self._tree.table), address(scratch)
            self._alone(hu.merge_64 if self._wide else hu.merge_32, given, few)
            self._tree.refresh()

    @property
    def _scratch_words(self) -> int:
        """Of 64 bits: words and values of two big leaves."""
        tree = self._tree
        return (2 * tree.fanout * tree.per_leaf + 16) * 2

    def in_groups(self, changes: Changes) -> Left:
        """Apply by all threads what needs no split, of at least one change."""
        tree, team = self._tree, self._team
        lines = tree.lines_of(changes.words, team)
        bounds = _bounds(lines, tree.fanout)
        parts, left = len(bounds) - 1, np.zeros(len(changes), np.uint8)
        grown, size = np.zeros(parts, np.int64), self._scratch_words
        scratch = team.arena.take(parts * size, np.uint64)
        entries = (tree.table, changes.words, changes.upserts, changes.values, lines, bounds, left, grown, scratch)
        given = np.zeros(hu.ARGUMENTS, np.int64)
        given[: len(entries)] = [address(entry) for entry in entries]
        given[hu.SCRATCH_SIZE], given[hu.ROWS] = 8 * size, address(changes.rows)
        if self._journal is not None:
            journals = self._journal.pieces(self._journal_sizes(np.diff(bounds)))
            given[hu.JOURNALS] = address(journals)
        team.run(hu.group_64 if self._wide else hu.group_32, given, parts)
        tree.table[hf.SIZE] += int(grown.sum())
        team.arena.give(scratch)
        return Left(np.flatnonzero(left), given, changes)

    def _journal_sizes(self, counts: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """Bytes per group: a line for each change, a window for some, and room to look ahead."""
        tree = self._tree
        leaf = tree.fanout * tree.stride + tree.last_bytes
        sizes: npt.NDArray[np.int64] = counts * (tree.stride + 64) + counts // 16 * leaf // 4 + 8 * leaf + (1 << 19)
        return sizes

    def _alone(self, share: Any, given: Array, numbers: Array) -> bool:
        """One thread, with as many pieces of journal as it takes."""
        if not len(numbers):
            return True
        scratch = np.empty(self._scratch_words, np.uint64)
        given[hu.SCRATCH], given[hu.NUMBERS] = address(scratch), address(numbers)
        given[hu.FIRST], given[hu.NUMBERED], given[hu.DONE_AS] = 0, len(numbers), hu.NO_JOURNAL
        while given[hu.DONE_AS] == hu.NO_JOURNAL:
            if self._journal is not None:
                journals = self._journal.pieces(np.array([JOURNAL]))
                given[hu.JOURNALS] = address(journals)
            self._team.run(share, given, 1)
        return bool(given[hu.DONE_AS] == hu.DONE)


def compile_kernels(word: np.dtype[Any]) -> None:
    """Compile what changes trees of a type of words, if that was not done yet."""
    shares = (hu.group_64, hu.rest_64, hu.merge_64) if word.itemsize == 8 else (hu.group_32, hu.rest_32, hu.merge_32)
    for share in shares:
        assert share.address


def _bounds(lines: Array, fanout: int) -> Array:
    """Where groups begin and end: where a big leaf ends, first from each 16 Ki changes on (within a group, if so)."""
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
