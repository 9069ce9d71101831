"""Chooses how a nearest-neighbour join is distributed over tasks, broadcast or partition, and says why.

- *broadcast*: s is small, or r is a stream. It is saved once and mapped by every worker; there is no shuffle.
- *partition*: r is cut into cells, and s rows go to every cell in which they may be a neighbour. With `by`, cells are
  ranges of a hash of the groups. Without it they are boxes of points, each with an upper bound of the k-th distance
  that comes from a sample of s (`join_parts/knn_routes.py`). The sample must still be a part of s when the join runs;
  tasks check what follows from that, so a frame that has changed is an error and never a wrong row.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np
import numpy.typing as npt
from pyspark.sql import DataFrame
from pyspark.sql import types as ty

from millrace.errors import ArgumentError
from millrace.ingest.checks import choice
from millrace.ingest.knn_arguments import SearchArguments
from millrace.join_parts.knn_routes import PointRoutes, PointSample
from millrace.spark.cluster.settings import DEFAULTS, Settings
from millrace.spark.plan import columns as cl
from millrace.spark.plan import strategy as st
from millrace.spark.plan.routing import Cells, as_double
from millrace.spark.plan.sampling import Sample, cut, sample

KnnStrategyName = Literal["auto", "broadcast", "partition"]
STRATEGIES = get_args(KnnStrategyName)
MIN_SAMPLE = 1 << 14
SAMPLES_PER_NEIGHBOUR = 16
"""A sample has at least so many rows for each of the k neighbours, so that its bounds are useful."""
SLACK = 1e-9
"""More than the JVM's sines and cosines of moderate angles can differ from the C library's."""
MAX_LONGITUDE = 1e3
"""Beyond it a small error of an angle in degrees may be a large one of its sine."""
Ends = npt.NDArray[np.float64]


@dataclass(frozen=True)
class KnnRequest:
    """A nearest-neighbour join as the choice of a strategy needs it. In a self-join both frames are the same."""

    frames: dict[str, DataFrame]
    search: SearchArguments
    strategy: str
    tasks: int
    settings: Settings = DEFAULTS
    one_pass: bool = False
    """Whether sizes and ends come from the samples alone, for `ms.explain`; the call looks at all rows for them."""

    @property
    def streaming(self) -> bool:
        """Whether r is a stream."""
        return bool(self.frames["r"].isStreaming)

    @property
    def sides(self) -> tuple[str, ...]:
        """The sides that are separate frames."""
        return ("r",) if self.search.self_join else ("r", "s")

    @property
    def one_role(self) -> bool:
        """Whether the rows of a self-join are read alike as r and as s."""
        spec = self.search.spec
        return self.search.self_join and spec.on["r"] == spec.on["s"] and spec.by["r"] == spec.by["s"]


@dataclass(frozen=True)
class KnnStrategy:
    """The chosen strategy; `routes` (points) or `groups` (`by`) say where rows go in a partitioned join."""

    name: str
    why: str
    routes: PointRoutes | None = None
    groups: Cells | None = None

    @property
    def shards(self) -> int:
        """The number of shards: one partition each."""
        if self.groups is not None:
            return self.groups.shards
        return 1 if self.routes is None else self.routes.cells.shards

    def describe(self) -> dict[str, Any]:
        """Entries for `ms.explain`."""
        entries: dict[str, Any] = {"strategy": self.name, "why": self.why}
        if self.groups is not None:
            split = max(self.groups.ways)
            entries |= {"cells": f"{len(self.groups.ways)} by a hash of the groups", "shards": self.shards}
            entries |= {"large groups": f"split in up to {split} ways"} if split > 1 else {}
        if self.routes is not None:
            copies = self.routes.copies
            entries |= {"cells": f"{len(self.routes.cells.cells)} boxes", "shards": self.shards}
            entries["copies of an s row"] = f"{copies:.2f} by the sample"
            if self.shards > 2 and copies > self.shards / 2:
                entries["warning"] = "most s rows go to most shards: the bounds of the k-th distance are wide"
        return entries


def choose_nearest(request: KnnRequest) -> KnnStrategy:
    """The strategy by the size of s, or the requested one."""
    name = choice("strategy", request.strategy, STRATEGIES)
    if request.streaming:
        if name == "partition":
            raise ArgumentError("strategy='partition' is for batch frames: a stream r searches s by 'broadcast'")
        return KnnStrategy("broadcast", "r is a stream; s is read once, at the call, and held by every worker")
    if name == "broadcast":
        return KnnStrategy("broadcast", "requested; s is held by every worker")
    samples = _samples(request)
    held, rows = request.frames["s"], samples["s"].rows
    if name == "auto":
        limit = request.settings.broadcast_limit
        size = round(rows * samples["s"].width(held.schema))
        if not request.one_pass:
            size = st.measured_size(held, size, limit)
        if size <= limit:
            return KnnStrategy("broadcast", st.small_enough("s", rows, size, limit))
    why = "requested" if name == "partition" else f"s has about {rows:,} rows, too many to hold them in every worker"
    shards = st.shards_for(request.tasks, samples["r"].rows + rows)
    if request.search.spec.by["r"]:
        return KnnStrategy("partition", why, groups=cut(samples["r"], None, shards))
    points = {side: PointSample(one.rows, one.values) for side, one in samples.items()}
    box = _box_of_sample(request, points["r"]) if request.one_pass else _box(request)
    routes = PointRoutes.of(request.search, points, box, shards)
    return KnnStrategy("partition", why, routes=routes)


def _samples(request: KnnRequest) -> dict[str, Sample]:
    """Samples of both sides: their groups or, without `by`, their coordinates."""
    spec, wanted = request.search.spec, {}
    for side in ("r",) if request.one_role else ("r", "s"):
        schema = request.frames[side].schema
        names = spec.on[side]  # type: ignore[index]
        coordinates = [as_double(name, schema[name].dataType) for name in names]
        wanted[side] = [group_key(schema, spec.by[side])] if spec.by["r"] else coordinates  # type: ignore[index]
    rows = max(MIN_SAMPLE, SAMPLES_PER_NEIGHBOUR * (request.search.k + 1))
    drawn = sample({side: request.frames[side] for side in wanted}, wanted, rows, sizes=request.one_pass)
    return {"s": drawn["r"], **drawn}


def group_key(schema: ty.StructType, names: Sequence[str]) -> str:
    """SQL: a hash of a row's `by` columns as a double. Equal groups of both sides have equal hashes."""
    values = (f"({as_double(name, schema[name].dataType)} + 0.0D)" for name in names)  # -0.0 becomes 0.0
    return f"double(xxhash64({', '.join(values)}))"


