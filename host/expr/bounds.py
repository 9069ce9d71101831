"""Solves a comparison for a key: computes, for each row of one side, the range of keys of the other side that match.

The searched side must occur in one operand only. The operators are inverted one by one until the key is isolated: for
a row of r, `abs(r.x - s.x) <= 5` becomes `s.x` in `[r.x - 5, r.x + 5]`. Bounds are exact for exact arithmetic and for
IEEE arithmetic, whose rounding is inverted too (`exact_ends.py`). Pairs need a second check (`SolvedComparison.exact`
is false) only if the key is an expression, or if the matching keys may not form one range. `keys.py` converts the ends
of a range to words.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import partial
from math import lcm
from typing import Literal

import numpy as np

from millrace.host.base.types import Array, Mask, Side
from millrace.host.expr import exact, exact_ends
from millrace.host.expr.condition import (
    Absolute,
    Arithmetic,
    Column,
    CompareOp,
    Comparison,
    Expression,
    Negate,
    Number,
    sides_of,
)
from millrace.host.expr.evaluate import Columns, Kind, Types, evaluate
from millrace.host.expr.exact import Double, Exact, Value

Kinds = Callable[[Expression], Kind]
_MIRROR: dict[CompareOp, CompareOp] = {"=": "=", "<>": "<>", "<": ">", "<=": ">=", ">": "<", ">=": "<="}
_BOUNDS: dict[CompareOp, tuple[bool, bool]] = {
    "=": (True, True),
    "<>": (True, True),
    "<": (False, True),
    "<=": (False, True),
    ">": (True, False),
    ">=": (True, False),
}


@dataclass(frozen=True)
class Inversion:
    """One operator to invert on the path to the key; `operand` is its other operand, without the key."""

    op: Literal["negate", "abs", "a + key", "key - a", "a - key", "a * key"]
    operand: Expression | None
    kind: Kind
    """The arithmetic of the operator."""
    inner: Kind
    """The kind of the operand that contains the key."""
    denominator: int
    """If that operand is exact: a common denominator of its values."""


@dataclass(frozen=True)
class SolvedComparison:
    """`expression op value`, with the `path` of operators from the expression down to its `key`.

    `below` and `above`: the key has a lower bound, an upper bound. `exact`: the bounds need no second check.
    """

    term: Comparison
    key: Expression
    op: CompareOp
    value: Expression
    kind: Kind
    denominator: int
    path: tuple[Inversion, ...]
    below: bool
    above: bool
    exact: bool


def solve(term: Comparison, side: Side, kinds: Kinds) -> SolvedComparison | None:
    """Solve a comparison for a key of `side`; None if that is not possible or gives no bound.

    `kinds` returns the kind of an expression, which decides how its arithmetic is inverted.
    """
    left, right = side in sides_of(term.left), side in sides_of(term.right)
    if left == right:
        return None
    top, value = (term.left, term.right) if left else (term.right, term.left)
    op = term.op if left else _MIRROR[term.op]
    key, path = _descend(top, side, kinds)
    if sides_of(key) != {side} or any(p.op == "a * key" and _factor(p) == 0 for p in path):
        return None
    below, above, lossless = _bounded_ends(op, path)
    if not (below or above) or (op == "<>" and not lossless):
        return None
    is_exact = isinstance(key, Column) and lossless and _convex(path)
    return SolvedComparison(term, key, op, value, kinds(top), _denominator(top), path, below, above, is_exact)


def _descend(node: Expression, side: Side, kinds: Kinds) -> tuple[Expression, tuple[Inversion, ...]]:
    """Walk down to the key: a column, or the first operator with `side` in both operands."""
    path: list[Inversion] = []
    while True:
        kind = kinds(node)
        if isinstance(node, Negate | Absolute):
            op: Literal["negate", "abs"] = "negate" if isinstance(node, Negate) else "abs"
            node = node.operand
            path.append(Inversion(op, None, kind, kind, _denominator(node)))
            continue
        if not isinstance(node, Arithmetic):
            return node, tuple(path)
        left, right = side in sides_of(node.left), side in sides_of(node.right)
        if left and right:
            return node, tuple(path)
        inner, operand = (node.left, node.right) if left else (node.right, node.left)
        name: Literal["a + key", "key - a", "a - key", "a * key"] = "a + key"
        if node.op == "*":
            name = "a * key"
        elif node.op == "-":
            name = "key - a" if left else "a - key"
        path.append(Inversion(name, operand, kind, kinds(inner), _denominator(inner)))
        node = inner


def _factor(step: Inversion) -> Fraction:
    """Return the constant factor of the key; 0 if the factor is not a constant, which cannot be inverted."""
    return step.operand.value if isinstance(step.operand, Number) else Fraction(0)


def _denominator(node: Expression) -> int:
    """Return a common denominator of the values of an exact expression."""
    if isinstance(node, Number):
        return node.value.denominator
    if isinstance(node, Negate | Absolute):
        return _denominator(node.operand)
    if isinstance(node, Arithmetic):
        left, right = _denominator(node.left), _denominator(node.right)
        return left * right if node.op == "*" else lcm(left, right)
    return 1


def _double_factor(step: Inversion) -> float:
    """Return the constant factor as a double: 0 or infinity if it is too small or too large."""
    return float(exact.to_double(Exact.constant(_factor(step)))[0])


def _regular(step: Inversion) -> bool:
    """Return whether the step is monotone: a factor that is 0 or infinite as a double gives NaN for some keys."""
    return step.op != "a * key" or step.kind != "double" or 0 < abs(_double_factor(step)) < np.inf


def _convex(path: tuple[Inversion, ...]) -> bool:
    """Return whether the matching keys form one range.

    NaN (infinity minus infinity) matches nothing. It occurs where the operand with the key is infinite, so at the
    outermost keys. But abs() maps the middle keys to the smallest values, and `(abs(key) - 1e308) * 10 + a` is NaN for
    exactly these if `a` is infinite. So at most one rounding operation may follow abs().
    """
    steps = [p.op for p in path if p.op == "abs" or (p.kind == "double" and p.op != "negate")]
    return all(_regular(p) for p in path) and "abs" not in steps[2:]


def _bounded_ends(op: CompareOp, path: tuple[Inversion, ...]) -> tuple[bool, bool, bool]:
    """Return whether the key has a lower and an upper bound, and whether the inversion loses nothing."""
    below, above = _BOUNDS[op]
    lossless = True
    for step in path:
        if step.op == "abs":
            lossless = lossless and not below
            below = above
        elif step.op in ("negate", "a - key") or (step.op == "a * key" and _factor(step) < 0):
            below, above = above, below
    return below, above, lossless


@dataclass(frozen=True)
class Bound:
    """One end of a range: `strict` excludes the value itself.

    Where `infinite` is 1 or -1, the end is plus or minus infinity and `value` is ignored: integers have no infinity.
    """

    value: Value
    strict: bool
    infinite: Array | None = None


Ends = tuple[Bound | None, Bound | None]


def ends(solved: SolvedComparison, op: CompareOp, columns: Columns, types: Types) -> tuple[Ends, Mask | None]:
    """Return the range of keys that satisfy `expression op value` for each row of `columns`, and a mask of null rows.

    `op` is the solved operator, or one of the two halves of a `<>`. An operand that evaluates to NaN is null: no key
    matches.
    """
    value = evaluate(solved.value, columns, types)
    null = _nan(value, None)
    bound = Bound(value, strict=op in ("<", ">"))
    low, high = _BOUNDS[op]
    result: Ends = (bound if low else None, bound if high else None)
    if solved.path and solved.kind == "double":
        result, null = _closed(result, null)
    elif solved.path and isinstance(value, Double):
        lower_end = partial(exact_ends.least_integers, strict=bound.strict, denominator=solved.denominator)
        result = _integer_ends(result, lower_end, solved.denominator)
    for step in solved.path:
        operand = None if step.operand is None else evaluate(step.operand, columns, types)
        null = _nan(operand, null)
        result = _invert(step, operand, result)
        if step.kind == "double" and step.inner != "double":
            lower_end = partial(exact_ends.least_integers_rounding_to, denominator=step.denominator)
            result = _integer_ends(result, lower_end, step.denominator)
    return result, null


def _nan(value: Value | None, null: Mask | None) -> Mask | None:
    """Return a mask of the rows where this value or an earlier one is NaN; None if there are none."""
    if not isinstance(value, Double):
        return null
    found = np.isnan(value.array)
    return _either(found, null) if found.any() else null


def _either(found: Mask | None, null: Mask | None) -> Mask | None:
    if found is None or null is None:
        return null if found is None else found
    return found | null


def _closed(given: Ends, null: Mask | None) -> tuple[Ends, Mask | None]:
    """Replace the ends by the outermost doubles inside the range; rows without such a double become null."""
    found: list[Bound | None] = [None, None]
    for i, bound in enumerate(given):
        if bound is not None:
            doubles, nothing = exact_ends.closed_end(bound.value, bound.strict, lower=i == 0)
            found[i], null = Bound(Double(doubles), False), _either(nothing, null)
    return (found[0], found[1]), null


def _integer_ends(given: Ends, lower_end: Callable[[Array], tuple[Array, Array]], denominator: int) -> Ends:
    """Convert double ends to ends of an exact operand: `lower_end` finds the lower one, mirrored the upper one."""
    low, high = given
    if low is not None:
        integers, infinite = lower_end(exact.to_double(low.value))
        low = Bound(Exact(integers, den=denominator), False, infinite)
    if high is not None:
        integers, infinite = lower_end(-exact.to_double(high.value))
        high = Bound(Exact(-integers, den=denominator), False, -infinite)
    return low, high


def round_outwards(bound: Bound, lower: bool) -> Bound:
    """Round a double end outwards to an integer; NaN (infinity minus infinity) gives no bound."""
    if isinstance(bound.value, Exact):
        return bound
    doubles = np.floor(bound.value.array) if lower else np.ceil(bound.value.array)
    doubles = np.where(np.isnan(doubles), -np.inf if lower else np.inf, doubles)
    infinite = np.where(np.isinf(doubles), np.sign(doubles), 0).astype(np.int8)
    doubles = np.where(infinite != 0, 0.0, doubles)
    if len(doubles) == 0 or np.abs(doubles).max() < 2.0**62:
        return Bound(Exact(doubles.astype(np.int64)), False, infinite)
    return Bound(Exact(np.array([int(f) for f in doubles], dtype=object)), False, infinite)


def _invert(step: Inversion, operand: Value | None, given: Ends) -> Ends:
    low, high = given
    if step.op == "abs":
        return _map(exact.negate, _turned(high)), high
    if step.op == "negate":
        return _map(exact.negate, _turned(high)), _map(exact.negate, _turned(low))
    assert operand is not None
    flips = step.op == "a - key" or (step.op == "a * key" and _factor(step) < 0)
    if flips:
        low, high = _turned(high), _turned(low)
    if step.kind == "double":
        return _undo_double(step, exact.to_double(operand), (low, high), flips)
    undo = _undo(step, operand)
    return _map(undo, low), _map(undo, high)


def _undo_double(step: Inversion, a: Array, given: Ends, flips: bool) -> Ends:
    """Return the doubles that the operator maps into the range; all doubles if its factor is 0 or infinite."""
    if not _regular(step):
        return None, None
    sign = -1.0 if flips else 1.0
    low, high = (
        np.array([end]) if bound is None else sign * exact.to_double(bound.value)
        for bound, end in zip(given, (-np.inf, np.inf), strict=True)
    )
    if step.op == "a * key":
        first, last = exact_ends.undo_multiply(np.abs(a), low, high)
    else:
        first, last = exact_ends.undo_subtract(-a if step.op == "a + key" else a, low, high)
    return Bound(Double(first), False), Bound(Double(last), False)


def _turned(bound: Bound | None) -> Bound | None:
    """Negate the infinity of an end, for an operator that reverses the order."""
    if bound is None or bound.infinite is None:
        return bound
    return replace(bound, infinite=-bound.infinite)


def _undo(step: Inversion, operand: Value) -> Callable[[Value], Value]:
    """Return the function that maps a bound on the operator's result to a bound on the operand with the key."""
    if step.op == "a - key":
        return lambda v: exact.subtract(operand, v)
    if step.op == "key - a":
        return lambda v: exact.add(v, operand)
    if step.op == "a + key":
        return lambda v: exact.subtract(v, operand)
    return lambda v: exact.multiply(v, Exact.constant(1 / _factor(step)))


def _map(function: Callable[[Value], Value], bound: Bound | None) -> Bound | None:
    return None if bound is None else replace(bound, value=function(bound.value))
