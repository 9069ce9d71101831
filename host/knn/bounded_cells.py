"""Cells of a space, each with a bound of the k-th distance: which points must meet for an exact join in shards.

A kd-tree over a sample of both sides (`maps.py`) cuts the box of all r points into cells. Some k points of s are known,
the sample. So the k-th neighbour of every r point in a cell is no farther than the farthest corner of the cell is from
k of them: the cell's *limit*, a squared distance. An r point goes to the shard of its cell, an s point to the shards of
all cells to which its squared distance is at most their limit. So each shard has all neighbours of its r points, ties
included.

Squared distances to boxes are computed as those between points are, coordinate by coordinate in the same order.
Rounding is monotonic, so no margin is needed. A cell with much more than its share of points, such as one location
that many rows have, gets several shards (*ways*): r points are spread over them, s points go to all. In many dimensions
cells are wide, and most s points go to most shards: the result is right, but slow. Thesis, appendix C, replicates
queries instead, after a local search; here there is no second exchange.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from millrace.host.base.types import Array, Longs, Mask
from millrace.host.knn.index import Neighbours, PointIndex, PointQueries
from millrace.host.knn.maps import MAX_DEPTH, SpaceMap, box_square, build_map
from millrace.host.runtime.jit import kernel
from millrace.host.runtime.team import Team

CELL_POINTS = 16
"""Sampled points of a cell, about."""
HEAVY = 1.5
"""A cell with more than this many times the share of a shard gets several shards."""
MAX_PAIRS = 1 << 20
"""Sampled points that are compared with cells at once, about: bounds the scratch memory."""
NO_LIMIT = -1.0
"""The limit of a cell without r points: no s point goes there."""
_STACK = 2 * MAX_DEPTH


@dataclass(frozen=True)
class BoundedCells:
    """A map whose leaves are the cells, numbered from left to right, and arrays over its nodes.

    `low` and `high` are the boxes, cut to r's, `limits` the largest limits of a node's cells. A cell has the shards
    `first` to `last`; the numbers rise from left to right, and `last` of a node is that of its last cell.
    """

    map: SpaceMap
    low: Array
    high: Array
    limits: Array
    first: Longs
    last: Longs

    @property
    def cells(self) -> Longs:
        """The nodes that are cells, from left to right."""
        leaves = self.map.leaves()
        ordered: Longs = leaves[np.argsort(self.map.owners[leaves])]
        return ordered

    @property
    def shards(self) -> int:
        """The number of shards."""
        return int(self.last[0]) + 1

    def cell_of(self, columns: Sequence[Array]) -> Longs:
        """The cell, as a node, of each point; any for a NaN."""
        found: Longs = self.cells[self.map.homes(list(columns))]
        return found

    def home_shards(self, columns: Sequence[Array], hashes: Longs | None = None) -> Longs:
        """The shard of each r point; `hashes` select one of several ways."""
        cells = self.cell_of(columns)
        found: Longs = self.first[cells]
        return found if hashes is None else found + hashes % (self.last[cells] - found + 1)

    def guest_shards(self, columns: Sequence[Array], homes: Longs | None = None) -> tuple[Longs, Longs]:
        """The shards of each s point: their number per point, and all of them in the order of the points.

        With `homes`, in a self-join, that shard comes first.
        """
        points = np.ascontiguousarray(np.stack(columns))
        own = np.full(points.shape[1], -1) if homes is None else homes
        tree = (self.map.axes, self.map.children, self.low, self.high, self.limits, self.first, self.last)
        counts = np.empty(points.shape[1], np.int64)
        _find_guests(*tree, points, own, counts, np.empty(0, np.int64))
        shards = np.empty(int(counts.sum()), np.int64)
        _find_guests(*tree, points, own, counts, shards)
        return counts, shards

    def uncertain(self, columns: Sequence[Array], found: Neighbours, k: int, limit: float) -> Mask:
        """Which r points may have neighbours in other shards, because a sampled row is not there any more.

        `found` are their neighbours in their own shards, `limit` is the largest squared distance that is wanted. A
        point that is NaN has no neighbours.
        """
        cells = self.cell_of(columns)
        points = np.stack(columns, axis=1)
        bounds = self.limits[cells]
        farthest = np.full(len(cells), np.inf)
        enough = found.counts >= k
        if found.k >= k:
            farthest[enough] = found.squares[enough, k - 1]
        outside = (points < self.low[cells]).any(axis=1) | (points > self.high[cells]).any(axis=1)
        uncertain: Mask = (
            ~np.isnan(points[:, 0]) & (bounds < np.inf) & (outside | ((farthest > bounds) & (bounds < limit)))
        )
        return uncertain


@kernel
def _find_guests(
    axes: Any,
    children: Any,
    low: Any,
    high: Any,
    limits: Any,
    first: Any,
    last: Any,
    points: Any,
    homes: Any,
    counts: Any,
    out: Any,
) -> None:
    """Count the shards of each point or, if there is room in `out`, write them."""
    stack, to = np.empty(_STACK, np.int64), 0
    for i in range(points.shape[1]):
        top, written, start, home = 1, -1, to, homes[i]
        stack[0] = 0
        if home >= 0:
            if out.shape[0] > 0:
                out[to] = home
            to += 1
        while top > 0:
            top -= 1
            node = stack[top]
            if last[node] <= written or not box_square(points, i, low, high, node) <= limits[node]:
                continue
            if axes[node] >= 0:
                stack[top] = children[node] + 1
                stack[top + 1] = children[node]
                top += 2
                continue
            for shard in range(max(first[node], written + 1), last[node] + 1):
                if shard != home:
                    if out.shape[0] > 0:
                        out[to] = shard
                    to += 1
            written = last[node]
        counts[i] = to - start


@dataclass(frozen=True)
class SampledPoints:
    """Points of both sides, one per row; how many rows each stands for; and which are r's."""

    points: Array
    weights: Array
    of_r: Mask


