"""Runs a step of PIM-Tree on all threads of the team: the Python side of the protocol in `parallel_kernel.py`.

It packs the control block, the records of all tasks of the step, and for each worker a copy of both sides' tables with
scratch memory of its own. Workers return early only if a merge needs larger spare trees.

How to feed it: a step takes 1..n tuples of both sides. `MergeSide.set_probes` gives each side its new tuples (words,
liveness, visible intervals, ranges) and zeroes their counts; `run` takes the order of arrival, a byte per tuple (0: the
next of r, 1: the next of s). How results come out: in order of arrival, appended to the buffer at `Side.OUT` of the
tuple's own side (positions of the other side, ascending per tuple), and `COUNTS[i]` is how many belong to new tuple i.
Results of tasks before `Control.HEAD` have left; `HEAD`, and `Slot.USED` of a buffer, only grow during a step.

The same workers serve rings, which never end (`host/live/ring_engine.py`); there, merges do not stop other workers.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from millrace.host.base.types import Array
from millrace.host.join.pimtree import parallel_kernel as pk
from millrace.host.join.pimtree.control_block import (
    GROW_R,
    NO_MEMORY,
    RUNNING,
    SLOT_WORDS,
    SLOTS,
    WORKER_BYTES,
    Control,
    Record,
    Worker,
)
from millrace.host.join.pimtree.insert_trees import InsertTrees, Trees
from millrace.host.join.pimtree.results import Slot, check_complete, most_results
from millrace.host.join.pimtree.shared_merge import MERGE_WORDS
from millrace.host.join.pimtree.sides import MergeSide
from millrace.host.join.pimtree.static_tree import StaticTree
from millrace.host.runtime.allocator import allocate
from millrace.host.runtime.heap import free_with
from millrace.host.runtime.intrinsics import address
from millrace.host.runtime.team import Team

TASK_TUPLES = 64
"""The most tuples of a task, unless a group has more: a probe compares those of tasks that are not completed."""
MIN_TASKS = 16
"""Tasks, at least, of a thread in a step, and from one merge to the next."""


BLOCKING = True
"""All workers merge together: a step returns only after its last tuple, so nothing is gained by going on meanwhile."""


class Spares:
    """The trees into which the next merge of a side writes; a merge exchanges them with the side's own."""

    def __init__(self, side: MergeSide) -> None:
        """Memory for a merge that is due at the side's limit."""
        self.side = side
        self.subindexes = side.subindexes(side.limit())
        held = max(len(side.static) + len(side.insert_trees), side.window_rows)
        self.static = StaticTree(side.word, held + held // 4 + 2 * side.limit())
        self.trees = InsertTrees(self.static, self.subindexes, side.limit() + side.task_rows, 0)
        if not side.insert_trees.serves(self.subindexes, side.limit()):
            side.merge()

    @property
    def is_large_enough(self) -> bool:
        """Whether both the side's trees and these serve the side's present limit."""
        limit = self.side.limit()
        count = self.side.subindexes(limit)
        return all(trees.serves(count, limit) for trees in (self.trees, self.side.insert_trees))

    def exchange(self, static: int, trees: int) -> None:
        """Note what workers have done: the addresses of the tables of the side's trees."""
        if static != address(self.side.static.table):
            self.side.static, self.static = self.static, self.side.static
        if trees != address(self.side.insert_trees.table):
            self.side.insert_trees, self.trees = self.trees, self.side.insert_trees


class ParallelStep:
    """Workers and their memory, kept from step to step."""

    def __init__(self, r: MergeSide, s: MergeSide, team: Team) -> None:
        """No spare trees yet."""
        self._sides = (r, s)
        self._team = team
        self._spares: list[Spares] = []
        self._slots = allocate(2 * SLOTS * SLOT_WORDS, np.int64)
        self._slots[:] = 0
        self._capacities = np.zeros(2 * SLOTS, np.int64)
        self._control = allocate(len(Control) + 8, np.int64)[: len(Control)]
        self._merge = allocate(MERGE_WORDS, np.int64)
        self._merge[:] = 0
        self.merges = 0
        free_with(self, self._slots[Slot.WHERE :: SLOT_WORDS])

    def run(self, order: Array, want_positions: bool, ranges: int) -> None:
        """Process the tuples that the sides hold as new."""
        if not self._spares or not all(one.is_large_enough for one in self._spares):
            self._spares = [Spares(side) for side in self._sides]
            for side in self._sides:
                side.store_trees(ranges)
        held = self._pack(order, want_positions, ranges)
        control, share = self._control, pk.work_64 if self._sides[0].word.itemsize == 8 else pk.work_32
        while True:
            self._team.run(share, control, self._team.threads)
            self._exchange()
            stop = int(control[Control.STOP])
            if stop == RUNNING:
                break
            if stop == NO_MEMORY:
                check_complete(max(int(one[Slot.FAILED]) for one in self._all_slots()))
            self._enlarge(stop - GROW_R)
        del held
        self.merges += int(control[Control.MERGES])

    def _all_slots(self) -> list[Array]:
        """Those of tasks, and those of the step's results."""
        return [*self._slots.reshape(-1, SLOT_WORDS), *(side.result_slot for side in self._sides)]

    def _exchange(self) -> None:
        for number, (side, spare) in enumerate(zip(self._sides, self._spares, strict=True)):
            spare.exchange(*side.tree_addresses)
            side.insert_trees.table[Trees.INSERTED] = self._control[Control.RESERVED + number]

    def _enlarge(self, number: int) -> None:
        """Make the spare trees of a side larger: its window has grown."""
        self._spares[number] = Spares(self._sides[number])
        self._store_spares()
        self._control[Control.STOP] = RUNNING

    def _store_spares(self) -> None:
        statics, trees = self._tables
        for number, spare in enumerate(self._spares):
            statics[number], trees[number] = address(spare.static.table), address(spare.trees.table)
            self._control[Control.SUBINDEXES + number] = spare.subindexes

    def _pack(self, order: Array, want_positions: bool, ranges: int) -> list[Any]:
        """Fill the control block; returns the arrays that it points to."""
        threads = self._team.threads
        task_rows = most_task_rows(self._sides, len(order) // threads)
        records = allocate((-(-len(order) // task_rows) + 1) * len(Record), np.int64)
        records[:] = 0
        capacities = self._slots[Slot.CAPACITY :: SLOT_WORDS]
        self._capacities = np.where(capacities < 0, self._capacities, capacities)
        capacities[:] = self._capacities if want_positions else -1
        self._slots[Slot.FAILED :: SLOT_WORDS], self._slots[Slot.LIMIT :: SLOT_WORDS] = 0, most_results()
        self._tables = np.zeros(2, np.int64), np.zeros(2, np.int64)
        workers = allocate(threads * WORKER_BYTES // 8, np.int64)
        workers[:] = 0
        local = [side.worker_table(ranges) for _ in range(threads) for side in self._sides]
        for number in range(threads):
            at = number * WORKER_BYTES // 8
            workers[at + Worker.MERGES] = 1
            workers[at + Worker.R] = address(local[2 * number][0])
            workers[at + Worker.S] = address(local[2 * number + 1][0])
        control = self._control
        r, s = self._sides
        control[:] = Control.partly(
            UPDATING=1,
            UPDATING_S=1,
            RESERVED=len(r.insert_trees),
            RESERVED_S=len(s.insert_trees),
            ORDER=order,
            TUPLES=len(order),
            TASK_ROWS=task_rows,
            RECORDS=records,
            RECORD_MASK=-1,
            SLOTS=self._slots,
            R=r.table,
            S=s.table,
            SPARE_STATICS=self._tables[0],
            SPARE_TREES=self._tables[1],
            WORKERS=workers,
            WORKER_COUNT=threads,
            BLOCKING=int(BLOCKING),
            SHARED_MERGE=self._merge,
        )
        self._store_spares()
        return [order, records, workers, local]


def most_task_rows(sides: tuple[MergeSide, MergeSide], tuples: int) -> int:
    """Tuples of a task: several groups if there are many, so that threads rarely meet at the queue.

    A task must fit in the insert trees. `tuples`: those of a thread.
    """
    group = sides[0].task_rows
    share = min(tuples, *(side.limit() for side in sides)) // MIN_TASKS
    return group * max(min(TASK_TUPLES, share) // group, 1)
