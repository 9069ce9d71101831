"""Which rows go where: a route's ranges as Spark SQL in doubles, and *cells*, the places of a spread join.

Rows of the home side go to the one cell that their key lies in; rows of the other side to every cell that one of their
ranges touches. So each pair meets in exactly one cell, the home row's, and a cell knows all partners of its home rows.
A cell whose key is a heavy hitter is split in several *ways*: home rows go to one of them by a hash of the whole row
and the number of their partition, the others to all.

All is done in doubles by the JVM, without Python. To turn a key into a double keeps its order, so home rows need no
care. Ends are searched a little wider than computed: by `SLACK` of the sum of all magnitudes that went into them, which
is more than `MOST_OPERATIONS` roundings can amount to. An end that comes to NaN is no end.

Expressions are made as text: a `Column` costs some calls to the JVM for each of its operations, text one in all.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import reduce

from pyspark.sql import types as ty

from millrace.join_parts import routes as ol
from millrace.spark.plan.columns import quoted

SLACK = 2.0**-44
MOST_OPERATIONS = 256
LEAST = 1e-300
"""The slack of ends near zero."""
NS_PER_US = 1000
US_PER_DAY = 86_400_000_000


def as_double(name: str, data_type: ty.DataType) -> str:
    """A key column as a double: numbers as they are, times in microseconds since 1970."""
    given = quoted(name)
    if isinstance(data_type, ty.TimestampType):
        return f"double(unix_micros({given}))"
    if isinstance(data_type, ty.DateType):
        return f"(double(unix_date({given})) * {_literal(US_PER_DAY)})"
    if isinstance(data_type, ty.TimestampNTZType):
        day = f"double(unix_date(date({given}))) * {_literal(US_PER_DAY)}"
        minutes = f"double(hour({given}) * 60 + minute({given})) * {_literal(60e6)}"
        return f"({day} + {minutes} + double(extract(SECOND FROM {given})) * {_literal(1e6)})"
    return f"double({given})"


def _literal(value: float) -> str:
    """A double as SQL has it."""
    if math.isinf(value):
        return f"double('{'-' if value < 0 else ''}Infinity')"
    return f"({float(value)!r}D)"


@dataclass(frozen=True)
class Number:
    """A value in doubles, a bound of all magnitudes on the way to it, and the operations that made it."""

    value: str
    magnitude: str
    operations: int = 1


def evaluate(node: ol.Expression, schema: ty.StructType) -> Number:
    """An expression of one side's columns."""
    if isinstance(node, ol.Column):
        value = as_double(node.name, schema[node.name].dataType)
        return Number(value, f"abs({value})")
    if isinstance(node, ol.Number | ol.Instant | ol.Duration):
        return _constant(node)
    if isinstance(node, ol.Negate | ol.Absolute):
        inner = evaluate(node.operand, schema)
        changed = f"(-{inner.value})" if isinstance(node, ol.Negate) else f"abs({inner.value})"
        return Number(changed, inner.magnitude, inner.operations)
    left, right = evaluate(node.left, schema), evaluate(node.right, schema)
    operations = left.operations + right.operations + 1
    grown = "*" if node.op == "*" else "+"
    return Number(
        f"({left.value} {node.op} {right.value})", f"({left.magnitude} {grown} {right.magnitude})", operations
    )


def _constant(node: ol.Number | ol.Instant | ol.Duration) -> Number:
    try:
        value = float(node.value) if isinstance(node, ol.Number) else node.ns / NS_PER_US
    except OverflowError:
        value = math.inf
    return Number(_literal(value), _literal(abs(value)))


def range_of(given: ol.Range, schema: ty.StructType) -> tuple[str, str]:
    """A range of the home side's key for each row of the other side, wide enough for every rounding."""
    low = _end(given[0], schema, lower=True)
    high = _end(given[1], schema, lower=False)
    return low, high


def _end(node: ol.Expression | None, schema: ty.StructType, lower: bool) -> str:
    endless = _literal(-math.inf if lower else math.inf)
    if node is None:
        return endless
    number = evaluate(node, schema)
    if number.operations > MOST_OPERATIONS:
        return endless
    slack = f"({number.magnitude} * {_literal(SLACK)} + {_literal(LEAST)})"
    # nanvl: its second argument where the first is NaN, null where that is null.
    return f"nanvl({number.value} {'-' if lower else '+'} {slack}, {endless})"


@dataclass(frozen=True)
class Cells:
    """Ranges of a key: cell 0 is all below `bounds[0]`, cell i + 1 begins at `bounds[i]`; each has some `ways`."""

    bounds: tuple[float, ...]
    ways: tuple[int, ...]

    @property
    def places(self) -> int:
        """How many places there are in all: one partition each."""
        return sum(self.ways)

    def first(self, key: str) -> str:
        """The first place of the cell that a key lies in."""
        return _tree(key, self.bounds, [str(n) for n in self._starts()])

    def last(self, key: str) -> str:
        """The last place of that cell."""
        ends = [start + ways - 1 for start, ways in zip(self._starts(), self.ways, strict=True)]
        return _tree(key, self.bounds, [str(n) for n in ends])

    def _starts(self) -> list[int]:
        return [sum(self.ways[:i]) for i in range(len(self.ways))]

    def home(self, key: str, row: Callable[[], str]) -> str:
        """The place of a home row; `row` gives a number to deal it by, for cells with several ways."""
        if max(self.ways) == 1:
            return self.first(key)
        number = row()
        dealt = [
            str(n) if w == 1 else f"({n} + int(pmod({number}, {w})))"
            for n, w in zip(self._starts(), self.ways, strict=True)
        ]
        return _tree(key, self.bounds, dealt)

    def guests(self, ranges: Sequence[tuple[str, str]]) -> str:
        """All places that a row's ranges touch, each once, as an array; an empty range touches none."""
        arrays = [
            f"CASE WHEN {low} <= {high} THEN sequence({self.first(low)}, {self.last(high)}) "
            f"ELSE CAST(array() AS ARRAY<INT>) END"
            for low, high in ranges
        ]
        return reduce(lambda one, another: f"array_union({one}, {another})", arrays)


def _tree(key: str, bounds: Sequence[float], values: Sequence[str]) -> str:
    """The value of the range that a key lies in, found by halving."""
    if not bounds:
        return values[0]
    middle = len(bounds) // 2
    below = _tree(key, bounds[:middle], values[: middle + 1])
    above = _tree(key, bounds[middle + 1 :], values[middle + 1 :])
    return f"CASE WHEN {key} < {_literal(bounds[middle])} THEN {below} ELSE {above} END"
