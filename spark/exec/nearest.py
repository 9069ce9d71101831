"""What the tasks of a nearest-neighbour join do: find the shards of rows, search held rows, and build the output.

A broadcast join maps s, saved by the driver, and searches it with batches of r. In a self-join the driver saves the one
table, and tasks get row numbers of it: so a row is never its own neighbour, in whatever order Spark would read the rows
a second time. In a partitioned join each shard has its r rows and all s rows that may be their neighbours. Equal
distances are ordered by the order in which Spark collects s: positions in the saved table, or row ids.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as fn
from pyspark.sql import types as ty
from pyspark.sql.pandas.functions import arrow_udf

from millrace.ingest.knn_arguments import SearchArguments
from millrace.join_parts.knn_probe import KnnProbe
from millrace.join_parts.knn_routes import PointRoutes
from millrace.spark.cluster.files import SharedFile, map_table
from millrace.spark.cluster.metrics import TASK_COLUMN, TASK_FIELDS
from millrace.spark.cluster.open_cache import OpenCache
from millrace.spark.cluster.task import DeviceRequest, reporting, task_device
from millrace.spark.exec import shuffle
from millrace.spark.exec.batch_bytes import DEFAULT_LIMITS, BatchLimits
from millrace.spark.exec.join_rows import (
    PROBE_ROWS,
    TASK_ARROW,
    merge_batches,
    named,
    output_batches,
    report_row,
)
from millrace.spark.exec.row_bytes import RowBytes, cut_gathered
from millrace.spark.plan import columns as cl
from millrace.spark.plan.nearest import KnnRequest, KnnStrategy, group_key, no_point
from millrace.spark.plan.routing import Cells

MAX_PROBES = 4
"""Probes of held tables that a worker keeps."""
BLOCK_PAIRS = 1 << 20
"""Neighbours that a task finds at once, about."""
ID, SHARDS, HOME = "__millrace_id", "__millrace_shards", "__millrace_home"
Batches = Iterable[pa.RecordBatch]
Task = Callable[[Batches], Iterator[pa.RecordBatch]]
_probes: OpenCache[tuple[SharedFile, str, pa.Schema], KnnProbe] = OpenCache(MAX_PROBES)
"""By file, search and r's schema. Files are named by content, so calls with the same s share one."""


@dataclass(frozen=True)
class KnnJob:
    """A nearest-neighbour join, as it is sent to the tasks."""

    search: SearchArguments
    device_request: DeviceRequest
    report: bool
    """Whether each task adds a row with its counts."""
    limits: BatchLimits = DEFAULT_LIMITS

    def local_search(self) -> SearchArguments:
        """The search on this task's threads; checks the worker's version."""
        threads = task_device(self.device_request).threads
        return replace(self.search, engine=replace(self.search.engine, device="cpu", threads=threads))


@dataclass
class _TaskCounts:
    """What a task has done so far."""

    held: int
    asked: int = 0
    pairs: int = 0

    def row(self, schema: pa.Schema) -> pa.RecordBatch:
        """A row that carries the counts."""
        known = {"tasks": 1, "asked": self.asked, "held": self.held, "pairs": self.pairs}
        return report_row(schema, {name: known.get(name, 0) for name in TASK_FIELDS})


def output_schema(r: pa.Schema, s: pa.Schema, report: bool) -> pa.Schema:
    """The columns of a task's output."""
    fields = [pa.field("rank", pa.int32()), pa.field("distance", pa.float64())]
    fields += [pa.field(f"{side}_{one.name}", one.type) for side, schema in (("r", r), ("s", s)) for one in schema]
    return pa.schema([*fields, *([pa.field(TASK_COLUMN, TASK_ARROW)] if report else [])])


def _search(
    job: KnnJob, probe: KnnProbe, r: pa.Table, held: pa.Table, counts: _TaskCounts, own: Any = None
) -> Iterator[pa.RecordBatch]:
    """The output for some rows of r; `own`: the held row that each must not find."""
    counts.asked += r.num_rows
    sizes = RowBytes.of(r), RowBytes.of(held)
    for found in probe.blocks(r, own):
        counts.pairs += found.pairs
        rows, positions = pa.array(found.queries), pa.array(found.positions, mask=found.missing)
        ranks, distances = (pa.array(one, mask=found.missing) for one in (found.ranks, found.distances))
        for cut in cut_gathered(zip(sizes, (rows, positions), strict=True), job.limits):
            part = [one.slice(*cut) for one in (ranks, distances, rows, positions)]
            leading = pa.table(part[:2], names=["rank", "distance"])
            payload = [named("r", r.take(part[2])), named("s", held.take(part[3]))]
            yield from output_batches([leading, *payload], job.report)


# Broadcast.


