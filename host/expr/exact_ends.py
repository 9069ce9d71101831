"""Inverts IEEE rounding exactly: which numbers does an IEEE operation map into a range?

Rounding to nearest is monotone, so `key - a`, `key * c` and the conversion of an integer to a double never reverse the
order of two keys: the keys with `f(key) >= low` are all doubles from some double on, and the keys with `f(key) <= high`
all doubles up to some double. Inverse arithmetic gives a guess for this end. The guess is tested with the arithmetic
that evaluates the condition (`evaluate.py`) and moved, in strides that double and then halve, to the outermost double
that passes: usually three tests, about 130 if cancellation or underflow makes the guess bad. `a + key` is `key - (-a)`
and `a - key` is `-(key - a)`, bit by bit except for the sign of zero, which no comparison distinguishes. A path of
several operations is inverted one by one, from the comparison down to the key.

Ranges are closed and may end at infinity. Infinity minus infinity is NaN, which never matches: for an infinite `a` this
one key is excluded. Limits: factors are finite doubles above zero, and no operand is NaN (the result for NaN is
undefined; the caller treats such rows as null).
"""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np

from millrace.host.base.types import Array, Mask
from millrace.host.expr import exact
from millrace.host.expr.exact import Exact, Value
from millrace.host.runtime.jit import inline, kernel

_MASK = (1 << 63) - 1
_SIGN = -(1 << 63)
_TOP = 0x7FF << 52
_BOTTOM = -_TOP - 1
_WIDEST = 1 << 62
_LARGEST = float(np.finfo(np.float64).max)
_BEYOND = 1 << 1024
"""The next power of two after the largest double: exact numbers from halfway to it on round to infinity."""
_EXACT_DOUBLE = 1 << 53
"""From this value on all doubles are integers; up to it all integers are doubles."""


def closed_end(value: Value, strict: bool, lower: bool) -> tuple[Array, Mask | None]:
    """Return the outermost doubles inside `>= value` (`<=`, `>`, `<`), and a mask of the rows without one (or None).

    Exact numbers are not rounded. A decimal literal counts as its nearest double, as in a comparison with doubles.
    """
    inward = np.inf if lower else -np.inf
    doubles = exact.to_double(value)
    if isinstance(value, Exact) and not value.literal:
        sign = exact.signs(value, doubles)
        step: Mask = sign > 0 if lower else sign < 0
        if strict:
            step = step | (sign == 0)
    elif strict:
        step = np.ones(len(doubles), np.bool_)
    else:
        return doubles, None
    nothing = step & (doubles == inward)
    return np.where(step, np.nextafter(doubles, inward), doubles), nothing if nothing.any() else None


