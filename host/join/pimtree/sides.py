"""One side of an index-based join in Python: owns the trees, and merges or archives them when a kernel asks for it.

`MergeSide` is IM-Tree and PIM-Tree (sections 3.2 and 3.3): one `T_S` and one set of insert trees. `ChainSide` is the
chained index (2.2.2 and 5.1): the window in intervals, each with a subindex. Its active subindex is a B+-tree; archived
ones stay B+-trees (`b`) or become immutable (`ib`). A subindex is dropped when its newest position has expired.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import numpy as np

from millrace.host.base.types import Array, Mask, Positions
from millrace.host.join.contract import Matches, SideProbes
from millrace.host.join.pimtree.insert_trees import InsertTrees, Trees
from millrace.host.join.pimtree.join_kernel import Side
from millrace.host.join.pimtree.merge import merge
from millrace.host.join.pimtree.range_kernel import range_end
from millrace.host.join.pimtree.results import ResultBuffer, Slot
from millrace.host.join.pimtree.static_tree import LINE, StaticTree
from millrace.host.join.pimtree.team_merge import TeamMerge
from millrace.host.runtime.allocator import allocate, result_array
from millrace.host.runtime.intrinsics import WIDE_LANES, address
from millrace.host.runtime.kernel_args import in_own_lines

ENTRIES_PER_SUBINDEX = 16
"""Entries of a subindex just before a merge, on average: most are one leaf then."""
MIN_INTERVAL = 64
"""The least entries of an archived subindex if the window's size is not known."""


