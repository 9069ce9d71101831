"""Exact codes for values that are compared by `=` and `<>` only: text, binary, booleans and decimals.

A `CodeTable` numbers the distinct values of both sides of a join: two values of one family have equal codes exactly if
they are equal, byte by byte. So such columns become int64 columns at ingest, and everything behind it handles integers.
Codes say nothing about order. Text and binary compare by value whatever their Arrow type (plain, large, view,
dictionary, fixed size); decimals compare by their unscaled integers, so both sides must have one scale.

The table grows with the distinct values that were read. `sweep` drops those that no held row has; a value that comes
again gets a new code, which is never one that was in use before. Nothing here is stored in a checkpoint: the rows are,
and reading them again makes new codes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from decimal import Context
from fractions import Fraction
from itertools import compress, count
from typing import Any

import numpy as np
import pyarrow as pa

from millrace.host.base.types import Longs, Mask
from millrace.host.base.words import KeyType, usable

CODE_TYPES = "strings, binary, booleans and decimals"
DECIMAL = "decimal of scale"
"""The family of decimals, without its scale."""
NO_VALUE = -1
"""The code of a literal that no value of its column can equal, such as 1.005 against a decimal of scale 2."""
MIN_SWEEP = 1 << 12
"""Tables of fewer values are never swept."""
_MAX_DIGITS = 76
_EXACT = Context(prec=2 * _MAX_DIGITS)


def code_type(data_type: pa.DataType) -> KeyType | None:
    """Return how a column of this type is coded, or nothing if it is not one of `CODE_TYPES`."""
    kind = data_type.value_type if pa.types.is_dictionary(data_type) else data_type
    if pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind):
        return _family(data_type, "text")
    if pa.types.is_fixed_size_binary(kind) or pa.types.is_binary_view(kind):
        return _family(data_type, "binary")
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        return _family(data_type, "binary")
    if pa.types.is_boolean(kind):
        return _family(data_type, "boolean")
    return _family(data_type, f"{DECIMAL} {kind.scale}") if pa.types.is_decimal(kind) else None


def _family(data_type: pa.DataType, name: str) -> KeyType:
    return KeyType(str(data_type), "code", np.dtype(np.int64), family=name)


class CodeTable:
    """The codes of one join's values, by family."""

    def __init__(self) -> None:
        """Start with an empty table."""
        self._codes: dict[str, dict[Any, int]] = {}
        self._pinned: set[int] = set()
        self._next = count(2)  # 0 and 1 are the booleans
        self._limit = MIN_SWEEP
        self.due = False
        """Whether the table has doubled since the last sweep, so that one pays."""

    def __len__(self) -> int:
        """Return the number of values that have a code."""
        return sum(map(len, self._codes.values()))

    def encode(self, column: pa.Array | pa.ChunkedArray, kind: KeyType) -> tuple[Longs, Mask]:
        """Return a column's codes, and the mask of its values that are not null; a null has the code 0."""
        if isinstance(column, pa.ChunkedArray) and column.num_chunks != 1:
            parts = [self.encode(chunk, kind) for chunk in column.chunks or [pa.array([], column.type)]]
            return np.concatenate([codes for codes, _ in parts]), np.concatenate([valid for _, valid in parts])
        array = column.chunk(0) if isinstance(column, pa.ChunkedArray) else column
        if pa.types.is_dictionary(array.type):
            array = array.dictionary_decode()
        valid = usable(array)
        if kind.family == "boolean":
            return _filled(array.cast(pa.int64())), valid
        unique, to_value = _distinct(array, kind)
        known = self._codes.setdefault(kind.family, {})
        codes = np.zeros(len(unique.dictionary) + 1, np.int64)
        for i, value in enumerate(unique.dictionary.to_pylist()):
            key = to_value(value)
            code = known.get(key)
            if code is None:
                code = known[key] = next(self._next)
            codes[i] = code
        self.due = self.due or len(self) > self._limit
        # Nulls have the index behind the last value, whose code is 0.
        return codes[_filled(unique.indices.cast(pa.int64()), len(codes) - 1)], valid

    def literal(self, value: str | bytes | bool | Fraction, kind: KeyType) -> int:
        """Return the code of a literal that is compared with a column of this kind; it is never dropped."""
        if isinstance(value, bool):
            return int(value)
        key: Any = value.encode() if isinstance(value, str) else value
        if isinstance(value, Fraction):
            unscaled = value * Fraction(10) ** _scale(kind)
            if unscaled.denominator != 1:
                return NO_VALUE
            key = unscaled.numerator
        known = self._codes.setdefault(kind.family, {})
        code = known.get(key)
        if code is None:
            code = known[key] = next(self._next)
        self._pinned.add(code)
        return code

    def sweep(self, held: Iterable[Longs]) -> None:
        """Drop every value whose code is in none of the `held` columns."""
        alive = np.concatenate([np.fromiter(self._pinned, np.int64, len(self._pinned)), *held])
        for family, known in self._codes.items():
            kept = np.isin(np.fromiter(known.values(), np.int64, len(known)), alive)
            self._codes[family] = dict(compress(known.items(), kept.tolist()))
        self._limit = max(2 * len(self), MIN_SWEEP)
        self.due = False


def _filled(array: pa.Array, null: int = 0) -> Longs:
    """Return an int64 array in which nulls have a given value."""
    values: Longs = (array.fill_null(null) if array.null_count else array).to_numpy(zero_copy_only=False)
    return values


def _scale(kind: KeyType) -> int:
    return int(kind.family.rpartition(" ")[2])


def _distinct(array: pa.Array, kind: KeyType) -> tuple[pa.DictionaryArray, Callable[[Any], Any]]:
    """Return an array as indices into its distinct values, and what makes such a value a key of the table."""
    if kind.family in ("text", "binary"):
        return array.cast(pa.large_binary()).dictionary_encode(), bytes
    scale = _scale(kind)
    wide = array.cast(pa.decimal256(_MAX_DIGITS, scale))
    return wide.dictionary_encode(), lambda value: int(value.scaleb(scale, _EXACT))
