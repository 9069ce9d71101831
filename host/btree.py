"""`index="btree"`: a B+-tree per side, tuple by tuple — the honest baseline that others are measured against.

For each tuple in order: delete what it has outlived from the other side's tree, search that tree, insert into its
own (the index-based window join of PIM-Tree, section 2, without batches or threads). Entries are `(word,
position)`, all distinct, so equal keys need no special case. A node that becomes empty is freed; nodes are not
merged when half empty. The kernels are in `millrace.host.btree_kernel`; here the arrays they work on are owned and
grown.
"""

from __future__ import annotations

import numpy as np

from millrace.host import btree_kernel as bk
from millrace.host.condition import SIDES, Side
from millrace.host.indexes import JoinIndex, Matches, Setting, SideStep, Step
from millrace.host.plan import PlanKind
from millrace.host.sliding import Sliding
from millrace.host.words import Array, Mask

_FIRST_NODES = 16


class _Tree:
    """One side: the tree's node arrays, and word and liveness by position for what is in it."""

    def __init__(self) -> None:
        self.nodes = bk.new_nodes(_FIRST_NODES)
        self.words = Sliding(np.uint64)
        self.live = Sliding(np.bool_)
        self.oldest = np.zeros(1, np.int64)  # positions below it have been deleted

    def append(self, words: Array, live: Mask) -> None:
        self.words.append(words.astype(np.uint64, copy=False))
        self.live.append(live)

    def start_at(self, position: int) -> None:
        if len(self.words) == 0 and self.words.end != position:
            self.words, self.live = Sliding(np.uint64, position), Sliding(np.bool_, position)
            self.oldest[0] = position

    def grow(self) -> None:
        self.nodes = bk.grown(self.nodes)

    def drop_deleted(self) -> None:
        self.words.drop_before(int(self.oldest[0]))
        self.live.drop_before(int(self.oldest[0]))

    def arrays(self) -> tuple[bk.Nodes, Array, Mask, int, Array]:
        return self.nodes, self.words.view(), self.live.view(), self.words.first, self.oldest


class BTreeIndex(JoinIndex):
    """A B+-tree per side, probed and changed tuple by tuple."""

    def __init__(self, setting: Setting) -> None:
        """Two empty trees."""
        super().__init__(setting)
        self._trees = {side: _Tree() for side in SIDES}

    @staticmethod
    def serves(kind: PlanKind) -> bool:
        """Conditions with a key on both sides."""
        return kind != "residual"

    def load(self, side: Side, first: int, words: Array, live: Mask) -> None:
        """Insert earlier tuples one by one."""
        tree = self._trees[side]
        tree.start_at(first)
        tree.append(words, live)
        done, end = first, first + len(words)
        while done < end:
            done = bk.insert_all(*tree.arrays(), done, end)
            if done < end:
                tree.grow()

    def step(self, step: Step, want_positions: bool) -> tuple[Matches, Matches]:
        """Run the per-tuple kernel over the new tuples; it comes back whenever an array must grow."""
        r, s = self._trees["r"], self._trees["s"]
        for tree, part in ((r, step.r), (s, step.s)):
            tree.start_at(part.first)
            tree.append(part.words, part.live)
        found = _Found(step.r, want_positions), _Found(step.s, want_positions)
        progress = np.array([0, 0, 0], np.int64)
        while True:
            reason = bk.run(
                step.order, r.arrays(), s.arrays(), found[0].arrays(), found[1].arrays(), progress, want_positions
            )
            if reason == bk.DONE:
                break
            grow = {bk.NODES_R: r.grow, bk.NODES_S: s.grow, bk.OUT_R: found[0].grow, bk.OUT_S: found[1].grow}
            grow[reason]()
        for tree, keep in ((r, step.keep[0]), (s, step.keep[1])):
            bk.expire(tree.arrays(), min(keep, tree.words.end))
            tree.drop_deleted()
        return found[0].matches(), found[1].matches()

    def counters(self) -> dict[str, int]:
        """Node splits so far, of both trees."""
        return {"boundaries": sum(int(t.nodes[-1][bk.SPLITS]) for t in self._trees.values())}


class _Found:
    """The output of one side's probes."""

    def __init__(self, part: SideStep, want_positions: bool) -> None:
        n = len(part.words)
        self._want = want_positions
        self._part = part
        self._low = np.ascontiguousarray(part.low.T, dtype=np.uint64)
        self._high = np.ascontiguousarray(part.high.T, dtype=np.uint64)
        self._counts = np.zeros(n, np.int64)
        self._positions = np.empty(max(64, 2 * n) if want_positions else 0, np.int64)
        self._used = np.zeros(1, np.int64)

    def grow(self) -> None:
        self._positions = np.concatenate([self._positions, np.empty_like(self._positions)])

    def arrays(self) -> bk.Probes:
        p = self._part
        return p.first, p.live, p.begin, p.end, self._low, self._high, self._counts, self._positions, self._used

    def matches(self) -> Matches:
        return Matches(self._counts, self._positions[: int(self._used[0])] if self._want else None)
