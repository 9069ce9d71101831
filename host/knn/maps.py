"""Partitioning maps of ADS-kNN: which partition owns a point, and which partitions a distance around a point meets.

A map is a binary tree of splits: a node sends the points below `split` on its axis to the left. Each leaf has an owner.
Every point has exactly one home. The maps differ in how splits and owners are chosen (thesis, appendix C 5.3):

- `kdtree`: a split halves the load on the axis with the largest deviation; a partition is one leaf.
- `quadtree`: cells are halved on each axis in turn until their load is small. Leaves in the order of a Hilbert curve
  are cut into partitions of equal load.
- `grid`: the same with cells of equal size.

The distance to a leaf's box is computed as the search computes that to a point (`lanes.py`): rounding is monotonic, so
a box is never farther than a point in it, and a tie is never lost. `build_map` takes a sample of both streams. Nothing
here depends on threads, windows or tables; maps can be pickled. Round robin, the baseline, is a map without regions.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal, Protocol, get_args

import numpy as np

from millrace.host.base.types import Array, Longs
from millrace.host.knn.curve import QUANTILES, Curve
from millrace.host.runtime.jit import inline, kernel
from millrace.host.runtime.team import Team

MapKind = Literal["kdtree", "quadtree", "grid", "roundrobin"]
MAP_KINDS: tuple[MapKind, ...] = get_args(MapKind)
LEAVES_PER_PARTITION = 32
"""A leaf of a quadtree has less than a partition's load divided by this; a grid has at least so many cells for each."""
MAX_DEPTH = 40
"""Bounds the splits above a leaf: equal points cannot be split."""
MAX_GRID_DEPTH = 12
_STACK = 2 * MAX_DEPTH


class PartitionMap(Protocol):
    """What a plan needs to know of a map."""

    @property
    def partitions(self) -> int:
        """The number of partitions."""

    def homes(self, columns: list[Array], numbers: Longs) -> Array:
        """The partition of each point (int32), -1 for a point with a NaN coordinate. `numbers`: the points' numbers."""

    def crossings(self, columns: list[Array], squares: Array) -> tuple[Longs, Array]:
        """Pairs of a point's row and a partition within its squared distance, equality included; ordered by row."""


@dataclass(frozen=True)
class RoundRobin:
    """Points are dealt in turn, so every partition may hold a neighbour."""

    partitions: int

    def homes(self, columns: list[Array], numbers: Longs) -> Array:
        """Each point's number modulo the partitions."""
        homes: Array = np.where(np.isnan(columns[0]), -1, numbers % self.partitions).astype(np.int32)
        return homes

    def crossings(self, columns: list[Array], squares: Array) -> tuple[Longs, Array]:
        """All partitions for each point."""
        count = len(squares)
        rows = np.repeat(np.arange(count), self.partitions)
        return rows, np.tile(np.arange(self.partitions, dtype=np.int32), count)


@dataclass(frozen=True)
class SpaceMap:
    """A tree of splits. `axes[i]` is -1 for a leaf; the children of node i are `children[i]` and the one after it."""

    kind: MapKind
    partitions: int
    axes: Array
    splits: Array
    children: Array
    owners: Array
    lows: Array
    """The box of each node, which holds its upper end too."""
    highs: Array

    def homes(self, columns: list[Array], numbers: Longs | None = None) -> Array:
        """The partition of each point, -1 for a point with a NaN coordinate."""
        points = np.ascontiguousarray(np.stack(columns), np.float64)
        found = np.empty(points.shape[1], np.int32)
        _homes(points, self.axes, self.splits, self.children, self.owners, found)
        return found

    def crossings(self, columns: list[Array], squares: Array) -> tuple[Longs, Array]:
        """Pairs of a row and a partition with a box within the row's squared distance; ordered by row."""
        points = np.ascontiguousarray(np.stack(columns), np.float64)
        tree = (self.axes, self.children, self.owners, self.lows, self.highs)
        seen = np.full(self.partitions, -1, np.int64)
        nowhere = np.empty(0, np.int32)
        total = _crossings(points, squares, *tree, seen, np.empty(0, np.int64), nowhere)
        rows, partitions = np.empty(total, np.int64), np.empty(total, np.int32)
        seen[:] = -1
        _crossings(points, squares, *tree, seen, rows, partitions)
        return rows, partitions

    def leaves(self) -> Longs:
        """The numbers of the leaves."""
        return np.flatnonzero(self.axes < 0)


