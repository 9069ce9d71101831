"""Reads what `LiveJoin.put` is given: any table, or one row as a mapping, into a table of the side's schema.

A value of a row is read as its column's type where that is its Python type. Any other becomes a column of the type that
Arrow sees in it, and is cast by the rules of a batch (`casts.py`): Arrow itself would make 1 of 1.5.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from millrace.host.base.errors import SchemaError
from millrace.ingest.casts import exactly_cast, fitted
from millrace.ingest.tables import as_table

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


class RowReader:
    """Reads rows of one side."""

    def __init__(self, schema: pa.Schema, side: str) -> None:
        """`schema`: the side's columns, as `as_schema` returns them."""
        self._schema, self._side = schema, side
        self._fields = [(field, field.name, _kinds_for(field.type)) for field in schema]

    def read(self, given: Any) -> pa.Table:
        """The rows, after all checks."""
        if isinstance(given, Mapping):
            return self._row(given)
        if type(given) is pa.Table and given.schema.equals(self._schema, check_metadata=True):
            return given
        return fitted(as_table(given, f"the batch put to {self._side!r}"), self._schema, self._side)

    def _row(self, row: Mapping[str, Any]) -> pa.Table:
        if len(row) != len(self._fields) or any(name not in row for _, name, _ in self._fields):
            given = ", ".join(map(str, row)) or "none"
            raise SchemaError(
                f"the row put to {self._side!r} has the columns {given}; a row has exactly the columns "
                f"{', '.join(self._schema.names)} (None is null)"
            )
        columns = [self._value(row[name], field, kinds) for field, name, kinds in self._fields]
        return pa.Table.from_arrays(columns, schema=self._schema)

    def _value(self, value: Any, field: pa.Field, kinds: Kinds | None) -> pa.Array | pa.ChunkedArray:
        try:
            if value is None or kinds is None or type(value) in kinds:
                return pa.array([value], field.type)
            return exactly_cast(pa.chunked_array([pa.array([value])]), field.type)
        except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
            raise SchemaError(
                f"the row put to {self._side!r} has {field.name}={value!r:.80}, which is no {field.type}: {error}"
            ) from error
