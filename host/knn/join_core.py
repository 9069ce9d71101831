"""A join core of ADS-kNN: the points of one partition, with an index of their own (thesis, appendix C 4.2).

Points keep their positions in the whole window. Inside, the local index (`index.py`) numbers them in the order in which
this core got them, so positions must come in ascending order. A core takes and returns arrays; it knows no threads, no
other cores and no map, so it runs in a thread and in a partition of Spark alike.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from millrace.host.base.types import Array, Longs
from millrace.host.data.sliding import SlidingArray
from millrace.host.knn.index import PointIndex, PointQueries
from millrace.host.knn.run import Points
from millrace.host.runtime.jit import kernel
from millrace.host.runtime.team import Team


@dataclass(frozen=True)
class PointShape:
    """What all points of a window have in common: dimensions, and whether they have groups and tie keys."""

    dims: int
    grouped: bool = False
    tied: bool = False


@dataclass(frozen=True)
class Found:
    """Neighbours of queries: how many each has, then squares, positions and tie keys, in order, up to k of each."""

    counts: Longs
    squares: Array
    positions: Array
    ties: Array
    """The same array as `positions` if points have no tie keys."""

    @classmethod
    def room(cls, queries: int, k: int, tied: bool) -> Found:
        """Room for the neighbours of queries; none are there yet."""
        positions = np.empty((queries, k), np.int64)
        ties = np.empty((queries, k), np.int64) if tied else positions
        return cls(np.zeros(queries, np.int64), np.empty((queries, k)), positions, ties)

    def merge(self, rows: Longs, other: Found) -> None:
        """Add the neighbours of other queries to those in the rows `rows`, and keep the first k of each."""
        _merge(
            rows,
            *(other.counts, other.squares, other.positions, other.ties),
            *(self.counts, self.squares, self.positions, self.ties),
        )

    def limits(self, rows: Longs, limit: float) -> Array:
        """The squared distance that a further neighbour of each row may have: its last one's if it has k of them."""
        k = self.squares.shape[1]
        return np.where(self.counts[rows] == k, self.squares[rows, k - 1], limit)


@kernel
def _merge(
    rows: Any,
    counts: Any,
    squares: Any,
    positions: Any,
    ties: Any,
    to_counts: Any,
    to_squares: Any,
    to_positions: Any,
    to_ties: Any,
) -> None:
    k = to_squares.shape[1]
    kept_squares, kept_positions, kept_ties = np.empty(k), np.empty(k, np.int64), np.empty(k, np.int64)
    for i in range(rows.shape[0]):
        row = rows[i]
        held, new, a, b, n = to_counts[row], counts[i], 0, 0, 0
        while n < k and (a < held or b < new):
            own = b >= new
            if a < held and b < new:
                one, two = to_squares[row, a], squares[i, b]
                own = one < two or (one == two and to_ties[row, a] < ties[i, b])
            if own:
                kept_squares[n], kept_positions[n] = to_squares[row, a], to_positions[row, a]
                kept_ties[n] = to_ties[row, a]
                a += 1
            else:
                kept_squares[n], kept_positions[n], kept_ties[n] = squares[i, b], positions[i, b], ties[i, b]
                b += 1
            n += 1
        for j in range(n):
            to_squares[row, j] = kept_squares[j]
            to_positions[row, j] = kept_positions[j]
            to_ties[row, j] = kept_ties[j]
        to_counts[row] = n


@kernel
def _translate(counts: Any, local: Any, first: int, positions: Any, ties: Any, to_positions: Any, to_ties: Any) -> None:
    for i in range(counts.shape[0]):
        for j in range(counts[i]):
            at = local[i, j] - first
            to_positions[i, j] = positions[at]
            to_ties[i, j] = ties[at]


class JoinCore:
    """The points of a partition."""

    def __init__(self, shape: PointShape) -> None:
        """No points yet."""
        self._shape = shape
        self._index = PointIndex(shape.dims, Team(1), 0, shape.grouped, shape.tied)
        self._positions = SlidingArray(np.int64)
        self._ties = SlidingArray(np.int64) if shape.tied else self._positions

    def __len__(self) -> int:
        """Return the number of points held."""
        return len(self._positions)

    @property
    def builds(self) -> tuple[int, int]:
        """How many runs of points were built, and of how many points."""
        return self._index.builds, self._index.built_points

    def insert(self, points: Points) -> None:
        """Append points, in the order of their positions."""
        self._index.insert(points.columns, points.groups, points.ties if self._shape.tied else None)
        self._positions.append(points.positions)
        if self._shape.tied:
            self._ties.append(points.ties)

    def expire(self, keep: int) -> None:
        """Drop the points below position `keep`."""
        local = self._positions.first + int(self._positions.view().searchsorted(keep))
        if local > self._positions.first:
            self._index.expire(local)
            self._positions.drop_before(local)
            if self._shape.tied:
                self._ties.drop_before(local)

    def search(self, queries: PointQueries, k: int, limit: float = np.inf) -> Found:
        """Return the k nearest points of each query; intervals and own positions are those of the whole window."""
        view, first = self._positions.view(), self._positions.first
        begin, end = (
            None if ends is None else first + view.searchsorted(ends) for ends in (queries.begin, queries.end)
        )
        own = None
        if queries.own is not None:
            at = view.searchsorted(queries.own)
            held = np.append(view, -1)[at] == queries.own
            own = np.where(held, first + at, -1)
        local = PointQueries(queries.columns, begin, end, own, queries.groups, queries.limits)
        found = self._index.query(local, k, limit)
        positions = np.empty(found.positions.shape, np.int64)
        ties = np.empty(positions.shape, np.int64) if self._shape.tied else positions
        _translate(found.counts, found.positions, first, view, self._ties.view(), positions, ties)
        return Found(found.counts, found.squares, positions, ties)

    def held(self) -> Points:
        """All points, with their positions in the whole window."""
        points = self._index.held()
        positions = self._positions.view().copy()
        return Points(points.columns, positions, points.ties if self._shape.tied else positions, points.groups)
