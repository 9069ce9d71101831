"""Converts tables from users to a checked `pyarrow.Table`.

Accepts `pyarrow.Table` and `RecordBatch`, pandas and Polars frames, and any object with the Arrow PyCapsule interface.
Columns are held in types whose rows Arrow can always gather and concatenate, at every nesting depth (`plain_type`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from millrace.host.base.errors import ArgumentError, SchemaError
from millrace.host.base.types import Array


def as_table(given: Any, label: str) -> pa.Table:
    """The user's table in Arrow, without a pandas index and without metadata."""
    table = without_empty_chunks(_arrow(given, label))
    doubled = sorted(name for name, count in Counter(table.column_names).items() if count > 1)
    if doubled:
        raise SchemaError(f"{label} has several columns named {', '.join(doubled)}: rename them, names must differ")
    return _normalized(table, label)


def _normalized(table: pa.Table, label: str) -> pa.Table:
    """The same rows, all columns nullable and without metadata, so that batches of a side can be concatenated."""
    given = list(table.schema)
    held = [pa.field(f.name, _held_type(f, label)) for f in given]
    same = all(f.nullable and f.metadata is None and f.type == h.type for f, h in zip(given, held, strict=True))
    if same and table.schema.metadata is None:
        return table
    columns = [_held_column(c, f, label) for c, f in zip(table.columns, held, strict=True)]
    return pa.Table.from_arrays(columns, schema=pa.schema(held))


def _held_type(field: pa.Field, label: str) -> pa.DataType:
    """The type in which a column is held; raises a `SchemaError` if there is none."""
    try:
        return _checked_type(field.type) if _hashable(field.type) else _checked_type.__wrapped__(field.type)
    except Exception as error:  # extension types run their author's code
        raise SchemaError(
            f"{label}: column {field.name} has type {field.type}, which rows cannot be gathered from ({error}): "
            f"drop the column, or cast it to a plain type"
        ) from error


def _held_column(column: pa.ChunkedArray, held: pa.Field, label: str) -> pa.ChunkedArray:
    if column.type == held.type and not (
        pa.types.is_dictionary(held.type) and any(chunk.dictionary.null_count for chunk in column.chunks)
    ):
        return column
    try:
        return pa.chunked_array([_plain(chunk, held.type) for chunk in column.chunks], held.type)
    except pa.ArrowException as error:
        raise SchemaError(
            f"{label}: column {held.name} of type {column.type} cannot be turned into {held.type} ({error}): "
            f"cast the column, or pass fewer rows at a time"
        ) from error


def _hashable(given: pa.DataType) -> bool:
    """Whether a type can be hashed; most extension types written in Python cannot."""
    try:
        hash(given)
    except TypeError:
        return False
    return True


def _row_numbers(*numbers: int, valid: bytes | None = None) -> pa.Array:
    """Row numbers; not by `pa.array`, whose first call imports pandas."""
    values = np.array(numbers, np.int64)
    return pa.Array.from_buffers(pa.int64(), len(values), [valid and pa.py_buffer(valid), pa.py_buffer(values)])


_KNOWN_TYPES = (
    pa.types.is_integer,
    pa.types.is_float32,
    pa.types.is_float64,
    pa.types.is_timestamp,
    pa.types.is_string,
)
"""Types that need no trial: it would import pandas, through pyarrow, in every first call."""
_ROWS, _ROWS_AND_NULL = _row_numbers(1, 0), _row_numbers(1, 0, 0, valid=bytes([0b101]))


@lru_cache(maxsize=1024)
def _checked_type(given: pa.DataType) -> pa.DataType:
    """The plain type. Tries on nulls all that a join does with payload, so that Arrow cannot fail during a join."""
    if any(known(given) for known in _KNOWN_TYPES):
        return given
    storage = given.storage_type if isinstance(given, pa.BaseExtensionType) else given
    plain = _dictionary_type(storage) if pa.types.is_dictionary(storage) else plain_type(given)
    nulls = pa.nulls(1, plain)
    table = pa.Table.from_arrays([pa.chunked_array([nulls, nulls], plain)], ["c"])
    table.take(_ROWS)
    table.take(_ROWS_AND_NULL)
    combined = pa.concat_tables([table, table]).combine_chunks()
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, combined.schema) as stream:
        stream.write_table(combined.slice(1))
    pa.ipc.open_stream(sink.getvalue()).read_all()
    table.schema.empty_table()
    return plain


def _dictionary_type(given: pa.DataType) -> pa.DataType:
    """A dictionary type stays one, with indices of at least 32 bits, because dictionaries of many batches are unified.

    Arrow cannot unify dictionaries of nested values: such a column becomes plain.
    """
    values = plain_type(given.value_type)
    if pa.types.is_nested(values) or isinstance(values, pa.BaseExtensionType):
        return values
    index = given.index_type if given.index_type.bit_width >= 32 else pa.int32()
    return pa.dictionary(index, values, given.ordered)


