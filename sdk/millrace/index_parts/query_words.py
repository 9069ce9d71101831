"""Converts queries and range bounds of any supported type to words of an index's key type.

A query that the key type cannot represent is marked as absent; a bound is rounded inwards. Null values are reported in
a mask. Limit: queries and keys must be of the same kind (numbers, or times).
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from millrace.host.base.errors import ArgumentError
from millrace.host.base.types import Array, Mask
from millrace.host.base.words import KeyType, all_true, key_type, mask_and, native, true_mask
from millrace.host.expr.query_conversion import FlooredQueries, check_kinds, floor_words
from millrace.index_parts.rows import plain_words
from millrace.ingest.columns import as_array, as_one, is_scalar


def query_words(column: pa.Array, kind: KeyType) -> tuple[Array, int, Mask | None]:
    """Queries as numbers, the bits to flip to get words, and a mask of the queries that can match (None: all)."""
    plain = _plain_queries(column, kind)
    if plain is not None:
        return *plain, None
    query_type = key_type("queries", column.type)
    check_kinds("queries", query_type, kind)
    values, valid = native(column, query_type)
    if query_type.dtype == kind.dtype and query_type.ns == kind.ns:
        raw, flip = plain_words(values)
        return raw, flip, None if all_true(valid) else valid
    floor = floor_words(values, query_type, kind)
    usable = mask_and(valid, floor.exact)
    return np.ascontiguousarray(floor.words), 0, None if all_true(usable) else usable


def _plain_queries(column: pa.Array, kind: KeyType) -> tuple[Array, int] | None:
    """Queries of the keys' own type, integers or timestamps without nulls: read in place. None: they are others."""
    dtype, rows = kind.dtype, len(column)
    if dtype.kind not in "iu" or not rows or str(column.type) != kind.name or kind.stored != dtype or column.null_count:
        return None
    flip = 1 << (8 * dtype.itemsize - 1) if dtype.kind == "i" else 0
    return np.frombuffer(column.buffers()[1], kind.word, rows, column.offset * dtype.itemsize), flip


def bound_words(low: pa.Array, high: pa.Array, kind: KeyType) -> tuple[tuple[Array, Mask], tuple[Array, Mask], Mask]:
    """Words of both bounds, rounded inwards; masks of bounds with such a word; mask of pairs without a null."""
    below, low_valid = _floor(low, "lo", kind)
    above, high_valid = _floor(high, "hi", kind)
    words, there = below.words, true_mask(len(below.words))
    if not all_true(below.exact):
        inexact, most = ~below.exact, np.iinfo(words.dtype).max
        beyond = inexact & (words == most)
        up = inexact & ~beyond if below.below is None else inexact & ~beyond & ~below.below
        words, there = np.where(up, words + words.dtype.type(1), words), ~beyond
    high_possible = true_mask(len(above.words)) if above.below is None else ~above.below
    ends = np.ascontiguousarray(words), np.ascontiguousarray(above.words)
    return (ends[0], there), (ends[1], high_possible), mask_and(low_valid, high_valid)


def _floor(column: pa.Array, label: str, kind: KeyType) -> tuple[FlooredQueries, Mask]:
    if pa.types.is_null(column.type):
        none = np.zeros(len(column), np.bool_)
        return FlooredQueries(np.zeros(len(column), kind.word), true_mask(len(column))), none
    query_type = key_type(label, column.type)
    check_kinds(label, query_type, kind)
    values, valid = native(column, query_type)
    return floor_words(values, query_type, kind), valid


def bound_columns(lo: Any, hi: Any) -> tuple[pa.Array, pa.Array]:
    """Both bounds as arrays of equal length; a scalar is repeated for every row of the other bound."""
    columns = [
        as_one(x, name) if is_scalar(x) else as_array(x, name, are_queries=True) for x, name in ((lo, "lo"), (hi, "hi"))
    ]
    rows = [len(column) for x, column in zip((lo, hi), columns, strict=True) if not is_scalar(x)]
    if len(set(rows)) > 1:
        raise ArgumentError(f"lo has {rows[0]:,} rows, hi has {rows[1]:,}: give a pair of bounds per range")
    low, high = (
        column.take(pa.array(np.zeros(rows[0], np.int64))) if is_scalar(x) and rows else column
        for x, column in zip((lo, hi), columns, strict=True)
    )
    return low, high
