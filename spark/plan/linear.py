"""Expressions as sums: a factor for each column, and a constant; times in microseconds."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

from millrace.join_parts.routes import Arithmetic, Column, Duration, Expression, Instant, Negate, Number


@dataclass(frozen=True)
class Linear:
    """`factors`: by side and name of a column, without zeros."""

    factors: dict[tuple[str, str], Fraction]
    constant: Fraction

    def plus(self, other: Linear, times: int = 1) -> Linear:
        """The sum of this one and the other one, that many times."""
        keys = {**self.factors, **other.factors}
        sums = {key: self.factors.get(key, Fraction(0)) + times * other.factors.get(key, Fraction(0)) for key in keys}
        return Linear({key: one for key, one in sums.items() if one}, self.constant + times * other.constant)

    def times(self, by: Fraction) -> Linear:
        """The product with a constant."""
        return Linear({key: one * by for key, one in self.factors.items() if by}, self.constant * by)


def linear(node: Expression | None) -> Linear | None:
    """An expression as a sum; None if it is not of this form."""
    if isinstance(node, Column):
        return Linear({(node.side, node.name): Fraction(1)}, Fraction(0))
    if isinstance(node, Number):
        return Linear({}, node.value)
    if isinstance(node, Instant | Duration):
        return Linear({}, Fraction(node.ns, 1000))
    if isinstance(node, Negate):
        inner = linear(node.operand)
        return None if inner is None else inner.times(Fraction(-1))
    if not isinstance(node, Arithmetic):
        return None
    left, right = linear(node.left), linear(node.right)
    if left is None or right is None:
        return None
    if node.op == "*":
        if left.factors and right.factors:
            return None
        return left.times(right.constant) if left.factors else right.times(left.constant)
    return left.plus(right, -1 if node.op == "-" else 1)
