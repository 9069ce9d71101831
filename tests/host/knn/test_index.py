"""The local searcher on arrays: runs, merged runs, expired points, ties, groups, limits; against NumPy, bit for bit."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numba
import numpy as np
import pytest

from millrace.host.base.types import Array
from millrace.host.knn import index as module
from millrace.host.knn import lanes
from millrace.host.knn.index import Neighbours, PointIndex, PointQueries
from millrace.host.knn.metric import square_limit
from millrace.host.runtime.intrinsics import address
from millrace.host.runtime.team import Team

lanes_have_compress = lanes._has_compress()
SHAPES: dict[str, Any] = {
    "uniform": lambda rng, n, d: rng.random((d, n)),
    "grid": lambda rng, n, d: rng.integers(0, 5, (d, n)).astype(np.float64),
    "equal": lambda rng, n, d: np.ones((d, n)),
    "line": lambda rng, n, d: np.repeat(rng.random((1, n)), d, axis=0),
    "outliers": lambda rng, n, d: np.where(rng.random((d, n)) < 0.01, 1e300, rng.random((d, n)) * 1e-9),
    "huge": lambda rng, n, d: rng.random((d, n)) * 1.5e154,
    "tiny": lambda rng, n, d: rng.random((d, n)) * 1e-161,
}


@pytest.fixture
def team() -> Iterator[Team]:
    team = Team(2)
    team.acquire(1 << 20)
    yield team
    team.close()


def expected(points: Array, queries: Array, visible: Array, ties: Array, k: int, limit: float) -> list[list[tuple]]:
    """(position, square) of the neighbours of each query; `visible` says which points each may find."""
    squares = np.zeros((queries.shape[1], points.shape[1]))
    with np.errstate(over="ignore"):
        for p, q in zip(points, queries, strict=True):
            squares = squares + (p[None] - q[:, None]) * (p[None] - q[:, None])
    found = []
    for row, allowed in zip(squares, visible, strict=True):
        at = np.flatnonzero(allowed & (row <= limit))
        order = at[np.lexsort((ties[at], row[at]))][:k]
        found.append([(int(i), float(row[i])) for i in order])
    return found


def as_lists(found: Neighbours) -> list[list[tuple]]:
    rows = zip(found.counts, found.positions.tolist(), found.squares.tolist(), strict=True)
    return [list(zip(p[:n], s[:n], strict=True)) for n, p, s in rows]


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("dims", [2, 3, 8])
def test_points_of_every_shape(team: Team, shape: str, dims: int) -> None:
    rng = np.random.default_rng(dims)
    n, m = 4000, 150
    points, queries = SHAPES[shape](rng, n, dims), SHAPES[shape](rng, m, dims)
    index = PointIndex(dims, team)
    index.insert(list(points))
    everything = np.ones((m, n), np.bool_)
    for k in (1, 9, 40, 100):
        found = as_lists(index.query(PointQueries(list(queries)), k))
        assert found == expected(points, queries, everything, np.arange(n), k, np.inf)
    own = rng.integers(0, n, m)
    apart = everything.copy()
    apart[np.arange(m), own] = False
    found = as_lists(index.query(PointQueries(list(points[:, own]), own=own), 5))
    assert found == expected(points, points[:, own], apart, np.arange(n), 5, np.inf)
    assert index.builds == 1


@pytest.mark.parametrize("k", [1, 10, 128, 129])
def test_guesses_that_are_too_small_and_too_large(team: Team, k: int) -> None:
    """Clouds of very different density, in one batch of queries; own positions, keys for ties, limits of each query."""
    rng = np.random.default_rng(k)
    n, m = 6000, 400
    scales = 10.0 ** rng.integers(-6, 2, 12)

    def draw(count: int) -> Array:
        which = rng.integers(0, 12, count)
        return np.round(which + scales[which] * rng.normal(0, 1, (2, count)), 6)

    points, keys = draw(n), rng.permutation(n)
    index = PointIndex(2, team, tied=True)
    index.insert(list(points), ties=keys)
    own = rng.integers(0, n, m)
    queries = np.where(rng.random(m) < 0.5, points[:, own], draw(m))
    limits = np.where(rng.random(m) < 0.5, np.inf, 10.0 ** rng.uniform(-12, 0, m))
    found = as_lists(index.query(PointQueries(list(queries), own=own, limits=limits), k))
    for i in range(m):
        visible = np.arange(n) != own[i]
        assert [found[i]] == expected(points, queries[:, [i]], visible[None], keys, k, limits[i])


@pytest.mark.parametrize("compress", [True, False])
def test_points_of_a_block_are_kept_on_every_processor(monkeypatch: pytest.MonkeyPatch, compress: bool) -> None:
    """Compiled with and without the instruction that compresses a vector, where the processor has it."""
    monkeypatch.setattr(lanes, "_has_compress", lambda: compress and lanes_have_compress)
    keep = numba.njit(lambda *given: lanes.keep_block(*given))
    rng = np.random.default_rng(1)
    block, query = rng.random((3, lanes.BLOCK)), rng.random(3)
    block[:, -2:] = np.nan
    squares, slots = np.zeros((2, 2 * lanes.BLOCK))
    given = (address(block), address(query), 3, 0.3, 800, address(squares), address(slots))
    expected_squares = ((block - query[:, None]) ** 2)[0]
    for gap in (block - query[:, None])[1:]:
        expected_squares = expected_squares + gap * gap
    at = np.flatnonzero(expected_squares <= 0.3)
    assert keep(*given) == len(at) > 5
    assert squares[: len(at)].tolist() == expected_squares[at].tolist()
    assert slots.view(np.int64)[: len(at)].tolist() == (800 + 8 * at).tolist()


def check_sliding(
    index: Any, rng: np.random.Generator, draw: Callable[[int], Array], grouped: bool, tied: bool
) -> None:
    """Inserts, queries and expiry in turn, against brute force; the index starts empty at position 7."""
    points = np.zeros((len(draw(1)), 7))
    groups, ties = np.zeros(7, np.int64), np.zeros(7, np.int64)
    for _ in range(12):
        n, m = int(rng.integers(1, 900)), int(rng.integers(1, 90))
        new = draw(n)
        new[:, rng.random(n) < 0.05] = np.nan
        more, keys = rng.integers(-1, 3, n), rng.permutation(n) + 1000 * rng.integers(0, 5)
        index.insert(list(new), more if grouped else None, keys if tied else None)
        points, groups = np.concatenate([points, new], axis=1), np.concatenate([groups, more])
        ties = np.concatenate([ties, keys])
        end = np.sort(rng.integers(max(points.shape[1] - n, 7), points.shape[1] + 1, m))
        begin = np.maximum(end - int(rng.integers(50, 1500)), index.first)
        queries, mine = draw(m), rng.integers(-1, 3, m)
        number = np.arange(points.shape[1])[None]
        visible = (number >= begin[:, None]) & (number < end[:, None])
        if grouped:
            visible &= groups[None] == mine[:, None]
        given = PointQueries(list(queries), begin, end, groups=mine if grouped else None)
        limit = float(rng.choice([np.inf, 9.0]))
        order = ties if tied else np.arange(points.shape[1])
        found = as_lists(index.query(given, 4, limit))
        assert found == expected(points, queries, visible, order, 4, limit)
        index.expire(int(begin[0]))


@pytest.mark.parametrize("seed", range(6))
def test_a_sliding_window(team: Team, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Inserts and queries in turn: points that expire, keys for ties, groups, NaN, and limits that prune."""
    monkeypatch.setattr(module, "TAIL_ROWS", 100)
    rng = np.random.default_rng(seed)
    grouped, tied = bool(seed % 2), bool(seed & 2)
    index = PointIndex(2, team, 7, grouped, tied)

    def draw(count: int) -> Array:
        return rng.integers(0, 30, (2, count)).astype(np.float64)

    check_sliding(index, rng, draw, grouped, tied)
    assert index.builds > 2


