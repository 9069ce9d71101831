"""A join with a shuffle: rows of both sides are sent to shards (`routing.py`), and one task joins each shard.

Both sides travel as one frame. A flag column says which side a row belongs to, and columns of the same type share one
column of that frame, so that rows are no wider than necessary. Home rows without a usable key go to any shard if `how`
keeps them; all other rows without one are dropped. `repartitionById` makes one partition of each shard.

`range` is for bands: few rows match keys across a cell's bound. `grid` is for conditions without two bounds: the rows
of the grid are cells of home rows, its columns are rows of the other side, and only blocks that can match are sent. If
no comparison bounds a plain column, every block is sent.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as fn
from pyspark.sql import types as ty

from millrace.join_parts.routes import BoundCondition, Route
from millrace.spark.cluster.task import reporting, task_device
from millrace.spark.exec.join_rows import JoinJob, open_probe
from millrace.spark.exec.probe_task import ProbeTask, bulks
from millrace.spark.plan import columns as cl
from millrace.spark.plan.hows import other_side
from millrace.spark.plan.routing import Blocks, Cells, as_double, range_of

SHARD, SIDE = "__millrace_shard", "__millrace_s"
BULK_CHUNK = 1 << 17
"""Rows of the chunks of which a bulk is made."""
_NOT_HASHED = (ty.MapType, ty.VariantType)
Batches = Iterable[pa.RecordBatch]


@dataclass(frozen=True)
class SharedColumn:
    """A column of the shuffled frame: its type, and its name on each side that uses it."""

    data_type: ty.DataType
    r: str | None
    s: str | None

    def name(self, side: str) -> str | None:
        """The name of the side's column, if it has one here."""
        return self.r if side == "r" else self.s


def shared_columns(r: ty.StructType, s: ty.StructType) -> tuple[SharedColumn, ...]:
    """For each type as many columns as the side that has more of them."""
    spare = list(s.fields)
    made: list[SharedColumn] = []
    for field in r.fields:
        match = next((one for one in spare if one.dataType == field.dataType), None)
        if match is not None:
            spare.remove(match)
        made.append(SharedColumn(field.dataType, field.name, None if match is None else match.name))
    return tuple(made) + tuple(SharedColumn(field.dataType, None, field.name) for field in spare)


def shuffle_sides(
    frames: dict[str, DataFrame],
    condition: BoundCondition,
    route: Route | None,
    cells: Cells | Blocks,
    home: str,
    keep_all: bool,
) -> tuple[DataFrame, tuple[SharedColumn, ...]]:
    """Both sides in one frame, one partition for each shard. `keep_all`: keep home rows without a usable key."""
    shared = shared_columns(frames["r"].schema, frames["s"].schema)
    parts = []
    for side in ("r", "s"):
        frame = frames[side]
        unmatchable = cl.unusable(frame.schema, condition.keys[side])
        if side == home:
            where = _home_shard(frame, route, cells, unmatchable, keep_all)
            frame = frame if keep_all else frame.where(f"NOT {unmatchable}")
        else:
            frame = frame.where(f"NOT {unmatchable}")
            where = f"explode({_guest_shards(frame, route, cells)})"
        parts.append(frame.select(fn.expr(where).alias(SHARD), *side_columns(side, shared)))
    together = parts[0].union(parts[1])
    return together.repartitionById(cells.shards, fn.col(SHARD)).drop(SHARD), shared


def row_hash(frame: DataFrame) -> str:
    """A hash of a row's columns and its partition, as SQL: it assigns rows to shards.

    It does not depend on the order of rows, so a task that runs again sends its rows to the same shards.
    """
    hashed = [cl.quoted(f.name) for f in frame.schema.fields if not _has(f.dataType, _NOT_HASHED)]
    partition = "bigint(spark_partition_id())"
    return f"(xxhash64({', '.join(hashed)}) ^ {partition})" if hashed else partition


