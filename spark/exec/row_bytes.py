"""Bytes of rows in Arrow's format, row by row, and where to cut rows into batches of bounded size.

A column of numbers has the same bytes in every row. Text, binary and lists vary: their offsets say how much, without a
copy. So a cut is exact whatever the rows contain, and costs nothing where all columns are numbers.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from millrace.spark.exec.batch_bytes import BatchLimits

Longs = npt.NDArray[np.int64]
_VARYING = (pa.types.is_string, pa.types.is_binary, pa.types.is_large_string, pa.types.is_large_binary)
_LISTS = (pa.types.is_list, pa.types.is_large_list, pa.types.is_map)


@dataclass(frozen=True)
class RowBytes:
    """Bytes of each row of a table: the same for all, plus what varies (None if nothing does)."""

    fixed: int
    varying: Longs | None

    @staticmethod
    def of(table: pa.Table | pa.RecordBatch) -> RowBytes:
        """The rows of a table."""
        fixed, varying = 1, np.zeros(0, np.int64)
        for column in table.columns:
            width = _width(column.type)
            if width is not None:
                fixed += width
                continue
            chunks = column.chunks if isinstance(column, pa.ChunkedArray) else [column]
            sizes = np.concatenate([np.zeros(0, np.int64), *(np.diff(_ends(chunk)) for chunk in chunks)])
            varying = varying + sizes if len(varying) else sizes
        return RowBytes(fixed, varying if len(varying) else None)

    def at(self, rows: pa.Array) -> Longs | None:
        """What varies, for some rows of the table; a null row has nothing."""
        if self.varying is None:
            return None
        if not rows.null_count:
            found: Longs = self.varying[rows.to_numpy()]
            return found
        known = rows.is_valid().to_numpy(zero_copy_only=False)
        sizes: Longs = self.varying[rows.fill_null(0).to_numpy()]
        sizes[~known] = 0
        return sizes


Gathered = tuple[RowBytes, pa.Array]
"""A table's bytes, and the rows of it that the output takes, in order."""


def cut_gathered(parts: Iterable[Gathered], limits: BatchLimits) -> Iterator[tuple[int, int]]:
    """Where to cut output rows that are gathered from several tables side by side: starts and lengths."""
    given = list(parts)
    rows = len(given[0][1])
    fixed = sum(sizes.fixed for sizes, _ in given)
    most = max(1, min(limits.rows, limits.bytes // fixed))
    for start in range(0, rows, most):
        count = min(most, rows - start)
        found = [sizes.at(numbers.slice(start, count)) for sizes, numbers in given]
        varying = [one for one in found if one is not None]
        yield from _cuts(start, fixed, varying, count, limits.bytes)


def cut_rows(table: pa.Table | pa.RecordBatch, limits: BatchLimits) -> Iterator[tuple[int, int]]:
    """Where to cut the rows of one table."""
    sizes = RowBytes.of(table)
    most = max(1, min(limits.rows, limits.bytes // sizes.fixed))
    for start in range(0, table.num_rows, most):
        count = min(most, table.num_rows - start)
        varying = [] if sizes.varying is None else [sizes.varying[start : start + count]]
        yield from _cuts(start, sizes.fixed, varying, count, limits.bytes)


def _cuts(start: int, fixed: int, varying: list[Longs], count: int, max_bytes: int) -> Iterator[tuple[int, int]]:
    """Cuts of `count` rows from `start` on."""
    if not varying:
        yield start, count
        return
    total = np.cumsum(sum(varying) + fixed)
    at = done = 0
    while at < count:
        stop = max(at + 1, int(np.searchsorted(total, done + max_bytes, "right")))
        yield start + at, stop - at
        at, done = stop, int(total[stop - 1])


def has_fixed_width(kind: pa.DataType) -> bool:
    """Whether all values of a type have the same bytes."""
    return _width(kind) is not None


def _width(kind: pa.DataType) -> int | None:
    """Bytes of a value of a type, with its validity; None if they vary."""
    if pa.types.is_struct(kind):
        widths = [_width(field.type) for field in kind]
        return None if None in widths else 1 + sum(w for w in widths if w is not None)
    try:
        return 1 + (int(kind.bit_width) + 7) // 8
    except ValueError:
        return 1 if pa.types.is_null(kind) else None


def _ends(array: pa.Array) -> Longs:
    """Bytes of an array's values up to each one: `len(array) + 1` numbers, of which only differences matter."""
    kind, rows = array.type, len(array)
    numbers = np.arange(rows + 1, dtype=np.int64)
    width = _width(kind)
    if width is not None:
        return numbers * width
    found: Longs
    if any(is_kind(kind) for is_kind in _VARYING):
        large = pa.types.is_large_string(kind) or pa.types.is_large_binary(kind)
        offsets = np.frombuffer(array.buffers()[1] or b"", np.int64 if large else np.int32)
        found = offsets[array.offset : array.offset + rows + 1].astype(np.int64) if rows else numbers
        return found + 5 * numbers
    if any(is_kind(kind) for is_kind in _LISTS):
        inner = _ends(array.keys) + _ends(array.items) if pa.types.is_map(kind) else _ends(array.values)
        found = inner[array.offsets.to_numpy()]
        return found + 5 * numbers
    if pa.types.is_struct(kind):
        found = numbers.copy()
        for number in range(kind.num_fields):
            found += _ends(array.field(number))
        return found
    average = int(array.nbytes) // max(rows, 1) + 1  # a type that Spark does not have
    return numbers * average
