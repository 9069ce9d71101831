"""Reads what `LiveJoin.put` is given: any table, or one row as a mapping, into a table of the side's schema."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from millrace.host.base.errors import SchemaError
from millrace.ingest.casts import fitted
from millrace.ingest.tables import as_table


class RowReader:
    """Reads rows of one side."""

    def __init__(self, schema: pa.Schema, side: str) -> None:
        """`schema`: the side's columns, as `as_schema` returns them."""
        self._schema, self._side = schema, side
        self._fields = [(field.name, field.type) for field in schema]

    def read(self, given: Any) -> pa.Table:
        """The rows, after all checks."""
        if isinstance(given, Mapping):
            return self._row(given)
        if type(given) is pa.Table and given.schema.equals(self._schema, check_metadata=True):
            return given
        return fitted(as_table(given, f"the batch put to {self._side!r}"), self._schema, self._side)

    def _row(self, row: Mapping[str, Any]) -> pa.Table:
        if len(row) != len(self._fields) or any(name not in row for name, _ in self._fields):
            given = ", ".join(map(str, row)) or "none"
            raise SchemaError(
                f"the row put to {self._side!r} has the columns {given}; a row has exactly the columns "
                f"{', '.join(self._schema.names)} (None is null)"
            )
        columns = [self._value(row[name], name, kind) for name, kind in self._fields]
        return pa.Table.from_arrays(columns, schema=self._schema)

    def _value(self, value: Any, name: str, kind: pa.DataType) -> pa.Array:
        try:
            return pa.array([value], kind)
        except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
            raise SchemaError(
                f"the row put to {self._side!r} has {name}={value!r:.80}, which is no {kind}: {error}"
            ) from error
