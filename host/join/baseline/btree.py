"""`index="btree"`: a B+-tree per side, updated tuple by tuple: the baseline for measurements.

For each tuple in order: delete expired tuples from the other side's tree, search that tree, insert into the own tree
(the index-based window join of PIM-Tree, section 2, without batches or threads). Entries are `(word, position)`, all
distinct, so equal keys need no special case. An empty node is freed; half-empty nodes are not merged. This module owns
and enlarges the arrays; the kernels are in `btree_kernel.py`.

With the option `partitions` it is the index-based join with round-robin partitioning (2.2.3), as in the low-latency
handshake join and SplitJoin: n partitions, each with two trees that hold every n-th tuple. Every tuple is searched for
in all partitions, which the threads share; then their matches are merged.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import numpy as np

from millrace.host.base.types import SIDES, Array, Mask, Order, Side
from millrace.host.data.sliding import SlidingArray
from millrace.host.join.baseline import btree_kernel as bk
from millrace.host.join.contract import IndexContext, JoinIndex, Matches, Option, ProbeBatch, SideProbes
from millrace.host.join.pair_memory import FEWER_ROWS, check_fits
from millrace.host.runtime.allocator import result_array
from millrace.host.runtime.intrinsics import address

_FIRST_NODES = 16
MAX_PARTITIONS = 64


def _as_signed(words: Array) -> Array:
    """Words as signed integers of the same order: the kernels store everything in one int64 array."""
    signed: Array = (words.astype(np.uint64) ^ np.uint64(1 << 63)).view(np.int64)
    return signed


class _Side:
    """One side of a partition: the tree, word and liveness by position, and the kernels' table of their addresses.

    Of `parts` partitions, number `part` holds the tuples whose position is `part` modulo `parts`.
    """

    def __init__(self, part: int, parts: int) -> None:
        self.tree = bk.new_tree(_FIRST_NODES)
        self.table = np.zeros(len(bk.Side), np.int64)
        self._part, self._parts = part, parts
        self._words = SlidingArray(np.int64)
        self._held = SlidingArray(np.bool_)
        self._probes: tuple[Array, ...] = ()

    def append(self, first: int, words: Array, live: Mask) -> None:
        """Store new tuples' signed words. The kernel inserts those of this partition into the tree one by one."""
        if len(self._words) == 0 and self._words.end != first:
            self._words, self._held = SlidingArray(np.int64, first), SlidingArray(np.bool_, first)
            self.tree[bk.OLDEST] = first
        self._words.append(words)
        held = live
        if self._parts > 1:
            held = np.zeros(len(live), np.bool_)
            own = slice((self._part - first) % self._parts, None, self._parts)
            held[own] = live[own]
        self._held.append(held)
        self._store_addresses()

    def _store_addresses(self) -> None:
        """Update the addresses in the table."""
        held = self._words.view(), self._held.view()
        self.table[bk.Side.TREE] = self.tree.ctypes.data
        self.table[bk.Side.WORDS], self.table[bk.Side.HELD] = (a.ctypes.data for a in held)
        self.table[bk.Side.FIRST], self.table[bk.Side.END] = self._words.first, self._words.end

    def set_probes(self, first: int, probes: tuple[Array, ...], want_positions: bool) -> None:
        """Set what the new tuples search, and allocate the output."""
        n = len(probes[0])
        self.counts = np.zeros(n, np.int64)
        self._probes = (*probes, self.counts)
        self.out = np.empty(max(64, 4 * n) if want_positions else 0, np.int64)
        columns = (bk.Side.LIVE, bk.Side.BEGIN, bk.Side.STOP, bk.Side.LOW, bk.Side.HIGH, bk.Side.COUNTS)
        for column, array in zip(columns, self._probes, strict=True):
            self.table[column] = array.ctypes.data
        self.table[bk.Side.NEW], self.table[bk.Side.RANGES] = first, probes[-1].shape[1]
        self.table[bk.Side.OUT] = self.out.ctypes.data
        self.table[bk.Side.OUT_CAPACITY] = len(self.out) if want_positions else -1
        self.table[bk.Side.OUT_USED] = self.table[bk.Side.DONE_TUPLES] = 0

    def grow_tree(self) -> None:
        """Double the number of nodes."""
        self.tree = bk.grown(self.tree)
        self._store_addresses()

    def grow_out(self) -> None:
        """Double the space for partners."""
        check_fits(len(self.out), FEWER_ROWS)
        self.out = np.concatenate([self.out, np.empty_like(self.out)])
        self.table[bk.Side.OUT], self.table[bk.Side.OUT_CAPACITY] = self.out.ctypes.data, len(self.out)

    def load(self, first: int, end: int) -> None:
        """Insert the tuples of these positions, which are stored already."""
        done = first
        while done < end:
            done = bk.insert_all(self.table.ctypes.data, done, end)
            if done < end:
                self.grow_tree()

    def expire(self, before: int) -> None:
        """Delete tuples that no later tuple can match."""
        bk.expire(self.table.ctypes.data, min(before, self._words.end))
        self._words.drop_before(int(self.tree[bk.OLDEST]))
        self._held.drop_before(int(self.tree[bk.OLDEST]))
        self._store_addresses()

    def matches(self, want_positions: bool) -> Matches:
        """The matches of the new tuples in this partition."""
        return Matches(self.counts, self.out[: int(self.table[bk.Side.OUT_USED])] if want_positions else None)


