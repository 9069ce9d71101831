"""Cells of a space, each with a bound of the k-th distance: which points must meet for an exact join in shards.

A kd-tree over a sample of both sides cuts the box of all r points into cells. Some k points of s are known, the sample.
So the k-th neighbour of every r point in a cell is no farther than the farthest corner of the cell is from k of them:
the cell's *limit*, a squared distance. An r point goes to the shard of its cell, an s point to the shards of all cells
to which its squared distance is at most their limit. So each shard has all neighbours of its r points, ties included.

Squared distances to boxes are computed as those between points are, coordinate by coordinate in the same order.
Rounding is monotonic, so no margin is needed. A cell with much more than its share of points, such as one location
that many rows have, gets several shards (*ways*): r points are spread over them, s points go to all. In many dimensions
cells are wide, and most s points go to most shards: the result is right, but slow. Thesis, appendix C, replicates
queries instead, after a local search; here there is no second exchange.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from millrace.host.base.types import Array, Longs, Mask
from millrace.host.knn.index import Neighbours, PointIndex, PointQueries
from millrace.host.runtime.jit import kernel
from millrace.host.runtime.team import Team

CELL_POINTS = 16
"""Sampled points of a cell, about."""
HEAVY = 1.5
"""A cell with more than this many times the share of a shard gets several shards."""
MAX_DEPTH = 100
_STACK = MAX_DEPTH + 2
MAX_PAIRS = 1 << 20
"""Sampled points that are compared with cells at once, about: bounds the scratch memory."""
NO_LIMIT = -1.0
"""The limit of a cell without r points: no s point goes there."""


@dataclass(frozen=True)
class BoundedCells:
    """A kd-tree in preorder: the left child of node i is i + 1. Cells are the nodes with the axis -1.

    `low` and `high` are the boxes of all nodes, `limits` the largest limits of their cells. A cell has the shards
    `first` to `last`; the numbers rise in the order of the nodes, and `last` of a node is that of its last cell.
    """

    axis: Longs
    at: Array
    right: Longs
    low: Array
    high: Array
    limits: Array
    first: Longs
    last: Longs

    @property
    def cells(self) -> Longs:
        """The nodes that are cells."""
        return np.flatnonzero(self.axis < 0)

    @property
    def shards(self) -> int:
        """The number of shards."""
        return int(self.last[0]) + 1

    def cell_of(self, columns: Sequence[Array]) -> Longs:
        """The cell, as a node, of each point."""
        points = np.ascontiguousarray(np.stack(columns))
        found = np.empty(points.shape[1], np.int64)
        _find_cells(self.axis, self.at, self.right, points, found)
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
        tree = (self.axis, self.right, self.low, self.high, self.limits, self.first, self.last)
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
def _find_cells(axis: Any, at: Any, right: Any, points: Any, out: Any) -> None:
    for i in range(points.shape[1]):
        node = 0
        while axis[node] >= 0:
            node = node + 1 if points[axis[node], i] < at[node] else right[node]
        out[i] = node


@kernel
def _find_guests(
    axis: Any,
    right: Any,
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
    stack, to, dims = np.empty(_STACK, np.int64), 0, points.shape[0]
    for i in range(points.shape[1]):
        top, written, start, home = 1, -1, to, homes[i]
        stack[0] = 0
        if home >= 0:
            if out.shape[0] > 0:
                out[to] = home
            to += 1
        while top > 0:
            top -= 1
            node, square = stack[top], 0.0
            if last[node] <= written:
                continue
            for j in range(dims):
                value = points[j, i]
                gap = max(low[node, j] - value, value - high[node, j], 0.0)
                square += gap * gap
            if not square <= limits[node]:  # a NaN goes nowhere
                continue
            if axis[node] >= 0:
                stack[top] = right[node]
                stack[top + 1] = node + 1
                top += 2
                continue
            for shard in range(max(first[node], written + 1), last[node] + 1):
                if shard != home:
                    if out.shape[0] > 0:
                        out[to] = shard
                    to += 1
            written = last[node]
        counts[i] = to - start


@dataclass
class _Growing:
    """The nodes of a tree that is being built, in preorder, with the weights of r's and of all points in them."""

    axis: list[int] = field(default_factory=list)
    at: list[float] = field(default_factory=list)
    right: list[int] = field(default_factory=list)
    boxes: list[tuple[Array, Array]] = field(default_factory=list)
    weights: list[tuple[float, float]] = field(default_factory=list)

    def add(self, box: tuple[Array, Array], weights: tuple[float, float]) -> int:
        """Add a node, as yet a cell; return its number."""
        self.axis.append(-1)
        self.at.append(0.0)
        self.right.append(0)
        self.boxes.append(box)
        self.weights.append(weights)
        return len(self.axis) - 1


@dataclass(frozen=True)
class SampledPoints:
    """Points of both sides, one per row; how many rows each stands for; and which are r's."""

    points: Array
    weights: Array
    of_r: Mask

    def where(self, mask: Mask) -> SampledPoints:
        """Some of the points."""
        return SampledPoints(self.points[mask], self.weights[mask], self.of_r[mask])