def test_equal_points_and_many_of_them_need_few_blocks(team: Team) -> None:
    """A million comparisons per query would take minutes."""
    points = [np.zeros(200_000), np.zeros(200_000)]
    index = PointIndex(2, team)
    index.insert(points)
    found = index.query(PointQueries([np.zeros(20_000), np.zeros(20_000)]), 3)
    assert (found.positions == np.arange(3)).all()


def test_no_points_and_no_queries(team: Team) -> None:
    index = PointIndex(2, team)
    assert index.query(PointQueries([np.zeros(3), np.zeros(3)]), 2).counts.tolist() == [0, 0, 0]
    index.insert([np.zeros(5), np.zeros(5)])
    assert len(index.query(PointQueries([np.zeros(0), np.zeros(0)]), 2).counts) == 0
    assert index.query(PointQueries([np.array([np.nan]), np.zeros(1)]), 2).counts.tolist() == [0]


@pytest.mark.parametrize("within", [0.0, 1e-200, 0.1, 0.3, 5.0, 1e155, 1e200, np.inf])
def test_the_limit_is_the_last_square_within_a_distance(within: float) -> None:
    limit = square_limit("euclidean", within)
    assert np.sqrt(limit) <= within
    if limit < np.finfo(np.float64).max:
        assert np.sqrt(np.nextafter(limit, np.inf)) > within
    assert square_limit("haversine", 1e9) == np.inf
