"""Which rows go to which shard: a route's ranges as Spark SQL in doubles, and *cells*, ranges of a key.

Rows of the home side go to the one cell that contains their key. Rows of the other side (*guests*) go to every cell
that one of their ranges touches. So each pair meets in exactly one cell, the home row's, and a cell has all partners of
its home rows. A cell whose key is a heavy hitter is split into several *ways*: a hash of the row and its partition's
number sends a home row to one of them; guest rows go to all. Each way of each cell is one shard.

Text, binary, booleans and decimals are routed by a hash, since they are only compared for equality.

The JVM computes everything in doubles, without Python. Converting a key to a double keeps the order of keys, so home
rows need no margin. The ends of ranges are widened by `SLACK` times the sum of all magnitudes in them, which
is more than `MAX_OPERATIONS` roundings can add up to. A NaN end counts as unbounded.

Expressions are built as SQL text: a `Column` needs several JVM calls for each operation, text needs one in total.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import reduce

from pyspark.sql import types as ty

from millrace.join_parts import routes
from millrace.spark.plan.columns import quoted

SLACK = 2.0**-44
MAX_OPERATIONS = 256
MIN_SLACK = 1e-300
"""The slack for ends near zero."""
HASHED = (ty.StringType, ty.BinaryType, ty.BooleanType)
NS_PER_US = 1000
US_PER_DAY = 86_400_000_000


def as_double(name: str, data_type: ty.DataType) -> str:
    """A key column as a double: numbers unchanged, times in microseconds since 1970, all else as a hash.

    Equal values of a hashed route have equal hashes, whatever the precision of decimals; rounding the hash to a double
    only makes more values share a cell.
    """
    given = quoted(name)
    if isinstance(data_type, ty.DecimalType):
        return f"double(xxhash64(cast({given} AS decimal(38, {data_type.scale}))))"
    if isinstance(data_type, HASHED):
        return f"double(xxhash64({given}))"
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
    """A double as an SQL literal."""
    if math.isinf(value):
        return f"double('{'-' if value < 0 else ''}Infinity')"
    return f"({float(value)!r}D)"


@dataclass(frozen=True)
class Number:
    """A value in doubles, a bound on all magnitudes in its computation, and the number of operations."""

    value: str
    magnitude: str
    operations: int = 1


def evaluate(node: routes.Expression, schema: ty.StructType) -> Number:
    """Translate an expression of one side's columns."""
    if isinstance(node, routes.Column):
        value = as_double(node.name, schema[node.name].dataType)
        return Number(value, f"abs({value})")
    if isinstance(node, routes.Number | routes.Instant | routes.Duration):
        return _constant(node)
    if isinstance(node, routes.Negate | routes.Absolute):
        inner = evaluate(node.operand, schema)
        changed = f"(-{inner.value})" if isinstance(node, routes.Negate) else f"abs({inner.value})"
        return Number(changed, inner.magnitude, inner.operations)
    assert isinstance(node, routes.Arithmetic)  # a route has no text literals
    left, right = evaluate(node.left, schema), evaluate(node.right, schema)
    operations = left.operations + right.operations + 1
    grown = "*" if node.op == "*" else "+"
    return Number(
        f"({left.value} {node.op} {right.value})", f"({left.magnitude} {grown} {right.magnitude})", operations
    )


def _constant(node: routes.Number | routes.Instant | routes.Duration) -> Number:
    try:
        value = float(node.value) if isinstance(node, routes.Number) else node.ns / NS_PER_US
    except OverflowError:
        value = math.inf
    return Number(_literal(value), _literal(abs(value)))


def range_of(given: routes.Range, schema: ty.StructType) -> tuple[str, str]:
    """A range of the home side's key for each guest row, widened to allow for rounding."""
    low = _end(given[0], schema, lower=True)
    high = _end(given[1], schema, lower=False)
    return low, high


def _end(node: routes.Expression | None, schema: ty.StructType, lower: bool) -> str:
    unbounded = _literal(-math.inf if lower else math.inf)
    if node is None:
        return unbounded
    number = evaluate(node, schema)
    if number.operations > MAX_OPERATIONS:
        return unbounded
    slack = f"({number.magnitude} * {_literal(SLACK)} + {_literal(MIN_SLACK)})"
    # nanvl gives its second argument if the first is NaN, and null if the first is null.
    return f"nanvl({number.value} {'-' if lower else '+'} {slack}, {unbounded})"


