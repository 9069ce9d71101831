"""`PointIndex`: the exact nearest neighbours among the points of a sliding window, for many queries at once.

This is the local searcher of ADS-kNN (thesis, appendix C): it inserts, expires and searches arrays, and knows nothing
of tables, streams or partitions. Points have positions, which number them in the order of arrival. They are held in
columns, in that order. Runs (`run.py`) index intervals of positions; the newest points, too few for a run, are
searched one by one. Runs of similar size are merged, so their number is logarithmic; a run is built again from the
columns, without the points that have expired, and is dropped as a whole once all have. There are no deletes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from millrace.host.base.faults import fault_point
from millrace.host.base.types import Array, Longs
from millrace.host.data.sliding import SlidingArray
from millrace.host.knn.best import LISTS
from millrace.host.knn.lanes import LINE_POINTS
from millrace.host.knn.run import PointRun, Points
from millrace.host.knn.search import search
from millrace.host.knn.search_args import MAX_LEVELS, RUN_WORDS, SearchArgs
from millrace.host.runtime.allocator import allocate, free, result_array
from millrace.host.runtime.team import Team

TAIL_ROWS = 1 << 11
"""Points that are searched one by one; more of them become a run."""
MIN_ORDERED = 64
"""Fewer queries are searched in their own order."""
QUERIES_PER_PART = 256
MAX_SEARCH_PARTS = 1 << 10
MERGE_RATIO = 2
"""Runs are merged with newer points if those are at least half as many."""


@dataclass(frozen=True)
class PointQueries:
    """Points to search for, in columns. `begin` and `end`: the positions that each may find (default: all).

    `own` is the position that a query must not find, `groups` the group of each query, `limits` the largest squared
    distance of each.
    """

    columns: list[Array]
    begin: Longs | None = None
    end: Longs | None = None
    own: Longs | None = None
    groups: Longs | None = None
    limits: Array | None = None

    def __len__(self) -> int:
        """Return the number of queries."""
        return len(self.columns[0])

    def take(self, rows: Longs, limits: Array | None = None) -> PointQueries:
        """Some of the queries, with these limits."""
        given = (self.begin, self.end, self.own, self.groups)
        begin, end, own, groups = (None if values is None else values[rows] for values in given)
        return PointQueries([column[rows] for column in self.columns], begin, end, own, groups, limits)


@dataclass(frozen=True)
class Neighbours:
    """For each query how many neighbours it has, and room for `k`: their positions and squared distances, in order."""

    counts: Longs
    positions: Array
    squares: Array

    @property
    def k(self) -> int:
        """The largest number of neighbours of a query."""
        return int(self.positions.shape[1])


class PointIndex:
    """The points of a window. A point with a NaN coordinate is held and never found."""

    def __init__(self, dims: int, team: Team, start: int = 0, grouped: bool = False, tied: bool = False) -> None:
        """An empty index whose first point has position `start`.

        `grouped`: a query finds points of its own group. `tied`: keys that are given order points at equal distances;
        otherwise their positions do.
        """
        self._team = team
        self._columns = [SlidingArray(np.float64, start) for _ in range(dims)]
        self._groups = SlidingArray(np.int64, start) if grouped else None
        self._ties = SlidingArray(np.int64, start) if tied else None
        self._runs: list[PointRun] = []
        self._indexed = start
        """The end of the last run: later points are only in columns."""
        self.builds = self.built_points = 0

    @property
    def first(self) -> int:
        """The oldest position held."""
        return self._columns[0].first

    @property
    def end(self) -> int:
        """The position that the next point will get."""
        return self._columns[0].end

    def close(self) -> None:
        """Free what is not in the memory of this process."""

    def insert(self, columns: list[Array], groups: Longs | None = None, ties: Longs | None = None) -> None:
        """Append points; a later query builds what it needs to find them."""
        for held, new in zip(self._columns, columns, strict=True):
            held.append(new)
        fault_point("knn.insert")
        for values, more in ((self._groups, groups), (self._ties, ties)):
            if values is not None:
                assert more is not None
                values.append(more)

    def expire(self, keep: int) -> None:
        """Drop the points below position `keep`, and the runs of which all points are dropped."""
        for array in (*self._columns, self._groups, self._ties):
            if array is not None:
                array.drop_before(keep)
        self._runs = [run for run in self._runs if run.end > keep]
        self._indexed = max(self._indexed, self.first)

    def query(self, queries: PointQueries, k: int, limit: float = np.inf) -> Neighbours:
        """Return the k nearest points of each query whose squared distance is at most `limit`.

        The intervals of visible positions never move back from one query to the next. A query with a NaN coordinate
        finds nothing. The caller has acquired the team.
        """
        n = len(queries)
        first, end = self._visible(queries)
        k = max(min(k, end - first), 1)
        counts = result_array(n, np.int64)
        squares, positions = result_array(n * k, np.float64), result_array(n * k, np.int64)
        if n and end > first:
            runs, scanned = self._parts_for(queries, first, end)
            fault_point("knn.query")
            self._run(queries, runs, (scanned, end), k, limit, (counts, squares, positions))
        else:
            counts[:] = 0
        return Neighbours(counts, positions.reshape(n, k), squares.reshape(n, k))

    def _visible(self, queries: PointQueries) -> tuple[int, int]:
        """Return the ends of all positions that some query may find."""
        if queries.begin is None or queries.end is None:
            return self.first, self.end
        if not len(queries):
            return self.end, self.end
        return max(int(queries.begin[0]), self.first), min(int(queries.end[-1]), self.end)

    def _parts_for(self, queries: PointQueries, first: int, end: int) -> tuple[list[PointRun], int]:
        """Return the runs to search, the largest first, and the position from which on points are compared.

        If every query sees few points, all are compared.
        """
        if queries.begin is not None and queries.end is not None:
            longest = int((queries.end - np.maximum(queries.begin, self.first)).max())
            if longest <= TAIL_ROWS:
                return [], first
        if end - self._indexed > TAIL_ROWS:
            self._add_run(end)
        runs = sorted((run for run in self._runs if run.end > first), key=len, reverse=True)
        return runs, max(first, self._indexed)

    def _add_run(self, end: int) -> None:
        """Index the points up to `end`, together with the last runs if those are not much larger."""
        start, kept = self._indexed, list(self._runs)
        while kept and kept[-1].end - max(kept[-1].first, self.first) <= MERGE_RATIO * (end - start):
            start = max(kept.pop().first, self.first)
        points = self._points(start, end)
        if len(points):
            kept.append(PointRun(points, self._team))
            self.builds += 1
            self.built_points += len(points)
        self._runs, self._indexed = kept, end

    def counters(self) -> dict[str, int]:
        """How many runs were built, and of how many points."""
        return {"builds": self.builds, "built_points": self.built_points}

    def held(self) -> Points:
        """A copy of all points held that can be found; their positions are those of this index."""
        points = self._points(self.first, self.end)
        return points.take(np.arange(len(points)))

    def _points(self, start: int, end: int) -> Points:
        """Return the points at these positions that can be found."""
        part = slice(start - self.first, end - self.first)
        columns = [column.view()[part] for column in self._columns]
        positions = np.arange(start, end)
        groups = None if self._groups is None else self._groups.view()[part]
        ties = positions if self._ties is None else self._ties.view()[part]
        usable = ~np.isnan(columns[0])
        if usable.all():
            return Points(columns, positions, ties, groups)
        positions = positions[usable]
        return Points(
            [column[usable] for column in columns],
            positions,
            positions if self._ties is None else ties[usable],
            None if groups is None else groups[usable],
        )

    def _run(
        self,
        queries: PointQueries,
        runs: list[PointRun],
        tail: tuple[int, int],
        k: int,
        limit: float,
        out: tuple[Array, Array, Array],
    ) -> None:
        """Search the runs, and the points at the positions `tail`."""
        n = len(queries)
        columns = np.ascontiguousarray(np.stack(queries.columns))
        order = self._order(queries, columns, runs)
        parts = max(min(n // QUERIES_PER_PART, MAX_SEARCH_PARTS), 1)
        scratch = allocate(parts * LISTS * k, np.int64)
        held = self._tail(*tail)
        intervals = [None if a is None else np.ascontiguousarray(a) for a in (queries.begin, queries.end)]
        words = [word for run in runs for word in self._words(run, queries)]
        given = SearchArgs.pack(
            *(words or [0]),
            COUNT=n,
            ORDER=order,
            DIMS=len(self._columns),
            STRIDE=n,
            QUERIES=columns,
            BEGIN=_or_zero(intervals[0]),
            END=_or_zero(intervals[1]),
            OWN=_or_zero(queries.own),
            GROUPS=_or_zero(queries.groups),
            K=k,
            LIMIT=int(np.float64(limit).view(np.int64)),
            LIMITS=_or_zero(queries.limits),
            SCRATCH=scratch,
            OUT_COUNTS=out[0],
            OUT_SQUARES=out[1],
            OUT_POSITIONS=out[2],
            **held,
            RUNS=len(runs),
        )
        self._team.run(search, given, parts)
        free(scratch)

    def _order(self, queries: PointQueries, columns: Array, runs: list[PointRun]) -> Array:
        """Return the numbers of the queries in the order of the largest run's curve; as given if they are few."""
        if len(queries) < MIN_ORDERED or not runs:
            return np.arange(len(queries), dtype=np.uint32)
        return runs[0].curve.order(list(columns), queries.groups, self._team)

    def _words(self, run: PointRun, queries: PointQueries) -> list[int | Array]:
        """Return the arguments of a run."""
        checked = queries.groups is not None or queries.own is not None
        if queries.begin is not None and queries.end is not None:
            checked |= int(queries.begin[-1]) > run.first or int(queries.end[0]) < run.end
        levels: list[int | Array] = [*run.levels, *([0] * (MAX_LEVELS - len(run.levels)))]
        own = (int(checked), len(run.levels), run.coordinates, run.positions, run.ties, _or_zero(run.groups))
        words: list[int | Array] = [*own, *levels]
        assert len(words) == RUN_WORDS
        return words

    def _tail(self, start: int, end: int) -> dict[str, Any]:
        """Return the arguments of the points that are compared one by one: a copy that may be read beyond its end."""
        part = slice(start - self.first, end - self.first)
        count = max(end - start, 0)
        columns = np.full((len(self._columns), count + LINE_POINTS), np.nan)
        positions = np.arange(start, start + count)
        for to, column in zip(columns, self._columns, strict=True):
            to[:count] = column.view()[part]
        return {
            "TAIL_FIRST": start,
            "TAIL_COUNT": count,
            "TAIL_STRIDE": count + LINE_POINTS,
            "TAIL_COLUMNS": columns,
            "TAIL_POSITIONS": positions,
            "TAIL_TIES": positions if self._ties is None else np.ascontiguousarray(self._ties.view()[part]),
            "TAIL_GROUPS": 0 if self._groups is None else np.ascontiguousarray(self._groups.view()[part]),
        }


def _or_zero(array: Array | None) -> Array | int:
    return 0 if array is None else np.ascontiguousarray(array)
