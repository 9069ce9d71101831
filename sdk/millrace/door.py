"""The door: whatever table a user brings becomes a `pyarrow.Table`, checked; errors are named here, once.

Accepted are `pyarrow.Table` and `RecordBatch`, pandas and Polars frames, and anything with the Arrow PyCapsule
interface.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from millrace.host.errors import ArgumentError, SchemaError


def as_table(given: Any, label: str) -> pa.Table:
    """The user's table in Arrow, without the index or the metadata of where it came from."""
    table = _arrow(given, label)
    doubled = sorted({name for name in table.column_names if table.column_names.count(name) > 1})
    if doubled:
        raise SchemaError(f"{label} has several columns named {', '.join(doubled)}: rename them, names must differ")
    return _without_empty_chunks(table.replace_schema_metadata(None))


def _without_empty_chunks(table: pa.Table) -> pa.Table:
    """Empty chunks that came through the C interface cannot be joined with others by Arrow, so they go."""
    if all(len(chunk) for column in table.columns for chunk in column.chunks):
        return table
    return pa.Table.from_batches([b for b in table.to_batches() if b.num_rows], table.schema)


def _arrow(given: Any, label: str) -> pa.Table:
    if isinstance(given, pa.Table):
        return given
    if isinstance(given, pa.RecordBatch):
        return pa.Table.from_batches([given])
    try:
        if type(given).__module__.partition(".")[0] == "pandas" and hasattr(given, "columns"):
            return pa.Table.from_pandas(given, preserve_index=False)
        if hasattr(given, "__arrow_c_stream__") or hasattr(given, "__arrow_c_array__"):
            return pa.table(given)
    except (pa.ArrowException, TypeError, ValueError) as error:
        raise SchemaError(f"{label} cannot be turned into an Arrow table: {error}") from error
    raise ArgumentError(
        f"{label} is a {type(given).__name__}; allowed are a pyarrow.Table or RecordBatch, a pandas or Polars frame, "
        f"or any object with the Arrow PyCapsule interface: wrap plain data with pyarrow.table(...)"
    )


def check_schema(table: pa.Table, known: pa.Schema, label: str) -> None:
    """Raise a `SchemaError` unless a batch has the columns of the first one."""
    if table.schema.equals(known, check_metadata=False):
        return
    given = {f.name: f.type for f in table.schema}
    expected = {f.name: f.type for f in known}
    parts = [f"{n} is missing" for n in expected if n not in given]
    parts += [f"{n} is new" for n in given if n not in expected]
    parts += [f"{n} is {given[n]}, was {expected[n]}" for n in expected if n in given and given[n] != expected[n]]
    what = "; ".join(parts) or "the columns come in another order"
    raise SchemaError(f"{label} changed its schema: {what}. Every batch of a side must have the columns of its first")


def as_schema(given: Any, label: str) -> pa.Schema:
    """A schema given by the user: a `pyarrow.Schema`, or a table whose schema counts."""
    if isinstance(given, pa.Schema):
        return given.remove_metadata()
    return as_table(given, label).schema


def without_nullability(schema: pa.Schema) -> pa.Schema:
    """The same columns, all nullable: what batches are compared by."""
    return pa.schema([f.with_nullable(True) for f in schema])
