"""The CPU-optimised HB+-Tree over sorted words: bulk-built, searched on all cores (thesis, appendix A, 4 and 5).

The layouts are in `hbtree_layout`, the L-segment in `hbtree_leaves`, the kernels in `hbtree_search`. This class owns
the arrays and speaks in words and positions: a position is a word's place in key order. Devices take `nodes` (the
I-segment) and give leaf lines; `leaf` goes on from there. A tree never changes once built, and many threads may search
it at a time: one of them has the helpers, the others work alone meanwhile. Limit: 2**31 keys.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import numpy.typing as npt

from millrace.host.base.errors import ArgumentError
from millrace.host.base.types import Array
from millrace.host.hbtree import search as hs
from millrace.host.hbtree.build import build, build_nodes, level_starts
from millrace.host.hbtree.directory import make_starts
from millrace.host.hbtree.layout import MOST_KEYS, LayoutName, shape_of
from millrace.host.hbtree.leaves import Leaves
from millrace.host.hbtree.query_order import run_led
from millrace.host.hbtree.search_call import tree_table
from millrace.host.runtime import pool
from millrace.host.runtime.jit import Share
from millrace.host.runtime.team import Team

Numbers = npt.NDArray[np.uint32]
Positions = npt.NDArray[np.int64]
LEAST_SHARED = 1 << 11
"""Calls of fewer queries are worked off by the caller's thread alone."""


@contextmanager
def helpers(threads: int, work: int) -> Iterator[Team]:
    """A team for one call, roused if there is enough work."""
    team = Team(threads)
    if work >= LEAST_SHARED:
        team.rouse()
    try:
        yield team
    finally:
        team.rest()


class HBTree:
    """Sorted words and the inner nodes above them.

    `word`, `layout`, `size`, `fanout`, `per_line`, `levels` (inner levels), `last` (the word of `nodes` where the last
    inner level begins) and `offsets` (first node of each inner level from the top, uint32) describe it; `nodes` is the
    I-segment, flat words.
    """

    def __init__(
        self,
        leaves: Leaves,
        layout: LayoutName,
        hybrid: bool = False,
        threads: int | None = None,
        nodes: Array | None = None,
    ) -> None:
        """Over filled leaves; `hybrid`: devices walk the tree too. `nodes`: the I-segment if it is there already."""
        if leaves.size > MOST_KEYS:
            raise ArgumentError(f"{leaves.size:,} keys are too many; allowed are {MOST_KEYS:,}: split them by range")
        self.leaves = leaves
        self.shape = shape_of(layout, leaves.word, leaves.size, hybrid, leaves.per_leaf)
        self.word, self.layout, self.size = leaves.word, layout, leaves.size
        self.hybrid, self.fanout, self.per_line = hybrid, self.shape.fanout, self.shape.per_line
        self.levels, self.last, self.offsets = self.shape.levels, self.shape.last, self.shape.offsets
        self.threads = min(threads or pool.cores(), pool.size())
        if nodes is None:
            with helpers(self.threads, leaves.size) as team:
                nodes = build_nodes(self.shape, leaves, team)
        self.nodes = nodes
        self.starts = make_starts(self.shape, nodes)
        self._table = self._tree_table()

    @classmethod
    def of(cls, words: Array, layout: LayoutName, hybrid: bool = False, threads: int | None = None) -> HBTree:
        """Over sorted words, which are copied."""
        with helpers(threads or pool.cores(), len(words)) as team:
            built = build(np.ascontiguousarray(words), 0, None, hybrid if layout == "implicit" else None, team)
        return cls(built.leaves, layout, hybrid, threads, built.nodes)

    @property
    def leaf_words(self) -> Array:
        """The sorted words, the last line filled up with the largest: a copy if values lie between the lines."""
        return self.leaves.padded_words

    @property
    def nbytes(self) -> int:
        """Bytes of both segments, values beside the words and the directory of starts included."""
        starts = 0 if self.starts is None else self.starts.nbytes
        return int(self.nodes.nbytes + self.leaves.data.nbytes + starts)

    def _tree_table(self) -> Array:
        """What kernels know of the tree."""
        shape, item, leaves = self.shape, self.word.itemsize, self.leaves
        regular = self.layout == "regular"
        starts = level_starts(shape)
        bases = [0 if regular else start * item for start in starts]
        bases[-1] = shape.last * item
        ends = [start * item for start in [*starts[1:], shape.node_words]]
        fanout = 0 if regular else shape.fanout
        held = (leaves.data, shape.size, leaves.stride, leaves.width, leaves.per_leaf, self.starts)
        return tree_table(self.nodes, bases, ends, fanout, *held)

    def run(self, share: Share, queries: Array, /, flip: int = 0, **given: Any) -> int:
        """Run a kernel of `hbtree_search` over queries."""
        with helpers(self.threads, len(queries)) as team:
            return run_led(share, team, self._table, self.starts, self.nbytes, queries, flip, given)

    @property
    def _wide(self) -> bool:
        return self.word.itemsize == 8

    def walk(self, queries: Array, depth: int, at: Numbers | None = None, start: int = 0) -> Numbers:
        """Walk levels `start .. depth - 1` from nodes `at` (not read if `start` is 0); the nodes in level `depth`.

        Level `levels` are the leaf lines.
        """
        out = np.empty(len(queries), np.uint32)
        share = hs.search_64 if self._wide else hs.search_32
        self.run(share, queries, MODE=hs.NODES, START=start, DEPTH=depth, OUT=out, AT=0 if at is None else at)
        return out

    def leaf(self, queries: Array, leaves: Numbers, last: bool = False) -> Positions:
        """Positions of queries whose leaf lines are known: of the first equal word (or the last), -1 if none."""
        return self._search(queries, leaves, hs.LAST if last else hs.FIRST)

    def lower(self, queries: Array, leaves: Numbers) -> Positions:
        """The first position whose word is not below the query; `size` if there is none."""
        return self._search(queries, leaves, hs.LOWER)

    def lookup(self, queries: Array, last: bool = False) -> Positions:
        """`walk` all levels, then `leaf`."""
        return self._search(queries, None, hs.LAST if last else hs.FIRST)

    def range(self, low: Array, high: Array) -> tuple[Positions, Positions]:
        """The first position not below `low[i]`, and the first one above `high[i]` (the start if `low` is above)."""
        starts = self._search(low, None, hs.LOWER)
        return starts, self.ends(low, high, starts)

    def ends(self, low: Array, high: Array, starts: Positions) -> Positions:
        """Where ranges end whose starts are known."""
        ends = np.empty(len(low), np.int64)
        self.run(hs.ends_64 if self._wide else hs.ends_32, low, HIGH=high, OUT=starts, ENDS=ends)
        return ends

    def _search(self, queries: Array, leaves: Numbers | None, mode: int) -> Positions:
        out = np.empty(len(queries), np.int64)
        given: dict[str, Any] = {"OUT": out, "MODE": mode}
        if leaves is not None:
            given |= {"START": self.levels, "AT": leaves}
        self.run(hs.search_64 if self._wide else hs.search_32, queries, **given)
        return out
