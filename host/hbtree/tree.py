"""The CPU-optimised HB+-Tree over sorted words: bulk-built, searched on all cores (thesis, appendix A, 4 and 5).

The layouts are in `layout.py`, the L-segment in `leaves.py`, the kernels in `search.py`. This class owns the arrays;
its interface uses words and positions: a position is the rank of a word in key order. Devices take `nodes` (the
I-segment) and return leaf lines; `leaf` continues from there. A tree never changes once built. Many threads may search
it at a time: one of them uses the helper threads, the others work alone. Limit: 2**31 keys.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from millrace.host.base.errors import ArgumentError
from millrace.host.base.types import Array
from millrace.host.hbtree import plain
from millrace.host.hbtree import search as hs
from millrace.host.hbtree import search_args as ha
from millrace.host.hbtree.build import build, build_nodes
from millrace.host.hbtree.directory import make_directory
from millrace.host.hbtree.layout import MAX_KEYS, LayoutName, level_starts, shape_of
from millrace.host.hbtree.leaves import Leaves
from millrace.host.hbtree.query_order import run_partitioned
from millrace.host.hbtree.search_call import run_few, run_search, tree_table
from millrace.host.runtime import pool
from millrace.host.runtime.jit import Share
from millrace.host.runtime.team import Team

Numbers = npt.NDArray[np.uint32]
Positions = npt.NDArray[np.int64]
MIN_SHARED = 1 << 11
"""Calls with fewer queries run on the caller's thread only."""
ALONE = Team(1)
"""The caller's thread."""


@contextmanager
def helpers(threads: int, work: int) -> Iterator[Team]:
    """A team for one call; it acquires the helper threads if there is enough work."""
    team = Team(threads)
    if work >= MIN_SHARED:
        team.acquire()
    try:
        yield team
    finally:
        team.depth = 0


class HBTree:
    """Sorted words and the inner nodes above them.

    `word`, `layout`, `size`, `fanout`, `per_line`, `levels` (inner levels), `last` (index in `nodes` of the last inner
    level) and `offsets` (first node of each inner level from the top, uint32) describe it; `nodes` is the I-segment as
    a flat array of words.
    """

    def __init__(
        self,
        leaves: Leaves,
        layout: LayoutName,
        hybrid: bool = False,
        threads: int | None = None,
        nodes: Array | None = None,
    ) -> None:
        """Build over filled leaves; `hybrid`: devices can walk the tree too. `nodes`: the I-segment, if known."""
        if leaves.size > MAX_KEYS:
            raise ArgumentError(f"{leaves.size:,} keys are too many; allowed are {MAX_KEYS:,}: split them by range")
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
        self.starts = make_directory(self.shape, nodes)

    @classmethod
    def of(cls, words: Array, layout: LayoutName, hybrid: bool = False, threads: int | None = None) -> HBTree:
        """Build over sorted words, which are copied."""
        with helpers(threads or pool.cores(), len(words)) as team:
            built = build(np.ascontiguousarray(words), 0, None, hybrid if layout == "implicit" else None, team)
        return cls(built.leaves, layout, hybrid, threads, built.nodes)

    @property
    def leaf_words(self) -> Array:
        """The sorted words, the last line padded with the largest: a copy if there are inline values."""
        return self.leaves.padded_words

    @property
    def nbytes(self) -> int:
        """Bytes of both segments, including inline values and the start directory."""
        starts = 0 if self.starts is None else self.starts.nbytes
        return int(self.nodes.nbytes + self.leaves.data.nbytes + starts)

    @cached_property
    def _table(self) -> Array:
        """The kernel arguments that describe the tree."""
        shape, item, leaves = self.shape, self.word.itemsize, self.leaves
        regular = self.layout == "regular"
        starts = level_starts(shape)
        bases = [0 if regular else start * item for start in starts]
        bases[-1] = shape.last * item
        ends = [start * item for start in [*starts[1:], shape.node_words]]
        fanout = 0 if regular else shape.fanout
        held = (leaves.data, shape.size, leaves.stride, leaves.width, leaves.per_leaf, self.starts)
        return tree_table(self.nodes, bases, ends, fanout, *held)

    def run(self, share: Share, queries: Array, /, flip: int = 0, **args: Any) -> int:
        """Run a kernel of `search.py` over queries."""
        if len(queries) < MIN_SHARED:
            return run_search(share, ALONE, self._table, queries, flip, **args)
        with helpers(self.threads, len(queries)) as team:
            return run_partitioned(share, team, self._table, self.starts, self.nbytes, queries, flip, args)

    def look_up_few(
        self, share: Share, raw: Array, flip: int, mask: Array | None, out: Any, bits: Any, mode: int
    ) -> int:
        """Look up at most `FEW` queries, into two Arrow buffers."""
        return run_few(share, self._table, raw, flip, mask, out, bits, mode)

    @property
    def _wide(self) -> bool:
        return self.word.itemsize == 8

    def walk(self, queries: Array, depth: int, at: Numbers | None = None, start: int = 0) -> Numbers:
        """Walk levels `start .. depth - 1` from nodes `at` (unused if `start` is 0); return nodes of level `depth`.

        Level `levels` is the leaf lines.
        """
        out = np.empty(len(queries), np.uint32)
        share = hs.search_64 if self._wide else hs.search_32
        self.run(share, queries, MODE=ha.NODES, START=start, DEPTH=depth, OUT=out, AT=0 if at is None else at)
        return out

    def leaf(self, queries: Array, leaves: Numbers, last: bool = False) -> Positions:
        """Positions of queries whose leaf lines are known: of the first equal word (or the last), -1 if none."""
        return self._search(queries, leaves, ha.LAST if last else ha.FIRST)

    def lower(self, queries: Array, leaves: Numbers) -> Positions:
        """The first position whose word is not below the query; `size` if there is none."""
        return self._search(queries, leaves, ha.LOWER)

    def lookup(self, queries: Array, last: bool = False) -> Positions:
        """`walk` all levels, then `leaf`."""
        if plain.without_kernels(self.size, len(queries)):
            return plain.find(self.leaves, queries, last)
        return self._search(queries, None, ha.LAST if last else ha.FIRST)

    def range(self, low: Array, high: Array) -> tuple[Positions, Positions]:
        """The first position not below `low[i]`, and the first one above `high[i]` (the start if `low` is above)."""
        if plain.without_kernels(self.size, len(low)):
            return plain.bounds(self.leaves, low, high)
        starts = self._search(low, None, ha.LOWER)
        return starts, self.ends(low, high, starts)

    def ends(self, low: Array, high: Array, starts: Positions) -> Positions:
        """The ends of ranges whose starts are known."""
        ends = np.empty(len(low), np.int64)
        self.run(hs.ends_64 if self._wide else hs.ends_32, low, HIGH=high, OUT=starts, ENDS=ends)
        return ends

    def _search(self, queries: Array, leaves: Numbers | None, mode: int) -> Positions:
        out = np.empty(len(queries), np.int64)
        args: dict[str, Any] = {"OUT": out, "MODE": mode}
        if leaves is not None:
            args |= {"START": self.levels, "AT": leaves}
        self.run(hs.search_64 if self._wide else hs.search_32, queries, **args)
        return out