def broadcast_joiner(job: KnnJob, file: SharedFile) -> Task:
    """The function that tasks run on batches of r; the file holds s."""

    def join_batches(batches: Batches) -> Iterator[pa.RecordBatch]:
        search = job.local_search()
        counts, schema = None, None
        for bulk in merge_batches(batches, PROBE_ROWS, job.limits.bulk_bytes):
            held = map_table(file)
            counts, schema = counts or _TaskCounts(held.num_rows), output_schema(bulk.schema, held.schema, job.report)
            with _held_probe(file, search, held, bulk.schema) as probe:
                yield from _search(job, probe, bulk, held, counts)
        if job.report and counts is not None and schema is not None:
            yield counts.row(schema)

    return reporting(join_batches)


def _held_probe(file: SharedFile, search: SearchArguments, held: pa.Table, r_schema: pa.Schema) -> Any:
    """The probe of a saved table; it stays open for later tasks."""
    key = (file, repr(search), r_schema)
    return _probes.use(key, lambda: KnnProbe(search, held, r_schema, block_pairs=BLOCK_PAIRS))


def self_joiner(job: KnnJob, file: SharedFile) -> Task:
    """The function that tasks run on row numbers of the table in the file."""

    def join_rows(batches: Batches) -> Iterator[pa.RecordBatch]:
        search, held = job.local_search(), map_table(file)
        counts = _TaskCounts(held.num_rows)
        for bulk in merge_batches(batches, PROBE_ROWS, job.limits.bulk_bytes):
            own = bulk.column(0).to_numpy()
            with _held_probe(file, search, held, held.schema) as probe:
                yield from _search(job, probe, held.take(pa.array(own)), held, counts, own)
        if job.report:
            yield counts.row(output_schema(held.schema, held.schema, True))

    return reporting(join_rows)


# Partition.


def with_ids(frame: DataFrame) -> DataFrame:
    """The frame with row ids in the order in which Spark collects its rows."""
    return frame.withColumn(ID, fn.monotonically_increasing_id())


def shuffle_nearest(
    request: KnnRequest, frames: dict[str, DataFrame], chosen: KnnStrategy
) -> tuple[DataFrame, shuffle.Layout]:
    """Both sides in one frame, one partition for each shard, and where each side's columns are."""
    search, keep_all = request.search, request.search.left
    sides = {"r": frames["r"], "s": with_ids(frames["s"])}
    shared = shuffle.shared_columns(sides["r"].schema, sides["s"].schema)
    parts = []
    for side, frame in sides.items():
        unmatchable = no_point(search, frame.schema, side)
        columns = shuffle.side_columns(side, shared)
        if side == "r":
            kept = frame if keep_all else frame.where(f"NOT {unmatchable}")
            parts.append(kept.select(_home(search, kept, chosen, unmatchable).alias(shuffle.SHARD), *columns))
        else:
            kept = frame.where(f"NOT {unmatchable}")
            guests = kept.withColumn(SHARDS, _guests(search, kept, chosen))
            parts.append(guests.select(fn.explode(SHARDS).alias(shuffle.SHARD), *columns))
    together = parts[0].union(parts[1]).repartitionById(chosen.shards, fn.col(shuffle.SHARD)).drop(shuffle.SHARD)
    return together, shuffle.layout(shared, sides["r"].columns, sides["s"].columns)


def shuffle_self(request: KnnRequest, frame: DataFrame, chosen: KnnStrategy) -> DataFrame:
    """The rows of a self-join, one partition for each shard; a flag marks the rows that are r rows there.

    Each row is read once and sent from there as r and as s: its id is the same in all its copies.
    """
    search = request.search
    unmatchable = " AND ".join(
        no_point(search, frame.schema, side) for side in ("r", "s")[: 1 + (not request.one_role)]
    )
    kept = with_ids(frame if search.left else frame.where(f"NOT ({unmatchable})"))
    routed = kept.withColumn(SHARDS, _home_and_guests(search, kept, chosen, unmatchable))
    spread = routed.select("*", fn.posexplode(SHARDS).alias("__millrace_first", shuffle.SHARD))
    payload = [cl.column(name) for name in frame.columns]
    tagged = spread.select(shuffle.SHARD, (fn.col("__millrace_first") == 0).alias(HOME), fn.col(ID), *payload)
    return tagged.repartitionById(chosen.shards, fn.col(shuffle.SHARD)).drop(shuffle.SHARD)


def _anywhere(frame: DataFrame, shards: int) -> Column:
    return fn.expr(f"int(pmod({shuffle.row_hash(frame)}, {shards}))")


