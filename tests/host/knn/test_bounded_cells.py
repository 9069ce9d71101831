"""Bounded cells: the shard of an r point has all s points as near as its k-th neighbour, ties included."""

from __future__ import annotations

import numpy as np
import pytest

from millrace.host.base.types import Array
from millrace.host.knn.bounded_cells import BoundedCells, SampledPoints, bound_cells, cut_cells
from millrace.host.knn.index import PointIndex, PointQueries
from millrace.host.runtime.team import Team

TEAM = Team(1)
SHAPES = ("uniform", "grid", "equal", "half equal", "far", "line", "huge")


def _draw(shape: str, rng: np.random.Generator, rows: int, dims: int, side: str) -> Array:
    points = rng.random((rows, dims))
    match shape:
        case "grid":
            points = np.floor(5 * points)
        case "equal":
            points[:] = 0.25
        case "half equal":
            points[rng.random(rows) < 0.5] = 0.5
        case "far":
            points += 3.0 * (side == "s")
        case "line":
            points[:] = points[:, :1]
        case "huge":
            points = (2 * points - 1) * 1.7e308
    return points


def _cells(r: Array, s: Array, k: int, limit: float, shards: int, rng: np.random.Generator) -> BoundedCells:
    """Cells from a tenth of the rows of each side."""
    some = [side[rng.permutation(len(side))[: max(len(side) // 10, 1)]] for side in (r, s)]
    of_r = np.repeat([True, False], [len(one) for one in some])
    sample = SampledPoints(np.concatenate(some), np.full(len(of_r), 10.0), of_r)
    cut = cut_cells(sample, (r.min(axis=0), r.max(axis=0)), shards)
    return bound_cells(cut, some[1], k, limit, TEAM)


def _squares(r: Array, s: Array) -> Array:
    found = np.zeros((len(r), len(s)))
    with np.errstate(over="ignore"):
        for j in range(r.shape[1]):
            gap = r[:, None, j] - s[None, :, j]
            found += gap * gap
    return found


@pytest.mark.parametrize("shape", SHAPES)
def test_every_neighbour_is_in_the_shard(shape: str) -> None:
    rng = np.random.default_rng([1, SHAPES.index(shape)])
    for dims, k, limit in ((2, 3, np.inf), (3, 1, np.inf), (2, 8, 0.01)):
        r, s = (_draw(shape, rng, rows, dims, side) for side, rows in (("r", 700), ("s", 900)))
        cells = _cells(r, s, k, limit, 6, rng)
        hashes = rng.integers(-(1 << 60), 1 << 60, len(r))
        homes = cells.home_shards(list(r.T), hashes)
        counts, shards = cells.guest_shards(list(s.T))
        held = np.zeros((len(s), cells.shards), np.bool_)
        held[np.repeat(np.arange(len(s)), counts), shards] = True
        assert held.sum() == len(shards), "no shard gets a point twice"
        squares = _squares(r, s)
        wanted = squares <= np.minimum(np.sort(squares, axis=1)[:, k - 1 : k], limit)
        assert (held[:, homes].T | ~wanted).all()


def test_shards_are_even_and_a_heavy_location_has_several() -> None:
    rng = np.random.default_rng(2)
    r, s = rng.random((4000, 2)), rng.random((4000, 2))
    cells = _cells(r, s, 4, np.inf, 8, rng)
    sizes = np.bincount(cells.home_shards(list(r.T)), minlength=cells.shards)
    assert cells.shards == 8
    assert sizes.max() < 1.5 * sizes.mean()
    assert cells.guest_shards(list(s.T))[0].mean() < 3, "bounds are tight enough to be useful"
    r[:2000] = 0.5
    heavy = _cells(r, s, 4, np.inf, 8, rng)
    sizes = np.bincount(heavy.home_shards(list(r.T), rng.integers(0, 1 << 60, len(r))))
    assert sizes.max() < 0.35 * len(r), "half of r is at one location"


def test_own_shard_first_and_no_shard_for_what_is_no_point() -> None:
    rng = np.random.default_rng(3)
    r = rng.random((500, 2))
    cells = _cells(r, r, 3, np.inf, 5, rng)
    homes = cells.home_shards(list(r.T))
    counts, shards = cells.guest_shards(list(r.T), homes)
    assert (shards[np.cumsum(counts) - counts] == homes).all()
    assert sorted(shards) == sorted(cells.guest_shards(list(r.T))[1])
    nothing = np.full((1, 2), np.nan)
    assert cells.guest_shards(list(nothing.T))[0].tolist() == [0]


def test_a_missing_sampled_point_is_noticed() -> None:
    rng = np.random.default_rng(4)
    r, s = rng.random((400, 2)), rng.random((2000, 2))
    cells = _cells(r, s, 3, np.inf, 4, rng)

    def uncertain(points: Array, held: Array) -> Array:
        index = PointIndex(2, TEAM)
        index.insert(list(np.ascontiguousarray(held.T)))
        columns = list(np.ascontiguousarray(points.T))
        TEAM.acquire(len(points))
        found = index.query(PointQueries(columns), 3)
        TEAM.depth -= 1
        return cells.uncertain(columns, found, 3, np.inf)

    assert not uncertain(r, s).any()
    assert uncertain(r, s[:20]).any(), "s has lost rows"
    assert uncertain(r, s[:2]).all()
    assert uncertain(r + 0.5, s).any(), "r has moved out of its box"
    assert not uncertain(np.full((3, 2), np.nan), s).any()
