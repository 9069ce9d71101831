"""Chooses how a join is distributed over tasks, broadcast, buckets, range or grid, and says why.

- *broadcast*: s is small (or r, for an inner join). It is saved once and mapped by every worker; there is no shuffle.
- *buckets*: Spark's own equi-join does it, over equal columns and buckets of a band (`buckets.py`), and seems faster.
- *range*: the condition bounds a column of the home side on both ends: rows go to cells of that column.
- *grid*: it does not: blocks of the home side meet the rows of the other side that can match them.

The home side is r: each of its rows is in exactly one shard, so every `how` is correct. In a right join it is s. An
inner join may use s, and does if only s is bounded on both ends (`s.x BETWEEN r.lo AND r.hi`) or, if r and s are equal
in that, if s has the heavier hitter. A full join is two joins: a left join, and the rows of s without a partner. Sizes
and cells come from samples; with `splits` there is no sampling. A stream r searches a table s by broadcast.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, get_args

import pyarrow.compute as pc
from pyspark.sql import DataFrame
from pyspark.sql import types as ty

import millrace as mr
from millrace.errors import ArgumentError
from millrace.ingest.checks import choice
from millrace.join_parts.routes import BoundCondition, Route
from millrace.spark.cluster.settings import DEFAULTS, Settings
from millrace.spark.plan import columns as cl
from millrace.spark.plan import costs
from millrace.spark.plan.buckets import Buckets, BucketTerms, bucket_terms, sampled_columns
from millrace.spark.plan.hows import other_side
from millrace.spark.plan.output_columns import ALL_COLUMNS, OutputColumns
from millrace.spark.plan.routing import Blocks, Cells, as_double, range_of
from millrace.spark.plan.sampling import Sample, as_split, cut, cut_blocks, given_cells, sample

StrategyName = Literal["auto", "broadcast", "buckets", "range", "grid"]
STRATEGIES = get_args(StrategyName)
CELL_ROWS = 1 << 21
"""Maximum rows of a shard, if rows are spread evenly."""
SHARDS_PER_TASK = 2
"""Shards per concurrent task, so that one large shard does not delay the others for long."""
Frames = dict[str, DataFrame]


@dataclass(frozen=True)
class Strategy:
    """The chosen strategy. `held`: the side that every worker holds; `home`: the side that is cut into cells."""

    name: str
    why: str
    held: str | None = None
    home: str = "r"
    route: Route | None = None
    cells: Cells | Blocks | None = None
    buckets: Buckets | None = None
    sort_held: bool = True
    """Whether the held rows are sorted by their key: not worth it if they have few partners."""

    def describe(self) -> dict[str, Any]:
        """Entries for `ms.explain`."""
        entries: dict[str, Any] = {"strategy": self.name, "why": self.why}
        if self.buckets is not None:
            entries |= {"buckets": self.buckets.describe(), "home": self.buckets.home}
        if self.cells is None:
            return entries
        if isinstance(self.cells, Blocks):
            assert self.route is not None
            keys = f"{self.home}.{self.route.column}, then {self.home}.{self.cells.second.column}"
            return entries | {
                "cells": f"{len(self.cells.inner)} slabs of blocks, by {keys}",
                "shards": self.cells.shards,
            }
        by = f"a hash of {self.home}'s rows"
        if self.route is not None:
            by = f"{'a hash of ' * self.route.hashed}{self.home}.{self.route.column}"
        entries |= {"cells": f"{len(self.cells.ways)} by {by}", "shards": self.cells.shards}
        split = sum(way > 1 for way in self.cells.ways)
        if split:
            entries["heavy hitters"] = f"{split}, split in up to {max(self.cells.ways)} ways"
        if self.route is None or not self.route.hashed:
            entries["splits"] = list(self.cells.bounds)
        return entries


@dataclass(frozen=True)
class JoinRequest:
    """A join as the choice of a strategy needs it. `kept`: the side that `left`, `semi` and `anti` are about."""

    frames: Frames
    condition: BoundCondition
    how: str
    splits: Sequence[Any] | None
    strategy: str
    tasks: int
    settings: Settings = DEFAULTS
    shards: int | None = None
    shards_given: bool = False
    """Whether `shards` is an argument of the call, not a setting."""
    in_python: bool = False
    """Whether rows must pass through Python: a device was named, or tasks count their work."""
    output: OutputColumns = ALL_COLUMNS
    kept: str = "r"
    one_pass: bool = False
    """Whether sizes come from the samples alone, for `ms.explain`; the call measures rows of variable length."""
    drawn: dict[str, Sample] = field(default_factory=dict, compare=False)
    """The samples, once they are drawn; the parts of a join share them."""

    @property
    def parts(self) -> tuple[JoinRequest, ...]:
        """The joins, `inner`, `left`, `semi` or `anti`, whose union is this one."""
        if self.how == "right":
            return (replace(self, how="left", kept="s"),)
        if self.how == "full":
            return replace(self, how="left"), replace(self, how="anti", kept="s")
        return (self,)

    @property
    def pairs(self) -> bool:
        """Whether the output has the columns of both sides."""
        return self.how not in ("semi", "anti", "count")

    @property
    def streaming(self) -> bool:
        """Whether r is a stream; s never is."""
        return self.frames["r"].isStreaming

    @property
    def bucket_terms(self) -> BucketTerms | None:
        """What Spark's own equi-join can use of the condition."""
        if self.how == "count":
            return None
        return bucket_terms(self.condition, {side: frame.schema for side, frame in self.frames.items()})

    def samples(self) -> dict[str, Sample]:
        """A sample of each side."""
        if not self.drawn:
            own = {side: self.condition.columns[side] for side in ("r", "s")}
            wanted = {side: sample_columns(self, side) for side in own}
            self.drawn.update(sample(self.frames, wanted, own=own, tasks=self.tasks, sizes=self.one_pass))
        return self.drawn

    def route(self, side: str) -> Route | None:
        """The best route of a side."""
        routes = self.condition.routes[side]  # type: ignore[index]
        return routes[0] if routes else None

    def second_route(self, side: str) -> Route | None:
        """Another route, if the best one is open at an end: both together exclude more."""
        routes = [route for route in self.condition.routes[side] if not route.hashed]  # type: ignore[index]
        return routes[1] if len(routes) > 1 and not routes[0].bounded else None

    def ordered_route(self, side: str) -> Route | None:
        """The best route of a side by a column that has an order, so that users can name splits of it."""
        routes = self.condition.routes[side]  # type: ignore[index]
        return next((route for route in routes if not route.hashed), None)