def no_point(search: SearchArguments, schema: ty.StructType, side: str) -> str:
    """SQL that is true if a row matches nothing; never null. The rule of `mr.knn_join`, in SQL."""
    names = search.spec.on[side]  # type: ignore[index]
    groups = search.spec.by[side]  # type: ignore[index]
    terms = [cl.unusable(schema, [*names, *groups])]
    numbers = [f"abs(double({cl.quoted(name)}))" for name in names]
    terms += [f"coalesce({number} = double('Infinity'), false)" for number in numbers]
    if search.spec.metric == "haversine":
        terms.append(f"coalesce({numbers[1]} > 90, false)")
    return f"({' OR '.join(terms)})"


def _box(request: KnnRequest) -> tuple[Ends, Ends]:
    """The ends of all r points in each dimension, from a pass of the JVM over r."""
    frame, search = request.frames["r"], request.search
    numbers = [f"double({cl.quoted(name)})" for name in search.spec.on["r"]]
    sphere = search.spec.metric == "haversine"
    values = _unit_vector(*numbers) if sphere else numbers
    ends = [f"{end}({value})" for end in ("min", "max") for value in values]
    kept = frame.where(f"NOT {no_point(search, frame.schema, 'r')}")
    row = kept.selectExpr(*ends, f"max(abs({numbers[0]}))").first()
    dims = len(values)
    if row is None or row[0] is None:  # no row of r is a point
        return np.zeros(dims), np.zeros(dims)
    if sphere and row[2 * dims] > MAX_LONGITUDE:
        return np.full(dims, -1.0), np.ones(dims)
    margin = SLACK if sphere else 0.0
    return np.array(row[:dims]) - margin, np.array(row[dims : 2 * dims]) + margin


def _box_of_sample(request: KnnRequest, sampled: PointSample) -> tuple[Ends, Ends]:
    """About the same from a sample of r."""
    points = sampled.points(request.search.spec.metric)
    if not len(points):
        return np.zeros(points.shape[1]), np.zeros(points.shape[1])
    return points.min(axis=0), points.max(axis=0)


def _unit_vector(longitude: str, latitude: str) -> list[str]:
    a, b = f"radians({longitude})", f"radians({latitude})"
    return [f"cos({b}) * cos({a})", f"cos({b}) * sin({a})", f"sin({b})"]
