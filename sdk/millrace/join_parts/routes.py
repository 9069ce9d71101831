"""Which columns a condition uses, and how rows can be range-partitioned for it: known before any row is read.

`millrace.spark` uses *routes* to spread a join over partitions. A route orders the rows of one side by one of their
columns. For each row of the other side it gives the ranges of that column that contain all its partners. The ends of
these ranges are expressions over the other side's columns, derived by inverting the comparisons as the indexes do
(`expr/bounds.py`), but without regard to rounding: code that evaluates them in floating point must widen the ranges a
little. Text, binary, booleans and decimals have no order here: an equality of such columns makes a *hashed* route,
which partitions rows by a hash of the column. Limit: only comparisons that bound a plain column make a route.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import pyarrow as pa

from millrace.host.base.types import SIDES, Side
from millrace.host.base.words import KeyType
from millrace.host.expr.bounds import Inversion, SolvedComparison, solve
from millrace.host.expr.condition import (
    Absolute,
    Arithmetic,
    Column,
    Comparison,
    Condition,
    Duration,
    Expression,
    Instant,
    Negate,
    Number,
    columns_of,
    sides_of,
)
from millrace.host.expr.evaluate import Types
from millrace.host.expr.plan import bind
from millrace.ingest.arguments import parse_condition
from millrace.ingest.tables import as_schema

__all__ = [
    "Absolute",
    "Arithmetic",
    "BoundCondition",
    "Column",
    "Comparison",
    "Duration",
    "Expression",
    "Instant",
    "Negate",
    "Number",
    "Range",
    "Route",
    "bound_condition",
]

Range = tuple[Expression | None, Expression | None]
"""The low and the high end, both inclusive; None if the range is open at that end."""
_BELOW, _ABOVE = ("=", ">", ">="), ("=", "<", "<=")
_NOWHERE = (0, 0)
_TINY = Number(Fraction(1, 10**320), True, _NOWHERE)


@dataclass(frozen=True)
class Route:
    """Partitions the rows of `side` by `column`; `ranges` of it contain all partners of a row of the other side.

    `hashed`: the column has no order, so partition by a hash of it; each range is one column of the other side, whose
    equal values have the same hash.
    """

    side: Side
    column: str
    ranges: tuple[Range, ...]
    hashed: bool = False

    @property
    def bounded(self) -> bool:
        """Whether every range has two ends: a band, which is usually narrow."""
        return all(low is not None and high is not None for low, high in self.ranges)


@dataclass(frozen=True)
class BoundCondition:
    """A condition bound to two schemas. A row with a null in one of its `keys` matches nothing.

    `columns`: the columns that it uses. `routes`: all routes of each side, best first: equalities, then bands, then
    hashed ones (often of few distinct values), then half-open ranges. `bands`: the condition's terms; several bands are
    joined by OR.
    """

    text: str
    kind: str
    columns: dict[Side, tuple[str, ...]]
    keys: dict[Side, tuple[str, ...]]
    types: dict[tuple[Side, str], KeyType]
    routes: dict[Side, tuple[Route, ...]]
    bands: tuple[tuple[Comparison, ...], ...]


def bound_condition(on: str, r: Any, s: Any) -> BoundCondition:
    """Parse a condition and bind it to two schemas; raises an error if any of the three is not valid.

    >>> import pyarrow as pa
    >>> r, s = pa.schema([("x", pa.int64()), ("a", pa.int64())]), pa.schema([("x", pa.int64())])
    >>> found = bound_condition("abs(r.x - s.x) <= 5 AND r.a > 0", r, s)
    >>> found.kind, found.keys, found.routes["r"][0].column, found.routes["r"][0].bounded
    ('band', {'r': ('x',), 's': ('x',)}, 'x', True)
    """
    condition = parse_condition(on)
    schemas: dict[Side, pa.Schema] = {"r": as_schema(r, "r"), "s": as_schema(s, "s")}
    plan = bind(condition, schemas)
    return BoundCondition(
        condition.text,
        plan.kind,
        {side: condition.columns(side) for side in SIDES},
        {side: _keys(condition, side) for side in SIDES},
        dict(plan.types),
        {side: _routes(condition, side, plan.types) for side in SIDES},
        condition.bands,
    )


def _keys(condition: Condition, side: Side) -> tuple[str, ...]:
    """A side's columns in the terms that use both sides."""
    related = [term for term in condition.comparisons() if len(sides_of(term)) == 2]
    return tuple(dict.fromkeys(c.name for term in related for c in columns_of(term) if c.side == side))


