"""Gathers fixed-width columns by row number, on all threads, into reused memory (`runtime/allocator.py`).

Arrow's `take` serves every type. These kernels serve the common ones (numbers and times without nulls, in one chunk)
several times as fast: they prefetch rows and write to reused memory. If many rows of a large table are gathered in
random order, its 64-bit columns are interleaved first: then a row costs one cache line, not one per column.
"""

from __future__ import annotations

from enum import auto
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa

from millrace.host.base.types import Array, Positions
from millrace.host.kernels.gathered_memory import check_gathered
from millrace.host.runtime.allocator import huge_array, result_array
from millrace.host.runtime.intrinsics import load, load_as, prefetch, store, store_as
from millrace.host.runtime.jit import Share, inline, share
from millrace.host.runtime.kernel_args import KernelArgs
from millrace.host.runtime.team import Team

PLAIN_BITS = (8, 16, 32, 64)
"""Widths of values that the kernels gather."""
SLICE = 1 << 14
"""Rows per part of a job, about."""
MIN_ROWS = 1 << 12
"""Fewer rows are gathered by Arrow."""
AHEAD = 24
"""Prefetch distance in rows."""
MIN_INTERLEAVED_ROWS = 1 << 21
"""Smaller tables are not interleaved: their columns fit in the cache."""
MAX_INTERLEAVED_COLUMNS = 8
"""At most this many columns are interleaved: a cache line."""


class _Gather(KernelArgs):
    """The arguments of a gather of one column."""

    SOURCE = auto()
    ROWS = auto()
    COUNT = auto()
    OUT = auto()


class _Interleave(KernelArgs):
    """The arguments of `_interleave`."""

    COLUMNS = auto()
    COUNT = auto()
    OUT = auto()
    COLUMN = auto()  # the first column; the others follow


class _GatherRows(KernelArgs):
    """The arguments of `_gather_interleaved`."""

    COLUMNS = auto()
    COUNT = auto()
    ROWS = auto()
    SOURCE = auto()
    OUT = auto()  # the first column of the result; the others follow


@inline
def _gather(given: int, part: int, parts: int, size: int, like: Any) -> None:
    source, rows = load(given, _Gather.SOURCE), load(given, _Gather.ROWS)
    n, out = load(given, _Gather.COUNT), load(given, _Gather.OUT)
    first, stop = n * part // parts, n * (part + 1) // parts
    sure = max(stop - AHEAD, first)
    for i in range(first, sure):
        prefetch(source + size * load_as(rows, i + AHEAD, 0))
        store_as(out, i, load_as(source, load_as(rows, i, 0), like))
    for i in range(sure, stop):
        store_as(out, i, load_as(source, load_as(rows, i, 0), like))


@share
def _gather_8(given: int, part: int, parts: int) -> None:
    _gather(given, part, parts, 1, np.uint8(0))


@share
def _gather_16(given: int, part: int, parts: int) -> None:
    _gather(given, part, parts, 2, np.uint16(0))


@share
def _gather_32(given: int, part: int, parts: int) -> None:
    _gather(given, part, parts, 4, np.uint32(0))


@share
def _gather_64(given: int, part: int, parts: int) -> None:
    _gather(given, part, parts, 8, np.uint64(0))


