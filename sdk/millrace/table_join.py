"""`mr.join`: joins two tables on any order condition.

Of small tables it evaluates the condition on all pairs (`join_parts/evaluated_join.py`). Otherwise, if possible, it
looks up the partners of r's rows directly (`join_parts/direct_join.py`). Otherwise it uses the engine
of the window join: s fills a window, and r's rows search it in blocks (`join_parts/table_probe.py`). The output is
ordered by r's row number, then s's. (The module is not called `join`, so that `mr.join` is always the function.)
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, overload

import pyarrow as pa

from millrace.host.base.columns import empty_table
from millrace.host.base.log import log
from millrace.host.base.types import SIDES, Side
from millrace.host.runtime import first_use
from millrace.host.runtime.team import Team
from millrace.host.stream.intake import Reading
from millrace.ingest.arguments import Engine, OpenedEngine
from millrace.ingest.choices import Fallback, How, IndexName, Output
from millrace.join_parts.bound_tables import BoundTables
from millrace.join_parts.direct_join import direct_blocks
from millrace.join_parts.evaluated_join import FEW_PAIRS, evaluated_blocks
from millrace.join_parts.prepared_join import PreparedJoin, prepare
from millrace.join_parts.table_batches import TableBatches, warn_of_fallback
from millrace.join_parts.table_probe import TableProbe
from millrace.join_parts.table_result import TableResult, within_memory

_ONE_THREAD = Team(1)
JOIN = "join"
"""The name of the operator's kernels (`host/runtime/first_use.py`)."""
MIN_CHUNK_ROWS = 1 << 16
"""Minimum average rows per chunk of the result; if chunks are smaller, they are combined."""


@overload
def join(
    r: Any,
    s: Any,
    on: str,
    *,
    how: How = ...,
    index: IndexName = ...,
    device: str = ...,
    threads: int | None = ...,
    output: Output = ...,
    fallback: Fallback | None = ...,
    options: Mapping[str, int | float | str] | None = ...,
    batch_rows: None = None,
) -> pa.Table: ...


@overload
def join(
    r: Any,
    s: Any,
    on: str,
    *,
    how: How = ...,
    index: IndexName = ...,
    device: str = ...,
    threads: int | None = ...,
    output: Output = ...,
    fallback: Fallback | None = ...,
    options: Mapping[str, int | float | str] | None = ...,
    batch_rows: int,
) -> TableBatches: ...


