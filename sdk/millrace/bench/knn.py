"""Bench `knn`: nearest neighbours in tables and streams, against SciPy's `cKDTree`, pykdtree and scikit-learn.

- `query-…`: a full window is searched for 100,000 points; answers in query order. `…-sorted` peers get the queries
  sorted along a space-filling curve beforehand, outside of the measured time; we sort them inside.
- `build-…`: indexing the points, apart.
- `stream-…`: both sides get 10,000 rows per step; `…-rebuild` peers build their tree of the whole window again.
- `upkeep-…`: inserting and expiring in a full window, in points per second, against its searches (`search`).
- `shape-…`: clustered, duplicated and collinear points, and haversine, against uniform points in the plane (`uniform`).
- partitions: `knn_partitions.py`.

Neighbours are compared by row number; distances of the peers may differ in the last bit.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache, partial
from typing import Any

import numpy as np
import pyarrow as pa

import millrace as mr
from millrace.bench.harness import Answer, Case, Contender
from millrace.bench.knn_partitions import partition_cases
from millrace.bench.knn_runners import FixedSpeed, KnnRunner
from millrace.bench.options import Options
from millrace.bench.peers.nearest_trees import TREES, Points, Search
from millrace.host.knn.curve import Curve
from millrace.host.knn.index import PointIndex, PointQueries
from millrace.host.knn.metric import Metric
from millrace.host.runtime.pool import cores
from millrace.host.runtime.team import Team

POINTS, LARGE, QUERIES, SLIDE = 1_000_000, 10_000_000, 100_000, 10_000
QUICK = 20
"""Quick runs have so many times fewer points and queries."""
KS = (1, 10, 25)
STREAM_K = 25
STREAM_BAR = 300_000.0
SHAPES = ("clustered", "duplicated", "collinear", "haversine")
INDEX = "hilbert"


@dataclass(frozen=True)
class Workload:
    """Random points in a shape, the queries (of the same shape), and k."""

    points: int
    queries: int
    k: int
    shape: str = "uniform"

    @property
    def facts(self) -> dict[str, Any]:
        """What a result line says about the workload."""
        return {"points": self.points, "queries": self.queries, "k": self.k, "shape": self.shape}

    @property
    def metric(self) -> Metric:
        """The metric of the shape."""
        return "haversine" if self.shape == "haversine" else "euclidean"

    def rows(self, number: int, seed: int) -> Points:
        """Points of the shape, one per row."""
        return _points(self.shape, number, seed)


@cache
def _points(shape: str, number: int, seed: int) -> Points:
    rng = np.random.default_rng(seed)
    match shape:
        case "clustered":
            centres = np.random.default_rng(0).random((100, 2))
            return centres[rng.integers(0, 100, number)] + rng.normal(0, 1e-4, (number, 2))
        case "duplicated":
            return rng.integers(0, 300, (number, 2)).astype(np.float64)
        case "collinear":
            line = rng.random(number)
            return np.stack([line, line], axis=1)
        case "haversine":
            return np.stack([rng.uniform(-180, 180, number), np.degrees(np.arcsin(rng.uniform(-1, 1, number)))], axis=1)
    return rng.random((number, 2))


def cases(options: Options) -> Iterator[Case]:
    """All cases, small ones first."""
    small = QUICK if options.quick else 1
    queries = QUERIES // small
    for points in (POINTS // small,) if options.quick else (POINTS, LARGE):
        for k in KS if points < LARGE else KS[1:]:
            workload = Workload(points, queries, k)
            yield _case(
                f"query-{_short(points)}-k{k}", "queries/s", [_ours(HeldSearch, workload), *_trees(workload)], workload
            )
        yield _build_case(Workload(points, queries, 1))
    yield from _stream_cases(Workload(POINTS // small, SLIDE // small, STREAM_K))
    for shape in SHAPES:
        workload, uniform = (Workload(POINTS // small, queries, 10, one) for one in (shape, "uniform"))
        yield _case(
            f"shape-{shape}",
            "queries/s",
            [_ours(HeldSearch, workload), Contender("uniform", partial(HeldSearch, uniform), answers=False)],
            workload,
        )
    yield from partition_cases(POINTS // small, SLIDE // small, STREAM_K)


def _case(name: str, unit: str, contenders: list[Contender], workload: Workload) -> Case:
    return Case(name, unit, contenders, workload.facts, check_steps=1)


def _short(number: int) -> str:
    return f"{number // 1_000_000}M" if number >= 1_000_000 else f"{number // 1000}K"


def _ours(run: Callable[[Workload], Any], workload: Workload) -> Contender:
    return Contender(f"{INDEX} on cpu", partial(run, workload), INDEX, "cpu", "cpu")


def _trees(workload: Workload) -> Iterator[Contender]:
    for name, make in TREES.items():
        yield Contender(name, partial(TreeSearch, make, workload, False))
        yield Contender(f"{name}-sorted", partial(TreeSearch, make, workload, True))


def _build_case(workload: Workload) -> Case:
    peers = [Contender(name, partial(TreeBuild, make, workload), answers=False) for name, make in TREES.items()]
    return _case(f"build-{_short(workload.points)}", "points/s", [_ours(IndexBuild, workload), *peers], workload)


def _stream_cases(workload: Workload) -> Iterator[Case]:
    name = f"{_short(workload.points)}-k{workload.k}"
    peers = [Contender(f"{peer}-rebuild", partial(TreeStream, make, workload)) for peer, make in TREES.items()]
    bar = Contender("bar", partial(FixedSpeed, STREAM_BAR), answers=False)
    yield _case(f"stream-{name}", "tuples/s", [_ours(JoinStream, workload), *peers, bar], workload)
    searches = Contender("search", partial(Upkeep, workload, searched=True), answers=False)
    upkeep = Contender(f"{INDEX} on cpu", partial(Upkeep, workload, searched=False), INDEX, "cpu", "cpu", answers=False)
    yield _case(f"upkeep-{name}", "points/s", [upkeep, searches], workload)


def _table(points: Points) -> pa.Table:
    return pa.table({"x": np.ascontiguousarray(points[:, 0]), "y": np.ascontiguousarray(points[:, 1])})


class HeldSearch(KnnRunner):
    """`mr.KnnJoin` whose window holds all points: r's rows are searched, without payload."""

    def __init__(self, workload: Workload) -> None:
        """Fill the window and index it."""
        rows = f"{workload.points} rows"
        self._join = mr.KnnJoin(on=("x", "y"), k=workload.k, window=rows, metric=workload.metric, output="seqs")
        self._join.push("s", _table(workload.rows(workload.points, 1)))
        self._queries = _table(workload.rows(workload.queries, 2))
        self._join.push("r", self._queries)

    def step(self) -> tuple[float, float]:
        """Search for all queries."""
        start = time.perf_counter()
        self._found = self._join.push("r", self._queries)
        return self._queries.num_rows, time.perf_counter() - start

    def answer(self) -> Answer:
        """The row numbers of the neighbours, in query order."""
        return {"neighbours": self._found["s_seq"].to_numpy()}

    def close(self) -> None:
        """Free the window."""
        self._join.close()