def _home_shard(frame: DataFrame, route: Route | None, cells: Cells | Blocks, unmatchable: str, keep_all: bool) -> str:
    anywhere = f"int(pmod({row_hash(frame)}, {cells.shards}))"
    if route is None:
        return anywhere
    key = as_double(route.column, frame.schema[route.column].dataType)
    if isinstance(cells, Blocks):
        second = as_double(cells.second.column, frame.schema[cells.second.column].dataType)
        shard = cells.home(key, second, lambda: row_hash(frame))
    else:
        shard = cells.home(key, lambda: row_hash(frame))
    return f"CASE WHEN {unmatchable} THEN {anywhere} ELSE {shard} END" if keep_all else shard


def _guest_shards(frame: DataFrame, route: Route | None, cells: Cells | Blocks) -> str:
    if route is None:
        return f"sequence(0, {cells.shards - 1})"
    if isinstance(cells, Blocks):
        return cells.guests(*(range_of(one.ranges[0], frame.schema) for one in (route, cells.second)))
    return cells.guests([range_of(one, frame.schema) for one in route.ranges])


def side_columns(side: str, shared: tuple[SharedColumn, ...]) -> list[Column]:
    """A side's values for the shared columns, after the flag."""
    columns = [fn.lit(side == "s").alias(SIDE)]
    for number, column in enumerate(shared):
        name = column.name(side)
        value = fn.lit(None).cast(column.data_type) if name is None else cl.column(name)
        columns.append(value.alias(f"c{number}"))
    return columns


def _has(data_type: ty.DataType, kinds: tuple[type[ty.DataType], ...]) -> bool:
    """Whether a type is, or contains, one of `kinds`."""
    if isinstance(data_type, ty.StructType):
        return any(_has(field.dataType, kinds) for field in data_type.fields)
    if isinstance(data_type, ty.ArrayType):
        return _has(data_type.elementType, kinds)
    return isinstance(data_type, kinds)


@dataclass(frozen=True)
class Layout:
    """For each side's columns, in their own order: the position of the shared column that holds them."""

    r: tuple[tuple[str, int], ...]
    s: tuple[tuple[str, int], ...]


def layout(shared: tuple[SharedColumn, ...], r: list[str], s: list[str]) -> Layout:
    """The layout that tasks need to restore each side's columns."""
    positions = {side: {column.name(side): i for i, column in enumerate(shared)} for side in ("r", "s")}
    return Layout(tuple((n, positions["r"][n]) for n in r), tuple((n, positions["s"][n]) for n in s))


def joiner(job: JoinJob, where: Layout) -> Callable[[Batches], Iterator[pa.RecordBatch]]:
    """The function that tasks run on a shard's rows: the rows of the kept side search those of the other side."""
    held_side = other_side(job.kept)

    def join_shard(batches: Batches) -> Iterator[pa.RecordBatch]:
        device = task_device(job.device_request)
        sides = split_sides(batches, where)
        if sides is None:
            return
        probing, held = sides[job.kept], sides[held_side]
        probes = partial(open_probe, job, held, probing.schema, held_side, device)
        task = ProbeTask(job, job.payload(held_side, held), device, probes)
        try:
            for bulk in bulks(probing.to_batches(max_chunksize=BULK_CHUNK), job, device):
                yield from task.rows(bulk)
            if job.report:
                yield task.report(probing.schema)
        finally:
            task.close()

    return reporting(join_shard)


def split_sides(batches: Batches, where: Layout) -> dict[str, pa.Table] | None:
    """The rows of each side, with its own columns; None if there are no batches."""
    parts: tuple[list[pa.RecordBatch], list[pa.RecordBatch]] = ([], [])
    schema = None
    for batch in batches:
        schema = batch.schema
        flag = batch.column(0)
        of_s = flag.true_count
        if of_s in (0, batch.num_rows):
            parts[of_s > 0].append(batch)
        else:
            parts[0].append(batch.filter(pc.invert(flag)))
            parts[1].append(batch.filter(flag))
    if schema is None:
        return None
    tables = []
    for rows in parts:  # one side at a time, so that its batches are freed before the next one is copied
        tables.append(pa.Table.from_batches(rows, schema).combine_chunks())
        rows.clear()
    r, s = tables
    return {"r": _own_columns(r, where.r), "s": _own_columns(s, where.s)}


def _own_columns(table: pa.Table, where: tuple[tuple[str, int], ...]) -> pa.Table:
    """A side's columns; the shared columns follow the flag column."""
    return pa.table({name: table.column(position + 1) for name, position in where})