def plain_type(given: pa.DataType) -> pa.DataType:
    """The type in which a payload column is held and returned: usually its own, nullable at every depth.

    String and binary views become large types, list views become lists, and run-end encodings and dictionaries inside
    other types become plain values: Arrow cannot gather the originals, or cannot always concatenate them. An extension
    type stays unless its storage type changes in this way; then the column has the storage type. An extension type
    inside another type is always replaced by its storage, because Arrow cannot make an empty table of it. Unions are
    refused.
    """
    if pa.types.is_string_view(given):
        return pa.large_string()
    if pa.types.is_binary_view(given):
        return pa.large_binary()
    if pa.types.is_dictionary(given) or pa.types.is_run_end_encoded(given):
        return plain_type(given.value_type)
    if pa.types.is_union(given):
        raise TypeError("rows of a union have several types")
    if _is_list_view(given):
        make = pa.list_ if pa.types.is_list_view(given) else pa.large_list
        return plain_type(make(given.value_field))
    if isinstance(given, pa.BaseExtensionType):
        storage = plain_type(given.storage_type)
        return given if storage == _nullable(given.storage_type) else storage
    return _with_inner(given, _plain_inner_type)


def _plain_inner_type(given: pa.DataType) -> pa.DataType:
    plain = plain_type(given)
    return _plain_inner_type(plain.storage_type) if isinstance(plain, pa.BaseExtensionType) else plain


def _nullable(given: pa.DataType) -> pa.DataType:
    """The same type with nullable fields at every depth."""
    return _with_inner(given, _nullable)


def _with_inner(given: pa.DataType, change: Callable[[pa.DataType], pa.DataType]) -> pa.DataType:
    """A nested type with its inner types changed and nullable (except keys of a map); other types unchanged."""

    def changed(field: pa.Field) -> pa.Field:
        return pa.field(field.name, change(field.type))

    if pa.types.is_struct(given):
        return pa.struct([changed(f) for f in given])
    if pa.types.is_list(given):
        return pa.list_(changed(given.value_field))
    if pa.types.is_large_list(given):
        return pa.large_list(changed(given.value_field))
    if pa.types.is_fixed_size_list(given):
        return pa.list_(changed(given.value_field), given.list_size)
    if pa.types.is_map(given):
        key = changed(given.key_field).with_nullable(False)
        return pa.map_(key, changed(given.item_field), given.keys_sorted)
    return given


def _is_list_view(given: pa.DataType) -> bool:
    return bool(pa.types.is_list_view(given) or pa.types.is_large_list_view(given))


def _plain(array: pa.Array, plain: pa.DataType) -> pa.Array:
    """The same values in their plain type; Arrow's casts do not support most nested types."""
    given = array.type
    if isinstance(given, pa.BaseExtensionType) and given != plain:
        return _plain(array.storage, plain)
    if pa.types.is_dictionary(plain):
        return _plain_dictionary(array, plain)
    if given == plain:
        return array
    if not len(array):
        return pa.nulls(0, plain)
    if pa.types.is_dictionary(given):
        return _plain(array.dictionary, plain).take(array.indices)
    if pa.types.is_run_end_encoded(given):
        rows = np.arange(array.offset, array.offset + len(array))
        return _picked(array.values, np.searchsorted(array.run_ends.to_numpy(), rows, side="right"), plain)
    if pa.types.is_struct(given):
        inner = [_plain(array.field(i), f.type) for i, f in enumerate(plain)]
        return pa.StructArray.from_arrays(inner, fields=list(plain), mask=array.is_null())
    if pa.types.is_fixed_size_list(given):
        size = given.list_size
        values = _plain(array.values.slice(array.offset * size, len(array) * size), plain.value_type)
        return pa.FixedSizeListArray.from_arrays(values, type=plain, mask=array.is_null())
    if _is_list_view(given):
        return _plain_list_view(array, plain)
    if pa.types.is_map(given) or pa.types.is_list(given) or pa.types.is_large_list(given):
        return _plain_list(array, plain)
    return array.cast(plain)


def _plain_dictionary(array: pa.DictionaryArray, plain: pa.DataType) -> pa.Array:
    """Wider indices and plain values; a null in the dictionary becomes a null in the indices, as Arrow requires."""
    indices, values = array.indices, _plain(array.dictionary, plain.value_type)
    if values.null_count:
        encoded = values.take(indices).dictionary_encode()
        indices, values = encoded.indices, encoded.dictionary
    return pa.DictionaryArray.from_arrays(indices.cast(plain.index_type), values, ordered=plain.ordered)


