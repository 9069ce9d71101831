"""The key that an index is ordered by, and conversion of key ranges to ranges of words.

A key is a column (distinct values have distinct words) or an expression over one side's columns. An expression is
clamped to 64 bits, so a search may return extra candidates, and the pairs are checked again. Range ends are rounded
inwards to values of the key type and saturate at its minimum and maximum. An empty range has a low word above its high
word.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar

import numpy as np

from millrace.host.base.types import Array, Mask
from millrace.host.base.words import KeyType, saturating_add, to_words, true_mask, usable_numbers
from millrace.host.expr import exact
from millrace.host.expr.bounds import Bound, Ends, round_outwards
from millrace.host.expr.condition import Column, Expression, columns_of, render
from millrace.host.expr.evaluate import Columns, Types, evaluate
from millrace.host.expr.exact import INT64_MAX, INT64_MIN, Double, Exact
from millrace.host.expr.exact_ends import closed_end, double_words, single_words
from millrace.host.kernels.word_shifter import shifted_words
from millrace.host.runtime.allocator import result_array


@dataclass(frozen=True)
class Key:
    """The key that an index on one side is ordered by. One unit of its integers is `scale` (a number, or ns)."""

    expression: Expression
    kind: KeyType
    scale: Fraction

    grouped: ClassVar[bool] = False
    """Whether the words combine several keys (`grouped_keys.py`)."""

    @property
    def column(self) -> Column | None:
        """The column that the words are made of; None for an expression."""
        return self.expression if isinstance(self.expression, Column) else None

    @property
    def label(self) -> str:
        """The key as text."""
        return render(self.expression)

    @property
    def clamped(self) -> bool:
        """Whether values beyond 64 bits are clamped."""
        return self.kind.domain == "int" and not isinstance(self.expression, Column)

    def words(self, columns: Columns, types: Types) -> tuple[Array, Mask | None]:
        """Return the words of the rows, and a mask of rows that have one (an expression may be NaN); None: all have."""
        node = self.expression
        if not isinstance(node, Column):
            return self._expression_words(node, columns, types)
        values = columns[node.side, node.name]
        if values.dtype == np.float64:
            return double_words(values), None
        out = result_array(len(values), self.kind.word) if values.dtype.kind == "i" else None
        return to_words(values, out), None

    @np.errstate(all="ignore")
    def _expression_words(self, node: Expression, columns: Columns, types: Types) -> tuple[Array, Mask | None]:
        """Return the same for a key that is not a column. Infinities and NaN are legal values here, not errors."""
        value = evaluate(node, columns, types)
        if isinstance(value, Double):
            values, number = usable_numbers(value.array, true_mask(len(value.array)))
            return to_words(values), number
        top = exact.numerators(value)
        if top.dtype != np.int64:
            top = np.array([min(max(int(n), INT64_MIN), INT64_MAX) for n in top], dtype=np.int64)
        return to_words(top), None


def make_key(expression: Expression, types: Types) -> Key:
    """Return the key of a column or a one-sided expression."""
    if isinstance(expression, Column):
        kind = types[expression.side, expression.name]
        return Key(expression, kind, Fraction(kind.ns))
    none = {(c.side, c.name): np.zeros(0, types[c.side, c.name].dtype) for c in columns_of(expression)}
    value = evaluate(expression, none, types)
    if isinstance(value, Double):
        return Key(expression, KeyType("expression", "float", np.dtype(np.float64)), Fraction(1))
    return Key(expression, KeyType("expression", "int", np.dtype(np.int64)), Fraction(1, value.den))


def word_range(given: tuple[Ends, Mask | None], key: Key, rows: int) -> tuple[Array, Array]:
    """Return the lowest and the highest word of each row's range, both inclusive; low > high if it is empty."""
    (low, high), null = given
    lo, none_low = _line(low, key, rows, lower=True)
    hi, none_high = _line(high, key, rows, lower=False)
    masks = [mask for mask in (null, none_low, none_high) if mask is not None]
    if not any(mask.any() for mask in masks):
        return lo, hi
    empty = np.logical_or.reduce(np.broadcast_arrays(*masks))
    word = key.kind.word.type
    return np.where(empty, word(1), lo), np.where(empty, word(0), hi)


def _line(bound: Bound | None, key: Key, rows: int, lower: bool) -> tuple[Array, Mask | None]:
    """Return the words of one end for all rows (maybe the column itself: read only), and a mask of empty ranges."""
    outermost = key.kind.word.type(0 if lower else np.iinfo(key.kind.word).max)
    if bound is None:
        words = result_array(rows, key.kind.word)
        words[:] = outermost
        return words, None
    bound = round_outwards(bound, lower) if key.clamped else bound  # the unit of an expression may differ from 1
    words, nothing = _end(bound, key, lower)
    # The key of an expression is clamped like the bound: values beyond the range of the type are at its ends.
    nothing = None if key.clamped else nothing
    if bound.infinite is not None and bound.infinite.any():
        words = np.where(bound.infinite == 0, words, outermost)
        beyond: Mask = bound.infinite == (1 if lower else -1)
        nothing = beyond if nothing is None else np.where(bound.infinite == 0, nothing, beyond)
    return np.broadcast_to(words, (rows,)), nothing


