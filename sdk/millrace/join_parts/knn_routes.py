"""Which shards the rows of a nearest-neighbour join go to, for callers that cut tables into shards, such as Spark.

The caller samples both sides and finds the box of r; the routes then say, for columns of coordinates, each r row's
shard and the shards in which an s row may be a neighbour (`host/knn/bounded_cells.py`). Routes are sent to workers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from millrace.host.base.types import Array
from millrace.host.knn.bounded_cells import BoundedCells, SampledPoints, bound_cells, cut_cells
from millrace.host.knn.metric import Metric, to_points, usable_points
from millrace.host.runtime.pool import cores
from millrace.host.runtime.team import Team
from millrace.ingest.knn_arguments import SearchArguments


@dataclass(frozen=True)
class PointSample:
    """Sampled coordinates of a side, in columns of doubles, and the rows that the side has."""

    rows: int
    coordinates: Sequence[Array]

    def points(self, metric: Metric) -> Array:
        """The sampled points, one per row, without those that match nothing."""
        usable = usable_points(metric, list(self.coordinates))
        return np.stack(to_points(metric, [np.ascontiguousarray(one[usable]) for one in self.coordinates]), axis=1)


@dataclass(frozen=True)
class PointRoutes:
    """Cells, and the metric that makes points of coordinates. `copies`: shards per s row, by the sample."""

    metric: Metric
    cells: BoundedCells
    copies: float

    @staticmethod
    def of(
        search: SearchArguments, samples: Mapping[str, PointSample], box: tuple[Array, Array], shards: int
    ) -> PointRoutes:
        """Cells for about `shards` shards. `box`: the ends of all points of r, in the dimensions of the search."""
        metric = search.spec.metric
        points = {side: samples[side].points(metric) for side in ("r", "s")}
        weights = [np.full(len(points[side]), samples[side].rows / max(len(points[side]), 1)) for side in points]
        of_r = np.repeat([True, False], [len(one) for one in weights])
        both = SampledPoints(np.concatenate(list(points.values())), np.concatenate(weights), of_r)
        wanted = search.k + search.self_join  # a row may be in the sample itself
        cells = bound_cells(cut_cells(both, box, shards), points["s"], wanted, search.limit, Team(cores()))
        counts, _ = cells.guest_shards(list(points["s"].T))
        return PointRoutes(metric, cells, float(counts.mean()) if len(counts) else 0.0)

    def _points(self, columns: Sequence[pa.Array]) -> list[Array]:
        numbers = [np.ascontiguousarray(one.to_numpy(zero_copy_only=False), np.float64) for one in columns]
        return to_points(self.metric, numbers)

    @property
    def hashed(self) -> bool:
        """Whether a cell has several shards, so that r rows need hashes to be spread over them."""
        return bool((self.cells.first < self.cells.last)[self.cells.cells].any())

    def home(self, columns: Sequence[pa.Array], hashes: pa.Array | None = None) -> pa.Array:
        """The shard of each r row, any if it is no point. Its hash selects one of several shards of its cell."""
        return pa.array(self.cells.home_shards(self._points(columns), _numbers(hashes)).astype(np.int32))

    def guests(self, columns: Sequence[pa.Array]) -> pa.Array:
        """A list of the shards of each s row; none if it is nobody's neighbour."""
        return _lists(*self.cells.guest_shards(self._points(columns)))

    def home_and_guests(self, columns: Sequence[pa.Array], hashes: pa.Array | None = None) -> pa.Array:
        """Both in one list for a self-join, the shard as an r row first. `columns`: r's coordinates, then s's."""
        homes = self.cells.home_shards(self._points(columns[: len(columns) // 2]), _numbers(hashes))
        return _lists(*self.cells.guest_shards(self._points(columns[len(columns) // 2 :]), homes))


def _numbers(hashes: pa.Array | None) -> Array | None:
    return None if hashes is None else hashes.to_numpy()


def _lists(counts: Array, values: Array) -> pa.Array:
    offsets = np.zeros(len(counts) + 1, np.int32)
    np.cumsum(counts, out=offsets[1:])
    return pa.ListArray.from_arrays(pa.array(offsets), pa.array(values.astype(np.int32)))
