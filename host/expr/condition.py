"""The `on` condition as a small tree: what the parser makes and what the planner and the evaluator read.

The tree is untyped: column types are known only when the schemas are (`bind` in `plan.py`). Every node carries
the span of text it came from, so that an error found later still points at the place. `BETWEEN` is already two
comparisons; a condition is either one conjunction (`bands` has one entry) or an OR of bands (several).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal

from millrace.host.base.types import Side

CompareOp = Literal["=", "<", "<=", ">", ">=", "<>"]
Span = tuple[int, int]


@dataclass(frozen=True)
class Column:
    """`r.x` or `s.x`."""

    side: Side
    name: str
    span: Span


@dataclass(frozen=True)
class Number:
    """A literal number, exact. `decimal`: written with a point or an exponent, so a double against floats."""

    value: Fraction
    decimal: bool
    span: Span


@dataclass(frozen=True)
class Instant:
    """`TIMESTAMP '…'` or `DATE '…'`: nanoseconds since 1970; `zoned` when the text has an offset."""

    ns: int
    zoned: bool
    span: Span


@dataclass(frozen=True)
class Duration:
    """`INTERVAL '5' MINUTE`: a fixed number of nanoseconds (a day is 24 hours; months and years are refused)."""

    ns: int
    span: Span


@dataclass(frozen=True)
class Negate:
    """`-x`."""

    operand: Expression
    span: Span


@dataclass(frozen=True)
class Absolute:
    """`abs(x)`."""

    operand: Expression
    span: Span


@dataclass(frozen=True)
class Arithmetic:
    """`left op right`."""

    op: Literal["+", "-", "*"]
    left: Expression
    right: Expression
    span: Span


Expression = Column | Number | Instant | Duration | Negate | Absolute | Arithmetic


@dataclass(frozen=True)
class Comparison:
    """One term of a conjunction."""

    op: CompareOp
    left: Expression
    right: Expression
    span: Span


@dataclass(frozen=True)
class Condition:
    """The whole text: a pair matches if all comparisons of at least one entry of `bands` hold."""

    text: str
    bands: tuple[tuple[Comparison, ...], ...]

    def comparisons(self) -> Iterator[Comparison]:
        """Every comparison, in the order of the text."""
        for band in self.bands:
            yield from band

    def columns(self, side: Side) -> tuple[str, ...]:
        """The names of `side`'s columns in the order of their first use."""
        found = [c.name for t in self.comparisons() for c in columns_of(t) if c.side == side]
        return tuple(dict.fromkeys(found))


def columns_of(node: Expression | Comparison) -> Iterator[Column]:
    """Every column in a tree, in the order of the text."""
    if isinstance(node, Column):
        yield node
    elif isinstance(node, Negate | Absolute):
        yield from columns_of(node.operand)
    elif isinstance(node, Arithmetic | Comparison):
        yield from columns_of(node.left)
        yield from columns_of(node.right)


def sides_of(node: Expression | Comparison) -> frozenset[Side]:
    """The sides whose columns a tree uses."""
    return frozenset(c.side for c in columns_of(node))
