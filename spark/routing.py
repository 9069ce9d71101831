"""Which rows go where: a route's ranges as Spark expressions in doubles, and *cells*, the places of a spread join.

Rows of the home side go to the one cell that their key lies in; rows of the other side to every cell that one of their
ranges touches. So each pair meets in exactly one cell, the home row's, and a cell knows all partners of its home rows.
A cell whose key is a heavy hitter is split in several *ways*: home rows go to one of them by a hash of the whole row
and the number of their partition, the others to all.

All is done in doubles by the JVM, without Python. To turn a key into a double keeps its order, so home rows need no
care. Ends are searched a little wider than computed: by `SLACK` of the sum of all magnitudes that went into them, which
is more than `MOST_OPERATIONS` roundings can amount to. An end that comes to NaN is no end.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import reduce

from pyspark.sql import Column
from pyspark.sql import functions as fn
from pyspark.sql import types as ty

from millrace import outline as ol
from millrace.spark.columns import column

SLACK = 2.0**-44
MOST_OPERATIONS = 256
LEAST = 1e-300
"""The slack of ends near zero."""
NS_PER_US = 1000
US_PER_DAY = 86_400_000_000


def as_double(name: str, data_type: ty.DataType) -> Column:
    """A key column as a double: numbers as they are, times in microseconds since 1970."""
    given = column(name)
    if isinstance(data_type, ty.TimestampType):
        return fn.unix_micros(given).cast("double")
    if isinstance(data_type, ty.DateType):
        return fn.unix_date(given).cast("double") * fn.lit(float(US_PER_DAY))
    if isinstance(data_type, ty.TimestampNTZType):
        day = fn.unix_date(given.cast("date")).cast("double") * fn.lit(float(US_PER_DAY))
        minutes = (fn.hour(given) * 60 + fn.minute(given)).cast("double") * fn.lit(60e6)
        return day + minutes + fn.extract(fn.lit("SECOND"), given).cast("double") * fn.lit(1e6)
    return given.cast("double")


@dataclass(frozen=True)
class Number:
    """A value in doubles, a bound of all magnitudes on the way to it, and the operations that made it."""

    value: Column
    magnitude: Column
    operations: int = 1


def evaluate(node: ol.Expression, schema: ty.StructType) -> Number:
    """An expression of one side's columns."""
    if isinstance(node, ol.Column):
        value = as_double(node.name, schema[node.name].dataType)
        return Number(value, fn.abs(value))
    if isinstance(node, ol.Number | ol.Instant | ol.Duration):
        return _constant(node)
    if isinstance(node, ol.Negate | ol.Absolute):
        inner = evaluate(node.operand, schema)
        changed = -inner.value if isinstance(node, ol.Negate) else fn.abs(inner.value)
        return Number(changed, inner.magnitude, inner.operations)
    left, right = evaluate(node.left, schema), evaluate(node.right, schema)
    operations = left.operations + right.operations + 1
    if node.op == "*":
        return Number(left.value * right.value, left.magnitude * right.magnitude, operations)
    value = left.value + right.value if node.op == "+" else left.value - right.value
    return Number(value, left.magnitude + right.magnitude, operations)


def _constant(node: ol.Number | ol.Instant | ol.Duration) -> Number:
    try:
        value = float(node.value) if isinstance(node, ol.Number) else node.ns / NS_PER_US
    except OverflowError:
        value = math.inf
    return Number(fn.lit(value), fn.lit(abs(value)))


def range_of(given: ol.Range, schema: ty.StructType) -> tuple[Column, Column]:
    """A range of the home side's key for each row of the other side, wide enough for every rounding."""
    low = _end(given[0], schema, lower=True)
    high = _end(given[1], schema, lower=False)
    return low, high


def _end(node: ol.Expression | None, schema: ty.StructType, lower: bool) -> Column:
    endless = fn.lit(-math.inf if lower else math.inf)
    if node is None:
        return endless
    number = evaluate(node, schema)
    if number.operations > MOST_OPERATIONS:
        return endless
    slack = number.magnitude * fn.lit(SLACK) + fn.lit(LEAST)
    end = number.value - slack if lower else number.value + slack
    return fn.when(fn.isnan(end), endless).otherwise(end)


@dataclass(frozen=True)
class Cells:
    """Ranges of a key: cell 0 is all below `bounds[0]`, cell i + 1 begins at `bounds[i]`; each has some `ways`."""

    bounds: tuple[float, ...]
    ways: tuple[int, ...]

    @property
    def places(self) -> int:
        """How many places there are in all: one partition each."""
        return sum(self.ways)

    def first(self, key: Column) -> Column:
        """The first place of the cell that a key lies in."""
        starts = [sum(self.ways[:i]) for i in range(len(self.ways))]
        return _tree(key, self.bounds, [fn.lit(n) for n in starts])

    def last(self, key: Column) -> Column:
        """The last place of that cell."""
        ends = [sum(self.ways[: i + 1]) - 1 for i in range(len(self.ways))]
        return _tree(key, self.bounds, [fn.lit(n) for n in ends])

    def home(self, key: Column, row: Callable[[], Column]) -> Column:
        """The place of a home row; `row` gives a number to deal it by, for cells with several ways."""
        if max(self.ways) == 1:
            return self.first(key)
        number = row()
        starts = [sum(self.ways[:i]) for i in range(len(self.ways))]
        return _tree(
            key,
            self.bounds,
            [
                fn.lit(n) if w == 1 else (fn.lit(n) + fn.pmod(number, fn.lit(w)).cast("int"))
                for n, w in zip(starts, self.ways, strict=True)
            ],
        )

    def guests(self, ranges: Sequence[tuple[Column, Column]]) -> Column:
        """All places that a row's ranges touch, each once, as an array; an empty range touches none."""
        arrays = [
            fn.when(low <= high, fn.sequence(self.first(low), self.last(high))).otherwise(fn.array().cast("array<int>"))
            for low, high in ranges
        ]
        return reduce(fn.array_union, arrays)


def _tree(key: Column, bounds: Sequence[float], values: Sequence[Column]) -> Column:
    """The value of the range that a key lies in, found by halving."""
    if not bounds:
        return values[0]
    middle = len(bounds) // 2
    below = _tree(key, bounds[:middle], values[: middle + 1])
    above = _tree(key, bounds[middle + 1 :], values[middle + 1 :])
    return fn.when(key < fn.lit(bounds[middle]), below).otherwise(above)