@dataclass(frozen=True)
class Cells:
    """Ranges of a key: cell 0 is below `bounds[0]`, cell i + 1 begins at `bounds[i]`; cell i has `ways[i]` shards."""

    bounds: tuple[float, ...]
    ways: tuple[int, ...]

    @property
    def shards(self) -> int:
        """The number of shards: one partition each."""
        return sum(self.ways)

    def first(self, key: str) -> str:
        """SQL: the first shard of the cell that contains a key."""
        return _tree(key, self.bounds, [str(n) for n in self._starts()])

    def last(self, key: str) -> str:
        """SQL: the last shard of that cell."""
        ends = [start + ways - 1 for start, ways in zip(self._starts(), self.ways, strict=True)]
        return _tree(key, self.bounds, [str(n) for n in ends])

    def _starts(self) -> list[int]:
        return [sum(self.ways[:i]) for i in range(len(self.ways))]

    def home(self, key: str, row: Callable[[], str]) -> str:
        """SQL: the shard of a home row; `row` returns the hash that selects one of several ways."""
        if max(self.ways) == 1:
            return self.first(key)
        number = row()
        assigned = [
            str(n) if w == 1 else f"({n} + int(pmod({number}, {w})))"
            for n, w in zip(self._starts(), self.ways, strict=True)
        ]
        return _tree(key, self.bounds, assigned)

    def guests(self, ranges: Sequence[tuple[str, str]]) -> str:
        """SQL: an array of all shards that a guest row's ranges touch, each once; none for an empty range."""
        arrays = [
            f"CASE WHEN {low} <= {high} THEN sequence({self.first(low)}, {self.last(high)}) "
            f"ELSE CAST(array() AS ARRAY<INT>) END"
            for low, high in ranges
        ]
        return reduce(lambda one, another: f"array_union({one}, {another})", arrays)


@dataclass(frozen=True)
class Blocks:
    """Cells of one key, `outer`, each cut into cells of a second key: a guest row goes to the blocks that may match.

    `second`: the route of the second key. So two inequalities exclude blocks together that one of them would not.
    """

    outer: Cells
    inner: tuple[Cells, ...]
    second: routes.Route

    @property
    def shards(self) -> int:
        """The number of shards: one partition each."""
        return sum(one.shards for one in self.inner)

    def _starts(self) -> list[int]:
        return [sum(one.shards for one in self.inner[:i]) for i in range(len(self.inner))]

    def home(self, key: str, second: str, row: Callable[[], str]) -> str:
        """SQL: the shard of a home row."""
        inside = [f"({n} + {one.home(second, row)})" for n, one in zip(self._starts(), self.inner, strict=True)]
        return _tree(key, self.outer.bounds, inside)

    def guests(self, first: tuple[str, str], second: tuple[str, str]) -> str:
        """SQL: an array of all shards of the blocks that a guest row's two ranges touch."""
        low, high = (-math.inf, *self.outer.bounds), (*self.outer.bounds, math.inf)
        arrays = []
        for i, (start, one) in enumerate(zip(self._starts(), self.inner, strict=True)):
            touched = (
                f"{first[0]} <= {first[1]} AND {first[1]} >= {_literal(low[i])} AND {first[0]} <= {_literal(high[i])}"
            )
            inside = f"transform({one.guests([second])}, shard -> shard + {start})"
            arrays.append(f"CASE WHEN {touched} THEN {inside} ELSE CAST(array() AS ARRAY<INT>) END")
        return f"flatten(array({', '.join(arrays)}))"


def _tree(key: str, bounds: Sequence[float], values: Sequence[str]) -> str:
    """SQL: the value of the range that contains a key, by binary search."""
    if not bounds:
        return values[0]
    middle = len(bounds) // 2
    below = _tree(key, bounds[:middle], values[: middle + 1])
    above = _tree(key, bounds[middle + 1 :], values[middle + 1 :])
    return f"CASE WHEN {key} < {_literal(bounds[middle])} THEN {below} ELSE {above} END"
