"""`index="btree"`: a B+-tree per side, updated tuple by tuple: the baseline for measurements.

For each tuple in order: delete expired tuples from the other side's tree, search that tree, insert into the own tree
(the index-based window join of PIM-Tree, section 2, without batches or threads). Entries are `(word, position)`, all
distinct, so equal keys need no special case. An empty node is freed; half-empty nodes are not merged. This module owns
and enlarges the arrays; the kernels are in `btree_kernel.py`.
"""

from __future__ import annotations

import numpy as np

from millrace.host.base.types import SIDES, Array, Mask, Side
from millrace.host.data.sliding import SlidingArray
from millrace.host.expr.plan import SearchShape
from millrace.host.join.baseline import btree_kernel as bk
from millrace.host.join.contract import IndexContext, JoinIndex, Matches, ProbeBatch, SideProbes

_FIRST_NODES = 16


def _as_signed(words: Array) -> Array:
    """Words as signed integers of the same order: the kernels store everything in one int64 array."""
    signed: Array = (words.astype(np.uint64) ^ np.uint64(1 << 63)).view(np.int64)
    return signed


class _Side:
    """One side: the tree, word and liveness by position, and the table of their addresses for the kernels."""

    def __init__(self) -> None:
        self.tree = bk.new_tree(_FIRST_NODES)
        self.table = np.zeros(len(bk.Side), np.int64)
        self._words = SlidingArray(np.int64)
        self._live = SlidingArray(np.bool_)
        self._part: tuple[Array, ...] = ()

    def append(self, first: int, words: Array, live: Mask) -> None:
        """Store new tuples' words. The kernel inserts them into the tree one by one."""
        if len(self._words) == 0 and self._words.end != first:
            self._words, self._live = SlidingArray(np.int64, first), SlidingArray(np.bool_, first)
            self.tree[bk.OLDEST] = first
        self._words.append(_as_signed(words))
        self._live.append(live)
        self._store_addresses()

    def _store_addresses(self) -> None:
        """Update the addresses in the table."""
        held = self._words.view(), self._live.view()
        self.table[bk.Side.TREE] = self.tree.ctypes.data
        self.table[bk.Side.HELD_WORDS], self.table[bk.Side.HELD_LIVE] = (a.ctypes.data for a in held)
        self.table[bk.Side.FIRST], self.table[bk.Side.END] = self._words.first, self._words.end

    def set_probes(self, part: SideProbes, want_positions: bool) -> None:
        """Set the probes of the new tuples, and allocate the output."""
        n, probe = len(part), part.probes[0]
        low, high = (np.ascontiguousarray(_as_signed(words).T) for words in (probe.low, probe.high))
        begin, end = (np.ascontiguousarray(a, np.int64) for a in (part.begin, part.end))
        live, counts = np.ascontiguousarray(part.live), np.zeros(n, np.int64)
        self._part = (live, begin, end, low, high, counts)
        self.counts = counts
        self.out = np.empty(max(64, 4 * n) if want_positions else 0, np.int64)
        columns = (bk.Side.LIVE, bk.Side.BEGIN, bk.Side.STOP, bk.Side.LOW, bk.Side.HIGH, bk.Side.COUNTS)
        for column, array in zip(columns, self._part, strict=True):
            self.table[column] = array.ctypes.data
        self.table[bk.Side.NEW], self.table[bk.Side.RANGES] = part.first, len(probe.low)
        self.table[bk.Side.OUT] = self.out.ctypes.data
        self.table[bk.Side.OUT_CAPACITY] = len(self.out) if want_positions else -1
        self.table[bk.Side.OUT_USED] = self.table[bk.Side.DONE_TUPLES] = 0

    def grow_tree(self) -> None:
        """Double the number of nodes."""
        self.tree = bk.grown(self.tree)
        self._store_addresses()

    def grow_out(self) -> None:
        """Double the space for partners."""
        self.out = np.concatenate([self.out, np.empty_like(self.out)])
        self.table[bk.Side.OUT], self.table[bk.Side.OUT_CAPACITY] = self.out.ctypes.data, len(self.out)

    def expire(self, before: int) -> None:
        """Delete tuples that no later tuple can match."""
        bk.expire(self.table.ctypes.data, min(before, self._words.end))
        self._words.drop_before(int(self.tree[bk.OLDEST]))
        self._live.drop_before(int(self.tree[bk.OLDEST]))
        self._store_addresses()

    def matches(self) -> Matches:
        """The matches of the new tuples."""
        wanted = self.table[bk.Side.OUT_CAPACITY] >= 0
        return Matches(self.counts, self.out[: int(self.table[bk.Side.OUT_USED])] if wanted else None)


class BTreeIndex(JoinIndex):
    """A B+-tree per side, probed and changed tuple by tuple."""

    def __init__(self, context: IndexContext) -> None:
        """Two empty trees."""
        super().__init__(context)
        self._sides = {side: _Side() for side in SIDES}

    @staticmethod
    def serves(shape: SearchShape) -> bool:
        """Conditions with a key on both sides."""
        return shape.kind != "residual"

    def load(self, side: Side, first: int, words: tuple[Array, ...], live: Mask) -> None:
        """Insert earlier tuples one by one."""
        own = self._sides[side]
        own.append(first, words[0], live)
        done, end = first, first + len(live)
        while done < end:
            done = bk.insert_all(own.table.ctypes.data, done, end)
            if done < end:
                own.grow_tree()

    def step(self, batch: ProbeBatch, want_positions: bool) -> tuple[Matches, Matches]:
        """Run the per-tuple kernel over the new tuples. It returns whenever an array must grow."""
        r, s = self._sides["r"], self._sides["s"]
        for side, part in ((r, batch.r), (s, batch.s)):
            side.append(part.first, part.words[0], part.live)
            side.set_probes(part, want_positions)
        grow = {bk.TREE_R: r.grow_tree, bk.TREE_S: s.grow_tree, bk.OUT_R: r.grow_out, bk.OUT_S: s.grow_out}
        order = np.ascontiguousarray(batch.order, np.uint8)
        while True:
            done = int(r.table[bk.Side.DONE_TUPLES] + s.table[bk.Side.DONE_TUPLES])
            stop = bk.run(order.ctypes.data, len(order), done, r.table.ctypes.data, s.table.ctypes.data)
            if stop == bk.DONE:
                break
            grow[stop]()
        r.expire(batch.keep[0])
        s.expire(batch.keep[1])
        return r.matches(), s.matches()

    def counters(self) -> dict[str, int]:
        """Node splits so far, of both trees."""
        return {"boundaries": sum(int(side.tree[bk.SPLITS]) for side in self._sides.values())}
