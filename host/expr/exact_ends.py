"""Undoes rounding exactly: which numbers does an IEEE operation take into a range?

Rounding to nearest is monotone, so `key - a`, `key * c` and the conversion of an integer to a double never turn the
order of two keys round: the keys with `f(key) >= low` are a half line of doubles, and so are those with
`f(key) <= high`. Inverse arithmetic only guesses where it begins. The guess is then tried in the very arithmetic that
the condition is evaluated in (`evaluate.py`) and moved, in strides that double and then halve again, to
the outermost double that passes: three trials as a rule, about 130 where cancellation or underflow misled the guess.
`a + key` is `key - (-a)` and `a - key` is `-(key - a)`, bit by bit but for the sign of a zero, which no comparison
sees. A path of several operations is undone one by one, from the comparison down to the key.

Ranges are closed, with infinities as their outermost ends. Infinity minus infinity is NaN, which is never true: for an
infinite `a` that one key is left out. Limits: factors are finite doubles above zero, and no operand is NaN (what comes
out for one has no meaning; the caller knows such rows as null).
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
"""What would follow the largest double: exact numbers from halfway to it on round to infinity."""
_WHOLE = 1 << 53
"""From here on doubles are whole; up to here all integers are doubles."""


def closed(value: Value, strict: bool, lower: bool) -> tuple[Array, Mask | None]:
    """The outermost doubles inside `>= value` (or `<=`, or strictly so), and where there is none, if anywhere.

    Exact numbers are not rounded; a decimal literal is the double next to it, as it is in a comparison with doubles.
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


