"""`mr.join`: joins two tables on any order condition.

If possible, it looks up the partners of r's rows directly (`join_parts/direct_join.py`). Otherwise it uses the engine
of the window join: s fills a window, and r's rows search it in blocks (`join_parts/table_probe.py`). The output is
ordered by r's row number, then s's. (The module is not called `join`, so that `mr.join` is always the function.)
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from millrace.host.base.types import SIDES, Side
from millrace.host.kernels.gathering import Gatherer, gather
from millrace.host.runtime.team import Team
from millrace.host.stream.intake import Reading
from millrace.ingest.arguments import HOWS, OUTPUTS, Engine, OpenedEngine, parse_condition, parse_engine
from millrace.ingest.checks import choice
from millrace.ingest.tables import as_table
from millrace.join_parts import output as out
from millrace.join_parts.bound_tables import BoundTables
from millrace.join_parts.direct_join import DirectBlock, direct_blocks
from millrace.join_parts.table_probe import Partners, TableProbe

MIN_CHUNK_ROWS = 1 << 16
"""Minimum average rows per chunk of the result; if chunks are smaller, they are combined."""


def join(
    r: Any,
    s: Any,
    on: str,
    how: str = "inner",
    index: str = "auto",
    device: str = "auto",
    threads: int | None = None,
    output: str = "pairs",
    fallback: str | None = None,
) -> pa.Table:
    """All pairs of rows of two tables that satisfy `on`, ordered by `r_seq`, then `s_seq` (row numbers).

    >>> import millrace as mr, pyarrow as pa
    >>> r, s = pa.table({"power": [5, 9]}), pa.table({"power": [7, 8]})
    >>> mr.join(r, s, on="r.power < s.power").to_pydict()
    {'r_seq': [0, 0], 's_seq': [0, 1], 'r_power': [5, 5], 's_power': [7, 8]}
    >>> mr.join(r, s, on="r.power < s.power", how="anti").to_pydict()
    {'r_seq': [1], 'r_power': [9]}

    `how`: `"inner"`, `"left"` (also r rows without a partner, with nulls), `"semi"` or `"anti"` (r rows with, or
    without, a partner). `output`: `"pairs"`, `"seqs"` (no payload) or `"count"` (`r_seq` and its number of partners,
    for the r rows that `how` keeps).
    """
    condition = parse_condition(on)
    choice("how", how, HOWS)
    choice("output", output, OUTPUTS)
    counting = output == "count" or how in ("semi", "anti")
    engine = parse_engine(condition, index, device, threads, fallback, counting)
    tables: dict[Side, pa.Table] = {"r": as_table(r, "r"), "s": as_table(s, "s")}
    schemas = {side: tables[side].schema for side in SIDES}
    schema = _schema(schemas, how, output)
    bound = BoundTables.of(condition, schemas)  # reports a bad column or type before any device is opened
    readings = {side: bound.read(side, tables[side]) for side in SIDES}
    opened = engine.open()
    opened.team.acquire(max(table.num_rows for table in tables.values()))
    try:
        result = _Result(schema, tables, how, output, opened.team)
        blocks, fell_back = _blocks(result, bound, engine, opened, readings)
    finally:
        opened.team.release()
        opened.close()
    if fell_back is not None:  # a warning, because the result has no stats
        warnings.warn(f"mr.join fell back, {fell_back}", RuntimeWarning, stacklevel=2)
    return _joined(blocks) if blocks else schema.empty_table()


def _blocks(
    result: _Result, bound: BoundTables, engine: Engine, opened: OpenedEngine, readings: dict[Side, Reading]
) -> tuple[list[pa.Table], str | None]:
    """The output in blocks of r rows, and the fallback that happened, if any."""
    if result.how == "inner" and result.wants_pairs:
        tuples = {side: readings[side].tuples for side in SIDES}
        direct = direct_blocks(bound.plan, opened, result.tables, tuples, payload=result.output == "pairs")
        if direct is not None:
            return [result.direct_block(block) for block in direct], None
    probe = TableProbe(bound, engine, readings["s"], opened=opened)
    try:
        found = probe.blocks_of(readings["r"], want_pairs=result.wants_pairs)
        return [result.block(block) for block in found], probe.fell_back
    finally:
        probe.free()


def _joined(blocks: list[pa.Table]) -> pa.Table:
    """One table: a chunk for each block, unless those would be small."""
    table = pa.concat_tables(blocks)
    return table if table.num_rows >= MIN_CHUNK_ROWS * len(blocks) else table.combine_chunks()


def _schema(schemas: dict[Side, pa.Schema], how: str, output: str) -> pa.Schema:
    if output == "count":
        return pa.schema([("r_seq", pa.int64()), ("count", pa.int64())])
    if how in ("semi", "anti"):
        only_r = out.pair_schema({"r": schemas["r"]}, output, several=False)
        return pa.schema([f for f in only_r if f.name != "s_seq"])
    return out.pair_schema(schemas, output, several=False)


@dataclass(frozen=True)
class _Result:
    """Builds the output from the partners found, one block of r rows at a time."""

    schema: pa.Schema
    tables: dict[Side, pa.Table]
    how: str
    output: str
    team: Team

    @cached_property
    def _gatherers(self) -> tuple[Gatherer, Gatherer]:
        """The gatherer of r, whose rows are requested in order, and that of s, whose rows are not."""
        return Gatherer(self.tables["r"], self.team), Gatherer(self.tables["s"], self.team, scattered=True)

    @property
    def wants_pairs(self) -> bool:
        """Whether the partners are needed, not only their number per row."""
        return self.how in ("inner", "left") and self.output != "count"

    def block(self, found: Partners) -> pa.Table:
        """The output of a block."""
        if not self.wants_pairs:
            return self._of_rows(found)
        r, s = pa.array(found.rows), pa.array(found.partners)
        if self.how == "left":
            r, s = with_unmatched(found)
        return pa.Table.from_arrays([r, s, *self._payload(r, s)], schema=self.schema)

    def direct_block(self, found: DirectBlock) -> pa.Table:
        """The output of a block that already has most of its payload."""
        columns: list[pa.Array | pa.ChunkedArray] = [found.rows, found.partners]
        if self.output == "pairs":
            columns += [*self._completed("r", found.rows, found), *self._completed("s", found.partners, found)]
        return pa.Table.from_arrays(columns, schema=self.schema)

    def _completed(self, side: Side, rows: pa.Array, found: DirectBlock) -> list[pa.Array | pa.ChunkedArray]:
        """All columns of a side: those in the block, and the others gathered at these rows."""
        numbers = range(self.tables[side].num_columns)
        missing = [i for i in numbers if (side, i) not in found.columns]
        others: list[pa.Array | pa.ChunkedArray] = []
        if missing:
            others = Gatherer(self.tables[side].select(missing), self.team).gather(rows)
        more = dict(zip(missing, others, strict=True))
        return [found.columns[side, i] if (side, i) in found.columns else more[i] for i in numbers]

    def _of_rows(self, found: Partners) -> pa.Table:
        """One row for each row of r that `how` keeps."""
        counts = found.counts
        kept = {"semi": counts > 0, "anti": counts == 0}.get(self.how, np.ones(len(counts), np.bool_))
        at = np.flatnonzero(kept)
        rows = pa.array(at + found.first)
        if self.output == "count":
            return pa.Table.from_arrays([rows, pa.array(counts[at])], schema=self.schema)
        payload = gather(self.tables["r"], rows).columns if self.output == "pairs" else []
        return pa.Table.from_arrays([rows, *payload], schema=self.schema)

    def _payload(self, r: pa.Array, s: pa.Array) -> list[pa.Array | pa.ChunkedArray]:
        if self.output != "pairs":
            return []
        own, partners = (one.gather(rows) for one, rows in zip(self._gatherers, (r, s), strict=True))
        return [*own, *partners]


def with_unmatched(found: Partners) -> tuple[pa.Array, pa.Array]:
    """All pairs, and r rows without a partner in row order, with a null as s."""
    counts = found.counts
    rows = np.repeat(np.arange(len(counts)), np.maximum(counts, 1))
    unmatched = (counts == 0)[rows]
    rows += found.first
    partners = np.zeros(len(rows), np.int64)
    partners[~unmatched] = found.partners
    return pa.array(rows), pc.if_else(pa.array(unmatched), pa.scalar(None, pa.int64()), pa.array(partners))
