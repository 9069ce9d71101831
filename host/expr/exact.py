"""Arithmetic and comparison of number arrays: exact rationals, and IEEE doubles.

`Exact` is an integer array with a lazy affine map, `(base * mul + off) / den`, so `r.x - 5` or a timestamp in another
unit costs nothing until it is compared. If a value does not fit into 64 bits, the arithmetic uses Python integers,
which is slow but correct. `Double` is a float64 array. Arithmetic between the two is done in doubles (the exact operand
is rounded to nearest first); comparisons between the two are exact.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from math import gcd
from typing import Any

import numpy as np

from millrace.host.base.types import Array, Mask
from millrace.host.expr.condition import CompareOp

INT64_MIN, INT64_MAX = -(2**63), 2**63 - 1
_EXACT_DOUBLE = 2**53


@dataclass(frozen=True)
class Exact:
    """The rationals `(base * mul + off) / den`; a constant has no base. `literal`: a decimal literal."""

    base: Array | None
    mul: int = 1
    off: int = 0
    den: int = 1
    literal: bool = False

    @staticmethod
    def constant(value: Fraction | int, literal: bool = False) -> Exact:
        """Return one number, the same for every row."""
        exact = Fraction(value)
        return Exact(None, 0, exact.numerator, exact.denominator, literal)

    @property
    def value(self) -> Fraction:
        """The value of a constant."""
        return Fraction(self.off, self.den)


@dataclass(frozen=True)
class Double:
    """IEEE doubles: an array, or one number for every row."""

    array: Array


Value = Exact | Double


def numerators(x: Exact, scale: int = 1) -> Array:
    """Return `(base * mul + off) * scale` as int64 or uint64 if all values fit, else as Python integers."""
    mul, off = x.mul * scale, x.off * scale
    if x.base is None:
        return _integers(np.array([off], dtype=object))
    if len(x.base) == 0:
        return np.zeros(0, np.int64)
    low, high = sorted((int(x.base.min()) * mul, int(x.base.max()) * mul))
    lowest, highest = min(low, low + off, int(x.base.min())), max(high, high + off, int(x.base.max()))
    # Every intermediate number must fit too: the base, the factor, the product, the offset and the sum.
    lowest, highest = min(lowest, mul, off), max(highest, mul, off)
    if lowest >= INT64_MIN and highest <= INT64_MAX:
        result = x.base.astype(np.int64, copy=False)
        result = result if mul == 1 else result * np.int64(mul)
        return result if off == 0 else result + np.int64(off)
    if mul == 1 and off == 0:
        return x.base
    return _integers(x.base.astype(object) * mul + off)


def _integers(values: Array) -> Array:
    """Convert Python integers to int64 if they fit."""
    if len(values) and (min(values) < INT64_MIN or max(values) > INT64_MAX):
        return values
    return values.astype(np.int64)


def to_double(x: Value) -> Array:
    """Return the nearest doubles; beyond the largest double, infinity."""
    if isinstance(x, Double):
        return x.array
    top = numerators(x)
    if top.dtype != object and x.den == 1:
        return top.astype(np.float64)
    if top.dtype == np.int64 and x.den <= _EXACT_DOUBLE and _within(top, _EXACT_DOUBLE):
        return top.astype(np.float64) / np.float64(x.den)
    return np.array([_nearest(Fraction(int(n), x.den)) for n in top], dtype=np.float64)


def _nearest(value: Fraction) -> float:
    try:
        return float(value)
    except OverflowError:
        return float("inf") if value > 0 else float("-inf")


def _within(values: Array, limit: int) -> bool:
    return len(values) == 0 or bool(-limit <= int(values.min()) and int(values.max()) <= limit)


def negate(x: Value) -> Value:
    """`-x`."""
    if isinstance(x, Double):
        return Double(-x.array)
    return Exact(x.base, -x.mul, -x.off, x.den, x.literal)


def absolute(x: Value) -> Value:
    """`abs(x)`."""
    if isinstance(x, Double):
        return Double(np.abs(x.array))
    if x.base is None:
        return Exact.constant(abs(x.value))
    top = numerators(x)
    if top.dtype == np.int64 and len(top) and int(top.min()) == INT64_MIN:
        top = top.astype(object)
    return Exact(np.abs(top), den=x.den)


def add(x: Value, y: Value) -> Value:
    """`x + y`."""
    if isinstance(x, Double) or isinstance(y, Double):
        return Double(to_double(x) + to_double(y))
    den = x.den * y.den // gcd(x.den, y.den)
    a, b = den // x.den, den // y.den
    if x.base is None or y.base is None:
        base = y.base if x.base is None else x.base
        return Exact(base, x.mul * a + y.mul * b, x.off * a + y.off * b, den)
    return Exact(_sum(numerators(x, a), numerators(y, b)), den=den)


def _sum(x: Array, y: Array) -> Array:
    if x.dtype == np.int64 and y.dtype == np.int64 and len(x) and len(y):
        low, high = int(x.min()) + int(y.min()), int(x.max()) + int(y.max())
        if low >= INT64_MIN and high <= INT64_MAX:
            return x + y
    return _integers(x.astype(object) + y.astype(object))


def subtract(x: Value, y: Value) -> Value:
    """`x - y`."""
    if isinstance(x, Double) or isinstance(y, Double):
        return Double(to_double(x) - to_double(y))
    return add(x, negate(y))


def multiply(x: Value, y: Value) -> Value:
    """`x * y`."""
    if isinstance(x, Double) or isinstance(y, Double):
        return Double(to_double(x) * to_double(y))
    if x.base is None:
        x, y = y, x
    if y.base is None:
        return Exact(x.base, x.mul * y.off, x.off * y.off, x.den * y.den)
    a, b = numerators(x), numerators(y)
    if a.dtype == np.int64 and b.dtype == np.int64 and len(a) and len(b):
        corners = [int(p) * int(q) for p in (a.min(), a.max()) for q in (b.min(), b.max())]
        if min(corners) >= INT64_MIN and max(corners) <= INT64_MAX:
            return Exact(a * b, den=x.den * y.den)
    return Exact(_integers(a.astype(object) * b.astype(object)), den=x.den * y.den)


def compare(op: CompareOp, x: Value, y: Value) -> Mask:
    """Return `x op y`, row by row; a NaN on either side is null, so the result is false there."""
    if isinstance(x, Double) and isinstance(y, Exact) and y.literal:
        y = Double(to_double(y))
    elif isinstance(y, Double) and isinstance(x, Exact) and x.literal:
        x = Double(to_double(x))
    if isinstance(x, Double) and isinstance(y, Double):
        result = _apply(op, x.array, y.array)
        return result & ~(np.isnan(x.array) | np.isnan(y.array)) if op == "<>" else result
    if isinstance(x, Exact) and isinstance(y, Exact):
        common = gcd(x.den, y.den)
        return _apply(op, *_comparable(numerators(x, y.den // common), numerators(y, x.den // common)))
    if isinstance(x, Exact) and isinstance(y, Double):
        return _apply(op, signs(x, y.array), np.int8(0)) & ~np.isnan(y.array)
    assert isinstance(x, Double)
    assert isinstance(y, Exact)
    return _apply(op, np.int8(0), signs(y, x.array)) & ~np.isnan(x.array)


def _comparable(x: Array, y: Array) -> tuple[Array, Array]:
    """Return two integer arrays in types that NumPy compares exactly."""
    if x.dtype == y.dtype:
        return x, y
    return x.astype(object), y.astype(object)


def _apply(op: CompareOp, x: Any, y: Any) -> Mask:
    ufunc = {
        "=": np.equal,
        "<>": np.not_equal,
        "<": np.less,
        "<=": np.less_equal,
        ">": np.greater,
        ">=": np.greater_equal,
    }[op]
    result: Mask = np.asarray(ufunc(x, y)).astype(np.bool_, copy=False)
    return result


def signs(x: Exact, y: Array) -> Array:
    """Return the exact sign of `x - y` for doubles `y` (0 where `y` is NaN)."""
    top = numerators(x)
    if top.dtype == np.int64 and x.den == 1:
        return _integer_signs(top, y)
    top, y = np.broadcast_arrays(top, y)
    return np.array([_sign(Fraction(int(n), x.den), float(f)) for n, f in zip(top, y, strict=True)], np.int8)


def _sign(x: Fraction, y: float) -> int:
    return (x > y) - (x < y)


def _integer_signs(x: Array, y: Array) -> Array:
    """Compare int64 with doubles: by the floor of the double, then by its fraction."""
    floor = np.floor(y)
    inside = (floor >= -(2.0**63)) & (floor < 2.0**63)
    floor_int = np.where(inside, floor, 0.0).astype(np.int64)
    near = np.where(x > floor_int, 1, np.where((x < floor_int) | (y > floor), -1, 0))
    outside = np.where(np.isnan(y), 0, np.where(y > 0, -1, 1))
    return np.where(inside, near, outside).astype(np.int8)