def choose(request: JoinRequest) -> Strategy:
    """The strategy of a part by size and condition, or the requested one."""
    name = choice("strategy", request.strategy, STRATEGIES)
    if request.streaming:
        return _of_stream(request)
    if name == "auto" and request.splits is None:
        name = choice("the setting spark.millrace.strategy", request.settings.strategy, STRATEGIES)
    if request.splits is not None:
        return by_splits(request)
    if name == "broadcast":
        held = other_side(request.kept)
        return Strategy("broadcast", f"requested; {held} is held by every worker", held=held)
    if name == "buckets":
        return _requested_buckets(request)
    samples = request.samples()
    if name == "auto":
        found = _fastest(request, samples)
        if found is not None:
            return found
    return _by_cells(request, samples, requested=name)


def _of_stream(request: JoinRequest) -> Strategy:
    if request.strategy not in ("auto", "broadcast") or request.splits is not None:
        given = "splits" if request.splits is not None else f"strategy={request.strategy!r}"
        raise ArgumentError(f"{given}: r is a stream, which searches the table s by 'broadcast'; leave it out")
    return Strategy("broadcast", "r is a stream; s is read once, at the call, and held by every worker", held="s")


def _requested_buckets(request: JoinRequest) -> Strategy:
    terms = request.bucket_terms
    if terms is None or not _homes(request, terms):
        raise ArgumentError(
            f"strategy='buckets' needs a comparison of two columns by = or a band of constant width, pairs or rows as "
            f"output, and types that Spark compares exactly ({request.condition.kind} here): use 'auto'"
        )
    return Strategy("buckets", "requested; Spark's own join", buckets=_best_buckets(request, terms, request.samples()))