def _probe_arrays(part: SideProbes) -> tuple[Array, ...]:
    """What new tuples search, as the kernels read it."""
    probe = part.probes[0]
    low, high = (np.ascontiguousarray(_as_signed(words).T) for words in (probe.low, probe.high))
    begin, end = (np.ascontiguousarray(one, np.int64) for one in (part.begin, part.end))
    return np.ascontiguousarray(part.live), begin, end, low, high


def _merged(sides: list[_Side], want_positions: bool) -> Matches:
    """The matches of all partitions, in order."""
    if len(sides) == 1:
        return sides[0].matches(want_positions)
    counts: Array = np.sum([side.counts for side in sides], axis=0)
    if not want_positions:
        return Matches(counts, None)
    check_fits(int(counts.sum()), FEWER_ROWS)
    out = result_array(int(counts.sum()), np.int64)
    tables = np.array([address(side.table) for side in sides], np.int64)
    bk.merge_partitions(address(tables), len(sides), len(counts), address(out))
    return Matches(counts, out)


class BTreeIndex(JoinIndex):
    """A B+-tree per side and partition, probed and changed tuple by tuple."""

    options: ClassVar[Mapping[str, Option]] = {"partitions": Option(1, 1, MAX_PARTITIONS)}

    def __init__(self, context: IndexContext) -> None:
        """Empty trees."""
        super().__init__(context)
        parts = int(context.options.get("partitions", 1))
        self._sides = {side: [_Side(part, parts) for part in range(parts)] for side in SIDES}

    def load(self, side: Side, first: int, words: tuple[Array, ...], live: Mask) -> None:
        """Insert earlier tuples one by one."""
        signed = _as_signed(words[0])
        for own in self._sides[side]:
            own.append(first, signed, live)
            own.load(first, first + len(live))

    def step(self, batch: ProbeBatch, want_positions: bool) -> tuple[Matches, Matches]:
        """Run the per-tuple kernel over the new tuples, in every partition."""
        for name, part in (("r", batch.r), ("s", batch.s)):
            signed, probes = _as_signed(part.words[0]), _probe_arrays(part)
            for side in self._sides["s" if name == "s" else "r"]:
                side.append(part.first, signed, part.live)
                side.set_probes(part.first, probes, want_positions)
        self._join(np.ascontiguousarray(batch.order, np.uint8))
        found = [_merged(self._sides[side], want_positions) for side in SIDES]
        for name, keep in zip(SIDES, batch.keep, strict=True):
            for side in self._sides[name]:
                side.expire(keep)
        return found[0], found[1]

    def _join(self, order: Order) -> None:
        """Run all partitions. A kernel stops whenever an array must grow."""
        waiting = list(zip(self._sides["r"], self._sides["s"], strict=True))
        while waiting:
            runs = np.array([[address(order), len(order), address(r.table), address(s.table), 0] for r, s in waiting])
            if len(waiting) == 1:
                bk.run(address(runs))
            else:
                self.context.team.run(bk.run_partition, runs, len(waiting))
            stops = runs[:, bk.RunArgs.STOPPED].tolist()
            for (r, s), stop in zip(waiting, stops, strict=True):
                grow = {bk.TREE_R: r.grow_tree, bk.TREE_S: s.grow_tree, bk.OUT_R: r.grow_out, bk.OUT_S: s.grow_out}
                grow.get(stop, lambda: None)()
            waiting = [one for one, stop in zip(waiting, stops, strict=True) if stop != bk.DONE]

    def counters(self) -> dict[str, int]:
        """Node splits so far, of all trees."""
        return {"boundaries": sum(int(one.tree[bk.SPLITS]) for sides in self._sides.values() for one in sides)}
