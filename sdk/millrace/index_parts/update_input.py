"""Reads the arguments of `OrderedIndex.update`: one change per word, with plain numbers for values.

Deletes are read like queries: a key that the key type cannot represent is absent. Keys of upserts must be represented
exactly. Null and NaN keys are skipped; those of upserts are counted, as in the constructor. Values are cast to the
index's value type. (Thesis, appendix A, 5.6.) Limit: a delete takes no values.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from millrace.host.base.errors import ArgumentError, SchemaError
from millrace.host.base.types import Array, Mask
from millrace.host.base.words import KeyType, all_true, key_type, mask_and, native
from millrace.host.expr.query_conversion import check_kinds, floor_words
from millrace.host.hbtree.update_batch import ChangeBatch, make_batch
from millrace.host.runtime.team import Team
from millrace.index_parts.rows import inline_values, plain_words
from millrace.ingest.columns import as_array, as_values


@dataclass(frozen=True)
class UpdateColumns:
    """The arguments of an update as Arrow arrays; None for what is not given."""

    deletes: pa.Array | None
    keys: pa.Array | None
    values: pa.Array | None
    lent: bool


@dataclass(frozen=True)
class Update:
    """A batch and the values of its upserts: as `numbers` if they can be inline, and as `values`."""

    batch: ChangeBatch
    numbers: Array | None
    values: pa.Array | None
    lent: bool
    """Whether the caller can change the memory of `values` later, so that stored values must be copies."""
    null_keys: int
    next_row: int


def exact_words(column: pa.Array, kind: KeyType, label: str) -> tuple[Array, Mask, Mask]:
    """Words of a column in an index's key type, a mask of exact ones, and a mask of rows that are not null."""
    if pa.types.is_null(column.type):
        none = np.zeros(len(column), np.bool_)
        return np.zeros(len(column), kind.word), ~none, none
    given_type = key_type(label, column.type)
    check_kinds(label, given_type, kind)
    values, valid = native(column, given_type)
    if given_type.dtype == kind.dtype and given_type.ns == kind.ns:
        raw, flip = plain_words(values)
        words = raw ^ raw.dtype.type(flip) if flip else raw
        return words, np.ones(len(column), np.bool_), valid
    floor = floor_words(values, given_type, kind)
    return np.ascontiguousarray(floor.words), floor.exact, valid


def as_columns(upsert: Any, delete: Any) -> UpdateColumns:
    """Both arguments as arrays. This may run code of the caller, so it is called before any lock is held."""
    deletes = None if delete is None else as_array(delete, "delete", are_queries=True)
    if upsert is None:
        return UpdateColumns(deletes, None, None, False)
    keys, values = upsert if isinstance(upsert, tuple) and len(upsert) == 2 else (upsert, None)
    column = as_array(keys, "upsert")
    return UpdateColumns(deletes, column, None if values is None else as_values(values), _is_lent(upsert))


def read_update(
    columns: UpdateColumns, kind: KeyType, value_type: pa.DataType | None, next_row: int, team: Team
) -> Update:
    """Read both arguments; `value_type` is None if values are row numbers."""
    deletes = np.zeros(0, kind.word)
    if columns.deletes is not None:
        words, exact, valid = exact_words(columns.deletes, kind, "delete")
        usable = mask_and(valid, exact)
        deletes = words if all_true(usable) else words[usable]
    keys, values = _pair(columns, value_type)
    words, exact, valid = exact_words(keys, kind, "upsert")
    if not all_true(exact | ~valid):
        row = int(np.flatnonzero(valid & ~exact)[0])
        raise ArgumentError(
            f"upsert: key {keys[row].as_py()!r} in row {row:,} is no {kind.name}, the index's key type: "
            f"give keys that this type represents exactly"
        )
    rows = None if all_true(valid) else np.flatnonzero(valid)
    if rows is not None:
        words = words[rows]
        values = None if values is None else values.take(pa.array(rows))
    if value_type is None:
        numbers: Array | None = next_row + (np.arange(len(keys)) if rows is None else rows)
        numbers = np.asarray(numbers, np.int64).view(np.uint64)
    else:
        assert values is not None
        numbers = inline_values(values)
    batch = make_batch(deletes, words, team)
    return Update(batch, numbers, values, columns.lent, len(keys) - len(words), next_row + len(keys))


def _is_lent(upsert: Any) -> bool:
    """Arrow arrays never change; a NumPy array, or an object that wraps one, may."""
    return isinstance(upsert, tuple) and not isinstance(upsert[-1], pa.Array | pa.ChunkedArray)


def _pair(columns: UpdateColumns, value_type: pa.DataType | None) -> tuple[pa.Array, pa.Array | None]:
    """Keys and values of the upserts, of equal length."""
    keys, values = columns.keys, columns.values
    if keys is None:
        return pa.nulls(0), None if value_type is None else pa.nulls(0, value_type)
    if value_type is None:
        if values is not None:
            raise ArgumentError("upsert has values, but this index was made without: give upsert=keys only")
        return keys, None
    if values is None:
        raise ArgumentError(f"upsert has no values; this index's are {value_type}: give upsert=(keys, values)")
    cast = _cast(values, value_type)
    if len(cast) != len(keys):
        raise ArgumentError(f"upsert has {len(keys):,} keys and {len(cast):,} values: give a value for each key")
    return keys, cast


def _cast(values: pa.Array, value_type: pa.DataType) -> pa.Array:
    if values.type == value_type:
        return values
    try:
        return values.cast(value_type)
    except pa.ArrowException as error:
        raise SchemaError(
            f"upsert has values of type {values.type} that are no {value_type}, the index's type ({error}): "
            f"give values of that type"
        ) from error