def least(f: Array, strict: bool, grain: int) -> tuple[Array, Array]:
    """The least integers n with `n / grain >= f` (or `> f`), and 1 or -1 where `f` is that infinity."""
    infinite = np.where(np.isinf(f), np.sign(f), 0).astype(np.int8)
    finite = np.where(np.isfinite(f), f, 0.0)
    if grain == 1 and (len(f) == 0 or np.abs(finite).max() < _WIDEST):
        whole = (np.floor(finite) if strict else np.ceil(finite)).astype(np.int64)
        return whole + 1 if strict else whole, infinite
    ratios = [float(x).as_integer_ratio() for x in finite]
    return np.array([p * grain // q + 1 if strict else -(-p * grain // q) for p, q in ratios], dtype=object), infinite


def least_rounding(f: Array, grain: int) -> tuple[Array, Array]:
    """The least integers n whose `n / grain`, rounded to a double, is `>= f`; -1 where `f` bounds nothing."""
    infinite = np.where(f == -np.inf, -1, 0).astype(np.int8)
    doubles = np.where((infinite < 0) | np.isnan(f), 0.0, f)
    n, settled = _whole_guess(doubles) if grain == 1 else _quotient_guess(doubles, grain)
    if not settled.all():
        n = n.astype(object)
        n[~settled] = [_least_rounding(float(x), grain) for x in doubles[~settled]]
    return n, infinite


def _whole_guess(f: Array) -> tuple[Array, Mask]:
    """The least integers that round up to `f`, and where that is certain: a good way inside 64 bits."""
    settled: Mask = np.abs(f) < _WIDEST
    f = np.where(settled, f, 0.0)
    above, below = np.ceil(f).astype(np.int64), np.nextafter(f, -np.inf).astype(np.int64)
    # From 2**53 on doubles are whole, and the integers from halfway below one are rounded up to it (halfway: maybe).
    halfway = below + (above - below) // 2
    tie = np.where(halfway.astype(np.float64) >= f, halfway, halfway + 1)
    return np.where(np.abs(f) < _WHOLE, above, tie), settled


def _quotient_guess(f: Array, grain: int) -> tuple[Array, Mask]:
    """The least n whose `n / grain` rounds up to `f`, and where that is certain: where one division does it."""
    if grain > _WHOLE:
        return np.zeros(len(f), np.int64), np.zeros(len(f), np.bool_)
    guess = np.rint(f * grain)
    small = np.abs(guess) < _WHOLE - 1
    guess = np.where(small, guess, 0.0)
    settled: Mask = small & ((guess - 1) / grain < f) & ((guess + 1) / grain >= f)
    return np.where(guess / grain >= f, guess, guess + 1).astype(np.int64), settled


def _least_rounding(f: float, grain: int) -> int:
    """The same for one number, in Python's integers; beyond the largest double a number of one more bit is meant."""
    below = math.nextafter(f, -math.inf)
    p, q = (_BEYOND, 1) if f == math.inf else f.as_integer_ratio()
    u, v = (-_BEYOND, 1) if below == -math.inf else below.as_integer_ratio()
    halfway, unit = (p * v + u * q) * grain, 2 * q * v
    n = -(-halfway // unit)
    if n * unit > halfway:
        return n
    return n if exact.to_double(Exact.constant(Fraction(n, grain)))[0] >= f else n + 1


def undo_subtract(a: Array, low: Array, high: Array) -> tuple[Array, Array]:
    """The ends of the doubles k with `low <= k - a <= high`; where there are none, the first is above the second."""
    return _first(False, a, low), -_first(False, -a, -high)


def undo_multiply(c: Array, low: Array, high: Array) -> tuple[Array, Array]:
    """The ends of the doubles k with `low <= k * c <= high`, for finite `c > 0`."""
    return _first(True, c, low), -_first(True, c, -high)


def _first(times: bool, a: Array, low: Array) -> Array:
    """The least doubles k with `k - a >= low` or `k * a >= low`; either array may be one number for all rows."""
    rows = np.broadcast_shapes(a.shape, low.shape)
    x, end = (_writable(np.broadcast_to(given, rows)) for given in (a, low))
    first, settled = np.empty(len(x)), np.empty(len(x), np.bool_)
    if times:
        _guess_quotients(x, end, first, settled)
    else:
        _guess_differences(x, end, first, settled)
    _search(times, x, end, first, settled)
    return first


def _writable(values: Array) -> Array:
    """Doubles as kernels take them, of one type only: contiguous, and such as could be written to."""
    return np.require(values, np.float64, ["C", "W"]) if values.base is None else np.array(values, np.float64)


def double_words(values: Array) -> Array:
    """The words of doubles, as `millrace.host.base.words.to_words` makes them, in one pass."""
    words = np.empty(len(values), np.uint64)
    _words(_writable(values), words.view(np.int64))
    return words


@kernel
def _words(values: Array, words: Array) -> None:
    for i in range(len(values)):
        words[i] = _rank(values[i] + 0.0) ^ _SIGN


def single_words(values: Array, lower: bool) -> Array:
    """The words of the outermost float32 inside `>= values` (or `<= values`); -0.0 has one, just before that of 0.0."""
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
def _guess_differences(a: Array, low: Array, first: Array, settled: Mask) -> None:
    """Guess, and try the guess and its two neighbours: no branches, so this runs in vector registers."""
    for i in range(len(first)):
        x, end = a[i], low[i]
        # Results from half a step below `low` on are rounded up to it; `a + low` itself is rounded by `error`.
        half = (end - _double(_rank(end) - 1)) * 0.5
        total = x + end
        part = total - x
        error = (x - (total - part)) + (end - part)
        k = _rank(total + (error - half))
        first[i] = _double(k if _double(k) - x >= end else k + 1)
        settled[i] = (_double(k - 1) - x < end) & (_double(k + 1) - x >= end)


@kernel
def _guess_quotients(a: Array, low: Array, first: Array, settled: Mask) -> None:
    for i in range(len(first)):
        x, end = a[i], low[i]
        half = (end - _double(_rank(end) - 1)) * 0.5
        k = _rank((end - half) / x)
        first[i] = _double(k if _double(k) * x >= end else k + 1)
        settled[i] = (_double(k - 1) * x < end) & (_double(k + 1) * x >= end)


@kernel
def _search(times: bool, a: Array, low: Array, first: Array, settled: Mask) -> None:
    """Find the ends that the guess did not."""
    for i in range(len(first)):
        if settled[i]:
            continue
        if a[i] == -np.inf:  # `k - a` is infinity for every k but minus infinity, where it is NaN
            first[i] = -_LARGEST
        elif not low[i] > -np.inf:
            first[i] = -np.inf
        elif a[i] == np.inf:
            first[i] = np.inf
        else:
            guess = low[i] / a[i] if times else low[i] + a[i]
            first[i] = _double(_outermost(times, a[i], low[i], _rank(guess)))


@inline
def _outermost(times: bool, a: float, low: float, i: int) -> int:
    """The rank of the least double that passes, sought from rank `i`: infinity always does, minus infinity never."""
    good, bad, stride = _TOP, _BOTTOM, 1
    if _passes(times, a, low, i):
        good = i
        while good > _BOTTOM + stride and _passes(times, a, low, good - stride):
            good, stride = good - stride, min(2 * stride, _WIDEST)
        bad = max(good, _BOTTOM + stride) - stride
    else:
        bad = i
        while bad < _TOP - stride and not _passes(times, a, low, bad + stride):
            bad, stride = bad + stride, min(2 * stride, _WIDEST)
        good = min(bad, _TOP - stride) + stride
    while good - bad > 1:
        middle = bad + ((good - bad) >> 1)
        if _passes(times, a, low, middle):
            good = middle
        else:
            bad = middle
    return good


@inline
def _passes(times: bool, a: float, low: float, rank: int) -> bool:
    return (_double(rank) * a if times else _double(rank) - a) >= low


@inline
def _rank(x: float) -> int:
    """The number of a double in the order of all doubles; -0.0 comes just before 0.0."""
    bits: Any = np.float64(x).view(np.int64)
    rank: int = bits ^ ((bits >> 63) & _MASK)
    return rank


@inline
def _double(rank: int) -> float:
    bits = np.int64(rank ^ ((rank >> 63) & _MASK))
    return bits.view(np.float64)
