"""What join tasks do with rows: ask a held table, and make the rows that `how` wants of what was found.

Both ways to spread a join end here. A `Job` says everything about it and travels to the tasks; the columns of the
condition go to `TableProbe`, which knows only row numbers; payload is gathered once, from where it lies. Batches of
rows are put together before they are asked with, since an index is fastest on many at once.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from millrace.join_parts.table_probe import Partners, TableProbe
from millrace.spark.cluster.metrics import TASK_COLUMN, TASK_FIELDS
from millrace.spark.cluster.task import Asked, Place
from millrace.table_join import with_lonely

ASK_ROWS = 1 << 17
"""About how many rows are asked with at once."""
OUT_ROWS = 1 << 16
"""Rows of a batch that goes back to Spark."""


@dataclass(frozen=True)
class Job:
    """A join: its condition, which columns it uses, and what comes out."""

    on: str
    how: str
    columns: tuple[tuple[str, tuple[str, ...]], ...]
    asked: Asked
    told: bool
    """Whether tasks tell what they did."""

    def keys(self, side: str, table: pa.Table) -> pa.Table:
        """The columns that the condition reads."""
        return table.select(list(dict(self.columns)[side]))

    @property
    def pairs(self) -> bool:
        """Whether pairs are wanted, not only which rows have any."""
        return self.how in ("inner", "left")


def open_probe(job: Job, held: pa.Table, asking: pa.Schema, side: str, place: Place) -> TableProbe:
    """A probe over the held table's keys."""
    names = dict(job.columns)["r" if side == "s" else "s"]
    schema = pa.schema([asking.field(name) for name in names])
    return TableProbe.of(
        job.on,
        job.keys(side, held),
        schema,
        side=side,
        device=place.device,
        threads=place.threads,
        fallback=job.asked.fallback,
        counting=not job.pairs,
    )


def in_bulk(batches: Iterable[pa.RecordBatch], most: int) -> Iterator[pa.Table]:
    """Batches put together until they are so many rows."""
    held: list[pa.RecordBatch] = []
    rows = 0
    for batch in batches:
        held.append(batch)
        rows += batch.num_rows
        if rows >= most:
            yield pa.Table.from_batches(held).combine_chunks()
            held, rows = [], 0
    if rows:
        yield pa.Table.from_batches(held).combine_chunks()


def ask(job: Job, probe: TableProbe, asking: pa.Table, side: str) -> Partners:
    """What a table of the asking side finds in the held one, which is `side`: row numbers, no payload."""
    return probe.ask(job.keys("r" if side == "s" else "s", asking), want_pairs=job.pairs)


def gather(job: Job, found: Partners, asking: pa.Table, held: pa.Table, side: str) -> Iterator[pa.RecordBatch]:
    """The rows that go back to Spark for what was found."""
    if not job.pairs:
        kept = found.counts > 0 if job.how == "semi" else found.counts == 0
        yield from _batches(job, [_named("r", asking.take(pa.array(np.flatnonzero(kept))))])
        return
    rows, partners = _rows_of(job, found)
    for start in range(0, len(rows), OUT_ROWS):
        own = _named("r" if side == "s" else "s", asking.take(rows.slice(start, OUT_ROWS)))
        other = _named(side, held.take(partners.slice(start, OUT_ROWS)))
        yield from _batches(job, [own, other] if side == "s" else [other, own])


def _rows_of(job: Job, found: Partners) -> tuple[pa.Array, pa.Array]:
    return with_lonely(found) if job.how == "left" else (pa.array(found.rows), pa.array(found.partners))


def _named(side: str, table: pa.Table) -> pa.Table:
    return table.rename_columns([f"{side}_{name}" for name in table.column_names])


def _batches(job: Job, parts: list[pa.Table]) -> Iterator[pa.RecordBatch]:
    """The columns of both sides beside each other, as batches."""
    columns = {name: part.column(name) for part in parts for name in part.column_names}
    rows = parts[0].num_rows
    if job.told:
        columns[TASK_COLUMN] = pa.chunked_array([pa.nulls(rows, TASK_ARROW)])
    table = pa.table(columns) if columns else None
    if table is not None and rows:
        yield from table.to_batches(max_chunksize=OUT_ROWS)


TASK_ARROW = pa.struct([pa.field(name, pa.int64()) for name in TASK_FIELDS])


def tally(stats: dict[str, Any]) -> dict[str, int]:
    """What a probe's stats say of the work: the rows that went through the device's probers, cycles and time."""

    def total(ending: str) -> int:
        return sum(value for name, value in stats.items() if name.endswith(ending) and isinstance(value, int))

    return {
        "tasks": 1,
        "asked": stats["asked"],
        "held": stats["held"],
        "pairs": stats["pairs"],
        "device_rows": total("prober_rows"),
        "device_cycles": total("_cycles") - total("idle_cycles"),
        "device_ns": total("_ns"),
        "fallbacks": int(stats["fallback"] is not None),
    }


def out_schema(job: Job, asking: pa.Schema, held: pa.Schema, side: str) -> pa.Schema:
    """The columns that a task gives back."""
    of = {side: held, "r" if side == "s" else "s": asking}
    sides = ("r", "s") if job.pairs else ("r",)
    fields = [pa.field(f"{one}_{f.name}", f.type) for one in sides for f in of[one]]
    return pa.schema([*fields, *([pa.field(TASK_COLUMN, TASK_ARROW)] if job.told else [])])


def told_row(schema: pa.Schema, counts: dict[str, int]) -> pa.RecordBatch:
    """A row of nulls that carries what a task did; it is taken out again before anyone sees it."""
    told = pa.array([counts], TASK_ARROW)
    arrays = [told if field.name == TASK_COLUMN else pa.nulls(1, field.type) for field in schema]
    return pa.record_batch(arrays, schema=schema)
