"""What a condition tells before any row is read: which columns it uses, and how rows can be told apart by place.

A *route* is for whoever spreads a join over several places (`millrace.spark`): rows of one side, the route's, are put
in order of one of their columns; each row of the other side knows in which ranges of that column its partners lie. The
ends of those ranges are expressions of the other side's columns, made by turning the comparisons inside out as the
indexes do (`expr/bounds.py`), here without regard to rounding: whoever evaluates them in floating point must
search a little wider. Limit: only comparisons that bound a plain column make a route.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import pyarrow as pa

from millrace.host.base.types import SIDES, Side
from millrace.host.base.words import KeyType
from millrace.host.expr.bounds import Inversion, Solved, solve
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
from millrace.host.expr.plan import bind
from millrace.ingest.arguments import parse_condition
from millrace.ingest.tables import as_schema

__all__ = [
    "Absolute",
    "Arithmetic",
    "Column",
    "Duration",
    "Expression",
    "Instant",
    "Negate",
    "Number",
    "Outline",
    "Range",
    "Route",
    "outline",
]

Range = tuple[Expression | None, Expression | None]
"""The low and the high end, both inclusive; none where there is no end."""
_BELOW, _ABOVE = ("=", ">", ">="), ("=", "<", "<=")
_NOWHERE = (0, 0)
_TINY = Number(Fraction(1, 10**320), True, _NOWHERE)


@dataclass(frozen=True)
class Route:
    """Rows of `side` in order of `column`, and the ranges of it in which partners of the other side's rows lie."""

    side: Side
    column: str
    ranges: tuple[Range, ...]

    @property
    def bounded(self) -> bool:
        """Whether every range has two ends: a band, which is narrow as a rule."""
        return all(low is not None and high is not None for low, high in self.ranges)


@dataclass(frozen=True)
class Outline:
    """A condition bound to two schemas. `columns` are those it uses; `keys` those without which a row matches nothing.

    `routes`: for each side, all ways to put it in order, best first: equalities, then bands, then half-open ranges.
    """

    text: str
    kind: str
    columns: dict[Side, tuple[str, ...]]
    keys: dict[Side, tuple[str, ...]]
    types: dict[tuple[Side, str], KeyType]
    routes: dict[Side, tuple[Route, ...]]


def outline(on: str, r: Any, s: Any) -> Outline:
    """Read a condition for two schemas; whatever is wrong with any of them is raised here.

    >>> import pyarrow as pa
    >>> r, s = pa.schema([("x", pa.int64()), ("a", pa.int64())]), pa.schema([("x", pa.int64())])
    >>> found = outline("abs(r.x - s.x) <= 5 AND r.a > 0", r, s)
    >>> found.kind, found.keys, found.routes["r"][0].column, found.routes["r"][0].bounded
    ('band', {'r': ('x',), 's': ('x',)}, 'x', True)
    """
    condition = parse_condition(on)
    schemas: dict[Side, pa.Schema] = {"r": as_schema(r, "r"), "s": as_schema(s, "s")}
    plan = bind(condition, schemas)
    return Outline(
        condition.text,
        plan.kind,
        {side: condition.columns(side) for side in SIDES},
        {side: _keys(condition, side) for side in SIDES},
        dict(plan.types),
        {side: _routes(condition, side) for side in SIDES},
    )


def _keys(condition: Condition, side: Side) -> tuple[str, ...]:
    """A side's columns in the terms that relate both sides."""
    related = [term for term in condition.comparisons() if len(sides_of(term)) == 2]
    return tuple(dict.fromkeys(c.name for term in related for c in columns_of(term) if c.side == side))


def _routes(condition: Condition, side: Side) -> tuple[Route, ...]:
    if len(condition.bands) > 1:
        return _route_of_bands(condition, side)
    groups: dict[str, list[Solved]] = {}
    for one in _solved(condition.bands[0], side):
        assert isinstance(one.key, Column)
        groups.setdefault(one.key.name, []).append(one)
    ranked = sorted(groups.items(), key=lambda item: -_rank(item[1]))
    return tuple(Route(side, name, (_range(parts),)) for name, parts in ranked)


def _route_of_bands(condition: Condition, side: Side) -> tuple[Route, ...]:
    """Bands of one column: a range each."""
    ranges: list[Range] = []
    column = ""
    for band in condition.bands:
        parts = _solved(band, side)
        if not parts:
            return ()
        assert isinstance(parts[0].key, Column)
        column = parts[0].key.name
        ranges.append(_range(parts))
    return (Route(side, column, tuple(ranges)),)


def _solved(terms: tuple[Comparison, ...], side: Side) -> list[Solved]:
    """The comparisons that bound a column of a side by the other side's columns."""
    related = [solve(term, side, lambda _: "exact") for term in terms if len(sides_of(term)) == 2]
    return [one for one in related if one is not None and one.op != "<>" and isinstance(one.key, Column)]


def _rank(parts: list[Solved]) -> int:
    """An equality keeps partners closest together, then a range with two ends."""
    if any(one.op == "=" for one in parts):
        return 2
    return int(any(one.below for one in parts) and any(one.above for one in parts))


def _range(parts: list[Solved]) -> Range:
    """One range that holds what all comparisons allow: of several ends on one side the first is taken."""
    low: Expression | None = None
    high: Expression | None = None
    for one in sorted(parts, key=lambda part: part.op != "="):
        below, above = _ends(one)
        low = below if low is None else low
        high = above if high is None else high
    return low, high


def _ends(solved: Solved) -> Range:
    """The ends of the key's range, as expressions: the operators on the way to the key, undone."""
    low = solved.value if solved.op in _BELOW else None
    high = solved.value if solved.op in _ABOVE else None
    for step in solved.path:
        low, high = _undone(step, low, high)
    return low, high


def _undone(step: Inversion, low: Expression | None, high: Expression | None) -> Range:
    if step.op == "abs":
        return _negated(high), high
    if step.op == "negate":
        return _negated(high), _negated(low)
    beside = step.beside
    assert beside is not None
    if step.op == "a * key":
        assert isinstance(beside, Number)
        # A product so small that it is rounded to nothing may stand for a key far from nothing.
        low, high = _of("-", low, _TINY), _of("+", high, _TINY)
        ends = (high, low) if beside.value < 0 else (low, high)
        inverse = Number(Fraction(1) / beside.value, True, _NOWHERE)
        return _of("*", ends[0], inverse), _of("*", ends[1], inverse)
    if step.op == "a - key":
        return _from(beside, high), _from(beside, low)
    op = "+" if step.op == "key - a" else "-"
    return _of(op, low, beside), _of(op, high, beside)


def _negated(end: Expression | None) -> Expression | None:
    return None if end is None else Negate(end, _NOWHERE)


def _of(op: Any, end: Expression | None, beside: Expression) -> Expression | None:
    return None if end is None else Arithmetic(op, end, beside, _NOWHERE)


def _from(beside: Expression, end: Expression | None) -> Expression | None:
    return None if end is None else Arithmetic("-", beside, end, _NOWHERE)
