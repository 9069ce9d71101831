"""What join tasks do with rows: search the held table for partners, and build the rows that `how` wants.

Broadcast and shuffle joins both use this module. A `JoinJob` describes the join and is sent to the tasks. Only the
columns of the condition go to `TableProbe`, which returns row numbers; payload is gathered once, from the input tables.
Small batches are merged before the search, because an index is fastest with many rows at once.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from millrace.join_parts.table_probe import Partners, TableProbe
from millrace.join_parts.table_result import with_unmatched
from millrace.spark.cluster.metrics import TASK_COLUMN, TASK_FIELDS
from millrace.spark.cluster.task import DeviceRequest, TaskDevice
from millrace.spark.plan.hows import other_side
from millrace.spark.plan.output_columns import ALL_COLUMNS, OutputColumns

PROBE_ROWS = 1 << 17
"""About how many rows search the held table at once."""
COUNT = "count"
"""The column of `output="count"`."""
OUT_ROWS = 1 << 16
"""Rows of a batch that is returned to Spark."""


@dataclass(frozen=True)
class JoinJob:
    """A join: its condition, the columns it uses, and the output it produces."""

    on: str
    how: str
    columns: tuple[tuple[str, tuple[str, ...]], ...]
    device_request: DeviceRequest
    report: bool
    """Whether each task adds a row with its counts."""
    kept: str = "r"
    """The side that `left`, `semi` and `anti` are about: its rows search, those of the other side are held."""
    output: OutputColumns = ALL_COLUMNS

    def keys(self, side: str, table: pa.Table) -> pa.Table:
        """The columns that the condition reads."""
        return table.select(list(dict(self.columns)[side]))

    @property
    def pairs(self) -> bool:
        """Whether the output has pairs, rather than only rows of the kept side."""
        return self.how in ("inner", "left")


def open_probe(job: JoinJob, held: pa.Table, probing: pa.Schema, side: str, device: TaskDevice) -> TableProbe:
    """A probe of the held table's keys; `side` is the held side, `probing` the schema of the other."""
    names = dict(job.columns)[other_side(side)]
    schema = pa.schema([probing.field(name) for name in names])
    return TableProbe.of(
        job.on,
        job.keys(side, held),
        schema,
        side=side,
        device=device.name,
        threads=device.threads,
        fallback=job.device_request.fallback,
        counting=not job.pairs,
    )


def merge_batches(batches: Iterable[pa.RecordBatch], min_rows: int) -> Iterator[pa.Table]:
    """Concatenate batches into tables of at least `min_rows` rows; the last one may have fewer."""
    waiting: list[pa.RecordBatch] = []
    rows = 0
    for batch in batches:
        waiting.append(batch)
        rows += batch.num_rows
        if rows >= min_rows:
            yield pa.Table.from_batches(waiting).combine_chunks()
            waiting, rows = [], 0
    if rows:
        yield pa.Table.from_batches(waiting).combine_chunks()


def find_partners(job: JoinJob, probe: TableProbe, probing: pa.Table, side: str) -> Partners:
    """The partners of the probing rows in the held table, which is `side`: row numbers, no payload."""
    return probe.find_partners(job.keys(other_side(side), probing), want_pairs=job.pairs)


def gather(job: JoinJob, found: Partners, probing: pa.Table, held: pa.Table, side: str) -> Iterator[pa.RecordBatch]:
    """The output rows for the partners found, as batches for Spark."""
    probing = probing.select(job.output.of(other_side(side), probing.column_names))
    held = held.select(job.output.of(side, held.column_names))
    if job.how == "count":
        counts = pa.table({COUNT: pa.array(found.counts.astype(np.int64))})
        yield from output_batches([named(job.kept, probing), counts], job.report)
        return
    if not job.pairs:
        kept = found.counts > 0 if job.how == "semi" else found.counts == 0
        yield from output_batches([named(job.kept, probing.take(pa.array(np.flatnonzero(kept))))], job.report)
        return
    rows, partners = _rows_of(job, found)
    for start in range(0, len(rows), OUT_ROWS):
        own = named(other_side(side), probing.take(rows.slice(start, OUT_ROWS)))
        other = named(side, held.take(partners.slice(start, OUT_ROWS)))
        yield from output_batches([own, other] if side == "s" else [other, own], job.report)


def _rows_of(job: JoinJob, found: Partners) -> tuple[pa.Array, pa.Array]:
    return with_unmatched(found) if job.how == "left" else (pa.array(found.rows), pa.array(found.partners))


def named(side: str, table: pa.Table) -> pa.Table:
    """A side's columns, named as in the output."""
    return table.rename_columns([f"{side}_{name}" for name in table.column_names])


def output_batches(parts: list[pa.Table], report: bool) -> Iterator[pa.RecordBatch]:
    """The columns of all `parts` side by side, as batches; with `report`, an empty column for the tasks' counts."""
    columns = {name: part.column(name) for part in parts for name in part.column_names}
    rows = parts[0].num_rows
    if report:
        columns[TASK_COLUMN] = pa.chunked_array([pa.nulls(rows, TASK_ARROW)])
    table = pa.table(columns) if columns else None
    if table is not None and rows:
        yield from table.to_batches(max_chunksize=OUT_ROWS)


TASK_ARROW = pa.struct([pa.field(name, pa.int64()) for name in TASK_FIELDS])


def tally(stats: dict[str, Any]) -> dict[str, int]:
    """The counts of a probe's stats: rows, pairs, and the rows, cycles and time of the device's probers."""

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


def out_schema(job: JoinJob, probing: pa.Schema, held: pa.Schema, side: str) -> pa.Schema:
    """The columns of a task's output."""
    of = {side: held, other_side(side): probing}
    sides = ("r", "s") if job.pairs else (job.kept,)
    fields = [
        pa.field(f"{one}_{name}", of[one].field(name).type)
        for one in sides
        for name in job.output.of(one, of[one].names)
    ]
    fields += [pa.field(COUNT, pa.int64())] if job.how == "count" else []
    return pa.schema([*fields, *([pa.field(TASK_COLUMN, TASK_ARROW)] if job.report else [])])


def report_row(schema: pa.Schema, counts: dict[str, int]) -> pa.RecordBatch:
    """A row of nulls that carries a task's counts; `ms.join` removes it from its result."""
    report = pa.array([counts], TASK_ARROW)
    arrays = [report if field.name == TASK_COLUMN else pa.nulls(1, field.type) for field in schema]
    return pa.record_batch(arrays, schema=schema)
