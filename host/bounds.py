"""Turns a comparison into bounds on a key: given the rows of one side, which words of the other side can match?

A comparison in which the searched side stands in one place only is turned inside out, operator by operator, until
the key stands alone: `abs(r.x - s.x) <= 5` seen from r is `s.x` in `[r.x - 5, r.x + 5]`. Exact arithmetic gives
exact bounds. Rounding is monotone, so in floating point the bounds are stepped outwards with `nextafter` and the
pairs found are checked again (`Solved.exact` is false). How ends become words is in `millrace.host.keys`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Literal

import numpy as np

from millrace.host import exact
from millrace.host.condition import (
    Absolute,
    Arithmetic,
    Column,
    CompareOp,
    Comparison,
    Expression,
    Negate,
    Number,
    Side,
    sides_of,
)
from millrace.host.evaluate import Columns, Kind, Types, evaluate
from millrace.host.exact import Double, Exact, Value
from millrace.host.words import Array, Mask

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
    """One operator to undo on the way to the key; `beside` is what stands next to the key's branch."""

    op: Literal["negate", "abs", "a + key", "key - a", "a - key", "a * key"]
    beside: Expression | None
    kind: Kind
    """The arithmetic that the operator is done in."""
    inner: Kind
    """What the key's branch is before this operator."""


@dataclass(frozen=True)
class Solved:
    """`expression op value`, with the `path` from the expression down to its `key`.

    `below` and `above` say on which sides the key is bounded; `exact` that the bounds need no second check.
    """

    term: Comparison
    key: Expression
    op: CompareOp
    value: Expression
    kind: Kind
    path: tuple[Inversion, ...]
    below: bool
    above: bool
    exact: bool


def solve(term: Comparison, side: Side, kinds: Kinds) -> Solved | None:
    """Turn a comparison inside out for a key of `side`; nothing where that cannot be done or bounds nothing.

    `kinds` tells what an expression is, which decides how its arithmetic is undone.
    """
    left, right = side in sides_of(term.left), side in sides_of(term.right)
    if left == right:
        return None
    top, value = (term.left, term.right) if left else (term.right, term.left)
    op = term.op if left else _MIRROR[term.op]
    key, path = _descend(top, side, kinds)
    if sides_of(key) != {side} or any(p.op == "a * key" and _factor(p) == 0 for p in path):
        return None
    below, above, lossless = _reach(op, path)
    if not (below or above) or (op == "<>" and not lossless):
        return None
    kind = kinds(top)
    rounding = any(p.kind == "double" and p.op not in ("negate", "abs") for p in path)
    mixed = bool(path) and (kind == "double") != (kinds(value) == "double")
    is_exact = isinstance(key, Column) and lossless and not rounding and not mixed
    return Solved(term, key, op, value, kind, path, below, above, is_exact)


def _descend(node: Expression, side: Side, kinds: Kinds) -> tuple[Expression, tuple[Inversion, ...]]:
    """Walk down to the key: a column, or the first operator that has `side` on both its branches."""
    path: list[Inversion] = []
    while True:
        kind = kinds(node)
        if isinstance(node, Negate | Absolute):
            op: Literal["negate", "abs"] = "negate" if isinstance(node, Negate) else "abs"
            path.append(Inversion(op, None, kind, kind))
            node = node.operand
            continue
        if not isinstance(node, Arithmetic):
            return node, tuple(path)
        left, right = side in sides_of(node.left), side in sides_of(node.right)
        if left and right:
            return node, tuple(path)
        inner, beside = (node.left, node.right) if left else (node.right, node.left)
        name: Literal["a + key", "key - a", "a - key", "a * key"] = "a + key"
        if node.op == "*":
            name = "a * key"
        elif node.op == "-":
            name = "key - a" if left else "a - key"
        path.append(Inversion(name, beside, kind, kinds(inner)))
        node = inner


def _factor(step: Inversion) -> Fraction:
    """The constant that the key is multiplied by; 0 where it is not a constant, which cannot be undone."""
    return step.beside.value if isinstance(step.beside, Number) else Fraction(0)


def _reach(op: CompareOp, path: tuple[Inversion, ...]) -> tuple[bool, bool, bool]:
    """Whether the key ends up bounded from below and from above, and whether nothing was given away."""
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
    """One end of a range: `strict` leaves the value itself out.

    Where `infinite` is 1 or -1 the end is plus or minus infinity, whatever `value` is: integers have none of their
    own.
    """

    value: Value
    strict: bool
    infinite: Array | None = None


Ends = tuple[Bound | None, Bound | None]


