"""Evaluates the expressions and comparisons of a condition column by column, exactly as written.

Columns are native arrays (`native` in `base/words.py`) without nulls and NaN; times become exact nanoseconds. The
kinds of expressions (number, instant, duration) are checked here too, once the schemas are known: a type error is a
`PredicateError` that points at its position in the text. Codes are compared as the integers that they are;
`code_terms.py` checks their terms, and replaces text and other constants by codes before anything is evaluated.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import numpy as np

from millrace.host.base.errors import PredicateError
from millrace.host.base.types import Array, Mask, Side
from millrace.host.base.words import KeyType
from millrace.host.expr import exact
from millrace.host.expr.condition import (
    Absolute,
    Arithmetic,
    Code,
    Column,
    Comparison,
    Constant,
    Duration,
    Expression,
    Instant,
    Negate,
    Number,
)
from millrace.host.expr.exact import Double, Exact, Value

Kind = Literal["exact", "double", "naive instant", "zoned instant", "duration", "code"]
Types = Mapping[tuple[Side, str], KeyType]
Columns = Mapping[tuple[Side, str], Array]
_KIND_NAMES = {"exact": "an exact number", "double": "a floating-point number", "duration": "an interval"}
_INSTANTS = ("naive instant", "zoned instant")


def evaluate(node: Expression, columns: Columns, types: Types) -> Value:
    """Return the values of an expression, one per row (a constant stays one number)."""
    if isinstance(node, Column):
        return _column(columns[node.side, node.name], types[node.side, node.name])
    if isinstance(node, Number):
        return Exact.constant(node.value, literal=node.decimal)
    if isinstance(node, Instant | Duration):
        return Exact.constant(node.ns)
    if isinstance(node, Code):
        return Exact.constant(node.value)
    if isinstance(node, Negate):
        return exact.negate(evaluate(node.operand, columns, types))
    if isinstance(node, Absolute):
        return exact.absolute(evaluate(node.operand, columns, types))
    assert isinstance(node, Arithmetic)
    operation = {"+": exact.add, "-": exact.subtract, "*": exact.multiply}[node.op]
    return operation(evaluate(node.left, columns, types), evaluate(node.right, columns, types))


def _column(values: Array, kind: KeyType) -> Value:
    if kind.domain == "float":
        return Double(values.astype(np.float64, copy=False))
    return Exact(values, mul=kind.ns)


@np.errstate(all="ignore")
def holds(term: Comparison, columns: Columns, types: Types, rows: int) -> Mask:
    """Return a mask of the rows where a comparison is true. Infinities and NaN are valid values, not errors."""
    left, right = evaluate(term.left, columns, types), evaluate(term.right, columns, types)
    return np.broadcast_to(exact.compare(term.op, left, right), (rows,))


def check(term: Comparison, types: Types, text: str) -> None:
    """Raise a `PredicateError` unless the two sides of a comparison can be compared."""
    left, right = kind_of(term.left, types, text), kind_of(term.right, types, text)
    numbers = ("exact", "double")
    if left != right and not (left in numbers and right in numbers):
        hint = ""
        if left in _INSTANTS and right in _INSTANTS:
            hint = ": both must have a time zone, or neither"
        raise PredicateError(f"{kind_name(left)} cannot be compared with {kind_name(right)}{hint}", text, *term.span)


def kind_of(node: Expression, types: Types, text: str) -> Kind:
    """Return the kind of an expression; raise a `PredicateError` if its operands cannot be combined."""
    if isinstance(node, Column):
        kind = types[node.side, node.name]
        if kind.domain == "time":
            return "zoned instant" if kind.zoned else "naive instant"
        if kind.domain == "code":
            return "code"
        return "double" if kind.domain == "float" else "exact"
    if isinstance(node, Number):
        return "exact"
    if isinstance(node, Instant):
        return "zoned instant" if node.zoned else "naive instant"
    if isinstance(node, Duration):
        return "duration"
    if isinstance(node, Constant | Code):
        return "code"
    if isinstance(node, Negate | Absolute):
        inner = kind_of(node.operand, types, text)
        if inner in _INSTANTS:
            word = "negated" if isinstance(node, Negate) else "given to abs()"
            raise PredicateError(f"{kind_name(inner)} cannot be {word}", text, *node.span)
        return inner
    return _arithmetic_kind(node, types, text)


def _arithmetic_kind(node: Arithmetic, types: Types, text: str) -> Kind:
    left, right = kind_of(node.left, types, text), kind_of(node.right, types, text)
    numbers = ("exact", "double")
    if left in numbers and right in numbers:
        return "double" if "double" in (left, right) else "exact"
    if node.op in "+-" and right == "duration" and left != "exact" and left != "double":
        return left
    if node.op == "+" and left == "duration" and right in _INSTANTS:
        return right
    if node.op == "-" and left == right and left in _INSTANTS:
        return "duration"
    raise PredicateError(
        f"{kind_name(left)} {node.op} {kind_name(right)} has no meaning; allowed with times are timestamp ± INTERVAL, "
        f"timestamp - timestamp (both with a time zone or neither) and INTERVAL ± INTERVAL",
        text,
        *node.span,
    )


def kind_name(kind: Kind) -> str:
    """Return what an error calls an expression of this kind."""
    if kind in _INSTANTS:
        return "a timestamp with a time zone" if kind == "zoned instant" else "a timestamp without a time zone"
    return _KIND_NAMES[kind]
