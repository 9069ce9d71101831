"""`index="btree"`: a B+-tree per side, tuple by tuple — the honest baseline that others are measured against.

For each tuple in order: delete what it has outlived from the other side's tree, search that tree, insert into its
own (the index-based window join of PIM-Tree, section 2, without batches or threads). Entries are `(word, position)`,
all distinct, so equal keys need no special case. A node that becomes empty is freed; nodes are not merged when half
empty. The kernels are in `btree_kernel.py`; here the arrays they work on are owned and grown.
"""

from __future__ import annotations

import numpy as np

from millrace.host.base.types import SIDES, Array, Mask, Side
from millrace.host.data.sliding import Sliding
from millrace.host.expr.plan import PlanKind
from millrace.host.join.baseline import btree_kernel as bk
from millrace.host.join.contract import JoinIndex, Matches, Setting, SideStep, Step

_FIRST_NODES = 16


def _flipped(words: Array) -> Array:
    """Words as signed numbers of the same order: the kernels keep all they have in one int64 array."""
    signed: Array = (words.astype(np.uint64) ^ np.uint64(1 << 63)).view(np.int64)
    return signed


class _Side:
    """One side: the tree, word and liveness by position of what is in it, and the table that kernels find them by."""

    def __init__(self) -> None:
        self.tree = bk.new_tree(_FIRST_NODES)
        self.table = np.zeros(bk.SIDE, np.int64)
        self._words = Sliding(np.int64)
        self._live = Sliding(np.bool_)
        self._part: tuple[Array, ...] = ()

    def append(self, first: int, words: Array, live: Mask) -> None:
        """Hold new tuples' words; they enter the tree one by one."""
        if len(self._words) == 0 and self._words.end != first:
            self._words, self._live = Sliding(np.int64, first), Sliding(np.bool_, first)
            self.tree[bk.OLDEST] = first
        self._words.append(_flipped(words))
        self._live.append(live)
        self._address()

    def _address(self) -> None:
        """Write the addresses of what may have moved into the table."""
        held = self._words.view(), self._live.view()
        self.table[bk.TREE] = self.tree.ctypes.data
        self.table[bk.HELD_WORDS], self.table[bk.HELD_LIVE] = (a.ctypes.data for a in held)
        self.table[bk.FIRST], self.table[bk.END] = self._words.first, self._words.end

    def ask(self, part: SideStep, want_positions: bool) -> None:
        """Set the new tuples' questions and make room for the answers."""
        n = len(part.words)
        low, high = (np.ascontiguousarray(_flipped(words).T) for words in (part.low, part.high))
        begin, end = (np.ascontiguousarray(a, np.int64) for a in (part.begin, part.end))
        live, counts = np.ascontiguousarray(part.live), np.zeros(n, np.int64)
        self._part = (live, begin, end, low, high, counts)
        self.counts = counts
        self.out = np.empty(max(64, 4 * n) if want_positions else 0, np.int64)
        columns = (bk.LIVE, bk.BEGIN, bk.STOP, bk.LOW, bk.HIGH, bk.COUNTS)
        for column, array in zip(columns, self._part, strict=True):
            self.table[column] = array.ctypes.data
        self.table[bk.NEW], self.table[bk.RANGES] = part.first, len(part.low)
        self.table[bk.OUT] = self.out.ctypes.data
        self.table[bk.ROOM] = len(self.out) if want_positions else -1
        self.table[bk.USED_ROOM] = self.table[bk.DONE_TUPLES] = 0

    def grow_tree(self) -> None:
        """Twice the nodes."""
        self.tree = bk.grown(self.tree)
        self._address()

    def grow_out(self) -> None:
        """Twice the room for partners."""
        self.out = np.concatenate([self.out, np.empty_like(self.out)])
        self.table[bk.OUT], self.table[bk.ROOM] = self.out.ctypes.data, len(self.out)

    def expire(self, before: int) -> None:
        """Delete what no tuple will ask for again."""
        bk.expire(self.table.ctypes.data, min(before, self._words.end))
        self._words.drop_before(int(self.tree[bk.OLDEST]))
        self._live.drop_before(int(self.tree[bk.OLDEST]))
        self._address()

    def matches(self) -> Matches:
        """The answers."""
        wanted = self.table[bk.ROOM] >= 0
        return Matches(self.counts, self.out[: int(self.table[bk.USED_ROOM])] if wanted else None)


class BTreeIndex(JoinIndex):
    """A B+-tree per side, probed and changed tuple by tuple."""

    def __init__(self, setting: Setting) -> None:
        """Two empty trees."""
        super().__init__(setting)
        self._sides = {side: _Side() for side in SIDES}

    @staticmethod
    def serves(kind: PlanKind) -> bool:
        """Conditions with a key on both sides."""
        return kind != "residual"

    def load(self, side: Side, first: int, words: Array, live: Mask) -> None:
        """Insert earlier tuples one by one."""
        own = self._sides[side]
        own.append(first, words, live)
        done, end = first, first + len(words)
        while done < end:
            done = bk.insert_all(own.table.ctypes.data, done, end)
            if done < end:
                own.grow_tree()

    def step(self, step: Step, want_positions: bool) -> tuple[Matches, Matches]:
        """Run the per-tuple kernel over the new tuples; it comes back whenever an array must grow."""
        r, s = self._sides["r"], self._sides["s"]
        for side, part in ((r, step.r), (s, step.s)):
            side.append(part.first, part.words, part.live)
            side.ask(part, want_positions)
        grow = {bk.TREE_R: r.grow_tree, bk.TREE_S: s.grow_tree, bk.OUT_R: r.grow_out, bk.OUT_S: s.grow_out}
        order = np.ascontiguousarray(step.order, np.uint8)
        while True:
            done = int(r.table[bk.DONE_TUPLES] + s.table[bk.DONE_TUPLES])
            stop = bk.run(order.ctypes.data, len(order), done, r.table.ctypes.data, s.table.ctypes.data)
            if stop == bk.DONE:
                break
            grow[stop]()
        r.expire(step.keep[0])
        s.expire(step.keep[1])
        return r.matches(), s.matches()

    def counters(self) -> dict[str, int]:
        """Node splits so far, of both trees."""
        return {"boundaries": sum(int(side.tree[bk.SPLITS]) for side in self._sides.values())}