@share
def _interleave(given: int, part: int, parts: int) -> None:
    """Interleave columns into rows."""
    columns, n = load(given, _Interleave.COLUMNS), load(given, _Interleave.COUNT)
    out = load(given, _Interleave.OUT)
    for i in range(n * part // parts, n * (part + 1) // parts):
        for c in range(columns):
            store_as(out, i * columns + c, load(load(given, _Interleave.COLUMN + c), i))


@share
def _gather_interleaved(given: int, part: int, parts: int) -> None:
    """Gather interleaved rows into columns."""
    columns, n = load(given, _GatherRows.COLUMNS), load(given, _GatherRows.COUNT)
    rows, source = load(given, _GatherRows.ROWS), load(given, _GatherRows.SOURCE)
    stop = n * (part + 1) // parts
    for i in range(n * part // parts, stop):
        prefetch(source + 8 * columns * load_as(rows, min(i + AHEAD, stop - 1), 0))
        row = load_as(rows, i, 0) * columns
        for c in range(columns):
            store(load(given, _GatherRows.OUT + c), i, load(source, row + c))


_GATHER: dict[int, Share] = {8: _gather_8, 16: _gather_16, 32: _gather_32, 64: _gather_64}


class Gatherer:
    """Gathers rows of one table, many times; `scattered`: many rows will be gathered, in random order."""

    def __init__(self, given: pa.Table, team: Team, scattered: bool = False) -> None:
        """Prepare the columns; the caller of `gather` has acquired the team."""
        self._given, self._team, self._scattered = given, team, scattered
        self._rows: Array | None = None

    @cached_property
    def _plain(self) -> list[Array | None]:
        """The columns' values, where kernels can gather them."""
        return [plain_values(column) for column in self._given.columns]

    @cached_property
    def _interleaved(self) -> dict[int, int]:
        """The number of each interleaved column; empty if columns are gathered one by one."""
        wide = [i for i, values in enumerate(self._plain) if values is not None and values.itemsize == 8]
        large = self._given.num_rows >= MIN_INTERLEAVED_ROWS and 1 < len(wide) <= MAX_INTERLEAVED_COLUMNS
        return {column: at for at, column in enumerate(wide)} if large and self._scattered else {}

    def gather(self, rows: pa.Array) -> list[pa.Array | pa.ChunkedArray]:
        """Return the columns at these rows, in this order; a null row number gives null values."""
        if rows.null_count or len(rows) < MIN_ROWS:
            return list(gather(self._given, rows).columns)
        numbers = rows.to_numpy()
        interleaved = self._gather_interleaved(numbers) if self._interleaved else []
        columns: list[pa.Array | pa.ChunkedArray] = []
        for i, (field, values) in enumerate(zip(self._given.schema, self._plain, strict=True)):
            if values is None:
                columns.append(gather(self._given.select([i]), rows).column(0))
                continue
            out = interleaved[self._interleaved[i]] if i in self._interleaved else self._gather_one(values, numbers)
            columns.append(pa.Array.from_buffers(field.type, len(rows), [None, pa.py_buffer(out)]))
        return columns

    def _gather_one(self, values: Array, rows: Positions) -> Array:
        out = result_array(len(rows), values.dtype)
        given = _Gather.pack(SOURCE=values, ROWS=rows, COUNT=len(rows), OUT=out)
        self._team.run(_GATHER[8 * values.itemsize], given, -(-len(rows) // SLICE))
        return out

    def _gather_interleaved(self, rows: Positions) -> list[Array]:
        count, n = len(self._interleaved), len(rows)
        if self._rows is None:
            size = self._given.num_rows
            self._rows = huge_array(size * count, np.int64)
            columns = [values for i in self._interleaved if (values := self._plain[i]) is not None]
            given = _Interleave.pack(*columns, COLUMNS=count, COUNT=size, OUT=self._rows)
            self._team.run(_interleave, given, -(-size // SLICE))
        out = [result_array(n, np.int64) for _ in range(count)]
        given = _GatherRows.pack(*out, COLUMNS=count, COUNT=n, ROWS=rows, SOURCE=self._rows)
        self._team.run(_gather_interleaved, given, -(-n // SLICE))
        return out


def plain_values(column: pa.ChunkedArray) -> Array | None:
    """Return a column's values as unsigned integers of their width; None if the kernels cannot gather it."""
    width = plain_width(column.type)
    if not width or column.num_chunks != 1 or column.null_count:
        return None
    chunk = column.chunk(0)
    word = np.dtype(f"u{width}")
    return np.frombuffer(chunk.buffers()[1], word, count=chunk.offset + len(chunk))[chunk.offset :]


def plain_width(kind: pa.DataType) -> int:
    """Return the bytes of a value, if the kernels can gather columns of this type without nulls; otherwise 0."""
    plain = pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_temporal(kind)
    return kind.bit_width // 8 if plain and kind.bit_width in PLAIN_BITS else 0


def gather(table: pa.Table, rows: pa.Array) -> pa.Table:
    """Gather rows by number with Arrow; in several chunks if the text exceeds Arrow's 32-bit offsets."""
    check_gathered(table, rows)
    return _gather_checked(table, rows)


def _gather_checked(table: pa.Table, rows: pa.Array) -> pa.Table:
    try:
        return table.take(rows)
    except pa.ArrowInvalid as error:
        if len(rows) < 2 or "overflow" not in str(error):
            raise
        half = len(rows) // 2
        return pa.concat_tables([_gather_checked(table, rows[:half]), _gather_checked(table, rows[half:])])