def _home(search: SearchArguments, frame: DataFrame, chosen: KnnStrategy, unmatchable: str) -> Column:
    """The shard of each r row; any for a row that matches nothing."""
    if chosen.groups is not None:
        found = fn.expr(_group_home(search, frame, chosen.groups))
    else:
        assert chosen.routes is not None
        found = _udf(chosen.routes, "home", ty.IntegerType())(*_inputs(search, frame, "r", chosen.routes.hashed))
    return fn.when(fn.expr(unmatchable), _anywhere(frame, chosen.shards)).otherwise(found)


def _guests(search: SearchArguments, frame: DataFrame, chosen: KnnStrategy) -> Column:
    """An array of the shards of each s row."""
    if chosen.groups is not None:
        return fn.expr(_group_guests(search, frame, chosen.groups))
    assert chosen.routes is not None
    made: Column = _udf(chosen.routes, "guests", ty.ArrayType(ty.IntegerType()))(*_inputs(search, frame, "s", False))
    return made


def _home_and_guests(search: SearchArguments, frame: DataFrame, chosen: KnnStrategy, unmatchable: str) -> Column:
    """An array of the shards of each row of a self-join, its shard as an r row first."""
    if chosen.groups is not None:
        home = f"array({_group_home(search, frame, chosen.groups)})"
        found = fn.expr(f"array_union({home}, {_group_guests(search, frame, chosen.groups)})")
    else:
        assert chosen.routes is not None
        inputs = [*_inputs(search, frame, "r", False), *_inputs(search, frame, "s", chosen.routes.hashed)]
        found = _udf(chosen.routes, "home_and_guests", ty.ArrayType(ty.IntegerType()))(*inputs)
    return fn.when(fn.expr(unmatchable), fn.array(_anywhere(frame, chosen.shards))).otherwise(found)


def _group_home(search: SearchArguments, frame: DataFrame, cells: Cells) -> str:
    return cells.home(group_key(frame.schema, search.spec.by["r"]), lambda: shuffle.row_hash(frame))


def _group_guests(search: SearchArguments, frame: DataFrame, cells: Cells) -> str:
    key = group_key(frame.schema, search.spec.by["s"])
    return cells.guests([(key, key)])


def _inputs(search: SearchArguments, frame: DataFrame, side: str, hashed: bool) -> list[Column]:
    """What the functions of `PointRoutes` take: coordinates and, for several shards of a cell, a hash of the row."""
    columns = [cl.column(name) for name in search.spec.on[side]]  # type: ignore[index]
    return [*columns, *([fn.expr(shuffle.row_hash(frame))] if hashed else [])]


def _udf(routes: PointRoutes, method: str, data_type: ty.DataType) -> Callable[..., Column]:
    """A function of `PointRoutes` for Spark: only coordinates travel to Python, and only shards travel back."""
    hashed = routes.hashed and method != "guests"

    def find(*columns: pa.Array) -> pa.Array:
        given = (columns[:-1], columns[-1]) if hashed else (columns,)
        found: pa.Array = getattr(routes, method)(*given)
        return found

    made: Callable[..., Column] = arrow_udf(find, returnType=data_type)  # type: ignore[call-overload]
    return made


def shard_joiner(job: KnnJob, where: shuffle.Layout, routes: PointRoutes | None) -> Task:
    """The function that tasks run on a shard's rows."""

    def join_shard(batches: Batches) -> Iterator[pa.RecordBatch]:
        sides = shuffle.split_sides(batches, where)
        if sides is None:
            return
        ids = sides["s"].column(ID).to_numpy()
        yield from _join_shard(job, sides["r"], sides["s"].drop_columns(ID), ids, routes)

    return reporting(join_shard)


def self_shard_joiner(job: KnnJob, routes: PointRoutes | None) -> Task:
    """The same for a self-join."""

    def join_shard(batches: Batches) -> Iterator[pa.RecordBatch]:
        rows = list(batches)
        if not rows:
            return
        table = pa.Table.from_batches(rows).combine_chunks()
        own = np.flatnonzero(table.column(HOME).to_numpy())
        ids, held = table.column(ID).to_numpy(), table.drop_columns([HOME, ID])
        yield from _join_shard(job, held.take(pa.array(own)), held, ids, routes, own)

    return reporting(join_shard)


def _join_shard(
    job: KnnJob, r: pa.Table, held: pa.Table, ids: Any, routes: PointRoutes | None, own: Any = None
) -> Iterator[pa.RecordBatch]:
    cells = None if routes is None else routes.cells
    counts = _TaskCounts(held.num_rows)
    probe = KnnProbe(job.local_search(), held, r.schema, ids, cells, BLOCK_PAIRS)
    try:
        yield from _search(job, probe, r, held, counts, own)
        if job.report:
            yield counts.row(output_schema(r.schema, held.schema, True))
    finally:
        probe.close()
