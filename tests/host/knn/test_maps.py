"""Partitioning maps: every point has one home, a ball meets the homes of all points in it, and loads are even."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest

from millrace.host.base.types import Array
from millrace.host.knn.maps import MAP_KINDS, RoundRobin, SpaceMap, build_map

KINDS = [kind for kind in MAP_KINDS if kind != "roundrobin"]
SHAPES: dict[str, Any] = {
    "uniform": lambda rng, n, d: rng.random((d, n)),
    "skewed": lambda rng, n, d: rng.lognormal(0, 2, (d, n)),
    "grid": lambda rng, n, d: rng.integers(0, 5, (d, n)).astype(np.float64),
    "line": lambda rng, n, d: np.repeat(rng.random((1, n)), d, axis=0),
    "equal": lambda rng, n, d: np.ones((d, n)),
    "huge": lambda rng, n, d: rng.choice([-1e308, -1e200, 0.0, 3.0, 1e308], (d, n)),
}


def square(points: Array, other: Array) -> Array:
    """Squared distances, added in the order of dimensions."""
    total = np.zeros(points.shape[1])
    with np.errstate(over="ignore"):
        for a, b in zip(points, other, strict=True):
            total = total + (a - b) * (a - b)
    return total


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("kind", KINDS)
def test_a_ball_meets_the_home_of_every_point_in_it(kind: Any, shape: str) -> None:
    rng = np.random.default_rng(len(shape))
    for dims, partitions in ((2, 8), (3, 5), (8, 3), (2, 1)):
        made = build_map(kind, list(SHAPES[shape](rng, 500, dims)), partitions)
        points = SHAPES[shape](rng, 400, dims)  # others than the sample: beyond its ends, too
        homes = made.homes(list(points), np.arange(400))
        assert homes.min() >= 0
        assert homes.max() < partitions
        queries = SHAPES[shape](rng, 25, dims)
        for query in queries.T:
            squares = square(points, query)
            for limit in np.sort(squares)[[0, 10, 399]]:  # the distance of a point: equality counts
                rows, met = made.crossings([query[i : i + 1] for i in range(dims)], np.array([limit]))
                assert set(homes[squares <= limit]) <= set(met)
                assert len(set(met)) == len(met)
                assert not rows.any()


@pytest.mark.parametrize("kind", KINDS)
def test_crossings_are_few_and_ordered_by_row(kind: Any) -> None:
    rng = np.random.default_rng(3)
    made = build_map(kind, list(rng.random((2, 4000))), 8)
    points = rng.random((2, 2000))
    rows, met = made.crossings(list(points), np.full(2000, 1e-6))
    assert (np.diff(rows) >= 0).all()
    assert 2000 <= len(rows) < 2200
    homes = made.homes(list(points), np.arange(2000))
    assert ((met == homes[rows]).sum()) == 2000
    everywhere, _ = made.crossings(list(points), np.full(2000, np.inf))
    assert len(everywhere) == 8 * 2000
    nowhere, _ = made.crossings(list(points), np.full(2000, np.nan))
    assert not len(nowhere)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("partitions", [2, 8, 13])
def test_loads_are_even(kind: Any, partitions: int) -> None:
    sample, points = (np.random.default_rng(seed).normal(0, 1, (2, 20000)) for seed in (1, 2))
    made = build_map(kind, list(sample), partitions)
    loads = np.bincount(made.homes(list(points), np.arange(20000)), minlength=partitions)
    assert loads.max() <= 1.25 * loads.mean()
    assert loads.min() >= 0.75 * loads.mean()


def test_points_that_match_nothing_have_no_home() -> None:
    sample = [np.array([0.0, 1.0, np.nan, np.inf]), np.array([0.0, 1.0, 1.0, 1.0])]
    for kind in MAP_KINDS:
        made = build_map(kind, sample, 2)
        homes = made.homes([np.array([np.nan, 0.5]), np.array([0.0, 0.5])], np.arange(2))
        assert homes[0] == -1
        assert homes[1] >= 0
        assert build_map(kind, [np.empty(0), np.empty(0)], 3).partitions == 3


def test_round_robin_deals_points_in_turn() -> None:
    made = RoundRobin(3)
    points = [np.zeros(5), np.zeros(5)]
    assert made.homes(points, np.arange(4, 9)).tolist() == [1, 2, 0, 1, 2]
    rows, met = made.crossings(points[:1], np.zeros(2))
    assert (rows.tolist(), met.tolist()) == ([0, 0, 0, 1, 1, 1], [0, 1, 2, 0, 1, 2])


@pytest.mark.parametrize("kind", KINDS)
def test_a_pickled_map_is_the_same(kind: Any) -> None:
    rng = np.random.default_rng(4)
    made = build_map(kind, list(rng.random((3, 500))), 4)
    assert isinstance(made, SpaceMap)
    copy = pickle.loads(pickle.dumps(made))
    points = list(rng.random((3, 300)))
    assert (copy.homes(points) == made.homes(points)).all()
    assert sorted(set(made.owners[made.leaves()])) == [0, 1, 2, 3]
