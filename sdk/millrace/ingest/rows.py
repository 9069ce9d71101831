"""Reads what `LiveJoin.put` is given: any table, or one row as a mapping, into a table of the side's schema.

A row of plain integers and floats is written into a block of rows whose Arrow table is made once, and becomes a slice
of it: an Arrow array per value would cost more than the step that matches the row. Other rows get their own arrays: a
value is read as its column's type where that is its Python type; any other becomes a column of the type that Arrow sees
in it, and is cast by the rules of a batch (`casts.py`): Arrow itself would make 1 of 1.5.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from millrace.host.base.errors import SchemaError
from millrace.host.base.types import Array
from millrace.ingest.casts import exactly_cast, fitted
from millrace.ingest.columns import check_numpy_unit
from millrace.ingest.tables import as_table

BLOCK_ROWS = 1 << 9
Kinds = frozenset[type]
_INTEGERS: Kinds = frozenset({int, *(np.dtype(code).type for code in "bhilqBHILQ")})
_EXACT: tuple[tuple[tuple[Callable[[pa.DataType], bool], ...], Kinds], ...] = (
    ((pa.types.is_integer,), _INTEGERS),
    ((pa.types.is_floating,), _INTEGERS | {float, np.float32, np.float64}),
    ((pa.types.is_string, pa.types.is_large_string), frozenset({str})),
    ((pa.types.is_binary, pa.types.is_large_binary), frozenset({bytes})),
    ((pa.types.is_timestamp, pa.types.is_date), frozenset()),
)
"""Types of columns, and the types of values that Arrow reads as such without a change; it refuses what is too large."""


def _kinds_for(wanted: pa.DataType) -> Kinds | None:
    """The types of values that need no check in a column; None: all of them."""
    return next((kinds for tests, kinds in _EXACT if any(test(wanted) for test in tests)), None)


class RowBlock:
    """Rows that are written one by one; those written never change."""

    def __init__(self, schema: pa.Schema) -> None:
        """An empty block for a schema of `plain` columns."""
        self._columns: list[tuple[str, type, Array]] = []
        arrays = []
        for field in schema:
            values = np.zeros(BLOCK_ROWS, field.type.to_pandas_dtype())
            self._columns.append((field.name, int if values.dtype.kind in "iu" else float, values))
            arrays.append(pa.Array.from_buffers(field.type, BLOCK_ROWS, [None, pa.py_buffer(values)], null_count=0))
        self._table = pa.Table.from_arrays(arrays, schema=schema)
        self._used = 0

    @staticmethod
    def suits(schema: pa.Schema) -> bool:
        """Whether all columns are integers, or floats of 64 bits, of which every Python float is one."""
        kinds = schema.types
        return bool(kinds) and all(pa.types.is_integer(kind) or pa.types.is_float64(kind) for kind in kinds)

    def write(self, row: Mapping[str, Any]) -> pa.Table | None:
        """Write a row; None if a value is not exactly of its column's kind, or out of its range."""
        at = self._used
        self._used = at + 1  # without a call before: a signal handler that puts a row gets another place
        if at >= BLOCK_ROWS:
            return None
        try:
            for name, kind, values in self._columns:
                value = row[name]
                if type(value) is not kind:
                    return None
                values[at] = value
        except OverflowError:
            return None
        return self._table.slice(at, 1)

    @property
    def is_full(self) -> bool:
        """Whether no row fits any more."""
        return self._used >= BLOCK_ROWS


class RowReader:
    """Reads rows of one side."""

    def __init__(self, schema: pa.Schema, side: str) -> None:
        """`schema`: the side's columns, as `as_schema` returns them."""
        self._schema, self._side = schema, side
        self._fields = [(field, field.name, _kinds_for(field.type)) for field in schema]
        self._names = frozenset(schema.names)
        self._has_blocks = RowBlock.suits(schema)
        self._blocks = threading.local()
        """A block per thread: several may put rows at the same time."""

    def read(self, given: Any) -> pa.Table:
        """The rows, after all checks."""
        if isinstance(given, Mapping):
            return self._row(given)
        if type(given) is pa.Table and given.schema.equals(self._schema, check_metadata=True):
            return given
        return fitted(as_table(given, f"the batch put to {self._side!r}"), self._schema, self._side)

    def _row(self, row: Mapping[str, Any]) -> pa.Table:
        if row.keys() != self._names:
            given = ", ".join(map(str, row)) or "none"
            raise SchemaError(
                f"the row put to {self._side!r} has the columns {given}; a row has exactly the columns "
                f"{', '.join(self._schema.names)} (None is null)"
            )
        if self._has_blocks:
            block: RowBlock | None = getattr(self._blocks, "block", None)
            if block is None or block.is_full:
                block = self._blocks.block = RowBlock(self._schema)
            written = block.write(row)
            if written is not None:
                return written
        columns = [self._value(row[name], field, kinds) for field, name, kinds in self._fields]
        return pa.Table.from_arrays(columns, schema=self._schema)

    def _value(self, value: Any, field: pa.Field, kinds: Kinds | None) -> pa.Array | pa.ChunkedArray:
        try:
            if value is None or kinds is None or type(value) in kinds:
                return pa.array([value], field.type)
            check_numpy_unit(value)
            return exactly_cast(pa.chunked_array([pa.array([value])]), field.type)
        except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
            raise SchemaError(
                f"the row put to {self._side!r} has {field.name}={value!r:.80}, which is no {field.type}: {error}"
            ) from error