def _routes(condition: Condition, side: Side, types: Types) -> tuple[Route, ...]:
    """A side's routes, best first."""
    if len(condition.bands) > 1:
        return _route_of_bands(condition, side, types)
    groups: dict[str, list[SolvedComparison]] = {}
    for one in _solved(condition.bands[0], side):
        assert isinstance(one.key, Column)
        groups.setdefault(one.key.name, []).append(one)
    hashed = {name: types[side, name].domain == "code" for name in groups}
    ranked = sorted(groups.items(), key=lambda item: -_rank(item[1], hashed[item[0]]))
    return tuple(Route(side, name, (_range(parts),), hashed[name]) for name, parts in ranked)


def _route_of_bands(condition: Condition, side: Side, types: Types) -> tuple[Route, ...]:
    """The route of several bands joined by OR, all on one column: one range per band."""
    ranges: list[Range] = []
    column = ""
    for band in condition.bands:
        parts = _solved(band, side)
        if not parts:
            return ()
        assert isinstance(parts[0].key, Column)
        column = parts[0].key.name
        ranges.append(_range(parts))
    return (Route(side, column, tuple(ranges), types[side, column].domain == "code"),)


def _solved(terms: tuple[Comparison, ...], side: Side) -> list[SolvedComparison]:
    """The comparisons that bound a column of a side by the other side's columns."""
    related = [solve(term, side, lambda _: "exact") for term in terms if len(sides_of(term)) == 2]
    return [one for one in related if one is not None and one.op != "<>" and isinstance(one.key, Column)]


def _rank(parts: list[SolvedComparison], hashed: bool) -> int:
    """How well a route keeps partners together: an equality best, then a range with two ends, then a hash."""
    if any(one.op == "=" for one in parts):
        return 1 if hashed else 3
    return 2 if any(one.below for one in parts) and any(one.above for one in parts) else 0


def _range(parts: list[SolvedComparison]) -> Range:
    """One range that contains what all comparisons allow; of several low (or high) ends it uses the first."""
    low: Expression | None = None
    high: Expression | None = None
    for one in sorted(parts, key=lambda part: part.op != "="):
        below, above = _ends(one)
        low = below if low is None else low
        high = above if high is None else high
    return low, high


def _ends(solved: SolvedComparison) -> Range:
    """The ends of the key's range, as expressions: inverts the operators that are applied to the key."""
    low = solved.value if solved.op in _BELOW else None
    high = solved.value if solved.op in _ABOVE else None
    for step in solved.path:
        low, high = _inverted(step, low, high)
    return low, high


def _inverted(step: Inversion, low: Expression | None, high: Expression | None) -> Range:
    """The range before one operator was applied."""
    if step.op == "abs":
        return _negated(high), high
    if step.op == "negate":
        return _negated(high), _negated(low)
    operand = step.operand
    assert operand is not None
    if step.op == "a * key":
        assert isinstance(operand, Number)
        # A product that rounds to zero may belong to a key that is not near zero.
        low, high = _of("-", low, _TINY), _of("+", high, _TINY)
        ends = (high, low) if operand.value < 0 else (low, high)
        inverse = Number(Fraction(1) / operand.value, True, _NOWHERE)
        return _of("*", ends[0], inverse), _of("*", ends[1], inverse)
    if step.op == "a - key":
        return _from(operand, high), _from(operand, low)
    op = "+" if step.op == "key - a" else "-"
    return _of(op, low, operand), _of(op, high, operand)


def _negated(end: Expression | None) -> Expression | None:
    return None if end is None else Negate(end, _NOWHERE)


def _of(op: Any, end: Expression | None, operand: Expression) -> Expression | None:
    return None if end is None else Arithmetic(op, end, operand, _NOWHERE)


def _from(operand: Expression, end: Expression | None) -> Expression | None:
    return None if end is None else Arithmetic("-", operand, end, _NOWHERE)