def ends(solved: Solved, op: CompareOp, columns: Columns, types: Types) -> tuple[Ends, Mask | None]:
    """The range of the key that `expression op value` allows, for each row of `columns`, and where there is none.

    `op` is the solved one, or one of the two halves of a `<>`. An operand that comes to NaN is a null: no key
    matches. (A NaN that appears only while undoing operators, infinity minus infinity, is no operand, and bounds
    nothing.)
    """
    value = evaluate(solved.value, columns, types)
    null = _nan(value, None)
    bound = Bound(value, strict=op in ("<", ">"))
    low, high = _BOUNDS[op]
    result: Ends = (bound if low else None, bound if high else None)
    if solved.path:
        result = _enter(result, solved.kind)
    for step in solved.path:
        beside = None if step.beside is None else evaluate(step.beside, columns, types)
        null = _nan(beside, null)
        result = _invert(step, beside, result)
        if step.kind == "double" and step.inner != "double":
            result = _enter(_outward(result), step.inner)
    return result, null


def _nan(value: Value | None, null: Mask | None) -> Mask | None:
    """Where a value, or one before it, is NaN; nothing if nowhere."""
    if not isinstance(value, Double):
        return null
    found = np.isnan(value.array)
    if not found.any():
        return null
    return found if null is None else found | null


def _enter(given: Ends, kind: Kind) -> Ends:
    """Bounds in the arithmetic of `kind`: a rounded exact number steps outward, a double becomes whole."""
    low, high = given
    if kind == "double":
        return _rounded(low, -np.inf), _rounded(high, np.inf)
    return low and whole(low, lower=True), high and whole(high, lower=False)


def _rounded(bound: Bound | None, outward: float) -> Bound | None:
    if bound is None or isinstance(bound.value, Double):
        return bound
    doubles = exact.to_double(bound.value)
    if bound.value.literal:
        return Bound(Double(doubles), bound.strict)
    return Bound(Double(np.nextafter(doubles, outward)), strict=False)


def whole(bound: Bound, lower: bool) -> Bound:
    """The whole number next to a double, outwards; NaN (infinity minus infinity on the way) bounds nothing."""
    if isinstance(bound.value, Exact):
        return bound
    doubles = np.floor(bound.value.array) if lower else np.ceil(bound.value.array)
    doubles = np.where(np.isnan(doubles), -np.inf if lower else np.inf, doubles)
    infinite = np.where(np.isinf(doubles), np.sign(doubles), 0).astype(np.int8)
    doubles = np.where(infinite != 0, 0.0, doubles)
    if len(doubles) == 0 or np.abs(doubles).max() < 2.0**62:
        return Bound(Exact(doubles.astype(np.int64)), False, infinite)
    return Bound(Exact(np.array([int(f) for f in doubles], dtype=object)), False, infinite)


def _outward(given: Ends) -> Ends:
    """One double further out on both ends: what rounding may have pulled in is let in again."""
    low, high = given
    return _step(low, -np.inf), _step(high, np.inf)


def _step(bound: Bound | None, direction: float) -> Bound | None:
    if bound is None:
        return None
    return Bound(Double(np.nextafter(exact.to_double(bound.value), direction)), strict=False)


def _invert(step: Inversion, beside: Value | None, given: Ends) -> Ends:
    low, high = given
    if step.op == "abs":
        return _map(exact.negate, _turned(high)), high
    if step.op == "negate":
        return _map(exact.negate, _turned(high)), _map(exact.negate, _turned(low))
    assert beside is not None
    rounding = step.kind == "double"
    if rounding:
        low, high = _outward((low, high))
    flips = step.op == "a - key" or (step.op == "a * key" and _factor(step) < 0)
    if flips:
        low, high = _turned(high), _turned(low)
    undo = _undo(step, beside)
    result = _map(undo, low), _map(undo, high)
    return _outward(result) if rounding else result


def _turned(bound: Bound | None) -> Bound | None:
    """With infinity's sign turned round, for an operator that turns the order round."""
    if bound is None or bound.infinite is None:
        return bound
    return replace(bound, infinite=-bound.infinite)


def _undo(step: Inversion, beside: Value) -> Callable[[Value], Value]:
    """The function that takes a bound on the operator's result to a bound on the key's branch."""
    if step.op == "a - key":
        return lambda v: exact.subtract(beside, v)
    if step.op == "key - a":
        return lambda v: exact.add(v, beside)
    if step.op == "a + key":
        return lambda v: exact.subtract(v, beside)
    if step.kind == "double":
        return lambda v: _quotient(exact.to_double(v), exact.to_double(beside))
    return lambda v: exact.multiply(v, Exact.constant(1 / _factor(step)))


def _quotient(x: Array, y: Array) -> Double:
    return Double(x / y)


def _map(function: Callable[[Value], Value], bound: Bound | None) -> Bound | None:
    return None if bound is None else replace(bound, value=function(bound.value))
