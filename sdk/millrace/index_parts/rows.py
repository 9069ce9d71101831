"""Makes the rows of an ordered index: keys become sorted words, values follow them into key order.

Null and NaN keys are left out and counted. Keys that come sorted are copied once and never moved again, and then values
that lie apart are not copied at all. Equal keys keep their input order.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa

from millrace.host.base.errors import ArgumentError
from millrace.host.base.types import Array
from millrace.host.base.words import KeyType, all_true, from_words, native, to_words
from millrace.host.hbtree.build import build, fill
from millrace.host.hbtree.layout import MOST_KEYS
from millrace.host.hbtree.leaves import BESIDE, EQUALS, UNSORTED, Leaves
from millrace.host.kernels.word_sorter import sort_words
from millrace.host.runtime.team import Team

DUPLICATES = ("error", "first", "last")
_GLANCE = 1 << 12
"""Keys looked at before a whole pass is spent on finding out whether they are sorted."""


@dataclass(frozen=True)
class Rows:
    """What an index is made of: `apart` are the values in key order that do not lie beside the words."""

    leaves: Leaves
    kind: KeyType
    value_type: pa.DataType
    apart: pa.Array | None
    null_keys: int
    numbered: bool
    """Whether values are row numbers."""
    next_row: int
    """The row number of what is upserted next."""
    equals: bool
    """Whether there are equal keys."""

    @property
    def nbytes(self) -> int:
        """Bytes of the values that lie apart."""
        return 0 if self.apart is None else int(self.apart.nbytes)

    @property
    def wanted_type(self) -> pa.DataType | None:
        """The type that new values must have; nothing where they are row numbers."""
        return None if self.numbered else self.value_type

    def all_values(self) -> pa.Array:
        """The values that lie beside, in key order."""
        return as_type(self.leaves.values, self.value_type)


def as_type(numbers: Array, kind: pa.DataType) -> pa.Array:
    """Plain numbers as values of a type of their width."""
    plain = pa.array(numbers)
    return pa.Array.from_buffers(kind, len(plain), plain.buffers())


def make_rows(
    keys: pa.Array,
    values: pa.Array | None,
    kind: KeyType,
    duplicates: str,
    hybrid: bool | None,
    team: Team,
) -> tuple[Rows, Array | None]:
    """The rows and, unless `hybrid` is None, the implicit tree's I-segment of that fan-out.

    Duplicates that are not allowed are an `ArgumentError`.
    """
    if len(keys) > MOST_KEYS:
        raise ArgumentError(f"keys has {len(keys):,} rows; allowed are {MOST_KEYS:,}: split them by range")
    if values is not None and len(values) != len(keys):
        raise ArgumentError(f"keys has {len(keys):,} rows, values has {len(values):,}: bring a value for each key")
    numbers, valid = native(keys, kind)
    is_numbered = values is None
    value_type = pa.int64() if values is None else values.type
    numbered: Array | None = None
    if not all_true(valid):
        numbered = np.flatnonzero(valid)
        numbers = numbers[numbered]
        values = None if values is None else values.take(pa.array(numbered))
    raw, flip = plain_words(numbers)
    beside = beside_words(values) if values is not None else numbered
    built = build(raw, flip, beside, hybrid, team) if _looks_sorted(raw, flip) else None
    if built is None or built.known == UNSORTED:
        words, order = sort_words(raw ^ raw.dtype.type(flip) if flip else raw, team)
        if values is None:
            beside = order.astype(np.int64) if numbered is None else numbered[order]
        elif beside is not None:
            beside = beside[order]
        else:
            values = values.take(pa.array(order))
        built = build(words, 0, beside, hybrid, team)
        team.arena.give(words)
        team.arena.give(order)
    if built.known == EQUALS and duplicates == "error":
        raise _doubled(built.leaves, kind)
    apart = values if beside is None else None
    nulls, equals = len(keys) - built.leaves.size, built.known == EQUALS
    return Rows(built.leaves, kind, value_type, apart, nulls, is_numbered, len(keys), equals), built.nodes


def with_numbers(rows: Rows, team: Team) -> Rows:
    """The same rows with values beside their words, where those were positions."""
    if rows.apart is not None or rows.leaves.width:
        return rows
    positions = np.arange(rows.leaves.size).view(np.uint64)
    return replace(rows, leaves=fill(rows.leaves.words, 0, positions, team)[0])


def with_own_values(rows: Rows) -> Rows:
    """The same rows with a copy of the values that lie apart: a NumPy array may be changed after we have looked."""
    return rows if rows.apart is None else replace(rows, apart=copied(rows.apart))


def copied(values: pa.Array) -> pa.Array:
    """Values in memory of their own: Arrow copies what it puts together."""
    half = len(values) // 2
    return pa.concat_arrays([values.slice(0, half), values.slice(half)])


def plain_words(numbers: Array) -> tuple[Array, int]:
    """Values of a key dtype as unsigned numbers and the bits to flip in them to make words: integers are not copied."""
    if numbers.dtype.kind == "f":
        return to_words(numbers), 0
    word = np.dtype(f"u{numbers.dtype.itemsize}")
    flip = 1 << (8 * word.itemsize - 1) if numbers.dtype.kind == "i" else 0
    return np.ascontiguousarray(numbers).view(word), flip


def beside_words(values: pa.Array) -> Array | None:
    """Values that can lie beside their words, as plain numbers: of 4 or 8 bytes, none of them null."""
    if not pa.types.is_primitive(values.type) or values.null_count or values.type.bit_width // 8 not in BESIDE:
        return None
    width = values.type.bit_width // 8
    buffer = values.buffers()[1]
    if buffer is None:
        return np.zeros(0, f"u{width}")
    return np.frombuffer(buffer, f"u{width}", len(values), values.offset * width)


def _looks_sorted(raw: Array, flip: int) -> bool:
    """Whether the first keys are in order."""
    glance = raw[:_GLANCE] ^ raw.dtype.type(flip)
    return bool((glance[1:] >= glance[:-1]).all())


def _doubled(leaves: Leaves, kind: KeyType) -> ArgumentError:
    """The refusal of equal keys, with an example."""
    words = leaves.words
    places = np.flatnonzero(words[1:] == words[:-1])
    value: Any = from_words(words[places[:1]], kind.dtype)[0]
    told = f"{value} (in {kind.name})" if kind.domain == "time" else f"{value}"
    return ArgumentError(
        f"keys has {len(places):,} rows with a key that another row has too, such as {told}; duplicates='error' allows "
        f"none: take duplicates='first' or 'last' (lookup gives the first or the last row, range gives all)"
    )