@kernel
def _homes(points: Any, axes: Any, splits: Any, children: Any, owners: Any, out: Any) -> None:
    for i in range(points.shape[1]):
        node, usable = 0, True
        for j in range(points.shape[0]):
            usable &= points[j, i] == points[j, i]
        while axes[node] >= 0:
            node = children[node] + (1 if points[axes[node], i] >= splits[node] else 0)
        out[i] = owners[node] if usable else -1


@inline
def box_square(points: Any, i: int, lows: Any, highs: Any, node: int) -> float:
    """The squared distance of a point to a box."""
    total = 0.0
    for j in range(points.shape[0]):
        value = points[j, i]
        gap = max(max(lows[node, j] - value, value - highs[node, j]), 0.0)
        total += gap * gap
    return total


@kernel
def _crossings(
    points: Any,
    squares: Any,
    axes: Any,
    children: Any,
    owners: Any,
    lows: Any,
    highs: Any,
    seen: Any,
    rows: Any,
    partitions: Any,
) -> int:
    """Write the pairs if there is room for them; return how many there are."""
    stack = np.empty(_STACK, np.int64)
    total = 0
    for i in range(points.shape[1]):
        depth = 1
        stack[0] = 0
        while depth > 0:
            depth -= 1
            node = stack[depth]
            if not box_square(points, i, lows, highs, node) <= squares[i]:
                continue
            if axes[node] >= 0:
                stack[depth] = children[node] + 1
                stack[depth + 1] = children[node]
                depth += 2
            elif seen[owners[node]] != i:
                seen[owners[node]] = i
                if rows.shape[0] > 0:
                    rows[total] = i
                    partitions[total] = owners[node]
                total += 1
    return total


@dataclass
class _Builder:
    """Grows a tree of splits over sample points, in columns."""

    points: Array
    axes: list[int] = field(default_factory=list)
    splits: list[float] = field(default_factory=list)
    children: list[int] = field(default_factory=list)
    owners: list[int] = field(default_factory=list)
    boxes: list[tuple[Array, Array]] = field(default_factory=list)
    loads: list[int] = field(default_factory=list)

    def add(self, low: Array, high: Array) -> int:
        """Add a leaf without an owner; return its number."""
        self.axes.append(-1)
        self.splits.append(0.0)
        self.children.append(0)
        self.owners.append(0)
        self.loads.append(0)
        self.boxes.append((low, high))
        return len(self.axes) - 1

    def root(self) -> int:
        """Add the root: all of the space."""
        dims = len(self.points)
        return self.add(np.full(dims, -np.inf), np.full(dims, np.inf))

    def split(self, node: int, axis: int, at: float) -> tuple[int, int]:
        """Split a leaf; return its children."""
        low, high = self.boxes[node]
        middle_high, middle_low = high.copy(), low.copy()
        middle_high[axis] = middle_low[axis] = at
        self.axes[node], self.splits[node], self.children[node] = axis, at, len(self.axes)
        return self.add(low, middle_high), self.add(middle_low, high)

    def edge(self, node: int, axis: int) -> float:
        """A finite end of a leaf's box, or 0: where a leaf without points is split."""
        ends = [float(box[axis]) for box in self.boxes[node] if np.isfinite(box[axis])]
        return ends[0] if ends else 0.0

    def done(self, kind: MapKind, partitions: int) -> SpaceMap:
        """The map."""
        lows, highs = (np.stack([box[i] for box in self.boxes]) for i in range(2))
        axes, children, owners = (np.array(values, np.int32) for values in (self.axes, self.children, self.owners))
        return SpaceMap(kind, partitions, axes, np.array(self.splits), children, owners, lows, highs)


