"""The ring-to-ring engine: compiled workers join tuples from a ring and write pairs, in order, to a ring (PIM-Tree, 4).

`RingEngine` owns the rings, the trees and the threads. Workers never leave compiled code and hold no lock of Python;
they sleep while nothing arrives. Merges do not stop them, except if `blocking`: with two workers or more, one merges
while the others go on. A thread that has put tuples may help (`help`), which saves a switch of threads.

Limits: count windows, whose sizes are fixed, so no memory grows but the buffers of a tuple's results; a key that ranges
search exactly; one thread at a time puts, and one takes.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Sequence
from typing import Any

import numpy as np

from millrace.host.base.types import Array
from millrace.host.join.pimtree import parallel_kernel as pk
from millrace.host.join.pimtree.control_block import (
    NO_MEMORY,
    SLOT_WORDS,
    SLOTS,
    WORKER_BYTES,
    Control,
    Record,
    Worker,
)
from millrace.host.join.pimtree.insert_trees import InsertTrees
from millrace.host.join.pimtree.join_kernel import Side
from millrace.host.join.pimtree.merge import merge_trees
from millrace.host.join.pimtree.pair_ring import PAIR_BYTES, PairRing
from millrace.host.join.pimtree.results import Slot
from millrace.host.join.pimtree.shared_merge import MERGE_WORDS
from millrace.host.join.pimtree.sides import MergeSide
from millrace.host.join.pimtree.static_tree import StaticTree
from millrace.host.live import ring_kernel as rk
from millrace.host.runtime.allocator import allocate
from millrace.host.runtime.fork import ProcessMark
from millrace.host.runtime.heap import free_memory
from millrace.host.runtime.intrinsics import WIDE_LANES, address

TASK_TUPLES = 64
"""The most tuples of a task, unless a group has more: a probe compares those of tasks that are not completed."""
MIN_TASKS = 16
"""Tasks, at least, from one merge to the next."""
TUPLES, PAIRS = 1 << 15, 1 << 16
"""Default sizes of the rings."""
WAIT_NANOSECONDS = 20_000_000
"""Longest wait in compiled code in one go: signal handlers of Python run between two."""
Band = tuple[int, int]

_engines: weakref.WeakSet[RingEngine] = weakref.WeakSet()


class RingEngine:
    """Two sides with count windows, and their workers; the sides may hold earlier tuples."""

    def __init__(
        self,
        sides: tuple[MergeSide, MergeSide],
        bands: tuple[Band | None, Band | None],
        ranges: tuple[int, int] = (1, 1),
        threads: int = 2,
        tuples: int = TUPLES,
        pairs: int = PAIRS,
        blocking: bool = False,
    ) -> None:
        """Allocate everything and start the workers. `ranges`: how many a tuple of r, of s has if it has no band.

        `tuples` and `pairs` are the sizes of the rings, powers of two.
        """
        self.sides = sides
        self.word = sides[0].word
        self._like = self.word.type(0)
        self._size = tuples
        self._held: list[Any] = []
        for side, band, count in zip(sides, bands, ranges, strict=True):
            self._prepare_side(side, band, 1 if band is not None else count)
        spares = [self._make_trees(side) for side in sides]
        self._ring = self._zeros(len(PairRing))
        self._pairs = allocate(pairs * PAIR_BYTES // 8, np.int64)
        self._ring[PairRing.PAIRS], self._ring[PairRing.MASK] = address(self._pairs), pairs - 1
        self._slots = self._zeros(2 * SLOTS * SLOT_WORDS)
        self.control = self._zeros(len(Control))
        self._pack(spares, threads, max(ranges), blocking)
        self._mark = ProcessMark()
        self.threads = [
            threading.Thread(
                target=pk.serve, args=(address(self.control), n, True, self._like), daemon=True, name=f"ring-{n}"
            )
            for n in range(threads)
        ]
        # The threads use memory of this object; they end before it is freed.
        self._finalizer = weakref.finalize(self, _end, self.control, self._slots, self.threads, self._held, self._mark)
        self._finalizer.atexit = False
        _engines.add(self)
        for thread in self.threads:
            thread.start()

    def _zeros(self, size: int) -> Array:
        """Zeroed words that begin at a cache line and share none."""
        words = allocate(size + 8, np.int64)
        words[:] = 0
        self._held.append(words)
        return words[:size]

    def _prepare_side(self, side: MergeSide, band: Band | None, ranges: int) -> None:
        """Make rings for the new tuples of a side."""
        size, word, table = self._size, side.word, side.table
        live = np.zeros(size, np.uint8)
        words = allocate(size + WIDE_LANES, word)
        longs = [allocate(size, np.int64) for _ in range(3)]
        self._held += [live, words, *longs]
        table[Side.LIVE], table[Side.WORDS] = address(live), address(words)
        table[Side.BEGIN], table[Side.STOP], table[Side.COUNTS] = map(address, longs)
        table[Side.LOW] = 0
        if band is None:
            low, high = (allocate(size * ranges, word) for _ in range(2))
            self._held += [low, high]
            table[Side.LOW], table[Side.HIGH] = address(low), address(high)
        else:
            table.view(np.uint64)[[Side.BELOW, Side.ABOVE]] = band
        table[Side.RANGES], table[Side.MASK], table[Side.WINDOW] = ranges, size - 1, side.window_rows
        table[Side.NEW] = side.end

    def _make_trees(self, side: MergeSide) -> tuple[StaticTree, InsertTrees]:
        """A copy of the side's trees with room to grow; returns spare trees of the same size."""
        limit = side.limit()
        room, count = 2 * limit + 2 * TASK_TUPLES, side.subindexes(limit)
        capacity = side.window_rows + room + self._size
        statics = [StaticTree(side.word, capacity, side.oldest) for _ in range(2)]
        old, trees = side.static, side.insert_trees
        merge_trees(address(old.table), address(trees.table), side.oldest, address(statics[0].table), self._like)
        insert_trees = [InsertTrees(statics[0], count, room, side.oldest) for _ in range(2)]
        side.static, side.insert_trees = statics[0], insert_trees[0]
        side.store_trees(int(side.table[Side.RANGES]))
        side.table[Side.ROOM] = 2 * limit
        self._held += [statics, insert_trees, side]
        return statics[1], insert_trees[1]

    def _pack(
        self, spares: Sequence[tuple[StaticTree, InsertTrees]], threads: int, ranges: int, blocking: bool
    ) -> None:
        """Fill the control block. There is one more worker than threads: a caller that helps."""
        r, s = self.sides
        workers = self._zeros((threads + 1) * WORKER_BYTES // 8)
        for number in range(threads + 1):
            at = number * WORKER_BYTES // 8
            tables = [side.worker_table(ranges) for side in self.sides]
            self._held.append(tables)
            workers[at + Worker.R], workers[at + Worker.S] = (address(table) for table, _ in tables)
            workers[at + Worker.MERGES] = number < threads
        order = np.zeros(self._size, np.uint8)
        records = self._zeros(self._size * len(Record))
        merge = self._zeros(MERGE_WORDS)
        spare_statics, spare_trees = np.zeros(2, np.int64), np.zeros(2, np.int64)
        for number, (static, trees) in enumerate(spares):
            spare_statics[number], spare_trees[number] = address(static.table), address(trees.table)
        self._held += [order, records, merge, spare_statics, spare_trees, self._pairs]
        self.control[:] = Control.partly(
            UPDATING=1,
            UPDATING_S=1,
            TASK_ROWS=_task_rows(self.sides),
            ORDER=order,
            RECORDS=records,
            RECORD_MASK=self._size - 1,
            SLOTS=self._slots,
            R=r.table,
            S=s.table,
            SPARE_STATICS=spare_statics,
            SPARE_TREES=spare_trees,
            SUBINDEXES=r.subindexes(r.limit()),
            SUBINDEXES_S=s.subindexes(s.limit()),
            WORKERS=workers,
            WORKER_COUNT=threads + 1,
            BLOCKING=int(blocking),
            SHARED_MERGE=merge,
            RING=self._ring,
        )
        self._helper = threads
        self._buffer = np.zeros((PAIRS, 2), np.int64)
        self._source = np.zeros(4, np.int64)

    # --- callers; each method one thread at a time ---

    @property
    def arrived(self) -> int:
        """Tuples put so far."""
        return int(self.control[Control.TUPLES])

    @property
    def done(self) -> int:
        """Tuples whose pairs have all been written."""
        return int(self._ring[PairRing.TUPLES])

    @property
    def merges(self) -> int:
        """Merges so far."""
        return int(self.control[Control.MERGES])

    def put(self, side: int, words: Array, live: Array, ranges: tuple[Array, Array] | None = None) -> int:
        """Put tuples of r (0) or s (1), as many as there is room for; returns how many.

        `words` have the engine's type; `live`: a byte per tuple, 0 if it cannot match; `ranges`: lows and highs, tuple
        by tuple, unless the side has a band.
        """
        source = self._source
        source[0], source[1] = address(words), address(live)
        if ranges is not None:
            source[2], source[3] = address(ranges[0]), address(ranges[1])
        return rk.put_tuples(address(self.control), side, address(source), 0, len(words), self._like)

    def help(self) -> None:
        """Join tuples that wait in this thread, as one more worker, until there are none."""
        pk.serve(address(self.control), self._helper, False, self._like)

    def take(self) -> Array:
        """All pairs that are ready: rows of (position of the new tuple * 2 + its side, position of the partner)."""
        found = []
        while count := rk.take_pairs(address(self.control), address(self._buffer), len(self._buffer)):
            found.append(self._buffer[:count].copy())
            if count < len(self._buffer):
                break
        if len(found) == 1:
            return found[0]
        return np.concatenate(found) if found else _NO_PAIRS

    @property
    def progress(self) -> int:
        """A number that changes when there is something to take, or room to put; read it before you look."""
        return int(self._ring[PairRing.PROGRESS])

    def wait(self, seen: int) -> None:
        """Wait for a change of `progress`, for some milliseconds at most."""
        rk.await_progress(address(self.control), seen, WAIT_NANOSECONDS)

    def check(self) -> None:
        """Raise what has made the workers stop."""
        if self.control[Control.STOP] == NO_MEMORY:
            raise MemoryError("the partners of a tuple do not fit in memory")

    def close(self) -> None:
        """Stop the workers after their current tasks, and wait for them; pairs that have left can still be taken."""
        self._finalizer()

    @property
    def is_here(self) -> bool:
        """Whether the workers belong to this process; false in a forked child."""
        return self._mark.is_here


_NO_PAIRS = np.zeros((0, 2), np.int64)


def _end(control: Array, slots: Array, threads: Sequence[threading.Thread], held: list[Any], mark: ProcessMark) -> None:
    """End the threads, then free what they use."""
    if mark.is_here:
        rk.close_rings(address(control), True)
        for thread in threads:
            if thread.ident is not None:
                thread.join()
        for where in slots[Slot.WHERE :: SLOT_WORDS].tolist():
            free_memory(where)
        slots[:] = 0
    held.clear()


def _end_all() -> None:
    for engine in list(_engines):
        engine.close()


# Before the interpreter is torn down: workers would not notice its end.
threading._register_atexit(_end_all)  # type: ignore[attr-defined]


def _task_rows(sides: tuple[MergeSide, MergeSide]) -> int:
    """Tuples of a task: several groups, so that threads rarely meet at the queue. It must fit in the insert trees."""
    group = sides[0].task_rows
    share = min(side.limit() for side in sides) // MIN_TASKS
    return group * max(min(TASK_TUPLES, share) // group, 1)
