"""`index="wib"`: WiB+-Tree, a subwindow as a B+-tree with wide unsorted leaves in an LLAT (PanJoin, III-C).

Slower than RaP-Table, but it needs no predecessor to learn from, and it stays balanced when keys drift, like ids and
timestamps. This class owns and enlarges the arrays; the kernels are in `wibtree_nodes.py` and `wibtree_kernel.py`.

Limits: no deletion, since a subwindow is dropped in one piece. Memory grows with the number of leaves: they are full
where keys increase or decrease, about two thirds full where keys are random, and a quarter full in the worst case.
"""

from __future__ import annotations

import numpy as np

from millrace.host.base.types import Array
from millrace.host.join.panjoin import wibtree_kernel as wk
from millrace.host.join.panjoin import wibtree_nodes as wn
from millrace.host.join.panjoin.llat import Llat, LlatStructure
from millrace.host.join.panjoin.llat_entries import NEXT, RIGHT, TAIL, LlatTable
from millrace.host.join.panjoin.llat_probe import Arrays, Scalars
from millrace.host.join.panjoin.subwindow import InsertBatch, StructureContext
from millrace.host.runtime.intrinsics import address
from millrace.host.runtime.jit import Share

LEAF = 64
"""Tuples of a leaf. Measured from 48 to 128: larger leaves insert, smaller ones probe up to a quarter faster."""
_FILL = 0.6
"""How full leaves are expected to be, a little below what random keys give (ln 2)."""
_GROWTH = 1.5
"""By which factor entries and nodes grow when they run out."""


class WibTree(LlatStructure):
    """A subwindow in a tree."""

    name = "wib"

    def __init__(self, context: StructureContext, first: int) -> None:
        """One empty leaf."""
        super().__init__(context, first)
        entries = int(context.capacity / (_FILL * LEAF)) + 2
        self.llat = llat = Llat(context.word, LEAF, entries)
        llat.metas[0, [NEXT, RIGHT]], llat.metas[0, TAIL] = -1, 0
        llat.table[LlatTable.POINTER] = 1
        self.table = address(llat.table)
        self._make_nodes(2 * entries // wn.FANOUT + wn.MAX_HEIGHT)

    def _make_nodes(self, nodes: int) -> None:
        self.keys = np.zeros((nodes, wn.FANOUT), self.context.word)
        self.children = np.zeros((nodes, wn.FANOUT), np.int32)
        self.fills = np.zeros(nodes, np.int32)
        table = self.llat.table
        table[wn.Wib.KEYS], table[wn.Wib.CHILDREN], table[wn.Wib.FILLS] = map(
            address, (self.keys, self.children, self.fills)
        )
        table[wn.Wib.NODES] = nodes

    def _grow(self) -> None:
        """Enlarge entries and nodes by the same factor."""
        keys, children, fills = self.keys, self.children, self.fills
        self.llat.grow(int(_GROWTH * self.llat.entries) + 1)
        self._make_nodes(int(_GROWTH * len(fills)))
        self.keys[: len(fills)], self.children[: len(fills)], self.fills[: len(fills)] = keys, children, fills

    def insert(self, batch: InsertBatch) -> None:
        """Insert a sorted batch. The kernel returns early when entries or nodes run out, and is then called again."""
        n = len(batch.words)
        done = wk.insert(self.table, batch.words, batch.ids, 0, self.like)
        while done < n:
            self._grow()
            done = wk.insert(self.table, batch.words, batch.ids, done, self.like)
        self._size += n

    def _probe_alone(self, job: Array, scalars: Scalars, arrays: Arrays) -> int:
        return wk.probe_alone(job, scalars, arrays, self.like)

    def _prober(self) -> Share:
        return wk.probe32 if self.context.word.itemsize == 4 else wk.probe64

    def counters(self) -> dict[str, int]:
        """The number of leaf splits."""
        return {"boundaries": int(self.llat.table[wn.Wib.SPLITS])}
