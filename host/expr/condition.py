"""The `on` condition as a syntax tree: the parser builds it, the planner and the evaluator read it.

The tree is untyped: column types are known only once the schemas are (`bind` in `plan.py`). Every node has the span of
its text, so that a later error can point at it. `BETWEEN` is stored as two comparisons. A condition is either one
conjunction (`bands` has one entry) or an OR of bands (several entries).
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
    """A literal number, exact. `decimal`: written with a point or an exponent; compared with floats as a double."""

    value: Fraction
    decimal: bool
    span: Span


@dataclass(frozen=True)
class Instant:
    """`TIMESTAMP '…'` or `DATE '…'`: nanoseconds since 1970; `zoned`: the text has a UTC offset."""

    ns: int
    zoned: bool
    span: Span


@dataclass(frozen=True)
class Duration:
    """`INTERVAL '5' MINUTE`: a fixed number of nanoseconds (a day is 24 hours; months and years are not allowed)."""

    ns: int
    span: Span


@dataclass(frozen=True)
class Constant:
    """`'text'`, `X'0aff'`, `TRUE` or `FALSE`: an operand of `=` or `<>`, never a part of an expression."""

    value: str | bytes | bool
    span: Span


@dataclass(frozen=True)
class Code:
    """A literal as the code of its value (`base/codes.py`); `bind` makes it once the column's type is known."""

    value: int
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


Expression = Column | Number | Instant | Duration | Constant | Code | Negate | Absolute | Arithmetic


@dataclass(frozen=True)
class Comparison:
    """One term of a conjunction."""

    op: CompareOp
    left: Expression
    right: Expression
    span: Span


@dataclass(frozen=True)
class Condition:
    """A full condition: a pair matches if all comparisons of at least one entry of `bands` hold."""

    text: str
    bands: tuple[tuple[Comparison, ...], ...]

    def comparisons(self) -> Iterator[Comparison]:
        """Yield every comparison, in the order of the text."""
        for band in self.bands:
            yield from band

    def columns(self, side: Side) -> tuple[str, ...]:
        """Return the names of `side`'s columns, in the order of their first use."""
        found = [c.name for t in self.comparisons() for c in columns_of(t) if c.side == side]
        return tuple(dict.fromkeys(found))


def columns_of(node: Expression | Comparison) -> Iterator[Column]:
    """Yield every column in a tree, in the order of the text."""
    if isinstance(node, Column):
        yield node
    elif isinstance(node, Negate | Absolute):
        yield from columns_of(node.operand)
    elif isinstance(node, Arithmetic | Comparison):
        yield from columns_of(node.left)
        yield from columns_of(node.right)


def sides_of(node: Expression | Comparison) -> frozenset[Side]:
    """Return the sides whose columns a tree uses."""
    return frozenset(c.side for c in columns_of(node))


def render(node: Expression) -> str:
    """Return an expression as text; equal expressions give equal texts, whatever their position."""
    if isinstance(node, Column):
        return f"{node.side}.{node.name}"
    if isinstance(node, Number | Constant | Code):
        return str(node.value)
    if isinstance(node, Negate):
        return f"-({render(node.operand)})"
    if isinstance(node, Absolute):
        return f"abs({render(node.operand)})"
    if isinstance(node, Arithmetic):
        return f"({render(node.left)} {node.op} {render(node.right)})"
    return f"{node.ns} ns"
