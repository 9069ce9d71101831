"""A join with a shuffle: rows of both sides are sent to places (`routing.py`), and each place is joined by one task.

The two sides travel as one frame: a flag tells them apart, and columns of the same type share a *slot*, so that a row
is no wider than it must be. Home rows without a usable key go anywhere if `how` keeps them; other rows without one
stay behind. `repartitionById` makes one partition of each place.

`range` is for bands: few rows reach over a cell's bound. `grid` is for conditions without two ends: the rows of the
grid are cells of home rows, its columns the other side's rows, and only pairs of blocks that can match are sent;
where no comparison bounds a plain column, that is every pair.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as fn
from pyspark.sql import types as ty

from millrace.join_parts.routes import Outline, Route
from millrace.spark.cluster.task import place_of
from millrace.spark.exec.join_rows import Job, open_probe
from millrace.spark.exec.probe_task import Asking, bulk_rows
from millrace.spark.plan import columns as cl
from millrace.spark.plan.routing import Cells, as_double, range_of

PLACE, SIDE = "__millrace_place", "__millrace_s"
_NOT_HASHED = (ty.MapType, ty.VariantType)
Batches = Iterable[pa.RecordBatch]


@dataclass(frozen=True)
class Slot:
    """A column of the frame that travels: of one type, and what it is called on each side that uses it."""

    data_type: ty.DataType
    r: str | None
    s: str | None

    def name(self, side: str) -> str | None:
        """The side's column in it."""
        return self.r if side == "r" else self.s


def slots(r: ty.StructType, s: ty.StructType) -> tuple[Slot, ...]:
    """One for every column of the side that has more of its type."""
    spare = list(s.fields)
    made: list[Slot] = []
    for field in r.fields:
        match = next((one for one in spare if one.dataType == field.dataType), None)
        if match is not None:
            spare.remove(match)
        made.append(Slot(field.dataType, field.name, None if match is None else match.name))
    return tuple(made) + tuple(Slot(field.dataType, None, field.name) for field in spare)


def spread(
    frames: dict[str, DataFrame], outline: Outline, route: Route | None, cells: Cells, home: str, keep_all: bool
) -> tuple[DataFrame, tuple[Slot, ...]]:
    """Both sides in one frame, one partition for each place. `keep_all`: home rows that match nothing are kept."""
    shared = slots(frames["r"].schema, frames["s"].schema)
    parts = []
    for side in ("r", "s"):
        frame = frames[side]
        lost = cl.unusable(frame.schema, outline.keys[side])
        if side == home:
            where = _home_place(frame, route, cells, lost, keep_all)
            frame = frame if keep_all else frame.where(f"NOT {lost}")
        else:
            frame = frame.where(f"NOT {lost}")
            where = f"explode({_guest_places(frame, route, cells)})"
        parts.append(frame.select(fn.expr(where).alias(PLACE), *_packed(side, shared)))
    together = parts[0].union(parts[1])
    return together.repartitionById(cells.places, fn.col(PLACE)).drop(PLACE), shared


def row_number(frame: DataFrame) -> str:
    """A number to deal a row out by: a hash of all its columns, and of its partition.

    Equal rows differ in their partition at most: a task that is run again sees the same ones, in any order.
    """
    hashed = [cl.quoted(f.name) for f in frame.schema.fields if not _has(f.dataType, _NOT_HASHED)]
    partition = "bigint(spark_partition_id())"
    return f"(xxhash64({', '.join(hashed)}) ^ {partition})" if hashed else partition


def _home_place(frame: DataFrame, route: Route | None, cells: Cells, lost: str, keep_all: bool) -> str:
    anywhere = f"int(pmod({row_number(frame)}, {cells.places}))"
    if route is None:
        return anywhere
    key = as_double(route.column, frame.schema[route.column].dataType)
    place = cells.home(key, lambda: row_number(frame))
    return f"CASE WHEN {lost} THEN {anywhere} ELSE {place} END" if keep_all else place


def _guest_places(frame: DataFrame, route: Route | None, cells: Cells) -> str:
    if route is None:
        return f"sequence(0, {cells.places - 1})"
    return cells.guests([range_of(one, frame.schema) for one in route.ranges])


def _packed(side: str, shared: tuple[Slot, ...]) -> list[Column]:
    """A side's columns in their slots."""
    packed = [fn.lit(side == "s").alias(SIDE)]
    for number, slot in enumerate(shared):
        name = slot.name(side)
        value = fn.lit(None).cast(slot.data_type) if name is None else cl.column(name)
        packed.append(value.alias(f"c{number}"))
    return packed


def _has(data_type: ty.DataType, kinds: tuple[type[ty.DataType], ...]) -> bool:
    """Whether a type is, or holds, one of these."""
    if isinstance(data_type, ty.StructType):
        return any(_has(field.dataType, kinds) for field in data_type.fields)
    if isinstance(data_type, ty.ArrayType):
        return _has(data_type.elementType, kinds)
    return isinstance(data_type, kinds)


@dataclass(frozen=True)
class Layout:
    """Where each side's columns are, in their own order: the numbers of their slots."""

    r: tuple[tuple[str, int], ...]
    s: tuple[tuple[str, int], ...]


def layout(shared: tuple[Slot, ...], r: list[str], s: list[str]) -> Layout:
    """For tasks, who see only slots."""
    places = {side: {slot.name(side): i for i, slot in enumerate(shared)} for side in ("r", "s")}
    return Layout(tuple((n, places["r"][n]) for n in r), tuple((n, places["s"][n]) for n in s))


def joiner(job: Job, where: Layout) -> Callable[[Batches], Iterator[pa.RecordBatch]]:
    """The function that tasks run on a place's rows."""

    def join_place(batches: Batches) -> Iterator[pa.RecordBatch]:
        place = place_of(job.asked)
        sides = _apart(batches, where)
        if sides is None:
            return
        r, s = sides
        asking = Asking(job, "s", s, place, lambda: open_probe(job, s, r.schema, "s", place))
        step = bulk_rows(place)
        try:
            for start in range(0, r.num_rows, step):
                yield from asking.rows(r.slice(start, step))
            if job.told:
                yield asking.told(r.schema)
        finally:
            asking.close()

    return join_place


def _apart(batches: Batches, where: Layout) -> tuple[pa.Table, pa.Table] | None:
    """The rows of r and of s, each with its own columns; nothing where no row came."""
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
    r, s = (pa.Table.from_batches(rows, schema).combine_chunks() for rows in parts)
    return _own_columns(r, where.r), _own_columns(s, where.s)


def _own_columns(table: pa.Table, where: tuple[tuple[str, int], ...]) -> pa.Table:
    """A side's columns out of their slots, which stand behind the flag."""
    return pa.table({name: table.column(slot + 1) for name, slot in where})
