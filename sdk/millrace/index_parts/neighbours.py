"""The keys next to queries: the largest key not above a query (floor), the smallest not below it (ceil), the nearest.

A query of another type than the keys is compared exactly, as in lookups (`query_conversion.py`). Distances are compared
exactly too: of two keys at the same distance, the smaller is the nearest. All work is done on the host. (Not in the
paper; it follows from the tree's lower bound.)
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Literal

import numpy as np
import pyarrow as pa

from millrace.host.base.types import Array, Mask
from millrace.host.base.words import KeyType, from_words, key_type, native
from millrace.host.expr.query_conversion import check_kinds, floor_words
from millrace.index_parts.implicit_rows import ImplicitRows
from millrace.index_parts.regular_rows import RegularRows

Which = Literal["floor", "ceil", "nearest"]


@dataclass(frozen=True)
class _Queries:
    """Queries: their values and type, and the words of the largest key values not above them."""

    values: Array
    kind: KeyType
    words: Array
    exact: Mask
    below: Mask
    """Whether no value of the key type is low enough."""
    valid: Mask


def neighbour_words(rows: ImplicitRows | RegularRows, column: pa.Array, which: Which) -> tuple[Array, Mask]:
    """The word of a key of the index for each query, and a mask of the queries that have one."""
    queries = _read(column, rows.kind)
    if which == "floor":
        return _floor(rows, queries)
    if which == "ceil":
        return _ceil(rows, queries)
    (low, has_low), (high, has_high) = _floor(rows, queries), _ceil(rows, queries)
    lower = has_low & ~has_high
    both = np.flatnonzero(has_low & has_high)
    lower[both] = _below_is_nearer(queries, both, low[both], high[both], rows.kind)
    return np.where(lower, low, high), has_low | has_high


def _read(column: pa.Array, kind: KeyType) -> _Queries:
    count = len(column)
    if pa.types.is_null(column.type):
        none = np.zeros(count, np.bool_)
        return _Queries(np.zeros(count, kind.dtype), kind, np.zeros(count, kind.word), none, none, none)
    query_type = key_type("queries", column.type)
    check_kinds("queries", query_type, kind)
    values, valid = native(column, query_type)
    found = floor_words(values, query_type, kind)
    below = np.zeros(count, np.bool_) if found.below is None else found.below
    return _Queries(values, query_type, np.ascontiguousarray(found.words), found.exact, below, valid)


def _floor(rows: ImplicitRows | RegularRows, queries: _Queries) -> tuple[Array, Mask]:
    words, there = rows.at_most(queries.words)
    return words, there & queries.valid & ~queries.below


def _ceil(rows: ImplicitRows | RegularRows, queries: _Queries) -> tuple[Array, Mask]:
    """An inexact query is between its word and the next one."""
    most, one = np.iinfo(queries.words.dtype).max, queries.words.dtype.type(1)
    up = ~queries.exact & ~queries.below
    beyond = up & (queries.words == most)
    words, there = rows.at_least(np.where(up & ~beyond, queries.words + one, queries.words))
    return words, there & queries.valid & ~beyond


def _below_is_nearer(queries: _Queries, some: Array, low: Array, high: Array, kind: KeyType) -> Mask:
    """Whether the key below (`low`) is as near as the one above, for some queries that lie between two keys."""
    values = queries.values[some]
    if kind.domain == "float":
        return _nearer_of_floats(values, *(from_words(x, kind.dtype).astype(np.float64) for x in (low, high)))
    # Words of integers and times differ as their values do. A query may lie a fraction of a unit above its word.
    words, exact = queries.words[some], queries.exact[some]
    down, up = words - low, high - words
    nearest_half = _at_most_half(values, queries.kind, kind)
    return np.where(exact, down <= up, (down < up) & ((up - down > 1) | nearest_half))


def _at_most_half(values: Array, query: KeyType, kind: KeyType) -> Mask:
    """Whether the fraction of a unit by which a query exceeds its word is at most a half."""
    if query.domain == "float":
        doubles = values.astype(np.float64)
        at_most: Mask = doubles - np.floor(doubles) <= 0.5
        return at_most
    ratio = max(kind.ns // query.ns, 1)
    return np.asarray(values % ratio <= ratio // 2)


@np.errstate(all="ignore")
def _nearer_of_floats(values: Array, low: Array, high: Array) -> Mask:
    """Whether `q - low <= high - q`, which is `2 * q <= low + high`, without any rounding."""
    q = values.astype(np.float64)
    # The sum is total + rest, exactly (Knuth's two-sum); the sign of a floating-point sum of two is exact.
    total = low + high
    part = total - low
    rest = (low - (total - part)) + (high - part)
    nearer = (total - 2 * q) + rest >= 0
    infinite = np.isinf(low) | np.isinf(high)
    nearer = np.where(infinite, (low == q) | np.isinf(high), nearer)
    # Where a sum may overflow, or an integer may not be a double, Python's numbers decide.
    hard = np.maximum(np.maximum(np.abs(low), np.abs(high)), np.abs(q)) > 2.0**1000
    if values.dtype.kind != "f":
        hard |= np.abs(q) >= 2.0**53
    for i in np.flatnonzero(hard & ~infinite).tolist():
        nearer[i] = 2 * Fraction(values[i].item()) <= Fraction(float(low[i])) + Fraction(float(high[i]))
    return np.asarray(nearer)