def cut_cells(sample: SampledPoints, box: tuple[Array, Array], shards: int) -> BoundedCells:
    """Cells for about `shards` shards of equal weight. `box` holds all r points.

    The cells have no limits yet: every s point goes to every shard.
    """
    tree = _Growing()
    _grow(tree, sample, (np.array(box[0]), np.array(box[1])), 0)
    axis = np.array(tree.axis, np.int64)
    right = np.array(tree.right, np.int64)
    first, last = _assign(axis, right, np.array(tree.weights), shards)
    low, high = (np.stack(ends) for ends in zip(*tree.boxes, strict=True))
    limits = np.full(len(axis), np.inf)
    return BoundedCells(axis, np.array(tree.at), right, low, high, limits, first, last)


def _grow(tree: _Growing, sample: SampledPoints, box: tuple[Array, Array], depth: int) -> None:
    """Add the subtree of a box: cut the axis on which its points are spread most, at their median.

    A box whose ends are reversed has no r points: nothing is sent there, so it is not cut.
    """
    if (box[0] > box[1]).any():
        tree.add(box, (0.0, 0.0))
        return
    node = tree.add(box, (float(sample.weights[sample.of_r].sum()), float(sample.weights.sum())))
    split = None if len(sample.points) <= CELL_POINTS or depth == MAX_DEPTH else _split(sample.points)
    if split is None:
        return
    axis, at = split
    left, low, high = sample.points[:, axis] < at, box[0].copy(), box[1].copy()
    low[axis], high[axis] = max(at, low[axis]), min(at, high[axis])
    _grow(tree, sample.where(left), (box[0], high), depth + 1)
    tree.right[node] = len(tree.axis)
    _grow(tree, sample.where(~left), (low, box[1]), depth + 1)
    tree.axis[node], tree.at[node] = axis, at


def _split(points: Array) -> tuple[int, float] | None:
    """The axis and value of a cut with points on both sides; None if all points are equal."""
    with np.errstate(over="ignore"):
        axis = int(np.argmax(points.max(axis=0) - points.min(axis=0)))
    values = np.sort(points[:, axis])
    if values[0] == values[-1]:
        return None
    middle = values[len(values) // 2]
    return axis, float(middle if middle > values[0] else values[np.searchsorted(values, middle, "right")])


def _assign(axis: Longs, right: Longs, weights: Array, shards: int) -> tuple[Longs, Longs]:
    """The first and the last shard of each cell: consecutive cells share one, a cell with many r points has several."""
    first, last = np.zeros((2, len(axis)), np.int64)
    cells = np.flatnonzero(axis < 0)
    share = weights[cells, 1].sum() / shards
    shard, filled = 0, 0.0
    for node in cells:
        of_r, weight = weights[node]
        heavy = of_r > HEAVY * share and shards > 1
        if filled and (heavy or filled + weight / 2 > share):
            shard, filled = shard + 1, 0.0
        first[node] = shard
        filled += weight
        if heavy:
            shard, filled = shard + round(of_r / share) - 1, np.inf
        last[node] = shard
    for node in np.flatnonzero(axis >= 0)[::-1]:  # children come after their parents
        last[node] = last[right[node]]
    return first, last


def bound_cells(cells: BoundedCells, sample: Array, k: int, limit: float, team: Team) -> BoundedCells:
    """The cells with their limits: by `k` sampled points of s each, at most `limit`, and none for a cell without r."""
    limits = np.full(len(cells.axis), limit)
    leaves = cells.cells
    if len(sample) >= k:
        index = PointIndex(sample.shape[1], team)
        index.insert(list(np.ascontiguousarray(sample.T)))
        step = max(MAX_PAIRS // k, 1)
        for some in (leaves[at : at + step] for at in range(0, len(leaves), step)):
            limits[some] = np.minimum(_limits(cells.low[some], cells.high[some], sample, index, k, team), limit)
    limits[leaves[(cells.low > cells.high)[leaves].any(axis=1)]] = NO_LIMIT
    for node in np.flatnonzero(cells.axis >= 0)[::-1]:  # children come after their parents
        limits[node] = max(limits[node + 1], limits[cells.right[node]])
    return replace(cells, limits=limits)


def _limits(low: Array, high: Array, sample: Array, index: PointIndex, k: int, team: Team) -> Array:
    """For each box the largest squared distance of its corners to the k sampled points next to its middle."""
    team.acquire(len(low))
    try:
        near = index.query(PointQueries(list(np.ascontiguousarray((low / 2 + high / 2).T))), k)
    finally:
        team.release()
    known = near.counts == k
    points = sample[np.where(known[:, None], near.positions, 0)]
    squares = np.zeros(points.shape[:2])
    with np.errstate(over="ignore"):
        for j in range(points.shape[2]):
            gap = np.maximum(points[:, :, j] - low[:, None, j], high[:, None, j] - points[:, :, j])
            squares += gap * gap
    found: Array = np.where(known, squares.max(axis=1), np.inf)
    return found
