"""SPO-Join on streams (sections 3 and 4): each side's window as immutable blocks and a raw tail.

A step inserts the new tuples of both sides, probes the other side's window with each, and drops blocks that have
expired. Merges of blocks are spread over the steps: each does a share of the merge that is proportional to its new
tuples, the last part of it on helper threads after the step has returned. So no step waits for a large merge.
Differences from the paper: one process with threads instead of distributed operators; the tail instead of B+-trees;
exact visibility of every tuple, so no false positives.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import numpy as np

from millrace.host.base.types import SIDES, Array, Mask, Side, other
from millrace.host.join.contract import IndexContext, Matches, ProbeBatch, SideProbes
from millrace.host.join.spo.block import MAX_ROWS
from millrace.host.join.spo.block_build import run_tasks, task_table
from millrace.host.join.spo.block_probe import Probe, Way
from millrace.host.join.spo.block_window import BlockWindow
from millrace.host.runtime.team import MIN_SHARED_ROWS

CELLS = 8
"""A window of known size has at least this many cells, unless they would be smaller than `MIN_CELL`."""
MIN_CELL = 1 << 12
MERGE_RATE = 32
"""How many tuples are merged, at most, per new tuple of a step; a tuple takes part in about 20 merge tasks."""
MERGE_ROWS = 1 << 14
"""How many tuples are merged, at most, in any step."""
INTERLEAVED_ROWS = 1 << 12
"""The size of new blocks if both sides have new tuples: those see a part of each other's blocks."""
SHARED_PROBES = 1 << 9
"""From so many probes of a block on, helper threads take part."""
_NO_POSITIONS = np.zeros(0, np.int64)


class StreamEngine:
    """The windows of both sides."""

    def __init__(self, context: IndexContext) -> None:
        """Two empty windows."""
        self.team = context.team
        self._windows: dict[Side, BlockWindow] = {}
        for side in SIDES:
            words = [search.key.kind.word for search in context.plan.searches[side][:2]]
            self._windows[side] = BlockWindow(words, _cell_rows(context, side), context.team)
        self._finish_posted: Callable[[], None] = lambda: None
        self._ways: Counter[Way] = Counter()
        self._last: tuple[int, int, bool] = (0, 0, False)

    def load(self, side: Side, first: int, words: tuple[Array, ...], live: Mask) -> None:
        """Insert earlier tuples."""
        self._windows[side].append(first, words, live, MAX_ROWS)

    def step(self, batch: ProbeBatch, want_positions: bool) -> tuple[Matches, Matches]:
        """Insert, probe, expire, merge."""
        rows = len(batch.r) + len(batch.s)
        self._finish_posted()
        blocks = sum(len(window.blocks) + 1 for window in self._windows.values())
        self.team.acquire(MIN_SHARED_ROWS if rows * blocks >= SHARED_PROBES else 0)
        try:
            most = INTERLEAVED_ROWS if len(batch.r) and len(batch.s) else MAX_ROWS
            self._insert("r", batch.r, batch, most)
            self._insert("s", batch.s, batch, most)
            found = self._probe("r", batch.r, want_positions), self._probe("s", batch.s, want_positions)
            for window, keep in zip(self._windows.values(), batch.keep, strict=True):
                window.expire(keep)
            self._merge(MERGE_ROWS + MERGE_RATE * rows)
        finally:
            self.team.depth -= 1
        return found

    def _insert(self, side: Side, part: SideProbes, batch: ProbeBatch, most: int) -> None:
        """Insert the new tuples that a later tuple may see."""
        alone = len(batch.order) == len(part)
        skip = min(max(batch.keep[SIDES.index(side)] - part.first, 0), len(part)) if alone else 0
        if skip < len(part):
            words = tuple(one[skip:] for one in part.words)
            self._windows[side].append(part.first + skip, words, part.live[skip:], most)

    def _probe(self, side: Side, part: SideProbes, want_positions: bool) -> Matches:
        """The partners of one side's new tuples."""
        if len(part) == 0:
            return Matches(np.zeros(0, np.int64), _NO_POSITIONS if want_positions else None)
        window = self._windows[other(side)]
        probe = Probe(window, part, self.team)
        found = probe.matches(want_positions)
        for way, times in zip(Way, probe.ways(), strict=False):
            self._ways[way] += times
        self._last = len(window.blocks), window.tail_size, want_positions
        probe.free()
        return found

    def _merge(self, rows: int) -> None:
        """Merge about so many tuples; the last tasks are left to helper threads."""
        while True:
            merges = [merge for window in self._windows.values() if (merge := window.next_merge())]
            tasks, used = [], []
            for merge in merges:
                tasks += merge.take(rows // len(merges))
                used += merge.used
            if not tasks:
                if not any(merge.done for merge in merges):
                    return
                continue
            rows -= sum(map(_rows, tasks))
            if rows <= 0:
                self._finish_posted = self.team.post(run_tasks, task_table(tasks), len(tasks), used)
                return
            self.team.run(run_tasks, task_table(tasks), len(tasks))

    def close(self) -> None:
        """Free all memory."""
        self._finish_posted()
        for window in self._windows.values():
            window.close()

    def reason(self) -> str:
        """Which way was taken last, and why."""
        blocks, tail, pairs = self._last
        way = "lists the matches of each" if pairs else "counts matches by a table per block, without listing them"
        return f"spo: two order keys; {blocks} sorted blocks and {tail} raw tuples of the other side; {way}"

    def counters(self) -> dict[str, int]:
        """Blocks built, merged and dropped (`boundaries`), and how often each way was taken."""
        changes: Counter[str] = Counter()
        for window in self._windows.values():
            changes.update(window.counts)
        ways = {f"spo_{way.name.lower()}": self._ways[way] for way in Way}
        return {"boundaries": changes.total(), **ways}


def _rows(task: Array) -> int:
    """How many tuples a task handles."""
    return int(task[-1] - task[-2])


def _cell_rows(context: IndexContext, side: Side) -> int:
    """The size of a cell: `merge_rows`, less in a small window, and at most `MAX_ROWS`."""
    rows = min(int(context.options["merge_rows"]), MAX_ROWS)
    known = context.rows.get(side)
    return rows if known is None else min(rows, max(MIN_CELL, known // CELLS))