def _homes(request: JoinRequest, terms: BucketTerms) -> list[str]:
    """The sides that may be cut into buckets; outer joins keep the rows of their home side."""
    return [side for side in terms.homes() if request.how == "inner" or side == request.kept]


def _best_buckets(request: JoinRequest, terms: BucketTerms, samples: dict[str, Sample]) -> Buckets:
    options = [costs.best_width(terms, samples, home) for home in _homes(request, terms)]
    return min(options, key=lambda option: costs.of_buckets(option, samples))


def _fastest(request: JoinRequest, samples: dict[str, Sample]) -> Strategy | None:
    """Broadcast or Spark's own join, whichever seems faster; None: cells."""
    sizes = {side: round(one.rows * one.width(request.frames[side].schema)) for side, one in samples.items()}
    limit = request.settings.broadcast_limit
    small = _small(request, sizes)
    rows = {side: one.rows for side, one in samples.items()}
    pairs = estimated_pairs(samples, request.condition)
    terms = None if request.in_python else request.bucket_terms
    if terms is not None and _homes(request, terms):
        best = _best_buckets(request, terms, samples)
        others = costs.of_broadcast(rows, small, pairs) if small else costs.of_cells(rows, pairs)
        if costs.of_buckets(best, samples, pairs) < others:
            why = f"Spark's own join seems faster: about {best.compared:,.0f} comparisons"
            return Strategy("buckets", why, buckets=best)
    if small is None:
        return None
    why = small_enough(small, rows[small], sizes[small], limit)
    return Strategy("broadcast", why, held=small, sort_held=costs.sort_held(rows[small], pairs))


def estimated_pairs(samples: dict[str, Sample], condition: BoundCondition) -> float:
    """The pairs of the samples, counted exactly and scaled up."""
    r, s = samples["r"].table, samples["s"].table
    assert r is not None
    assert s is not None
    if not r.num_rows or not s.num_rows:
        return 0.0
    found = int(pc.sum(mr.join(r, s, on=condition.text, device="cpu", output="count")["count"]).as_py() or 0)
    return float(found * (samples["r"].rows / r.num_rows) * (samples["s"].rows / s.num_rows))


def _small(request: JoinRequest, sizes: dict[str, int]) -> str | None:
    """The side to broadcast, if one is small enough; the size of rows of variable length is measured first."""
    allowed = ("r", "s") if request.how == "inner" else (other_side(request.kept),)
    limit = request.settings.broadcast_limit
    for side in sorted(allowed, key=lambda side: (sizes[side], side != "s")):
        if not request.one_pass:
            sizes[side] = measured_size(request.frames[side], sizes[side], limit)
        if sizes[side] <= limit:
            return side
    return None


def measured_size(frame: DataFrame, estimate: int, limit: int) -> int:
    """A frame's estimated bytes; measured if they seem few enough to broadcast and rows have variable length."""
    unknown = estimate <= limit and not cl.has_fixed_rows(frame.schema)
    return cl.measured_bytes(frame) if unknown else estimate


def small_enough(side: str, rows: int, size: int, limit: int) -> str:
    """Why a side is broadcast."""
    return f"{side} has about {rows:,} rows, {size >> 20} MiB: no more than {limit >> 20} MiB"


def sample_columns(request: JoinRequest, side: str) -> list[str]:
    """The columns to sample: a side's key in its own route, and the ends of its ranges in the other side's route."""
    frame = request.frames[side]
    own, across = request.route(side), request.route(other_side(side))
    wanted: list[str] = []
    if own is not None:
        wanted.append(as_double(own.column, frame.schema[own.column].dataType))
    if across is not None:
        wanted += list(range_of(across.ranges[0], frame.schema))
    second = request.second_route(side)
    if second is not None:
        wanted.append(as_double(second.column, frame.schema[second.column].dataType))
    terms = request.bucket_terms
    return wanted if terms is None else wanted + sampled_columns(terms, frame.schema, side)


