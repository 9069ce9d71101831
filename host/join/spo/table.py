"""SPO-Join of whole tables: all rows of one table search the other, which is loaded once.

First the partners of every row are counted, without enumerating them: by a sweep (`sweep_kernel.py`), or for a few rows
by scans. The counts are exact, so they give every row its part of the result, and choose how its partners are found:
few by minima or a scan (`search_kernel.py`), many by bitmaps (`bitmap_kernel.py`). Rows are independent: all threads
take slices of them. Limit: the partners of one step are written to one array.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from millrace.host.base.types import SIDES, Array, Ids, Mask, Positions, Side
from millrace.host.join.contract import IndexContext, Matches, ProbeBatch, SideProbes
from millrace.host.join.pair_memory import check_fits
from millrace.host.join.spo import bitmap_kernel as bk
from millrace.host.join.spo import search_kernel as sk
from millrace.host.join.spo import sweep_kernel as wk
from millrace.host.join.spo.groups import Groups
from millrace.host.join.spo.points import Bounds, Points
from millrace.host.runtime.allocator import allocate, free, result_array
from millrace.host.runtime.intrinsics import address

MIN_SWEEP = 256
"""For fewer queries than one per so many points, scans are faster than a sweep over all points."""
BLOCK_COST = 1200
"""About how long the bitmaps take for a query and a block of rows, in nanoseconds."""
QUERIES_PER_PART = 1 << 9
MIN_CHOSEN = 1 << 18
"""From so many queries on, a part has the queries of a range of rows, so that what it writes fits into the cache."""
CHOSEN_ROWS = 1 << 16
_NO_POSITIONS = np.zeros(0, np.int64)


@dataclass
class Table:
    """The rows of one side, as they were loaded, and their points once something searches them."""

    first: int
    words: tuple[Array, ...]
    live: Mask
    groups: Groups | None = None
    points: Points | None = None


@dataclass
class Ways:
    """How many queries were answered in each way."""

    grouped: int = 0
    swept: int = 0
    scanned: int = 0
    few: int = 0
    many: int = 0


@dataclass(frozen=True)
class Rectangles:
    """The ranges of all queries in rank space, `low <= rank < high` of both keys, by row."""

    a_low: Ids
    a_high: Ids
    b_low: Ids
    b_high: Ids
    sweeps: tuple[tuple[int, Bounds], ...]
    """The bounds of A that are not trivial, each with its sign in the count."""


class TableEngine:
    """Two tables, of which one is loaded and the rows of the other search it."""

    def __init__(self, context: IndexContext) -> None:
        """No rows yet."""
        self._team = context.team
        self._tables: dict[Side, Table] = {}
        self._ways = Ways()
        self._searches = {side: context.plan.searches[side][:2] for side in SIDES}

    def load(self, side: Side, first: int, words: tuple[Array, ...], live: Mask) -> None:
        """Keep the rows of a table."""
        if len(live):
            groups = Groups.of(words, live, first, self._searches[side], self._team)
            self._tables[side] = Table(first, words, live, groups)

    def step(self, batch: ProbeBatch, want_positions: bool) -> tuple[Matches, Matches]:
        """The partners of the rows of both sides; rows of a step are not searched themselves."""
        return self._search("s", batch.r, want_positions), self._search("r", batch.s, want_positions)

    def _search(self, searched: Side, part: SideProbes, want: bool) -> Matches:
        table = self._tables.get(searched)
        if table is None or not len(part):
            return Matches(np.zeros(len(part), np.int64), _NO_POSITIONS if want else None)
        if table.groups is not None:
            found = table.groups.matches(part, want)
            if found is not None:
                self._ways.grouped += len(part)
                return found
        if table.points is None:
            shapes = tuple(one.shape for one in self._searches[searched])
            table.points = Points.of(table.words, table.live, shapes, self._team)
        return _TableSearch(table.points, table.first, part, self._ways).matches(want)

    def close(self) -> None:
        """Drop the tables; their memory returns with the last reference."""
        self._tables.clear()

    def reason(self) -> str:
        """How the last queries were answered."""
        ways = self._ways
        if ways.grouped:
            return f"groups are small: {ways.grouped:,} rows were compared with all rows of their group"
        counted = "a sweep" if ways.swept >= ways.scanned else "scans"
        return (
            f"counts by {counted}; {ways.few:,} rows with few partners by minima or scans, "
            f"{ways.many:,} with many by bitmaps"
        )

    def counters(self) -> dict[str, int]:
        """How many queries were answered in each way."""
        return {f"spo_{name}": amount for name, amount in vars(self._ways).items()}


class _TableSearch:
    """One step: the queries of some rows against all points."""

    def __init__(self, points: Points, first: int, part: SideProbes, ways: Ways) -> None:
        self._points, self._first, self._part, self._ways = points, first, part, ways
        self._team, self._queries = points.team, len(part)

    def matches(self, want: bool) -> Matches:
        """Count, then find the partners if they are wanted."""
        boxes = self._rectangles()
        counts = allocate(self._queries, np.int64)
        counts[:] = 0
        if len(self._points):
            self._count(boxes, counts)
        if not want:
            return Matches(counts, None)
        offsets = allocate(self._queries + 1, np.int64)
        offsets[0] = 0
        np.cumsum(counts, out=offsets[1:])
        check_fits(int(offsets[-1]))
        partners, own = (result_array(int(offsets[-1]), np.int64) for _ in range(2))
        if offsets[-1]:
            self._find(boxes, counts, offsets, partners, own)
        return Matches(counts, partners, own)

    def _rectangles(self) -> Rectangles:
        """The queries' ranges as ranks. A query that can match nothing gets an empty range of B."""
        points, n, m = self._points, len(self._points), self._queries
        probe_a, probe_b = self._part.probes[1 if points.swapped else 0], self._part.probes[0 if points.swapped else 1]
        sweeps: list[tuple[int, Bounds]] = []
        a_low, a_high = np.zeros(m, np.uint32), np.full(m, n, np.uint32)
        b_low, b_high = np.zeros(m, np.uint32), np.full(m, n, np.uint32)
        if probe_a.shape != "at least":
            sweeps.append((1, points.a.bounds(probe_a, True, self._team)))
            a_high = sweeps[-1][1].ranks
        if probe_a.shape != "at most":
            sweeps.append((-1, points.a.bounds(probe_a, False, self._team)))
            a_low = sweeps[-1][1].ranks
        if probe_b.shape != "at least":
            b_high = points.b.bounds(probe_b, True, self._team).ranks
        if probe_b.shape == "at least":
            b_high = np.uint32(n) - points.b.bounds(probe_b, False, self._team).ranks
        elif probe_b.shape != "at most":
            b_low = points.b.bounds(probe_b, False, self._team).ranks
        empty = ~self._part.live | (a_low >= a_high) | (b_low >= b_high)
        for probe in (probe_a, probe_b):  # an empty range may have a high word that points have
            empty |= probe.low[0] > probe.high[0]
        if empty.any():
            b_low, b_high = np.where(empty, np.uint32(0), b_low), np.where(empty, np.uint32(0), b_high)
        return Rectangles(a_low, a_high, b_low, b_high, tuple(sweeps))

    def _count(self, boxes: Rectangles, counts: Array) -> None:
        n, m = len(self._points), self._queries
        if m * MIN_SWEEP < n:
            self._ways.scanned += m
            self._team.run(sk.count_rows, self._search_args(boxes, counts), -(-m // 4))
            return
        self._ways.swept += m
        if len(boxes.sweeps) == 1 and boxes.sweeps[0][0] < 0:  # all points, without those below the bound
            np.subtract(boxes.b_high, boxes.b_low, out=counts, casting="unsafe")
        one_sided, parts = self._points.one_sided, self._team.threads
        size = wk.local_size(n)
        for sign, bounds in boxes.sweeps:
            local = allocate(parts * size, np.uint8)
            local[:] = 0
            given = wk.SweepArgs.pack(
                VALUES=self._points.values,
                N=n,
                BOUNDS=bounds.ascending,
                ROWS=bounds.rows,
                M=m,
                LOWS=0 if one_sided else boxes.b_low,
                HIGHS=boxes.b_high,
                COUNTS=counts,
                SIGN=sign,
                LOCAL=local,
                LOCAL_SIZE=size,
            )
            self._team.run(wk.sweep, given, parts)
            free(local)

    def _search_args(self, boxes: Rectangles, counts: Array) -> Array:
        points = self._points
        levels, level_count = points.levels if points.one_sided else (0, 0)
        return sk.SearchArgs.partly(
            M=self._queries,
            ORDER=boxes.sweeps[0][1].rows,
            A_BOUNDS=boxes.sweeps[0][1].ascending,
            A_UPPER=int(boxes.sweeps[0][0] > 0),
            A_OTHERS=boxes.a_low if len(boxes.sweeps) > 1 else 0,
            A_LOW=boxes.a_low,
            A_HIGH=boxes.a_high,
            B_LOW=boxes.b_low,
            B_HIGH=boxes.b_high,
            N=len(points),
            VALUES=points.values,
            A_ROWS=points.a_rows,
            LEVELS=levels,
            LEVEL_COUNT=level_count,
            RANKS=0 if points.one_sided else points.ranks,
            B_ROWS=points.b_rows,
            COUNTS=counts,
            FIRST=self._first,
            OWN_FIRST=self._part.first,
        )

    def _find(self, boxes: Rectangles, counts: Positions, offsets: Array, partners: Array, own: Array) -> None:
        """Write all partners: those of rows with few of them, then block by block those of the others."""
        limit = BLOCK_COST * -(-self._points.row_count // bk.BLOCK)
        given = self._search_args(boxes, counts)
        fields = sk.SearchArgs
        given[[fields.OFFSETS, fields.LIMIT]] = address(offsets), limit
        given[[fields.PARTNERS, fields.OWN]] = address(partners), address(own)
        parts = -(-self._queries // QUERIES_PER_PART)
        costs = allocate(self._queries, np.int64)
        self._team.run(sk.estimate_costs, sk.CostArgs.pack(SEARCH=given, COSTS=costs), parts)
        self._team.run(sk.fill_own, given, parts)
        self._find_few(given, parts)
        many = int(np.count_nonzero(costs > limit))
        self._ways.many += many
        self._ways.few += int(np.count_nonzero(counts)) - many
        if many:
            order = boxes.sweeps[0][1].rows
            # In order of A, so that successive queries read the same bitmap of A.
            rows = order[costs[order] > limit].astype(np.int64)
            self._find_many(given, rows, offsets[rows])

    def _find_few(self, search: Array, parts: int) -> None:
        """Write the partners of rows with few of them. A part of a large table writes to a range of rows alone."""
        if self._queries < MIN_CHOSEN:
            self._team.run(sk.find_rows, search, parts)
            return
        parts = max(-(-self._queries // CHOSEN_ROWS), 4 * self._team.threads)
        chosen = allocate(self._queries + parts, np.uint32)
        search[sk.SearchArgs.CHOSEN] = address(chosen)
        self._team.run(sk.find_rows, search, parts)
        free(chosen)

    def _find_many(self, search: Array, many: Array, offsets: Array) -> None:
        """Write the partners of rows with many of them, one block of points after the other."""
        bitmaps = [allocate(bk.CHECKPOINTS * bk.WORDS, np.int64) for _ in range(2)]
        parts = min(-(-len(many) // 16), 4 * self._team.threads)
        local = allocate(parts * 2 * bk.WORDS, np.int64)
        local[:] = 0
        for number, keys in self._points.blocks.items():
            for key, bits in zip(keys, bitmaps, strict=True):
                key[bk.BlockArgs.BITMAPS] = address(bits)
            given = bk.BitmapArgs.pack(
                A=keys[0],
                B=keys[1],
                SEARCH=search,
                MANY=many,
                M=len(many),
                NEXT=offsets,
                FIRST=self._first + number * bk.BLOCK,
                WORDS=min(-(-(self._points.row_count - number * bk.BLOCK) // 64), bk.WORDS),
                LOCAL=local,
            )
            self._team.run(bk.build, given, 2)
            self._team.run(bk.find_many, given, parts)
        for scratch in (*bitmaps, local):
            free(scratch)