def _end(bound: Bound, key: Key, lower: bool) -> tuple[Array, Mask | None]:
    """Return the word of one end, and a mask of the rows whose range is empty, or None."""
    if key.kind.domain == "float":
        return _float_end(bound, key.kind, lower)
    if isinstance(bound.value, Double):
        return _integer_end_of_double(bound.value.array, bound.strict, key.kind, lower)
    return _integer_end(bound.value, bound.strict, key, lower)


def _integer_end(value: Exact, strict: bool, key: Key, lower: bool) -> tuple[Array, Mask | None]:
    """Round inwards to an integer number of key units, one further if strict and already an integer; saturate."""
    scale = value.den * key.scale
    mul, off, den = value.mul * scale.denominator, value.off * scale.denominator, scale.numerator
    if value.base is not None and value.base.dtype == key.kind.dtype and mul == den:
        # The common case, `column ± constant`: a saturating shift of the column, exact in the key's own type.
        return _shifted(value.base, _divide(off, den, strict, lower), lower)
    top = exact.numerators(value, scale.denominator)
    if top.dtype == np.int64 and den <= INT64_MAX:
        floor = top // np.int64(den)
        is_integer = floor * np.int64(den) == top
        step = np.where(is_integer, int(strict), 1) if lower else np.where(is_integer, -int(strict), 0)
        if len(floor) == 0 or (int(floor.min()) > INT64_MIN and int(floor.max()) < INT64_MAX):
            return _saturated(floor + step, key.kind, lower)
    return _saturated(np.array([_divide(int(n), den, strict, lower) for n in top], dtype=object), key.kind, lower)


def is_shift(bound: Bound, key: Key) -> bool:
    """Return whether an end is a column of the key's own type plus a constant."""
    value = bound.value
    if not isinstance(value, Exact) or bound.infinite is not None or value.base is None:
        return False
    scale = value.den * key.scale
    return value.base.dtype == key.kind.dtype and value.mul * scale.denominator == scale.numerator


def _divide(n: int, den: int, strict: bool, lower: bool) -> int:
    """Return the outermost integer inside the end `n / den`."""
    if lower:
        return n // den + 1 if strict else -(-n // den)
    return -(-n // den) - 1 if strict else n // den


def _shifted(base: Array, delta: int, lower: bool) -> tuple[Array, Mask | None]:
    info = np.iinfo(base.dtype)
    low, high = int(info.min), int(info.max)
    words = shifted_words(base, delta)
    if lower and delta > 0:
        gone = base > base.dtype.type(high - delta) if high - delta >= low else np.ones(len(base), np.bool_)
    elif not lower and delta < 0:
        gone = base < base.dtype.type(low - delta) if low - delta <= high else np.ones(len(base), np.bool_)
    else:
        return words, None
    return words, gone


def _saturated(values: Array, kind: KeyType, lower: bool) -> tuple[Array, Mask]:
    """Clamp integers (int64 or Python's) to the key type; a range beyond its far end is empty."""
    info = np.iinfo(kind.dtype)
    low, high = int(info.min), int(info.max)
    if values.dtype == object:
        gone = np.array([v > high if lower else v < low for v in values], np.bool_)
        held = np.array([min(max(v, low), high) for v in values], dtype=kind.dtype)
        return to_words(held), gone
    if kind.dtype == np.uint64:
        gone = np.zeros(len(values), np.bool_) if lower else values < 0
        return np.maximum(values, 0).astype(np.uint64), gone
    return to_words(np.clip(values, low, high).astype(kind.dtype)), values > high if lower else values < low


def _integer_end_of_double(f: Array, strict: bool, kind: KeyType, lower: bool) -> tuple[Array, Mask]:
    """Convert a double to the end of an integer range, exactly; NaN (infinity minus infinity) gives no bound."""
    info = np.iinfo(kind.dtype)
    low, high = float(info.min), float(int(info.max) + 1)  # powers of two (or 0): exact doubles
    inside = np.ceil(f) if lower else np.floor(f)
    unbounded = np.isnan(f)
    over, under = inside >= high, inside < low
    beyond = over | under | unbounded
    held = np.where(beyond, 0.0, inside).astype(kind.dtype)
    held[over], held[under] = info.max, info.min
    held[unbounded] = info.min if lower else info.max
    nothing = (over if lower else under) & ~unbounded
    if strict:
        last = info.max if lower else info.min
        on_it = ~beyond & (inside == f)
        nothing |= on_it & (held == last)
        moved = saturating_add(held, 1 if lower else -1)
        held = np.where(on_it, moved, held)
    return to_words(held), nothing


def _float_end(bound: Bound, kind: KeyType, lower: bool) -> tuple[Array, Mask | None]:
    """Return the outermost float key inside the end, exactly, for exact and double ends."""
    doubles, nothing = closed_end(bound.value, bound.strict, lower)
    if kind.dtype == np.float64:
        return double_words(doubles), nothing
    return single_words(doubles, lower), nothing