def join(
    r: Any,
    s: Any,
    on: str,
    *,
    how: How = "inner",
    index: IndexName = "auto",
    device: str = "auto",
    threads: int | None = None,
    output: Output = "pairs",
    fallback: Fallback | None = None,
    options: Mapping[str, int | float | str] | None = None,
    batch_rows: int | None = None,
) -> pa.Table | TableBatches:
    """All pairs of rows of two tables that satisfy `on`, ordered by `r_seq`, then `s_seq` (row numbers).

    >>> import millrace as mr, pyarrow as pa
    >>> r, s = pa.table({"power": [5, 9]}), pa.table({"power": [7, 8]})
    >>> mr.join(r, s, on="r.power < s.power").to_pydict()
    {'r_seq': [0, 0], 's_seq': [0, 1], 'r_power': [5, 5], 's_power': [7, 8]}
    >>> mr.join(r, s, on="r.power < s.power", how="anti").to_pydict()
    {'r_seq': [1], 'r_power': [9]}

    With `batch_rows` the result is an iterator of tables with at most so many rows each:

    >>> [pairs.num_rows for pairs in mr.join(r, s, on="r.power <> s.power", batch_rows=3)]
    [3, 1]

    Args:
        r (pyarrow.Table or the like): One table: `pyarrow`, pandas, Polars, or anything with the Arrow PyCapsule
            interface.
        s (pyarrow.Table or the like): The other table.
        on: A SQL condition over r and s, such as `"r.power < s.power AND r.cool > s.cool"`.
        how: `"inner"`, `"left"` (also r rows without a partner, with nulls), `"semi"` or `"anti"` (r rows with, or
            without, a partner).
        index: `"auto"`, `"bisort"`, `"rap"`, `"wib"`, `"spo"`, `"pim"`, `"im"`, `"chain"`, `"btree"` or `"scan"`. It
            changes speed and memory, never the result.
        device: `"cpu"`, `"opencl[:i]"`, `"cuda[:i]"`, `"rtl"`, `"hls"`, `"fpga:<card>"`, or `"auto"`: the CPU, unless
            `millrace calibrate` found another real device faster on this machine.
        threads: The most threads of a call, 1 to 1,024; None is one per core.
        output: `"pairs"`, `"seqs"` (no payload) or `"count"` (`r_seq` and its number of partners, for the r rows that
            `how` keeps).
        fallback: `"cpu"` continues there after a `DeviceFault`, with nothing lost or repeated; None raises the fault.
        options: Options of the index by name, such as `{"merge_ratio": 0.25}` (see "Indexes" in the reference of
            conditions and windows); they change speed, never the result.
        batch_rows: The most rows of a table of the result, at least 1; None returns one table.

    Raises:
        PredicateError: `on` is no condition that Millrace can decide; the message points at the place.
        ArgumentError: An argument is not allowed; the message says what is.
        DeviceUnavailable: The device cannot be used, or cannot run this; the message says what can.
        KeyTypeError: A column has a type that cannot be compared so.
        SchemaError: Columns of the result would have the same name.
        DeviceFault: The device failed, and `fallback` is None.
    """
    prepared, tables = prepare(r, s, on, how, index, device, threads, output, fallback, options, batch_rows)
    args, bound, schema, engine = prepared.args, prepared.bound, prepared.schema, prepared.args.engine
    if args.batch_rows is not None:
        opened = engine.open()
        result = TableResult(schema, tables, how, output, opened.team)
        return TableBatches(result, bound, engine, opened, args.batch_rows)
    readings = {side: bound.read(side, tables[side]) for side in SIDES}
    if index == "auto" and device in ("auto", "cpu") and _needs_no_index(tables):
        return _evaluated(prepared, tables, readings)
    opened = engine.open()
    opened.team.acquire(max(table.num_rows for table in tables.values()))
    try:
        result = TableResult(schema, tables, how, output, opened.team)
        blocks, fallback_text = _blocks(result, bound, engine, opened, readings)
    finally:
        opened.team.depth -= 1
        opened.close()
    if fallback_text is not None:
        warn_of_fallback(fallback_text, 2)
    return _joined(blocks) if blocks else empty_table(schema)


def _needs_no_index(tables: dict[Side, pa.Table]) -> bool:
    """Whether the condition is evaluated on all pairs: they are few, or small tables do not wait for kernels."""
    r, s = (tables[side].num_rows for side in SIDES)
    return r * s <= FEW_PAIRS or (max(r, s) <= first_use.MAX_ROWS and first_use.without_kernels(JOIN, r * s))


def _evaluated(prepared: PreparedJoin, tables: dict[Side, pa.Table], readings: dict[Side, Reading]) -> pa.Table:
    """The output of a join without an index."""
    log.info("join: no index; all pairs of rows are evaluated")
    args = prepared.args
    result = TableResult(prepared.schema, tables, args.how, args.output, _ONE_THREAD, compiled=False)
    found = evaluated_blocks(prepared.bound.plan, readings["r"].tuples, readings["s"].tuples)
    return _joined(list(within_memory(found, result, result.block)))


def _blocks(
    result: TableResult, bound: BoundTables, engine: Engine, opened: OpenedEngine, readings: dict[Side, Reading]
) -> tuple[list[pa.Table], str | None]:
    """The output in blocks of r rows, and the fallback that happened, if any."""
    if result.how == "inner" and result.wants_pairs:
        tuples = {side: readings[side].tuples for side in SIDES}
        direct = direct_blocks(bound.plan, opened, result.tables, tuples, payload=result.output == "pairs")
        if direct is not None:
            return list(within_memory(direct, result, result.direct_block)), None
    probe = TableProbe(bound, engine, readings["s"], opened=opened)
    try:
        found = probe.blocks_of(readings["r"], want_pairs=result.wants_pairs)
        return list(within_memory(found, result, result.block)), probe.fallback
    finally:
        probe.free()


def _joined(blocks: list[pa.Table]) -> pa.Table:
    """One table: a chunk for each block, unless those would be small."""
    table = pa.concat_tables(blocks)
    return table if table.num_rows >= MIN_CHUNK_ROWS * len(blocks) else table.combine_chunks()