def least_integers(f: Array, strict: bool, denominator: int) -> tuple[Array, Array]:
    """Return the least integers n with `n / denominator >= f` (or `> f`), and the sign of `f` where it is infinite."""
    infinite = np.where(np.isinf(f), np.sign(f), 0).astype(np.int8)
    finite = np.where(np.isfinite(f), f, 0.0)
    if denominator == 1 and (len(f) == 0 or np.abs(finite).max() < _WIDEST):
        integers = (np.floor(finite) if strict else np.ceil(finite)).astype(np.int64)
        return integers + 1 if strict else integers, infinite
    ratios = [float(x).as_integer_ratio() for x in finite]
    least = [p * denominator // q + 1 if strict else -(-p * denominator // q) for p, q in ratios]
    return np.array(least, dtype=object), infinite


def least_integers_rounding_to(f: Array, denominator: int) -> tuple[Array, Array]:
    """Return the least integers n with `double(n / denominator) >= f`, and -1 where `f` gives no bound (-infinity)."""
    infinite = np.where(f == -np.inf, -1, 0).astype(np.int8)
    doubles = np.where((infinite < 0) | np.isnan(f), 0.0, f)
    n, certain = _integer_guess(doubles) if denominator == 1 else _quotient_guess(doubles, denominator)
    if not certain.all():
        n = n.astype(object)
        n[~certain] = [_least_integer_rounding_to(float(x), denominator) for x in doubles[~certain]]
    return n, infinite


def _integer_guess(f: Array) -> tuple[Array, Mask]:
    """Return the least integers that round to at least `f`, and where they are certain: well inside 64 bits."""
    certain: Mask = np.abs(f) < _WIDEST
    f = np.where(certain, f, 0.0)
    above, below = np.ceil(f).astype(np.int64), np.nextafter(f, -np.inf).astype(np.int64)
    # From 2**53 on all doubles are integers. Integers from halfway below a double round up to it (at halfway: maybe).
    halfway = below + (above - below) // 2
    tie = np.where(halfway.astype(np.float64) >= f, halfway, halfway + 1)
    return np.where(np.abs(f) < _EXACT_DOUBLE, above, tie), certain


def _quotient_guess(f: Array, denominator: int) -> tuple[Array, Mask]:
    """Return the least n with `double(n / denominator) >= f`, and where it is certain: tested by division."""
    if denominator > _EXACT_DOUBLE:
        return np.zeros(len(f), np.int64), np.zeros(len(f), np.bool_)
    guess = np.rint(f * denominator)
    small = np.abs(guess) < _EXACT_DOUBLE - 1
    guess = np.where(small, guess, 0.0)
    certain: Mask = small & ((guess - 1) / denominator < f) & ((guess + 1) / denominator >= f)
    return np.where(guess / denominator >= f, guess, guess + 1).astype(np.int64), certain


def _least_integer_rounding_to(f: float, denominator: int) -> int:
    """Same for one number, in Python integers; infinity is replaced by the power of two after the largest double."""
    below = math.nextafter(f, -math.inf)
    p, q = (_BEYOND, 1) if f == math.inf else f.as_integer_ratio()
    u, v = (-_BEYOND, 1) if below == -math.inf else below.as_integer_ratio()
    halfway, unit = (p * v + u * q) * denominator, 2 * q * v
    n = -(-halfway // unit)
    if n * unit > halfway:
        return n
    return n if exact.to_double(Exact.constant(Fraction(n, denominator)))[0] >= f else n + 1


def undo_subtract(a: Array, low: Array, high: Array) -> tuple[Array, Array]:
    """Return the first and last double k with `low <= k - a <= high`; first > last if there is none."""
    return _first(False, a, low), -_first(False, -a, -high)


def undo_multiply(c: Array, low: Array, high: Array) -> tuple[Array, Array]:
    """Return the first and last double k with `low <= k * c <= high`, for finite `c > 0`."""
    return _first(True, c, low), -_first(True, c, -high)


def _first(multiplies: bool, a: Array, low: Array) -> Array:
    """Return the least doubles k with `k - a >= low` or `k * a >= low`; each array may be one number for all rows."""
    rows = np.broadcast_shapes(a.shape, low.shape)
    x, end = (_writable(np.broadcast_to(given, rows)) for given in (a, low))
    first, certain = np.empty(len(x)), np.empty(len(x), np.bool_)
    if multiplies:
        _guess_quotients(x, end, first, certain)
    else:
        _guess_differences(x, end, first, certain)
    _search(multiplies, x, end, first, certain)
    return first


def _writable(values: Array) -> Array:
    """Return doubles as one array type for the kernels: contiguous and writable."""
    return np.require(values, np.float64, ["C", "W"]) if values.base is None else np.array(values, np.float64)


def double_words(values: Array) -> Array:
    """Return the words of doubles, the same as `to_words` in `base/words.py`, in one pass."""
    words = np.empty(len(values), np.uint64)
    _words(_writable(values), words.view(np.int64))
    return words


@kernel
def _words(values: Array, words: Array) -> None:
    for i in range(len(values)):
        words[i] = _rank(values[i] + 0.0) ^ _SIGN


def single_words(values: Array, lower: bool) -> Array:
    """Return the words of the outermost float32 inside `>= values` (or `<= values`); -0.0 is just before 0.0."""
    words = np.empty(len(values), np.uint32)
    _single_words(_writable(values), lower, words.view(np.int32))
    return words


@kernel
def _single_words(values: Array, lower: bool, words: Array) -> None:
    for i in range(len(values)):
        single = np.float32(values[i])
        bits = np.int64(np.float32(single + np.float32(0)).view(np.int32))
        rank = bits ^ ((bits >> 63) & 0x7FFFFFFF)
        rank += int(single < values[i]) if lower else -int(single > values[i])
        words[i] = rank ^ -(1 << 31)


@kernel
def _guess_differences(a: Array, low: Array, first: Array, certain: Mask) -> None:
    """Guess the end, then test the guess and its two neighbours; branch-free, so it is vectorized."""
    for i in range(len(first)):
        x, end = a[i], low[i]
        # Results from half a step below `low` on round up to it; `error` is the rounding error of `a + low`.
        half = (end - _double(_rank(end) - 1)) * 0.5
        total = x + end
        part = total - x
        error = (x - (total - part)) + (end - part)
        k = _rank(total + (error - half))
        first[i] = _double(k if _double(k) - x >= end else k + 1)
        certain[i] = (_double(k - 1) - x < end) & (_double(k + 1) - x >= end)


@kernel
def _guess_quotients(a: Array, low: Array, first: Array, certain: Mask) -> None:
    for i in range(len(first)):
        x, end = a[i], low[i]
        half = (end - _double(_rank(end) - 1)) * 0.5
        k = _rank((end - half) / x)
        first[i] = _double(k if _double(k) * x >= end else k + 1)
        certain[i] = (_double(k - 1) * x < end) & (_double(k + 1) * x >= end)


@kernel
def _search(multiplies: bool, a: Array, low: Array, first: Array, certain: Mask) -> None:
    """Search the ends for which the guess is not certain."""
    for i in range(len(first)):
        if certain[i]:
            continue
        if a[i] == -np.inf:  # `k - a` is infinity for every k except minus infinity, where it is NaN
            first[i] = -_LARGEST
        elif not low[i] > -np.inf:
            first[i] = -np.inf
        elif a[i] == np.inf:
            first[i] = np.inf
        else:
            guess = low[i] / a[i] if multiplies else low[i] + a[i]
            first[i] = _double(_outermost(multiplies, a[i], low[i], _rank(guess)))


@inline
def _outermost(multiplies: bool, a: float, low: float, i: int) -> int:
    """Return the rank of the least passing double, searched from rank `i`: infinity passes, minus infinity never."""
    good, bad, stride = _TOP, _BOTTOM, 1
    if _passes(multiplies, a, low, i):
        good = i
        while good > _BOTTOM + stride and _passes(multiplies, a, low, good - stride):
            good, stride = good - stride, min(2 * stride, _WIDEST)
        bad = max(good, _BOTTOM + stride) - stride
    else:
        bad = i
        while bad < _TOP - stride and not _passes(multiplies, a, low, bad + stride):
            bad, stride = bad + stride, min(2 * stride, _WIDEST)
        good = min(bad, _TOP - stride) + stride
    while good - bad > 1:
        middle = bad + ((good - bad) >> 1)
        if _passes(multiplies, a, low, middle):
            good = middle
        else:
            bad = middle
    return good


@inline
def _passes(multiplies: bool, a: float, low: float, rank: int) -> bool:
    return (_double(rank) * a if multiplies else _double(rank) - a) >= low


@inline
def _rank(x: float) -> int:
    """Return the rank of a double in the order of all doubles; -0.0 is just before 0.0."""
    bits: Any = np.float64(x).view(np.int64)
    rank: int = bits ^ ((bits >> 63) & _MASK)
    return rank


@inline
def _double(rank: int) -> float:
    bits = np.int64(rank ^ ((rank >> 63) & _MASK))
    return bits.view(np.float64)
