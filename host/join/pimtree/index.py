"""`index="im" | "pim" | "chain"`: the index-based window join of the PIM-Tree paper, tuple by tuple.

A step is one call of a kernel (`join_kernel.py`), which returns early only for a merge or a larger array. IM-Tree is a
PIM-Tree with one subindex. All three serve every condition with a key on both sides.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np

from millrace.host.base.types import SIDES, Array, Mask, Order, Side
from millrace.host.join.contract import IndexContext, JoinIndex, Matches, Option, ProbeBatch
from millrace.host.join.pimtree import join_kernel as jk
from millrace.host.join.pimtree.range_step import RangeStep
from millrace.host.join.pimtree.sides import ChainSide, JoinSide, MergeSide
from millrace.host.runtime.intrinsics import address
from millrace.host.runtime.team import MIN_SHARED_ROWS

TASK_ROWS = 8
MERGE_RATIO = 1 / 8
MAX_SUBINDEXES = 1 << 20
MIN_PARALLEL_ROWS = MIN_SHARED_ROWS
"""With fewer tuples in a step, or from one merge to the next, a step runs on one thread."""
_TASK_ROWS = Option(TASK_ROWS, 1, jk.MAX_TASK)
_MERGE_RATIO = Option(MERGE_RATIO, 1e-6, 1.0)


class IndexedJoin(JoinIndex):
    """Two sides, each with its trees, and the kernel that joins them."""

    options: ClassVar[Mapping[str, Option]] = {"task_rows": _TASK_ROWS}

    def __init__(self, context: IndexContext) -> None:
        """Empty trees."""
        super().__init__(context)
        words = [context.plan.searches[side][0].key.kind.word for side in SIDES]
        self._word: np.dtype[Any] = max((np.dtype(word) for word in words), key=lambda word: word.itemsize)
        self.task_rows = int(context.options["task_rows"])
        self._sides: dict[Side, JoinSide] = {side: self._side(context.rows.get(side)) for side in SIDES}

    @abstractmethod
    def _side(self, rows: int | None) -> JoinSide:
        """An empty side; `rows`: how many positions its window spans, if known."""

    def load(self, side: Side, first: int, words: tuple[Array, ...], live: Mask) -> None:
        """Sort earlier tuples into the trees."""
        self._sides[side].load_live(first, words[0], live)

    def step(self, batch: ProbeBatch, want_positions: bool) -> tuple[Matches, Matches]:
        """Run the kernel over the new tuples. It returns whenever a merge is due or an array must grow."""
        r, s = self._sides["r"], self._sides["s"]
        r.set_probes(batch.r, want_positions)
        s.set_probes(batch.s, want_positions)
        ranges = max(int(side.table[jk.Side.RANGES]) for side in (r, s))
        r.store_trees(ranges)
        s.store_trees(ranges)
        found = self._join(r, s, np.ascontiguousarray(batch.order, np.uint8), want_positions, ranges)
        r.expire(batch.keep[0])
        s.expire(batch.keep[1])
        return found

    def _join(
        self, r: JoinSide, s: JoinSide, order: Order, want_positions: bool, ranges: int
    ) -> tuple[Matches, Matches]:
        """Process the new tuples on this thread."""
        while True:
            stop = jk.run(
                address(order), len(order), self.task_rows, address(r.table), address(s.table), self._word.type(0)
            )
            if stop == jk.DONE:
                return r.matches(), s.matches()
            side = r if stop == jk.MERGE_R else s
            side.merge()
            side.store_trees(ranges)

    def counters(self) -> dict[str, int]:
        """Merges, or archived subindexes; `boundaries` counts them together with node splits."""
        merges = sum(side.merges for side in self._sides.values())
        return {"merges": merges, "boundaries": merges + sum(side.splits for side in self._sides.values())}

    @property
    def nbytes(self) -> int:
        """Bytes of all trees."""
        return sum(side.nbytes for side in self._sides.values())


class PimIndex(IndexedJoin):
    """PIM-Tree. `subindexes`: per side, 0 chooses by window and merge ratio."""

    options: ClassVar[Mapping[str, Option]] = {
        "subindexes": Option(0, 0, MAX_SUBINDEXES),
        "merge_ratio": _MERGE_RATIO,
        "task_rows": _TASK_ROWS,
    }
    _ranges: RangeStep | None = None

    def _side(self, rows: int | None) -> JoinSide:
        subindexes, ratio = int(self.context.options["subindexes"]), float(self.context.options["merge_ratio"])
        return MergeSide(self._word, rows, self.task_rows, ratio, subindexes or None)

    def _join(
        self, r: JoinSide, s: JoinSide, order: Order, want_positions: bool, ranges: int
    ) -> tuple[Matches, Matches]:
        """Process the new tuples on all threads, or on this one if they, or those between two merges, are few."""
        team = self.context.team
        between = (side.limit() * len(order) // len(side.words) for side in (r, s) if len(side.words))
        if team.threads > 1 and min(len(order), *between) >= MIN_PARALLEL_ROWS:
            if self._ranges is None and isinstance(r, MergeSide) and isinstance(s, MergeSide):
                self._ranges = RangeStep(r, s, team)
            if self._ranges is not None:
                return self._ranges.run(order, want_positions, ranges)
        return super()._join(r, s, order, want_positions, ranges)


class ImIndex(IndexedJoin):
    """IM-Tree: one insert tree."""

    options: ClassVar[Mapping[str, Option]] = {"merge_ratio": _MERGE_RATIO, "task_rows": _TASK_ROWS}

    def _side(self, rows: int | None) -> JoinSide:
        return MergeSide(self._word, rows, self.task_rows, float(self.context.options["merge_ratio"]), 1)


class ChainIndex(IndexedJoin):
    """Chained index of `length` subindexes: `b` keeps archived ones as B+-trees, `ib` makes them immutable."""

    options: ClassVar[Mapping[str, Option]] = {
        "variant": Option("ib", choices=("b", "ib")),
        "length": Option(2, 2, 64),
        "task_rows": _TASK_ROWS,
    }

    def _side(self, rows: int | None) -> JoinSide:
        variant, length = str(self.context.options["variant"]), int(self.context.options["length"])
        return ChainSide(self._word, rows, self.task_rows, variant, length)