def _by_cells(request: JoinRequest, samples: dict[str, Sample], requested: str) -> Strategy:
    home = _home(request, samples)
    guest = other_side(home)
    route = request.route(home)
    bounded = route is not None and route.bounded
    if requested == "range" and not bounded:
        raise ArgumentError(
            f"strategy='range' needs a condition that bounds a column of {home} on both ends, and this one "
            f"({request.condition.kind}) does not: use 'grid' or 'broadcast'"
        )
    shards = request.shards or shards_for(request.tasks, sum(one.rows for one in samples.values()))
    if route is None:
        return Strategy("grid", "no comparison bounds a plain column", home=home, cells=Cells((), (shards,)))
    ends = samples[guest].values[1 if request.route(guest) is not None else 0 :]
    weights = Sample(samples[guest].rows, ends) if bounded else None
    cells: Cells | Blocks = cut(samples[home], weights, shards)
    second = request.second_route(home)
    if second is not None and len(samples[home].values[0]):
        keys = samples[home].values[1 + 2 * (request.route(guest) is not None)]
        cells = cut_blocks(samples[home].values[0], keys, samples[home].rows, shards, second)
    name = requested if requested != "auto" else "range" if bounded else "grid"
    why = f"the condition bounds {home}.{route.column} on {'both ends' if bounded else 'one end'}"
    if isinstance(cells, Blocks):
        why = f"the condition bounds {home}.{route.column} and {home}.{cells.second.column} on one end each"
    if route.hashed:
        why = f"the condition compares {home}.{route.column}, which has no order, by ="
    return Strategy(name, why, home=home, route=route, cells=cells)


def _home(request: JoinRequest, samples: dict[str, Sample]) -> str:
    """The kept side; for an inner join s, if only s is bounded on both ends, or else if s has the heavier hitter."""
    routes = {side: request.route(side) for side in (("r", "s") if request.how == "inner" else (request.kept,))}

    def worth(side: str) -> tuple[bool, bool, int, bool]:
        route = routes[side]
        if route is None:
            return False, False, 0, side == "r"
        return True, route.bounded, _heaviest(samples[side]), side == "r"

    return max(routes, key=worth)


def _heaviest(given: Sample) -> int:
    """Estimated rows of the most frequent key, rounded so that sampling noise does not decide."""
    import numpy as np

    keys = given.values[0]
    if not len(keys):
        return 0
    most = int(np.unique(keys, return_counts=True)[1].max())
    return given.rows * (most * 20 // len(keys))


def shards_for(tasks: int, rows: int) -> int:
    """The number of shards: enough for all tasks, and none too large."""
    return max(SHARDS_PER_TASK * tasks, -(-rows // CELL_ROWS))


def by_splits(request: JoinRequest) -> Strategy:
    """Cells that begin at the given splits."""
    if request.strategy == "broadcast":
        raise ArgumentError("splits are for strategy='range' or 'grid': leave one of the two out")
    if request.shards_given:
        raise ArgumentError("splits already say how many shards there are: leave splits or shards out")
    if request.kept == "s":
        raise ArgumentError(
            "splits cut r's column, but a right or full join is cut by a column of s: leave splits out, or swap r and s"
        )
    route = request.ordered_route("r")
    if route is None:
        raise ArgumentError(
            "splits need a condition that bounds a plain column of r with numbers or times, and this one bounds none"
        )
    if request.strategy == "range" and not route.bounded:
        raise ArgumentError("strategy='range' needs a condition that bounds a column of r on both ends: use 'grid'")
    data_type = request.frames["r"].schema[route.column].dataType
    temporal = isinstance(data_type, ty.DatetimeType)
    given = request.splits
    if isinstance(given, str) or not isinstance(given, Sequence):
        raise ArgumentError(f"splits={given!r}: allowed is a list of values of r.{route.column}")
    bounds = [as_split(value, temporal) for value in given]
    for value, bound in zip(given, bounds, strict=True):
        if bound is None:
            kind = "dates or timestamps" if temporal else "finite numbers"
            raise ArgumentError(f"splits: {value!r} is no value of r.{route.column}; allowed are {kind}")
    cells = given_cells([bound for bound in bounds if bound is not None])
    name = "range" if route.bounded else "grid"
    return Strategy(name, f"splits of r.{route.column} were given", route=route, cells=cells)
