"""Runs a step of PIM-Tree on the threads of the team, each in its own range of words.

The paper's protocol (section 4; `parallel_kernel.py`) lets every thread insert everywhere, since it takes tuples as
they come. A step knows all of its tuples. So its threads share out the words instead: no locks, and no cache line goes
from core to core with each insertion. The kernels and the three phases are in `range_kernel.py`.

A step is cut into chunks: before each one, sides whose insert trees would overflow merge, on all threads
(`shared_merge.py`). Ranges follow a sample of the chunk's words, so threads have about the same number of tuples,
whatever their distribution. Limit: tuples of one word are inserted by one thread.
"""

from __future__ import annotations

import numpy as np

from millrace.host.base.types import Array, Order
from millrace.host.join.contract import Matches
from millrace.host.join.pimtree import range_kernel as rk
from millrace.host.join.pimtree.insert_trees import Trees
from millrace.host.join.pimtree.join_kernel import Side
from millrace.host.join.pimtree.range_kernel import Chunk, Delivery, Owner
from millrace.host.join.pimtree.results import ResultBuffer, Slot, check_complete, most_results
from millrace.host.join.pimtree.sides import MergeSide
from millrace.host.join.pimtree.team_merge import TeamMerge
from millrace.host.runtime.allocator import allocate, result_array
from millrace.host.runtime.intrinsics import address
from millrace.host.runtime.kernel_args import in_own_lines
from millrace.host.runtime.pool import size as most_threads
from millrace.host.runtime.team import Team

SAMPLE = 256
"""Words of each side in the sample for the ranges."""
EARLY_SHARE = 16
"""A side merges before a chunk if its insert trees have room for less than this part of their limit."""
DELIVERY_PARTS = 4


class _Owner:
    """The memory of a range: a list of tuples, and for each side a copy of the table with a buffer of results."""

    def __init__(self, owners: int) -> None:
        """No memory yet; `owners`: how many there are."""
        self.tables = [in_own_lines(np.zeros(len(Side), np.int64)) for _ in range(2)]
        self._slots = [table[Side.OUT : Side.OUT + len(Slot)] for table in self.tables]
        self._results = [ResultBuffer(slot, owners) for slot in self._slots]
        self._scratch: list[Array] = []
        self.lists = [np.zeros(0, np.uint32) for _ in range(2)]

    def start(self, sides: tuple[MergeSide, MergeSide], want_positions: bool, ranges: int) -> None:
        """Begin a step."""
        for number, side in enumerate(sides):
            if len(self.lists[number]) <= len(side.words):
                self.lists[number] = allocate(len(side.words) + 1, np.uint32)
        self._scratch = [side.scratch(table, ranges, 1) for side, table in zip(sides, self.tables, strict=True)]
        for results, table in zip(self._results, self.tables, strict=True):
            results.start(want_positions)
            table[Side.OUT_USED] = 0

    def follow(self, sides: tuple[MergeSide, MergeSide]) -> None:
        """Copy what the sides' tables say of trees and new tuples."""
        for side, table in zip(sides, self.tables, strict=True):
            table[: Side.OUT] = side.table[: Side.OUT]
            table[Side.TASK_ROWS] = side.table[Side.TASK_ROWS]

    def results(self, side: int) -> int:
        """The address of a side's results; raises if some are missing."""
        check_complete(int(self._slots[side][Slot.FAILED]))
        return int(self._slots[side][Slot.WHERE])


