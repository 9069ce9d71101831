"""A table's rows as points in rank space: its two keys replaced by ranks, built once and searched by many queries.

Key A orders the points; key B is the value that is compared. If one of the keys is searched one-sidedly, it becomes B,
counted so that a query wants the ranks below a bound: then minima lead to the matches (`search_kernel.py`).
Limit: 2^31 rows.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from millrace.host.base.types import Array, Ids, Mask
from millrace.host.base.words import all_true
from millrace.host.expr.plan import KeyShape
from millrace.host.join.contract import KeyProbe
from millrace.host.join.spo import bitmap_kernel as bk
from millrace.host.join.spo import rank_kernel as rk
from millrace.host.join.spo import search_kernel as sk
from millrace.host.kernels.word_sorter import sort_words
from millrace.host.runtime.allocator import allocate, free
from millrace.host.runtime.intrinsics import MASK_LANES, address
from millrace.host.runtime.team import Team

_LARGEST = np.uint32(0xFFFFFFFF)
ONE_SIDED: tuple[KeyShape, ...] = ("at most", "at least")


@dataclass(frozen=True)
class Bounds:
    """One side of the ranges of all queries, as ranks: by row, and in ascending order with the rows."""

    ranks: Ids
    ascending: Ids
    rows: Ids


@dataclass(frozen=True)
class SortedKey:
    """A key of the points: its words in ascending order, and the points' numbers in that order."""

    words: Array
    order: Ids
    shape: KeyShape

    def bounds(self, probe: KeyProbe, upper: bool, team: Team) -> Bounds:
        """The ranks of the queries' lower bounds (words below it), or upper bounds (words up to it)."""
        given = np.ascontiguousarray((probe.high if upper else probe.low)[0])
        words, rows = sort_words(given, team)
        m = len(words)
        ranks, ascending = allocate(m, np.uint32), allocate(m, np.uint32)
        packed = rk.BoundArgs.pack(
            BOUNDS=words,
            ROWS=rows,
            M=m,
            WORDS=self.words,
            N=len(self.words),
            UPPER=int(upper),
            SORTED=ascending,
            RANKS=ranks,
        )
        team.run(rk.find_bounds_64 if self.words.itemsize == 8 else rk.find_bounds_32, packed)
        free(words)
        return Bounds(ranks, ascending, rows)


@dataclass
class Points:
    """All live rows of a table, sorted by both keys."""

    a: SortedKey
    b: SortedKey
    swapped: bool
    """Whether A is the second key of the plan."""
    values: Ids
    """The rank of B of each point, in order of A; padded to full vectors."""
    a_rows: Ids
    b_rows: Ids
    """Row numbers of the points in order of A and of B."""
    row_count: int
    """Rows of the table, those that cannot match included."""
    team: Team
    _memory: list[Array] = field(default_factory=list)

    @staticmethod
    def of(words: tuple[Array, ...], live: Mask, shapes: tuple[KeyShape, ...], team: Team) -> Points:
        """Sort the live rows by both keys, and replace words by ranks."""
        rows = None if all_true(live) else np.flatnonzero(live).astype(np.uint32)
        swapped = shapes[0] in ONE_SIDED and shapes[1] not in ONE_SIDED
        first, second = (1, 0) if swapped else (0, 1)
        a, b = (_sorted(words[i], rows, shapes[i], team) for i in (first, second))
        n = len(a.order)
        order_b = b.order if b.shape != "at least" else b.order[::-1].copy()
        ranks, values = allocate(n, np.uint32), _padded(n)
        team.run(rk.invert, rk.InvertArgs.pack(ORDER=order_b, N=n, RANKS=ranks))
        team.run(rk.gather_values, rk.ValueArgs.pack(ORDER=a.order, N=n, RANKS=ranks, OUT=values))
        free(ranks)
        a_rows, b_rows = (order if rows is None else rows[order] for order in (a.order, order_b))
        return Points(a, SortedKey(b.words, order_b, b.shape), swapped, values, a_rows, b_rows, len(live), team)

    def __len__(self) -> int:
        """The number of points."""
        return len(self.a.order)

    @property
    def one_sided(self) -> bool:
        """Whether queries want all ranks of B below a bound."""
        return self.b.shape in ONE_SIDED

    @cached_property
    def levels(self) -> tuple[Array, int]:
        """The addresses of the levels of minima over the values, the values first, and their number."""
        level, below = len(self), self.values
        self._memory.append(below)
        addresses = [address(below)]
        while level > MASK_LANES:
            level = -(-level // MASK_LANES)
            above = _padded(level)
            self.team.run(sk.next_level, sk.MinimaArgs.pack(BELOW=below, COUNT=level, OUT=above))
            self._memory.append(above)
            addresses.append(address(above))
            below = above
        return np.array(addresses, np.int64), len(addresses)

    @cached_property
    def ranks(self) -> Ids:
        """The rank of A of each point, in order of B."""
        inverse, ranks = allocate(len(self), np.uint32), _padded(len(self))
        self.team.run(rk.invert, rk.InvertArgs.pack(ORDER=self.a.order, N=len(self), RANKS=inverse))
        given = rk.ValueArgs.pack(ORDER=self.b.order, N=len(self), RANKS=inverse, OUT=ranks)
        self.team.run(rk.gather_values, given)
        free(inverse)
        return ranks

    @cached_property
    def blocks(self) -> dict[int, tuple[Array, Array]]:
        """The points of each block of rows in order of A and in order of B, as arguments of the bitmap kernels."""
        blocks: dict[int, list[Array]] = {}
        n = len(self)
        for rows, values in ((self.a_rows, self.values[:n]), (self.b_rows, self.ranks[:n])):
            numbers = (rows >> bk.BLOCK_BITS).astype(np.uint16)
            own = np.argsort(numbers, kind="stable").astype(np.uint32)
            counts = np.bincount(numbers)
            for block, stop in enumerate(np.cumsum(counts).tolist()):
                mine = own[stop - int(counts[block]) : stop]
                if len(mine):
                    blocks.setdefault(block, []).append(self._block(mine, values[mine], rows[mine]))
        return {number: (parts[0], parts[1]) for number, parts in blocks.items()}

    def _block(self, own: Array, others: Array, rows: Array) -> Array:
        """The arguments of one key of a block."""
        n = len(own)
        arrays: list[Array] = [_padded(n), _padded(n), (rows & np.uint32(bk.BLOCK - 1)).astype(np.uint16)]
        arrays[0][:n], arrays[1][:n] = own, others
        self._memory += arrays
        return bk.BlockArgs.pack(POINTS=n, OWN=arrays[0], OTHER=arrays[1], ROWS=arrays[2], BITMAPS=0)


def _sorted(words: Array, rows: Ids | None, shape: KeyShape, team: Team) -> SortedKey:
    return SortedKey(*sort_words(words if rows is None else words[rows], team), shape)


def _padded(n: int) -> Ids:
    """Memory for `n` ranks; those beyond them, up to full vectors, are the largest number."""
    array = allocate(-(-max(n, 1) // MASK_LANES) * MASK_LANES, np.uint32)
    array[n:] = _LARGEST
    return array