def build_map(kind: MapKind, sample: list[Array], partitions: int) -> PartitionMap:
    """A map with equal loads for a sample of points, in columns; points with a NaN coordinate do not count.

    Each point of the sample is one unit of load: give the r and s points in the proportion in which they arrive.
    """
    if kind == "roundrobin":
        return RoundRobin(partitions)
    points = np.ascontiguousarray(np.stack(sample), np.float64)
    usable = np.isfinite(points).all(axis=0)
    points = points if usable.all() else points[:, usable]
    if not points.shape[1]:
        points = np.zeros((len(points), 1))
    builder = _Builder(points)
    if kind == "kdtree":
        _halve(builder, builder.root(), np.arange(points.shape[1]), 0, partitions)
    else:
        _divide_cells(builder, kind, partitions)
    return builder.done(kind, partitions)


def _halve(builder: _Builder, node: int, rows: Longs, first: int, partitions: int) -> None:
    """Split a node of a kd-tree until each leaf is one partition, numbered from `first` on from left to right."""
    if partitions == 1:
        builder.owners[node] = first
        return
    left = (partitions + 1) // 2
    points = builder.points[:, rows]
    with np.errstate(over="ignore", invalid="ignore"):
        spread = points.std(axis=1) if len(rows) else np.zeros(len(points))
    axis = int(np.argmax(np.nan_to_num(spread, nan=np.inf)))
    at = _quantile(np.sort(points[axis]), left / partitions) if len(rows) else builder.edge(node, axis)
    below = points[axis] < at
    one, two = builder.split(node, axis, at)
    _halve(builder, one, rows[below], first, left)
    _halve(builder, two, rows[~below], first + left, partitions - left)


def _quantile(values: Array, share: float) -> float:
    """The value below which about this share of sorted values is; of two that are as near, the lower one."""
    wanted = share * len(values)
    at = values[min(round(wanted), len(values) - 1)]
    below, upto = np.searchsorted(values, at), np.searchsorted(values, at, "right")
    if upto < len(values) and abs(upto - wanted) < abs(below - wanted):
        at = values[upto]
    return float(at)


def _divide_cells(builder: _Builder, kind: MapKind, partitions: int) -> None:
    """Halve cells on each axis in turn, then give the leaves their owners along a Hilbert curve."""
    points = builder.points
    low, high = points.min(axis=1), points.max(axis=1)
    most = points.shape[1] / (LEAVES_PER_PARTITION * partitions)
    even = min(int(np.ceil(np.log2(LEAVES_PER_PARTITION * partitions))), MAX_GRID_DEPTH)
    open_cells = [(builder.root(), np.arange(points.shape[1]), low, high, 0)]
    centres: list[Array] = []
    leaves: list[int] = []
    while open_cells:
        node, rows, lowest, highest, depth = open_cells.pop()
        axis = depth % len(points)
        at = float(lowest[axis] / 2 + highest[axis] / 2)
        full = depth < even if kind == "grid" else len(rows) > most and depth < MAX_DEPTH
        if not full or (kind == "quadtree" and not (lowest < highest).any()):
            builder.loads[node] = len(rows)
            leaves.append(node)
            centres.append(lowest / 2 + highest / 2)
            continue
        below = points[axis, rows] < at
        middle_high, middle_low = highest.copy(), lowest.copy()
        middle_high[axis] = middle_low[axis] = at
        one, two = builder.split(node, axis, at)
        open_cells += [
            (one, rows[below], lowest, middle_high, depth + 1),
            (two, rows[~below], middle_low, highest, depth + 1),
        ]
    _cut_curve(builder, leaves, np.ascontiguousarray(np.stack(centres, axis=1)), (low, high), partitions)


def _cut_curve(
    builder: _Builder, leaves: list[int], centres: Array, ends: tuple[Array, Array], partitions: int
) -> None:
    """Cut the leaves, in the order of a Hilbert curve over the cells, into partitions of equal load."""
    low, high = ends
    # Evenly spaced quantiles: the curve's levels are the cells' own.
    levels = np.arange(QUANTILES + 1) / QUANTILES
    even = [np.ascontiguousarray(a * (1 - levels) + b * levels) for a, b in zip(low, high, strict=True)]
    order = Curve(even).order(list(centres), None, Team(1))
    loads = np.array([builder.loads[leaf] for leaf in leaves], np.float64)[order]
    middle = (np.cumsum(loads) - loads / 2) / loads.sum()
    owners = np.minimum((middle * partitions).astype(np.int64), partitions - 1)
    for leaf, owner in zip(order, owners, strict=True):
        builder.owners[leaves[int(leaf)]] = int(owner)