def _lines(size: int) -> int:
    """So many bytes, as full cache lines."""
    return -(-size // LINE) * LINE


class JoinSide(ABC):
    """The trees of one side, and the tables that the kernels read."""

    def __init__(self, word: np.dtype[Any], rows: int | None, task_rows: int) -> None:
        """An empty side. `rows`: how many positions the window spans, if known."""
        self.word = word
        self.rows = rows
        self.task_rows = task_rows
        self.table = in_own_lines(np.zeros(len(Side), np.int64))
        self.table[Side.MASK] = -1
        self._results = ResultBuffer(self.result_slot)
        self.end = 0
        self.merges = 0
        self.past_splits = 0
        self._held: tuple[Array, ...] = ()

    @property
    @abstractmethod
    def statics(self) -> list[StaticTree]:
        """The immutable trees."""

    @property
    @abstractmethod
    def trees(self) -> list[InsertTrees]:
        """The insert trees; the last ones take new tuples."""

    @abstractmethod
    def load(self, positions: Positions, words: Array) -> None:
        """Insert entries without probing; later ones than all before."""

    @abstractmethod
    def merge(self) -> None:
        """Make the newest insert trees empty."""

    @abstractmethod
    def limit(self) -> int:
        """How many entries the newest insert trees take until the next merge."""

    @property
    def oldest(self) -> int:
        """The oldest position that a later tuple may see."""
        return int(self.table[Side.OLDEST])

    @property
    def window_rows(self) -> int:
        """How many positions the window spans."""
        return self.end - self.oldest if self.rows is None else self.rows

    @property
    def splits(self) -> int:
        """Node splits so far."""
        return self.past_splits + sum(int(one.table[Trees.SPLITS]) for one in self.trees)

    @property
    def nbytes(self) -> int:
        """Bytes of all trees."""
        return sum(one.nbytes for one in self.statics) + sum(one.nbytes for one in self.trees)

    def load_live(self, first: int, words: Array, live: Mask) -> None:
        """Insert earlier tuples, from position `first` on."""
        rows = np.flatnonzero(live)
        if self.end == 0:
            self.table[Side.OLDEST] = first
        self.end = first + len(live)
        self.load(rows + first, np.ascontiguousarray(words[rows], self.word))
        self.store_trees()

    def store_trees(self, ranges: int = 1) -> None:
        """Update the addresses of the trees in the table, and a task's scratch memory for so many ranges per tuple."""
        statics = in_own_lines(np.array([address(one.table) for one in self.statics], np.int64))
        trees = in_own_lines(np.array([address(one.table) for one in self.trees], np.int64))
        self._held = (statics, trees, self.scratch(self.table, ranges, len(statics)))
        self.table[Side.STATICS], self.table[Side.TREES] = address(statics), address(trees)
        self.table[Side.STATIC_COUNT], self.table[Side.TREE_COUNT] = len(statics), len(trees)
        self.table[Side.LIMIT] = self.table[Side.ROOM] = self.limit()
        self.table[Side.TASK_ROWS] = self.task_rows

    def scratch(self, table: Array, ranges: int, statics: int) -> Array:
        """New scratch memory of a task, entered in a table; each part begins at a cache line."""
        slots, item = self.task_rows * ranges, self.word.itemsize
        sizes = {
            Side.KEYS: slots * item,
            Side.RANKS: slots * max(statics, 1) * 8,
            Side.KEY_SUBS: slots * 8,
            Side.OWN_WORDS: self.task_rows * item,
            Side.OWN_SUBS: self.task_rows * 8,
        }
        memory = allocate(sum(_lines(size) for size in sizes.values()), np.uint8)
        at = address(memory)
        for field, size in sizes.items():
            table[field] = at
            at += _lines(size)
        return memory

    def worker_table(self, ranges: int) -> tuple[Array, Array]:
        """A copy of the table for a worker, and its scratch memory; no other worker's shares a cache line with them."""
        table = in_own_lines(self.table)
        return table, self.scratch(table, ranges, len(self.statics))

    def set_probes(self, part: SideProbes, want_positions: bool) -> None:
        """Set the new tuples and their probes, and allocate the output."""
        n, probe = len(part), part.probes[0]
        word, fields = self.word, self.table.view(np.uint64)
        live = np.ascontiguousarray(part.live)
        words = allocate(n + WIDE_LANES, word)  # vector code reads beyond the end
        words[:n] = part.words[0]
        begin, end = (np.ascontiguousarray(one, np.int64) for one in (part.begin, part.end))
        self.counts = result_array(n, np.int64)
        self.counts[:] = 0
        self._part = [live, words, begin, end]
        ranges = 1
        if probe.band is None:
            ranges = len(probe.low)
            low, high = (np.ascontiguousarray(one.T, word) for one in (probe.low, probe.high))
            self._part += [low, high]
            self.table[Side.LOW], self.table[Side.HIGH] = address(low), address(high)
        else:
            self.table[Side.LOW] = 0
            fields[Side.BELOW], fields[Side.ABOVE] = probe.band
        self.table[Side.RANGES] = ranges
        for field, array in zip((Side.LIVE, Side.WORDS, Side.BEGIN, Side.STOP), self._part, strict=False):
            self.table[field] = address(array)
        self.table[Side.NEW], self.table[Side.COUNTS] = part.first, address(self.counts)
        self._results.start(want_positions)
        self.table[Side.OUT_USED] = self.table[Side.DONE_TUPLES] = 0
        self.end = max(self.end, part.first + n)

    @property
    def live(self) -> Mask:
        """Which of the new tuples can match."""
        return self._part[0]

    @property
    def words(self) -> Array:
        """The words of the new tuples."""
        return self._part[1][: len(self.counts)]

    @property
    def begin(self) -> Positions:
        """The oldest position that each new tuple sees."""
        return self._part[2]

    @property
    def result_slot(self) -> Array:
        """The words of the buffer of results."""
        return self.table[Side.OUT : Side.OUT + len(Slot)]

    def matches(self) -> Matches:
        """The matches of the new tuples."""
        return Matches(self.counts, self._results.take(int(self.table[Side.OUT_USED])))

    def expire(self, before: int) -> None:
        """Positions below are not visible any more."""
        self.table[Side.OLDEST] = max(self.oldest, before)


class MergeSide(JoinSide):
    """IM-Tree (one subindex) and PIM-Tree."""

    def __init__(
        self, word: np.dtype[Any], rows: int | None, task_rows: int, merge_ratio: float, subindexes: int | None
    ) -> None:
        """An empty side; `subindexes`: how many, None for a number that suits the merge ratio."""
        super().__init__(word, rows, task_rows)
        self._ratio = merge_ratio
        self._subindexes = subindexes
        self.static = StaticTree(word, 0)
        self.insert_trees = InsertTrees(self.static, 1, self.limit(), 0)
        self._spare: StaticTree | None = None
        """Memory for the next merge by a team."""

    @property
    def statics(self) -> list[StaticTree]:
        """T_S."""
        return [self.static]

    @property
    def trees(self) -> list[InsertTrees]:
        """T_I."""
        return [self.insert_trees]

    @property
    def nbytes(self) -> int:
        """Bytes of all trees, and of the memory for the next merge."""
        return super().nbytes + (0 if self._spare is None else self._spare.nbytes)

    def room(self) -> int:
        """How many entries the insert trees may have now: their memory may be that of a larger window, or smaller."""
        return min(self.insert_trees.entries, self.limit())

    def limit(self) -> int:
        """The merge ratio's share of the window."""
        return max(int(self._ratio * self.window_rows), self.task_rows)

    def load(self, positions: Positions, words: Array) -> None:
        """Build T_S from all entries."""
        if len(self.insert_trees):
            self.merge()
        old, base = self.static, self.oldest
        size = len(old)
        before = old.ids[:size] + np.int64(old.base)
        self.static = StaticTree.of(
            np.concatenate([old.words[:size], words]), np.concatenate([before, positions]), base
        )
        self._restart()

    def subindexes(self, limit: int) -> int:
        """How many subindexes insert trees of up to `limit` entries should have."""
        return limit // ENTRIES_PER_SUBINDEX if self._subindexes is None else self._subindexes

    def range_end(self, word: Any) -> int:
        """The last word of the subindex in which a word is."""
        return int(range_end(address(self.static.table), address(self.insert_trees.table), word))

    def merge_by(self, merge: TeamMerge, oldest: int) -> None:
        """Merge with all threads of a team; drop what is before the position `oldest`."""
        self.expire(oldest)
        self.static, self._spare = merge.run(self.static, self.insert_trees, self.oldest, self._spare), self.static
        self._restart()
        self.merges += 1

    def merge(self) -> None:
        """Merge T_I into a new T_S and drop what has expired."""
        self.static = merge(self.static, self.insert_trees, self.oldest)
        self._restart()
        self.merges += 1

    def _restart(self) -> None:
        limit = self.limit()
        count = self.subindexes(limit)
        if self.insert_trees.serves(count, limit):
            self.insert_trees.restart(self.static, count, self.oldest)
        else:
            self.past_splits += int(self.insert_trees.table[Trees.SPLITS])
            self.insert_trees = InsertTrees(self.static, count, limit, self.oldest)


class ChainSide(JoinSide):
    """The chained index."""

    def __init__(self, word: np.dtype[Any], rows: int | None, task_rows: int, variant: str, length: int) -> None:
        """An empty side."""
        super().__init__(word, rows, task_rows)
        self._immutable = variant == "ib"
        self._length = length
        self._archive: list[tuple[int, StaticTree | InsertTrees]] = []
        self._empty = StaticTree(word, 0)
        self._begin()

    @property
    def statics(self) -> list[StaticTree]:
        """The immutable archived subindexes."""
        return [one for _, one in self._archive if isinstance(one, StaticTree)]

    @property
    def trees(self) -> list[InsertTrees]:
        """The other archived subindexes, and the active one."""
        return [*(one for _, one in self._archive if isinstance(one, InsertTrees)), self._active]

    def limit(self) -> int:
        """An interval of the window: all archived subindexes together span it."""
        rows = max(self.window_rows, MIN_INTERVAL * (self._length - 1)) if self.rows is None else self.rows
        return max(-(-rows // (self._length - 1)), self.task_rows)

    def load(self, positions: Positions, words: Array) -> None:
        """Archive what is active, and make a subindex of each interval."""
        if len(self._active):
            self.merge()
        limit = self.limit()
        for first in range(0, len(words), limit):
            at, part = positions[first : first + limit], words[first : first + limit]
            self._archive.append((int(at[-1]) + 1, self._archived(at, part)))
        self._begin()

    def _archived(self, positions: Positions, words: Array) -> StaticTree | InsertTrees:
        """An archived subindex of these entries."""
        if self._immutable:
            return StaticTree.of(words, positions, self.oldest)
        loaded = InsertTrees(self._empty, 1, len(words), self.oldest)
        loaded.insert_all(words, positions)
        return loaded

    def merge(self) -> None:
        """Archive the active subindex, and drop those that have expired."""
        end = int(self.table[Side.NEW] + self.table[Side.DONE_TUPLES])
        active: StaticTree | InsertTrees = self._active
        self.past_splits += sum(int(one.table[Trees.SPLITS]) for one in self.trees)
        if self._immutable:
            active = merge(self._empty, self._active, self.oldest)
        self._archive = [(last, one) for last, one in [*self._archive, (end, active)] if last > self.oldest]
        self._begin()
        self.past_splits -= sum(int(one.table[Trees.SPLITS]) for one in self.trees)
        self.merges += 1

    def _begin(self) -> None:
        self._active = InsertTrees(self._empty, 1, self.limit(), self.oldest)