class RangeStep:
    """Owners of ranges and their memory, kept from step to step."""

    def __init__(self, r: MergeSide, s: MergeSide, team: Team) -> None:
        """No memory yet."""
        self._sides = (r, s)
        self._team = team
        self._merge = TeamMerge(team)
        # Not more than threads that run: each owner looks at all tuples, and has memory of its own.
        count = min(team.threads, most_threads())
        self._owners = [_Owner(count) for _ in range(count)]
        self._words = in_own_lines(np.zeros(count * len(Owner), np.int64))

    def run(self, order: Order, want_positions: bool, ranges: int) -> tuple[Matches, Matches]:
        """Process the tuples that the sides hold as new."""
        for owner in self._owners:
            owner.start(self._sides, want_positions, ranges)
        where = [allocate(len(side.counts), np.int64) for side in self._sides]
        chunk = Chunk.partly(WHERE_R=where[0], WHERE_S=where[1], OWNERS=self._words)
        done = [0, 0]
        while sum(done) < len(order):
            room = self._make_room(done, ranges)
            of_s, stop = rk.chunk_end(address(order), sum(done), len(order), *room)
            new = [stop - done[1] - of_s, done[1] + of_s]
            self._run_chunk(chunk, done, new)
            done = new
        first, second = (self._matches(side, where[side], want_positions) for side in range(2))
        return first, second

    def _make_room(self, done: list[int], ranges: int) -> list[int]:
        """Merge sides whose insert trees are almost full; returns how many tuples fit in each."""
        rooms = []
        for number, side in enumerate(self._sides):
            limit = side.room()
            if limit - len(side.insert_trees) <= limit // EARLY_SHARE:
                begin = self._sides[1 - number].begin
                seen = int(begin[done[1 - number] - 1]) if done[1 - number] > 0 else 0
                side.merge_by(self._merge, max(seen, side.oldest))
                side.store_trees(ranges)
                limit = side.room()
            rooms.append(limit - len(side.insert_trees))
        return rooms

    def _run_chunk(self, chunk: Array, done: list[int], new: list[int]) -> None:
        """Insert and search the tuples from numbers `done` to `new` of each side."""
        wide = self._sides[0].word.itemsize == 8
        chunk[Chunk.FROM_R : Chunk.WHERE_R] = *done, *new
        self._set_owners(done, new)
        self._team.run(rk.insert_64 if wide else rk.insert_32, chunk, len(self._owners))
        for number, side in enumerate(self._sides):
            side.insert_trees.table[Trees.INSERTED] += new[number] - done[number]
        self._team.run(rk.probe_64 if wide else rk.probe_32, chunk, len(self._owners))

    def _set_owners(self, done: list[int], new: list[int]) -> None:
        """Give each owner a range of each side's words, with about as many new tuples as the others'."""
        count, word = len(self._owners), self._sides[0].word.type
        samples = [np.zeros(1, word)]  # there may be no live tuple
        for side, first, stop in zip(self._sides, done, new, strict=True):
            some = slice(first, stop, max((stop - first) // SAMPLE, 1))
            samples.append(side.words[some][side.live[some]])
        sample = np.sort(np.concatenate(samples))
        ends = sample[np.arange(1, count) * len(sample) // count]
        words = self._words.reshape(count, len(Owner))
        for field, owner in enumerate(self._owners):
            owner.follow(self._sides)
            words[field, Owner.R], words[field, Owner.S] = (address(table) for table in owner.tables)
            words[field, Owner.LIST_R], words[field, Owner.LIST_S] = (address(one) for one in owner.lists)
        for number, side in enumerate(self._sides):
            lows, highs = (words.view(np.uint64)[:, field + number] for field in (Owner.LOW_R, Owner.HIGH_R))
            last = int(np.iinfo(word).max)
            low = 0
            for owner_number in range(count):
                high = last if owner_number == count - 1 else side.range_end(ends[owner_number])
                # An empty range if the one before ends at the last word, or at the same subindex.
                lows[owner_number], highs[owner_number] = (low, high) if low <= high else (1, 0)
                low = max(low, high + 1)

    def _matches(self, side: int, where: Array, want_positions: bool) -> Matches:
        """The matches of a side's tuples, in order of arrival."""
        counts = self._sides[side].counts
        sources = np.array([owner.results(side) for owner in self._owners], np.int64)
        if not want_positions:
            return Matches(counts, None)
        ends = np.cumsum(counts)
        total = int(ends[-1]) if len(ends) else 0
        check_complete(total if total > most_results() else 0)
        positions = result_array(total, np.int64)
        given = Delivery.pack(COUNTS=counts, WHERE=where, ENDS=ends, OUT=positions, TUPLES=len(counts), SOURCES=sources)
        self._team.run(rk.deliver, given, DELIVERY_PARTS * self._team.threads)
        return Matches(counts, positions)
