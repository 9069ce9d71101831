"""`index="wib"`: WiB+-Tree, a subwindow as a B+-tree with wide unsorted leaves in an LLAT (PanJoin, III-C).

Slower than RaP-Table, but it needs no predecessor to learn from, and keys that wander, like ids and timestamps, stay
balanced. The kernels are in `wibtree_kernel.py`; here the arrays they work on are owned and grown.

Limits: no deletion, as the whole subwindow goes. Memory grows with the leaves there are: full ones where keys
increase or decrease, some two thirds full where they are random, a quarter full at worst.
"""

from __future__ import annotations

import numpy as np

from millrace.host.base.types import Array
from millrace.host.join.panjoin import wibtree_kernel as wk
from millrace.host.join.panjoin.llat import NEXT, POINTER, RIGHT, TAIL, Arrays, Llat, LlatStructure, Scalars
from millrace.host.join.panjoin.subwindow import Batch, Site
from millrace.host.runtime.intrinsics import address
from millrace.host.runtime.jit import Share

LEAF = 64
"""Tuples of a leaf. Of 48 to 128 measured, larger ones insert up to a quarter faster, smaller ones probe as much."""
_FILL = 0.6
"""How full leaves are expected to be, a little below what random keys give (ln 2)."""
_GROWTH = 1.5
"""How many times more entries or nodes there are after they did not suffice."""


class WibTree(LlatStructure):
    """A subwindow in a tree."""

    name = "wib"

    def __init__(self, site: Site, first: int) -> None:
        """One empty leaf."""
        super().__init__(site, first)
        entries = int(site.capacity / (_FILL * LEAF)) + 2
        self.llat = llat = Llat(site.word, LEAF, entries)
        llat.metas[0, [NEXT, RIGHT]], llat.metas[0, TAIL] = -1, 0
        llat.table[POINTER] = 1
        self.table = address(llat.table)
        self._make_nodes(2 * entries // wk.FANOUT + wk.DEEPEST)

    def _make_nodes(self, nodes: int) -> None:
        self.keys = np.zeros((nodes, wk.FANOUT), self.site.word)
        self.children = np.zeros((nodes, wk.FANOUT), np.int32)
        self.fills = np.zeros(nodes, np.int32)
        table = self.llat.table
        table[wk.KEYS], table[wk.CHILDREN], table[wk.FILLS] = map(address, (self.keys, self.children, self.fills))
        table[wk.NODES] = nodes

    def _grow(self) -> None:
        """More entries, and more nodes in the same measure."""
        keys, children, fills = self.keys, self.children, self.fills
        self.llat.grow(int(_GROWTH * self.llat.entries) + 1)
        self._make_nodes(int(_GROWTH * len(fills)))
        self.keys[: len(fills)], self.children[: len(fills)], self.fills[: len(fills)] = keys, children, fills

    def insert(self, batch: Batch) -> None:
        """Put a sorted batch in; the kernel comes back when entries or nodes do not suffice."""
        n = len(batch.words)
        done = wk.insert(self.table, batch.words, batch.ids, 0, self.like)
        while done < n:
            self._grow()
            done = wk.insert(self.table, batch.words, batch.ids, done, self.like)
        self._size += n

    def _probe_alone(self, job: Array, scalars: Scalars, arrays: Arrays) -> int:
        return wk.probe_alone(job, scalars, arrays, self.like)

    def _prober(self) -> Share:
        return wk.probe32 if self.site.word.itemsize == 4 else wk.probe64

    def counters(self) -> dict[str, int]:
        """Leaves split off."""
        return {"boundaries": int(self.llat.table[wk.SPLITS])}
