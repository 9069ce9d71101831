"""Turns a comparison into bounds on a key: given the rows of one side, which words of the other side can match?

A comparison in which the searched side stands in one place only is turned inside out, operator by operator, until
the key stands alone: `abs(r.x - s.x) <= 5` seen from r is `s.x` in `[r.x - 5, r.x + 5]`. Exact arithmetic gives
exact bounds, and so does IEEE arithmetic, whose rounding is undone too (`exact_ends.py`). Pairs are checked
again (`Solved.exact` is false) only where the key is an expression, or where the keys that match need not be one range.
How ends become words is in `keys.py`.
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
    """One operator to undo on the way to the key; `beside` is what stands next to the key's branch."""

    op: Literal["negate", "abs", "a + key", "key - a", "a - key", "a * key"]
    beside: Expression | None
    kind: Kind
    """The arithmetic that the operator is done in."""
    inner: Kind
    """What the key's branch is before this operator."""
    grain: int
    """Where that branch is exact: a number that makes it whole when multiplied by it."""


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
    grain: int
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
    is_exact = isinstance(key, Column) and lossless and _convex(path)
    return Solved(term, key, op, value, kinds(top), _grain(top), path, below, above, is_exact)


def _descend(node: Expression, side: Side, kinds: Kinds) -> tuple[Expression, tuple[Inversion, ...]]:
    """Walk down to the key: a column, or the first operator that has `side` on both its branches."""
    path: list[Inversion] = []
    while True:
        kind = kinds(node)
        if isinstance(node, Negate | Absolute):
            op: Literal["negate", "abs"] = "negate" if isinstance(node, Negate) else "abs"
            node = node.operand
            path.append(Inversion(op, None, kind, kind, _grain(node)))
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
        path.append(Inversion(name, beside, kind, kinds(inner), _grain(inner)))
        node = inner


def _factor(step: Inversion) -> Fraction:
    """The constant that the key is multiplied by; 0 where it is not a constant, which cannot be undone."""
    return step.beside.value if isinstance(step.beside, Number) else Fraction(0)


def _grain(node: Expression) -> int:
    """A number that makes an exact expression whole when multiplied by it."""
    if isinstance(node, Number):
        return node.value.denominator
    if isinstance(node, Negate | Absolute):
        return _grain(node.operand)
    if isinstance(node, Arithmetic):
        left, right = _grain(node.left), _grain(node.right)
        return left * right if node.op == "*" else lcm(left, right)
    return 1


def _double_factor(step: Inversion) -> float:
    """The constant as a double: 0 or infinite where it is too small or too large for one."""
    return float(exact.to_double(Exact.constant(_factor(step)))[0])


def _regular(step: Inversion) -> bool:
    """Whether a product with the constant keeps the order: as a double, 0 and infinity make NaN in the midst of it."""
    return step.op != "a * key" or step.kind != "double" or 0 < abs(_double_factor(step)) < np.inf


def _convex(path: tuple[Inversion, ...]) -> bool:
    """Whether the keys that match are one range.

    NaN (infinity minus infinity) matches nothing. It comes where the key's branch is infinite, so for the outermost
    keys. But abs() makes the middle keys the smallest, and `(abs(key) - 1e308) * 10 + a` is NaN for just those if `a`
    is infinite; so no more than one rounding operation is trusted after it.
    """
    steps = [p.op for p in path if p.op == "abs" or (p.kind == "double" and p.op != "negate")]
    return all(_regular(p) for p in path) and "abs" not in steps[2:]


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
        result = _whole(result, partial(exact_ends.least, strict=bound.strict, grain=solved.grain), solved.grain)
    for step in solved.path:
        beside = None if step.beside is None else evaluate(step.beside, columns, types)
        null = _nan(beside, null)
        result = _invert(step, beside, result)
        if step.kind == "double" and step.inner != "double":
            result = _whole(result, partial(exact_ends.least_rounding, grain=step.grain), step.grain)
    return result, null


def _nan(value: Value | None, null: Mask | None) -> Mask | None:
    """Where a value, or one before it, is NaN; nothing if nowhere."""
    if not isinstance(value, Double):
        return null
    found = np.isnan(value.array)
    return _either(found, null) if found.any() else null


def _either(found: Mask | None, null: Mask | None) -> Mask | None:
    if found is None or null is None:
        return null if found is None else found
    return found | null


def _closed(given: Ends, null: Mask | None) -> tuple[Ends, Mask | None]:
    """Ends that are doubles and inside the range; rows that have no such double become null."""
    found: list[Bound | None] = [None, None]
    for i, bound in enumerate(given):
        if bound is not None:
            doubles, nothing = exact_ends.closed(bound.value, bound.strict, lower=i == 0)
            found[i], null = Bound(Double(doubles), False), _either(nothing, null)
    return (found[0], found[1]), null


def _whole(given: Ends, least: Callable[[Array], tuple[Array, Array]], grain: int) -> Ends:
    """Ends of an exact branch, from doubles: `least` finds the lower one, and the upper one as its mirror image."""
    low, high = given
    if low is not None:
        whole, infinite = least(exact.to_double(low.value))
        low = Bound(Exact(whole, den=grain), False, infinite)
    if high is not None:
        whole, infinite = least(-exact.to_double(high.value))
        high = Bound(Exact(-whole, den=grain), False, -infinite)
    return low, high


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


def _invert(step: Inversion, beside: Value | None, given: Ends) -> Ends:
    low, high = given
    if step.op == "abs":
        return _map(exact.negate, _turned(high)), high
    if step.op == "negate":
        return _map(exact.negate, _turned(high)), _map(exact.negate, _turned(low))
    assert beside is not None
    flips = step.op == "a - key" or (step.op == "a * key" and _factor(step) < 0)
    if flips:
        low, high = _turned(high), _turned(low)
    if step.kind == "double":
        return _undo_double(step, exact.to_double(beside), (low, high), flips)
    undo = _undo(step, beside)
    return _map(undo, low), _map(undo, high)


def _undo_double(step: Inversion, a: Array, given: Ends, flips: bool) -> Ends:
    """The doubles that the operator takes into the range; all of them where its factor is no ordinary double."""
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
    return lambda v: exact.multiply(v, Exact.constant(1 / _factor(step)))


def _map(function: Callable[[Value], Value], bound: Bound | None) -> Bound | None:
    return None if bound is None else replace(bound, value=function(bound.value))