def _plain_list(array: pa.Array, plain: pa.DataType) -> pa.Array:
    """Lists and maps; converts only the values that these rows use, because the rows may be a small slice."""
    start, stop = array.offsets[0].as_py(), array.offsets[-1].as_py()
    offsets, nulls = pc.subtract(array.offsets, array.offsets[0]), array.is_null()
    if pa.types.is_map(plain):
        keys = _plain(array.keys.slice(start, stop - start), plain.key_type)
        items = _plain(array.items.slice(start, stop - start), plain.item_type)
        return pa.MapArray.from_arrays(offsets, keys, items, type=plain, mask=nulls)
    make = pa.ListArray if pa.types.is_list(plain) else pa.LargeListArray
    values = _plain(array.values.slice(start, stop - start), plain.value_type)
    return make.from_arrays(offsets, values, type=plain, mask=nulls)


def _plain_list_view(array: pa.Array, plain: pa.DataType) -> pa.Array:
    """Converts list views, whose values may be anywhere, to lists, whose values are consecutive."""
    nulls = array.is_null()
    sizes = np.where(nulls.to_numpy(zero_copy_only=False), 0, array.sizes.to_numpy()).astype(np.int64)
    ends = np.concatenate([np.zeros(1, np.int64), np.cumsum(sizes)])
    rows = np.repeat(array.offsets.to_numpy() - ends[:-1], sizes) + np.arange(ends[-1])
    make, offset_type = (pa.ListArray, pa.int32()) if pa.types.is_list(plain) else (pa.LargeListArray, pa.int64())
    values = _picked(array.values, rows, plain.value_type)
    return make.from_arrays(pa.array(ends).cast(offset_type), values, type=plain, mask=nulls)


def _picked(values: pa.Array, rows: Array, plain: pa.DataType) -> pa.Array:
    """Values at these rows, in their plain type."""
    start, stop = (int(rows.min()), int(rows.max()) + 1) if len(rows) else (0, 0)
    return _plain(values.slice(start, stop - start), plain).take(pa.array(rows - start))


def without_empty_chunks(table: pa.Table) -> pa.Table:
    """Drops empty chunks: Arrow cannot concatenate those that came through the C interface with others."""
    if table.num_rows and all(column.num_chunks == 1 for column in table.columns):
        return table
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
            check_no_objects(given, label)
            return pa.table(given)
    except SchemaError:
        raise
    except Exception as error:  # the object's own code may raise anything
        raise SchemaError(f"{label} cannot be turned into an Arrow table: {error}") from error
    if is_lazy(given):
        raise ArgumentError(f"{label} is a {type(given).__name__}, a query and not yet rows: {COLLECT}")
    raise ArgumentError(
        f"{label} is a {type(given).__name__}; allowed are a pyarrow.Table or RecordBatch, a pandas or Polars frame, "
        f"or any object with the Arrow PyCapsule interface: wrap plain data with pyarrow.table(...)"
    )


def check_no_objects(given: Any, label: str) -> None:
    """Refuse columns of Python objects from Polars, which gives Arrow the addresses of the objects as values."""
    if type(given).__module__.partition(".")[0] != "polars":
        return
    types = given.schema if hasattr(given, "schema") else {label: given.dtype}
    objects = [name for name, kind in types.items() if str(kind) == "Object"]
    if objects:
        raise SchemaError(
            f"{label}: column {', '.join(objects)} holds Python objects (Object of Polars), for which Arrow has no "
            f"type: drop it, or cast it, as with map_elements(..., return_dtype=...)"
        )


COLLECT = "call .collect() on it first"


def is_lazy(given: Any) -> bool:
    """Whether something is a query of Polars, or of a library like it, that must be run first."""
    return type(given).__name__.startswith("Lazy") and hasattr(given, "collect")


def check_schema(table: pa.Table, known: pa.Schema, label: str, owner: str = "a side") -> None:
    """Raise a `SchemaError` unless a batch has the columns of the first one; `owner`: whose batches must agree."""
    schema = table.schema
    if schema.equals(known) or (schema.names == known.names and schema.types == known.types):
        return
    given = {f.name: f.type for f in table.schema}
    expected = {f.name: f.type for f in known}
    parts = [f"{n} is missing" for n in expected if n not in given]
    parts += [f"{n} is new" for n in given if n not in expected]
    parts += [f"{n} is {given[n]}, was {expected[n]}" for n in expected if n in given and given[n] != expected[n]]
    what = "; ".join(parts) or "the columns are in another order"
    advice = ""
    if any(n in given and given[n] != expected[n] for n in expected):
        advice = ": cast the column"
        if owner == "a side":
            advice += f", or fix the types from the start with schemas={{{label!r}: ...}}"
    raise SchemaError(
        f"{label} changed its schema: {what}. Every batch of {owner} must have the columns of its first{advice}"
    )


def as_schema(given: Any, label: str) -> pa.Schema:
    """A schema given by the user: a `pyarrow.Schema`, or a table with that schema."""
    return as_table(pa.Table.from_batches([], given) if isinstance(given, pa.Schema) else given, label).schema
