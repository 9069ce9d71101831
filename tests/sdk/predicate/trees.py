"""Helpers of the parser tests: short constructors of tree nodes, and trees without spans."""

from __future__ import annotations

from fractions import Fraction
from typing import Any, Literal

from millrace.host.expr.condition import Arithmetic, Column, Comparison, Duration, Expression, Number

ANY = (0, 0)
MINUTE = 60 * 10**9


def r(name: str) -> Column:
    return Column("r", name, ANY)


def s(name: str) -> Column:
    return Column("s", name, ANY)


def n(text: str) -> Number:
    return Number(Fraction(text), any(c in text for c in ".eE"), ANY)


def d(ns: int) -> Duration:
    return Duration(ns, ANY)


def op(left: Expression, symbol: Literal["+", "-", "*"], right: Expression) -> Arithmetic:
    return Arithmetic(symbol, left, right, ANY)


def cmp(left: Expression, symbol: Any, right: Expression) -> Comparison:
    return Comparison(symbol, left, right, ANY)


def bare(node: Any) -> Any:
    """The same tree with every span cleared."""
    if isinstance(node, tuple):
        return tuple(bare(part) for part in node)
    if not hasattr(node, "span"):
        return node
    fields = {name: ANY if name == "span" else bare(value) for name, value in vars(node).items()}
    return type(node)(**fields)
