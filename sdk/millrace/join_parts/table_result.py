"""Builds the output of a join of two tables from the partners that were found, one block of r rows at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import TypeVar

import numpy as np
import pyarrow as pa

from millrace.host.base.columns import column_of
from millrace.host.base.memory import free_bytes
from millrace.host.base.types import Side
from millrace.host.join.pair_memory import check_fits
from millrace.host.kernels.gathered_memory import longest_bytes
from millrace.host.kernels.gathering import Gatherer, gather
from millrace.host.runtime.team import Team
from millrace.join_parts import output as out
from millrace.join_parts.direct_join import DirectBlock
from millrace.join_parts.table_probe import Partners

PART_BYTES = 1 << 28
"""About how many bytes `parts` makes at a time, if there is memory for several times as many."""


def result_schema(schemas: dict[Side, pa.Schema], how: str, output: str) -> pa.Schema:
    """The schema of the output."""
    if output == "count":
        return pa.schema([("r_seq", pa.int64()), ("count", pa.int64())])
    if how in ("semi", "anti"):
        only_r = out.pair_schema({"r": schemas["r"]}, output, several=False)
        return pa.schema([f for f in only_r if f.name != "s_seq"])
    return out.pair_schema(schemas, output, several=False)


@dataclass(frozen=True)
class TableResult:
    """Builds the output from the partners found, one block of r rows at a time."""

    schema: pa.Schema
    tables: dict[Side, pa.Table]
    how: str
    output: str
    team: Team
    compiled: bool = True
    """Whether kernels gather payload; otherwise Arrow does, and nothing is compiled."""

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
        return self._of_pairs(*self._pairs(found)) if self.wants_pairs else self._of_rows(found)

    def parts(self, found: Partners, least: int) -> Iterator[pa.Table]:
        """The output of a block in tables of about `PART_BYTES`, each made when it is asked for; of `least` rows."""
        if not self.wants_pairs:
            yield self._of_rows(found)
            return
        r, s = self._pairs(found)
        rows = max(least, min(PART_BYTES, free_bytes() // 4) // self._longest_row)
        for at in range(0, max(len(r), 1), rows):
            yield self._of_pairs(r[at : at + rows], s[at : at + rows])

    @cached_property
    def _longest_row(self) -> int:
        """The most bytes of a row of output."""
        tables = self.tables.values() if self.output == "pairs" else ()
        return 16 + sum(longest_bytes(column) for table in tables for column in table.columns)

    def _pairs(self, found: Partners) -> tuple[pa.Array, pa.Array]:
        if self.how == "left":
            return with_unmatched(found)
        return out.longs(found.rows), out.longs(found.partners)

    def _of_pairs(self, r: pa.Array, s: pa.Array) -> pa.Table:
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
        if self.how not in ("semi", "anti"):
            rows = column_of(np.arange(found.first, found.first + len(counts)))
            return pa.Table.from_arrays([rows, column_of(counts)], schema=self.schema)
        at = np.flatnonzero(counts if self.how == "semi" else counts == 0)
        rows = column_of(at + found.first)
        if self.output == "count":
            return pa.Table.from_arrays([rows, column_of(counts[at])], schema=self.schema)
        payload = gather(self.tables["r"], rows).columns if self.output == "pairs" else []
        return pa.Table.from_arrays([rows, *payload], schema=self.schema)

    def _payload(self, r: pa.Array, s: pa.Array) -> list[pa.Array | pa.ChunkedArray]:
        if self.output != "pairs":
            return []
        if not self.compiled:
            return [*gather(self.tables["r"], r).columns, *gather(self.tables["s"], s).columns]
        own, partners = (one.gather(rows) for one, rows in zip(self._gatherers, (r, s), strict=True))
        return [*own, *partners]


Found = TypeVar("Found", Partners, DirectBlock)


def within_memory(
    blocks: Iterable[Found], result: TableResult, make: Callable[[Found], pa.Table]
) -> Iterator[pa.Table]:
    """The output of blocks; refused with the arithmetic as soon as it cannot all be in memory."""
    rows, each = 0, out.row_bytes(result.schema)
    for block in blocks:
        rows += len(block.partners)
        check_fits(rows, bytes_per_pair=each)
        yield make(block)


def with_unmatched(found: Partners) -> tuple[pa.Array, pa.Array]:
    """All pairs, and r rows without a partner in row order, with a null as s."""
    counts = found.counts
    rows = np.repeat(np.arange(len(counts)), np.maximum(counts, 1))
    unmatched = (counts == 0)[rows]
    rows += found.first
    partners = np.zeros(len(rows), np.int64)
    partners[~unmatched] = found.partners
    return column_of(rows), column_of(partners, unmatched)