class TreeSearch(KnnRunner):
    """A peer's tree; `sort`: the queries are sorted along a curve beforehand, and so are the answers."""

    def __init__(self, make: Callable[[Points], Search], workload: Workload, sort: bool) -> None:
        """Build the tree."""
        self._search, self._k = make(workload.rows(workload.points, 1)), workload.k
        queries = workload.rows(workload.queries, 2)
        self._back = np.arange(len(queries))
        if sort:
            columns = [np.ascontiguousarray(column) for column in queries.T]
            order = Curve(columns).order(columns, None, Team(1))
            queries, self._back = np.ascontiguousarray(queries[order]), np.argsort(order)
        self._queries = queries

    def step(self) -> tuple[float, float]:
        """Search for all queries."""
        start = time.perf_counter()
        self._found = self._search(self._queries, self._k)
        return len(self._queries), time.perf_counter() - start

    def answer(self) -> Answer:
        """The row numbers of the neighbours, in the queries' own order."""
        return {"neighbours": self._found[self._back].reshape(-1)}


class IndexBuild(KnnRunner):
    """Our index alone: the points are inserted, and one query has them indexed."""

    def __init__(self, workload: Workload) -> None:
        """Prepare the columns."""
        self._columns = [np.ascontiguousarray(column) for column in workload.rows(workload.points, 1).T]
        self._team = Team(cores())

    def step(self) -> tuple[float, float]:
        """Build the index; its nearest point is the answer."""
        count = len(self._columns[0])
        start = time.perf_counter()
        self._team.acquire(count)
        index = PointIndex(len(self._columns), self._team)
        index.insert(self._columns)
        self._found = index.query(PointQueries([column[:1] for column in self._columns]), 1).positions
        self._team.depth -= 1
        return count, time.perf_counter() - start


