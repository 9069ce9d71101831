"""The door: whatever table a user brings becomes a `pyarrow.Table`, checked; errors are named here, once.

Accepted are `pyarrow.Table` and `RecordBatch`, pandas and Polars frames, and anything with the Arrow PyCapsule
interface.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from millrace.host.errors import ArgumentError, SchemaError


def as_table(given: Any, label: str) -> pa.Table:
    """The user's table in Arrow, without the index or the metadata of where it came from."""
    table = _arrow(given, label)
    doubled = sorted({name for name in table.column_names if table.column_names.count(name) > 1})
    if doubled:
        raise SchemaError(f"{label} has several columns named {', '.join(doubled)}: rename them, names must differ")
    return _without_empty_chunks(_movable(_nullable(table), label))


def _nullable(table: pa.Table) -> pa.Table:
    """The same columns without metadata, all of them nullable, so that batches of one side always go together."""
    if table.schema.metadata is None and all(f.nullable and f.metadata is None for f in table.schema):
        return table
    return pa.Table.from_arrays(table.columns, schema=_plain_schema(table.schema))


def _plain_schema(schema: pa.Schema) -> pa.Schema:
    return pa.schema([pa.field(f.name, f.type) for f in schema])


def _movable(table: pa.Table, label: str) -> pa.Table:
    """The same rows in types whose values Arrow can gather; views and run-end encodings become plain columns."""
    for i, column in enumerate(table.columns):
        name, given = table.column_names[i], column.type
        plain = plain_type(given)
        if plain is None:
            raise SchemaError(
                f"{label}: column {name} has type {given}, which rows cannot be gathered from: drop or cast it"
            )
        if plain != given:
            if pa.types.is_run_end_encoded(given):
                column = pa.chunked_array([pc.run_end_decode(c) for c in column.chunks], given.value_type)
            table = table.set_column(i, name, column.cast(plain))
    return table


def plain_type(given: pa.DataType) -> pa.DataType | None:
    """The type a payload column is held in: mostly its own; nothing where Arrow cannot gather such values."""
    if pa.types.is_string_view(given):
        return pa.large_string()
    if pa.types.is_binary_view(given):
        return pa.large_binary()
    if pa.types.is_union(given):
        return None
    if pa.types.is_run_end_encoded(given):
        return plain_type(given.value_type)
    if pa.types.is_dictionary(given):
        values = plain_type(given.value_type)
        return values and pa.dictionary(given.index_type, values, given.ordered)
    if pa.types.is_struct(given):
        fields = [(f, plain_type(f.type)) for f in given]
        return None if any(t is None for _, t in fields) else pa.struct([f.with_type(t) for f, t in fields])
    if pa.types.is_list(given) or pa.types.is_large_list(given):
        inner = plain_type(given.value_type)
        make = pa.list_ if pa.types.is_list(given) else pa.large_list
        return inner and make(given.value_field.with_type(inner))
    return given


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
    if table.schema.names == known.names and table.schema.types == known.types:
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
    return as_table(given.empty_table() if isinstance(given, pa.Schema) else given, label).schema
