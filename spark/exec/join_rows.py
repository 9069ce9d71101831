"""What join tasks do with rows: search the held table for partners, and build the rows that `how` wants.

Broadcast and shuffle joins both use this module. A `JoinJob` describes the join and is sent to the tasks. Only the
columns of the condition go to `TableProbe`, which returns row numbers; payload is gathered once, from the input tables.
Small batches are merged before the search, because an index is fastest with many rows at once. Bulks of input, blocks
of pairs and output batches are bounded by bytes (`batch_bytes.py`): rows may be wide, and one may have many partners.
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
from millrace.spark.exec.batch_bytes import DEFAULT_LIMITS, BatchLimits
from millrace.spark.exec.row_bytes import RowBytes, cut_gathered, cut_rows
from millrace.spark.plan.hows import other_side
from millrace.spark.plan.output_columns import ALL_COLUMNS, OutputColumns

PROBE_ROWS = 1 << 17
"""About how many rows search the held table at once, if they are not wide."""
COUNT = "count"
"""The column of `output="count"`."""


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
    limits: BatchLimits = DEFAULT_LIMITS
    output: OutputColumns = ALL_COLUMNS

    def payload(self, side: str, table: pa.Table) -> SizedTable:
        """The columns that the output has."""
        return SizedTable.of(side, table.select(self.output.of(side, table.column_names)))

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


def merge_batches(batches: Iterable[pa.RecordBatch], min_rows: int, max_bytes: int) -> Iterator[pa.Table]:
    """Concatenate batches into tables of at least `min_rows` rows or about `max_bytes`; the last one may have fewer.

    A batch that is larger by itself is cut.
    """
    waiting: list[pa.RecordBatch] = []
    rows = size = 0
    for batch in _narrowed(batches, max_bytes):
        if waiting and size + batch.nbytes > max_bytes:
            yield pa.Table.from_batches(waiting).combine_chunks()
            waiting, rows, size = [], 0, 0
        waiting.append(batch)
        rows, size = rows + batch.num_rows, size + batch.nbytes
        if rows >= min_rows:
            yield pa.Table.from_batches(waiting).combine_chunks()
            waiting, rows, size = [], 0, 0
    if rows:
        yield pa.Table.from_batches(waiting).combine_chunks()


def _narrowed(batches: Iterable[pa.RecordBatch], max_bytes: int) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        if batch.nbytes <= max_bytes:
            yield batch
        else:
            yield from (batch.slice(*cut) for cut in cut_rows(batch, BatchLimits(max_bytes, batch.num_rows)))


@dataclass(frozen=True)
class SizedTable:
    """Rows of `side`, and the bytes of each."""

    side: str
    table: pa.Table
    sizes: RowBytes

    @staticmethod
    def of(side: str, table: pa.Table) -> SizedTable:
        """Measure the rows."""
        return SizedTable(side, table, RowBytes.of(table))


def gather(job: JoinJob, found: Partners, probing: SizedTable, held: SizedTable) -> Iterator[pa.RecordBatch]:
    """The output rows for the partners found, as batches for Spark."""
    numbers = _rows_of(job, found) if job.pairs else (_kept_rows(job, found),)
    taken = list(zip((probing, held), numbers, strict=False))
    for start, length in cut_gathered([(one.sizes, rows) for one, rows in taken], job.limits):
        parts = {one.side: named(one.side, one.table.take(rows.slice(start, length))) for one, rows in taken}
        tables = [parts[side] for side in ("r", "s") if side in parts]
        if job.how == "count":
            tables.append(pa.table({COUNT: pa.array(found.counts[start : start + length].astype(np.int64))}))
        yield from output_batches(tables, job.report)


def _kept_rows(job: JoinJob, found: Partners) -> pa.Array:
    if job.how == "count":
        return pa.array(np.arange(len(found.counts)) + found.first)
    kept = found.counts > 0 if job.how == "semi" else found.counts == 0
    return pa.array(np.flatnonzero(kept) + found.first)


def _rows_of(job: JoinJob, found: Partners) -> tuple[pa.Array, pa.Array]:
    return with_unmatched(found) if job.how == "left" else (pa.array(found.rows), pa.array(found.partners))


def named(side: str, table: pa.Table) -> pa.Table:
    """A side's columns, named as in the output."""
    return table.rename_columns([f"{side}_{name}" for name in table.column_names])


def output_batches(parts: list[pa.Table], report: bool) -> Iterator[pa.RecordBatch]:
    """The columns of all `parts` side by side, as a batch; with `report`, an empty column for the tasks' counts."""
    columns = {name: part.column(name) for part in parts for name in part.column_names}
    rows = parts[0].num_rows
    if report:
        columns[TASK_COLUMN] = pa.chunked_array([pa.nulls(rows, TASK_ARROW)])
    table = pa.table(columns) if columns else None
    if table is not None and rows:
        yield from table.combine_chunks().to_batches()


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