class TreeBuild(KnnRunner):
    """A peer's tree alone."""

    def __init__(self, make: Callable[[Points], Search], workload: Workload) -> None:
        """Prepare the points, and check that the peer is there."""
        make(workload.rows(100, 1))
        self._make, self._points = make, workload.rows(workload.points, 1)

    def step(self) -> tuple[float, float]:
        """Build the tree."""
        start = time.perf_counter()
        self._make(self._points)
        return len(self._points), time.perf_counter() - start


class Slides:
    """The rows of a stream: a window of points, then slides that repeat after two windows."""

    def __init__(self, workload: Workload) -> None:
        """Make all rows."""
        self.window, self.slide = workload.points, workload.queries
        self.points, self.queries = workload.rows(2 * self.window, 3), workload.rows(2 * self.window, 4)
        self.first = self.window

    def next(self) -> tuple[Points, Points]:
        """The next rows of s and of r."""
        part = slice(self.first, self.first + self.slide)
        self.first = part.stop if part.stop + self.slide <= len(self.points) else 0
        return self.points[part], self.queries[part]


class JoinStream(KnnRunner):
    """`mr.KnnJoin` with a full window; each step pushes a slide to both sides."""

    def __init__(self, workload: Workload) -> None:
        """Fill the window."""
        self._slides = Slides(workload)
        self._join = mr.KnnJoin(on=("x", "y"), k=workload.k, window=f"{workload.points} rows", output="seqs")
        self._join.push("s", _table(self._slides.points[: workload.points]))
        self._pushed = workload.points

    def step(self) -> tuple[float, float]:
        """Push s, then r."""
        s, r = self._slides.next()
        s_rows, r_rows = _table(s), _table(r)
        start = time.perf_counter()
        self._join.push("s", s_rows)
        self._found = self._join.push("r", r_rows)
        seconds = time.perf_counter() - start
        self._pushed += len(s)
        return len(s) + len(r), seconds

    def answer(self) -> Answer:
        """The neighbours' numbers, counted back from the newest point."""
        return {"neighbours": self._pushed - self._found["s_seq"].to_numpy()}

    def close(self) -> None:
        """Free the window."""
        self._join.close()


class TreeStream(KnnRunner):
    """A peer that builds its tree of the whole window again for each slide."""

    def __init__(self, make: Callable[[Points], Search], workload: Workload) -> None:
        """Fill the window."""
        make(workload.rows(100, 1))
        self._make, self._k, self._slides = make, workload.k, Slides(workload)
        self._window = self._slides.points[: workload.points].copy()

    def step(self) -> tuple[float, float]:
        """Move the window, build the tree, and search it."""
        s, r = self._slides.next()
        start = time.perf_counter()
        self._window = np.concatenate([self._window[len(s) :], s])
        self._found = self._make(self._window)(r, self._k)
        return len(s) + len(r), time.perf_counter() - start

    def answer(self) -> Answer:
        """The neighbours' numbers, counted back from the newest point."""
        return {"neighbours": (len(self._window) - self._found).reshape(-1)}


class Upkeep(KnnRunner):
    """Inserting and expiring slides in a full window, or searching it; points per second."""

    def __init__(self, workload: Workload, searched: bool) -> None:
        """Fill the index."""
        self._slides, self._searched, self._k = Slides(workload), searched, workload.k
        self._team = Team(cores())
        self._index = PointIndex(2, self._team)
        self._index.insert(_columns(self._slides.points[: workload.points]))

    def step(self) -> tuple[float, float]:
        """Insert a slide and have it indexed by one search, or search for a slide; times what is asked for."""
        s, r = (_columns(rows) for rows in self._slides.next())
        self._team.acquire(len(s[0]))
        start = time.perf_counter()
        self._index.insert(s)
        self._index.expire(self._index.end - self._slides.window)
        self._index.query(PointQueries([column[:1] for column in r]), 1)
        inserted = time.perf_counter()
        self._index.query(PointQueries(r), self._k)
        searched = time.perf_counter()
        self._team.depth -= 1
        return len(s[0]), searched - inserted if self._searched else inserted - start


def _columns(points: Points) -> list[Any]:
    return [np.ascontiguousarray(column) for column in points.T]
