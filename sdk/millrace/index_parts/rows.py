"""Makes the rows of an ordered index: keys become sorted words, values are put into key order.

Null and NaN keys are left out and counted. Keys that are already sorted are copied once, and then separate values are
not copied at all. Equal keys keep their input order. (Thesis, appendix A, 4.1.) Limit: 2**31 keys.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa

from millrace.host.base.columns import column_of
from millrace.host.base.errors import ArgumentError
from millrace.host.base.types import Array
from millrace.host.base.words import KeyType, all_true, from_words, native, to_words
from millrace.host.hbtree.build import build, fill
from millrace.host.hbtree.leaves import EQUALS, INLINE_WIDTHS, UNSORTED, Leaves
from millrace.host.hbtree.plain import sort_rows
from millrace.host.runtime.allocator import free
from millrace.host.runtime.team import Team

_SMALL = 1 << 12
"""Bytes of a larger array that a slice may keep."""
_SAMPLED = 1 << 12
"""Keys checked first, before a full pass checks whether all are sorted."""


@dataclass(frozen=True)
class Rows:
    """The data of an index; `separate_values`: the values in key order, if they are not inline."""

    leaves: Leaves
    kind: KeyType
    value_type: pa.DataType
    separate_values: pa.Array | None
    null_keys: int
    numbered: bool
    """Whether values are row numbers."""
    next_row: int
    """The row number of the next upsert."""
    equals: bool
    """Whether there are equal keys."""

    @property
    def nbytes(self) -> int:
        """Bytes of the separate values."""
        return 0 if self.separate_values is None else int(self.separate_values.nbytes)

    @property
    def wanted_type(self) -> pa.DataType | None:
        """The type of new values; None if values are row numbers."""
        return None if self.numbered else self.value_type

    def all_values(self) -> pa.Array:
        """The inline values in key order."""
        return as_type(self.leaves.values, self.value_type)


def as_type(numbers: Array, kind: pa.DataType) -> pa.Array:
    """Numbers as values of a type of the same width."""
    return column_of(numbers, kind=kind)


def make_rows(
    keys: pa.Array,
    values: pa.Array | None,
    kind: KeyType,
    duplicates: str,
    hybrid: bool | None,
    team: Team,
) -> tuple[Rows, Array | None]:
    """Make the rows and, unless `hybrid` is None, the implicit tree's I-segment with that fan-out.

    Duplicates that are not allowed raise `ArgumentError`.
    """
    if values is not None and len(values) != len(keys):
        raise ArgumentError(f"keys has {len(keys):,} rows, values has {len(values):,}: give a value for each key")
    numbers, valid = native(keys, kind)
    is_numbered = values is None
    value_type = pa.int64() if values is None else values.type
    numbered: Array | None = None
    if not all_true(valid):
        numbered = np.flatnonzero(valid)
        numbers = numbers[numbered]
        values = None if values is None else values.take(column_of(numbered))
    raw, flip = plain_words(numbers)
    inline = inline_values(values) if values is not None else numbered
    built = build(raw, flip, inline, hybrid, team) if _looks_sorted(raw, flip) else None
    if built is None or built.known == UNSORTED:
        words, order = sort_rows(raw ^ raw.dtype.type(flip) if flip else raw, team)
        if values is None:
            inline = order.astype(np.int64) if numbered is None else numbered[order]
        elif inline is not None:
            inline = inline[order]
        else:
            values = values.take(column_of(order))
        built = build(words, 0, inline, hybrid, team)
        free(words)
        free(order)
    if built.known == EQUALS and duplicates == "error":
        raise _duplicate_error(built.leaves, kind)
    separate_values = values if inline is None else None
    nulls, equals = len(keys) - built.leaves.size, built.known == EQUALS
    return Rows(built.leaves, kind, value_type, separate_values, nulls, is_numbered, len(keys), equals), built.nodes


def with_numbers(rows: Rows, team: Team) -> Rows:
    """The same rows with inline values, if values were positions."""
    if rows.separate_values is not None or rows.leaves.width:
        return rows
    positions = np.arange(rows.leaves.size).view(np.uint64)
    return replace(rows, leaves=fill(rows.leaves.words, 0, positions, team)[0])


def with_own_values(rows: Rows, lent: bool) -> Rows:
    """The same rows with a copy of the separate values, if they are a slice or the caller's (`lent`)."""
    values = rows.separate_values
    if values is None or not (lent or is_part(values)):
        return rows
    return replace(rows, separate_values=copied(values))


def is_part(values: pa.Array) -> bool:
    """Whether values keep the memory of a larger array alive, of which they are a slice."""
    return bool(values.get_total_buffer_size() > values.nbytes + values.nbytes // 4 + _SMALL)


def copied(values: pa.Array) -> pa.Array:
    """Values in separate memory: concatenation in Arrow always copies."""
    half = len(values) // 2
    return pa.concat_arrays([values.slice(0, half), values.slice(half)])


def plain_words(numbers: Array) -> tuple[Array, int]:
    """Key values as unsigned numbers, and the bits to flip to get words; integers are not copied."""
    if numbers.dtype.kind == "f":
        return to_words(numbers), 0
    word = np.dtype(f"u{numbers.dtype.itemsize}")
    flip = 1 << (8 * word.itemsize - 1) if numbers.dtype.kind == "i" else 0
    return np.ascontiguousarray(numbers).view(word), flip


def inline_values(values: pa.Array) -> Array | None:
    """Values as plain numbers if they can be inline (4 or 8 bytes, no nulls), else None."""
    if not pa.types.is_primitive(values.type) or values.null_count or values.type.bit_width // 8 not in INLINE_WIDTHS:
        return None
    width = values.type.bit_width // 8
    buffer = values.buffers()[1]
    if buffer is None:
        return np.zeros(0, f"u{width}")
    return np.frombuffer(buffer, f"u{width}", len(values), values.offset * width)


def _looks_sorted(raw: Array, flip: int) -> bool:
    """Whether the first keys are sorted."""
    glance = raw[:_SAMPLED] ^ raw.dtype.type(flip)
    return bool((glance[1:] >= glance[:-1]).all())


def _duplicate_error(leaves: Leaves, kind: KeyType) -> ArgumentError:
    """The error for equal keys, with an example."""
    words = leaves.words
    equal = np.flatnonzero(words[1:] == words[:-1])
    value: Any = from_words(words[equal[:1]], kind.dtype)[0]
    example = f"{value} (in {kind.name})" if kind.domain == "time" else f"{value}"
    return ArgumentError(
        f"keys has {len(equal):,} rows with a key that another row has too, such as {example}; duplicates='error' "
        f"allows none: use duplicates='first' or 'last' (lookup returns the first or the last row, range all rows)"
    )