def cut_cells(sample: SampledPoints, box: tuple[Array, Array], shards: int) -> BoundedCells:
    """Cells for about `shards` shards of equal weight. `box` holds all r points.

    The cells have no limits yet: every s point goes to every shard.
    """
    columns = list(sample.points.T)
    made = build_map("kdtree", columns, max(len(sample.points) // CELL_POINTS, 1))
    assert isinstance(made, SpaceMap)
    low, high = np.maximum(made.lows, box[0]), np.minimum(made.highs, box[1])
    nodes = np.zeros(len(made.axes), np.int64)
    cells = BoundedCells(made, low, high, np.full(len(nodes), np.inf), nodes, nodes)
    of = cells.cell_of(columns)
    used = np.all(low[of] <= high[of], axis=1)  # s points outside of r's box weigh nothing
    weights = [np.bincount(of, sample.weights * used * mask, len(nodes)) for mask in (sample.of_r, 1.0)]
    first, last = _assign(cells, weights[0], weights[1], shards)
    return replace(cells, first=first, last=last)


def _assign(cells: BoundedCells, of_r: Array, weights: Array, shards: int) -> tuple[Longs, Longs]:
    """The first and the last shard of each cell: consecutive cells share one, a cell with many r points has several."""
    first, last = np.zeros((2, len(weights)), np.int64)
    order, share = cells.cells, max(weights.sum(), 1.0) / shards
    end = np.cumsum(weights[order]) / share
    start, heavy = end - weights[order] / share, of_r[order] > HEAVY * share
    middle = np.floor(start / 2 + end / 2)
    first[order] = np.clip(np.where(heavy, np.round(start), middle), 0, shards - 1)
    last[order] = np.clip(np.where(heavy, np.round(end) - 1, middle), first[order], shards - 1)
    for node in np.flatnonzero(cells.map.axes >= 0)[::-1]:  # children come after their parents
        last[node] = last[cells.map.children[node] + 1]
    return first, last


def bound_cells(cells: BoundedCells, sample: Array, k: int, limit: float, team: Team) -> BoundedCells:
    """The cells with their limits: by `k` sampled points of s each, at most `limit`, and none for a cell without r."""
    limits = np.full(len(cells.limits), limit)
    leaves = cells.cells
    if len(sample) >= k:
        index = PointIndex(sample.shape[1], team)
        index.insert(list(np.ascontiguousarray(sample.T)))
        step = max(MAX_PAIRS // k, 1)
        for some in (leaves[at : at + step] for at in range(0, len(leaves), step)):
            limits[some] = np.minimum(_limits(cells.low[some], cells.high[some], sample, index, k, team), limit)
    limits[leaves[(cells.low > cells.high)[leaves].any(axis=1)]] = NO_LIMIT
    for node in np.flatnonzero(cells.map.axes >= 0)[::-1]:  # children come after their parents
        limits[node] = limits[cells.map.children[node] : cells.map.children[node] + 2].max()
    return replace(cells, limits=limits)


def _limits(low: Array, high: Array, sample: Array, index: PointIndex, k: int, team: Team) -> Array:
    """For each box the largest squared distance of its corners to the k sampled points next to its middle."""
    team.acquire(len(low))
    try:
        near = index.query(PointQueries(list(np.ascontiguousarray((low / 2 + high / 2).T))), k)
    finally:
        team.depth -= 1
    known = near.counts == k
    points = sample[np.where(known[:, None], near.positions, 0)]
    squares = np.zeros(points.shape[:2])
    with np.errstate(over="ignore"):
        for j in range(points.shape[2]):
            gap = np.maximum(points[:, :, j] - low[:, None, j], high[:, None, j] - points[:, :, j])
            squares += gap * gap
    found: Array = np.where(known, squares.max(axis=1), np.inf)
    return found
