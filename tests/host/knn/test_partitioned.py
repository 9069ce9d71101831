"""Partitions against one index, bit for bit: every map, replacement and number of threads, while the data shifts."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from millrace.host.base.types import Array
from millrace.host.knn import balance, partitioned
from millrace.host.knn.index import Neighbours, PointIndex, PointQueries
from millrace.host.knn.join_core import Found, JoinCore, PointShape
from millrace.host.knn.mapper_joiner import Done, MapperJoiner, Request, Response, Search, Subtask, Task
from millrace.host.knn.maps import MAP_KINDS, RoundRobin
from millrace.host.knn.partitioned import REPLACEMENTS, PartitionedIndex, Partitioning, open_index
from millrace.host.knn.run import Points
from millrace.host.runtime.team import Team


def as_lists(found: Neighbours) -> list[Any]:
    rows = zip(found.counts, found.positions.tolist(), found.squares.tolist(), strict=True)
    return [list(zip(p[:n], s[:n], strict=True)) for n, p, s in rows]


class Pair:
    """Two indexes that get the same calls: one partitioned, one not."""

    def __init__(self, how: Partitioning, shape: PointShape, start: int = 0) -> None:
        self.ours = PartitionedIndex(how, shape, start)
        self.plain = PointIndex(shape.dims, Team(1), start, shape.grouped, shape.tied)
        self.indexes: list[Any] = [self.ours, self.plain]

    def insert(self, *given: Any) -> None:
        for one in self.indexes:
            one.insert(*given)

    def expire(self, keep: int) -> None:
        for one in self.indexes:
            one.expire(keep)
        assert (self.ours.first, self.ours.end) == (self.plain.first, self.plain.end)

    def check(self, queries: PointQueries, k: int, limit: float = np.inf) -> None:
        found, expected = (as_lists(one.query(queries, k, limit)) for one in self.indexes)
        assert found == expected


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(partitioned, "TASK_ROWS", 60)
    monkeypatch.setattr(partitioned, "MIN_SHARED_ROWS", 0)
    monkeypatch.setattr(balance, "INTERVAL_LOAD", 50)


def shifting(rng: np.random.Generator, step: int, count: int, dims: int) -> Array:
    """A cloud that moves; on a grid, so that distances tie."""
    return np.round(rng.normal(0.15 * step, 1, (dims, count)), 1)


@pytest.mark.parametrize("replace", REPLACEMENTS)
@pytest.mark.parametrize("kind", MAP_KINDS)
@pytest.mark.parametrize("threads", [1, 3])
def test_a_shifting_window(kind: Any, replace: Any, threads: int) -> None:
    rng = np.random.default_rng(threads)
    shape = PointShape(2 + threads % 2, grouped=replace == "lazy", tied=kind == "kdtree")
    pair = Pair(Partitioning(5, kind, replace, threads), shape, start=11)
    seen = 11
    for step in range(16):
        points, queries = (shifting(rng, step, int(rng.integers(0, 400)), shape.dims) for _ in range(2))
        points[:, rng.random(points.shape[1]) < 0.03] = np.nan
        queries[:, rng.random(queries.shape[1]) < 0.03] = np.nan
        n, m = points.shape[1], queries.shape[1]
        groups = rng.integers(0, 2, n) if shape.grouped else None
        ties = rng.permutation(n) + 1000 * step if shape.tied else None
        pair.insert(list(points), groups, ties)
        end = np.sort(rng.integers(pair.plain.end - n, pair.plain.end + 1, m))
        begin = np.maximum(end - 700, seen)
        seen = int(begin[-1]) if m else seen
        mine: Any = rng.integers(0, 2, m) if shape.grouped else None
        pair.check(PointQueries(list(queries), begin, end, groups=mine), 5, float(rng.choice([np.inf, 0.09])))
        pair.expire(seen)
        assert pair.ours.maps_in_use <= partitioned.MAX_MAPS
    counts = pair.ours.counters()
    assert counts["home"] > 0
    assert counts["neighbour"] > 0
    assert counts["builds"] == counts["built_points"] == 0  # too few points for a run
    adapts = kind != "roundrobin" and replace != "never"
    assert (counts["maps"] > 1) == adapts
    assert (counts["moved"] > 0) == (adapts and replace == "instant")
    assert int(pair.ours.loads.sum()) > counts["home"] + counts["neighbour"]


@pytest.mark.parametrize("kind", MAP_KINDS)
def test_a_table_with_more_points_than_a_run(kind: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(partitioned, "TASK_ROWS", 5000)
    rng = np.random.default_rng(5)
    points = rng.random((2, 20000))
    pair = Pair(Partitioning(3, kind, "instant", 2), PointShape(2))
    pair.insert(list(points))
    own = rng.integers(0, 20000, 3000)
    pair.check(PointQueries(list(points[:, own]), own=own), 9)
    pair.check(PointQueries(list(rng.random((2, 500)))), 70, 0.01)
    assert pair.ours.counters()["builds"] > 0


@pytest.mark.parametrize("shape", ["equal", "line", "few"])
@pytest.mark.parametrize("kind", MAP_KINDS)
def test_points_that_no_map_can_divide(kind: Any, shape: str) -> None:
    rng = np.random.default_rng(6)
    count = 3 if shape == "few" else 600
    points = np.repeat(rng.random((1, count)), 2, axis=0) if shape == "line" else np.ones((2, count))
    pair = Pair(Partitioning(4, kind, "instant", 2), PointShape(2))
    pair.insert(list(points))
    for _ in range(4):
        pair.check(PointQueries(list(points)), 4)
    assert pair.ours.counters()["maps"] <= (1 if shape != "line" else 2)


def test_an_error_in_a_thread_is_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any) -> Any:
        raise KeyboardInterrupt

    index = PartitionedIndex(Partitioning(4, threads=3), PointShape(2))
    index.insert([np.zeros(50), np.arange(50.0)])
    monkeypatch.setattr(JoinCore, "search", fail)
    with pytest.raises(KeyboardInterrupt):
        index.query(PointQueries([np.zeros(500), np.arange(500.0)]), 2)


def test_one_partition_needs_no_plan() -> None:
    assert isinstance(open_index(Partitioning(), PointShape(2), Team(1)), PointIndex)


def _task(number: int, points: Array, queries: Array, found: Found, cores: int, oldest: int = 0) -> Task:
    positions = np.arange(2) + 2 * number
    search = Search(1, np.inf, (RoundRobin(cores),), found)
    rows = np.arange(queries.shape[1])
    return Task(number, search, oldest, Points(list(points), positions, positions), rows, PointQueries(list(queries)))


def test_early_subtasks_and_requests_wait() -> None:
    found = Found.room(1, 1, False)
    query = np.full((2, 1), 3.0)
    tasks = [_task(i, np.full((2, 2), float(i + 1)), query, found, 2) for i in range(2)]
    mapper, core = (MapperJoiner(i, 2, PointShape(2)) for i in range(2))
    subtasks = [dict(mapper.handle(task)) for task in tasks]
    assert all(isinstance(one, Subtask) for both in subtasks for one in both.values())
    request = Request(tasks[1], 0, np.array([0]), PointQueries(list(query), limits=np.array([4.0])))
    assert list(core.handle(request)) == []
    assert list(core.handle(subtasks[1][1])) == []
    sent = list(core.handle(subtasks[0][1]))
    assert [(to, type(one)) for to, one in sent] == [(-1, Done), (-1, Done), (0, Response)]
    response = sent[-1][1]
    assert isinstance(response, Response)
    assert response.found.squares.tolist() == [[2.0]]  # the point of task 1: it came before the answer


def test_points_are_kept_for_2n_tasks() -> None:
    found = Found.room(1, 1, False)
    core = MapperJoiner(0, 1, PointShape(2))
    held = []
    for number in range(6):
        task = _task(number, np.zeros((2, 2)), np.zeros((2, 0)), found, 1, oldest=2 * number)
        for _, subtask in list(core.handle(task)):
            assert [type(one) for _, one in core.handle(subtask)] == [Done]
        held.append(len(core.core))
    assert held == [2, 4, 4, 4, 4, 4]
