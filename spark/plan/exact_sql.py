"""A condition as Spark SQL that decides every pair exactly as the runtime does, where Spark's types allow it.

A band of two integers or two times is two comparisons, `value >= centre - c AND value <= centre + c`, whose ends stop
at the ends of 64 bits. Other terms of integers and times are computed in 64 bits with `try_` functions; where a step
overflows, the comparison is made again in decimals of 38 digits, and a condition whose values may need more has no such
SQL. Floats are IEEE doubles,
and a NaN is null. Text, binary, booleans and decimals are compared by `=` and `<>`. No SQL, so that joins go another
way: integers beside floats in one comparison, fractions beside integers, timestamps without a zone, text literals,
collations, an OR of bands.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

from pyspark.sql import types as ty

from millrace.join_parts.routes import (
    Absolute,
    Arithmetic,
    BoundCondition,
    Column,
    Comparison,
    Duration,
    Expression,
    Instant,
    Negate,
    Number,
)
from millrace.spark.plan.columns import quoted
from millrace.spark.plan.linear import Linear, linear

MAX_DECIMAL = 10**38 - 1
_MIRRORED = {">": "<", ">=": "<="}
_TRY = {"+": "try_add", "-": "try_subtract", "*": "try_multiply"}
_PLAIN = (ty.BinaryType, ty.BooleanType)
_BITS: dict[type[ty.DataType], int] = {ty.ByteType: 8, ty.ShortType: 16, ty.IntegerType: 32, ty.LongType: 64}
_US_PER_DAY = 86_400_000_000
_LARGEST = 2**63 - 1
_WITHIN: dict[str, tuple[int | None, int | None]] = {
    "<": (None, -1),
    "<=": (None, 0),
    "=": (0, 0),
    ">=": (0, None),
    ">": (1, None),
}
"""Where an integer is if it is so compared with zero: both ends inclusive, None if open."""
Schemas = dict[str, ty.StructType]
"""The columns of each side, by r and s."""


@dataclass(frozen=True)
class _Exact:
    """A value in 64 bits (null where it overflows), the same in decimals, and the most that its magnitude can be."""

    fast: str
    wide: str
    most: int


@dataclass(frozen=True)
class Terms:
    """`equal`: pairs of plain columns (r's, s's) that an equi-join can use; `rest`: SQL of all other terms."""

    equal: tuple[tuple[str, str], ...]
    rest: tuple[str, ...]


class _NoSql(Exception):
    """This condition has no exact SQL."""


def named(side: str, name: str) -> str:
    """A column of the joined frame, quoted: `r_<name>` or `s_<name>`."""
    return quoted(f"{side}_{name}")


def exact_terms(condition: BoundCondition, schemas: Schemas) -> Terms | None:
    """The terms of a condition over columns `r_<name>` and `s_<name>`; None if there is no exact SQL."""
    if len(condition.bands) != 1:
        return None
    equal: list[tuple[str, str]] = []
    rest: list[str] = []
    try:
        for term in condition.bands[0]:
            pair = _equal_columns(term, schemas)
            if pair is None:
                rest.append(_comparison(term, schemas))
            else:
                equal.append(pair)
                if isinstance(schemas["r"][pair[0]].dataType, ty.FloatType | ty.DoubleType):
                    rest.append(f"NOT isnan({named('r', pair[0])})")  # to Spark, NaN equals NaN
    except _NoSql:
        return None
    return Terms(tuple(equal), tuple(rest))


def _kind(data_type: ty.DataType) -> str:
    """The kind of a column: values of one kind compare exactly in Spark."""
    if isinstance(data_type, ty.IntegralType):
        return "integer"
    if isinstance(data_type, ty.FloatType | ty.DoubleType):
        return "float"
    if isinstance(data_type, ty.TimestampType | ty.DateType):
        return data_type.typeName()
    if isinstance(data_type, ty.DecimalType):
        return f"decimal with {data_type.scale} digits after the point"
    if isinstance(data_type, _PLAIN) or data_type == ty.StringType():
        return data_type.typeName()
    raise _NoSql


def _column_kind(node: Expression, schemas: Schemas) -> str | None:
    return _kind(schemas[node.side][node.name].dataType) if isinstance(node, Column) else None


def _equal_columns(term: Comparison, schemas: Schemas) -> tuple[str, str] | None:
    """The columns of `r.a = s.b`, if Spark's own equality is exact."""
    left, right = term.left, term.right
    if term.op != "=" or not isinstance(left, Column) or not isinstance(right, Column) or left.side == right.side:
        return None
    if _column_kind(left, schemas) != _column_kind(right, schemas):
        return None
    names = {left.side: left.name, right.side: right.name}
    return names["r"], names["s"]


def _comparison(term: Comparison, schemas: Schemas) -> str:
    kinds = {_column_kind(column, schemas) for column in _columns(term)}
    if kinds == {"float"}:
        values = _double(term.left, schemas), _double(term.right, schemas)
        known = " AND ".join(f"NOT isnan({value})" for value in values)
        return f"({known} AND {values[0]} {term.op} {values[1]})"
    if kinds <= {"integer"} or kinds <= {"timestamp", "date"}:
        left, right = _exact(term.left, schemas), _exact(term.right, schemas)
        near = _near(term, schemas)
        if near is not None:
            return near
        fast = f"{left.fast} {term.op} {right.fast}"
        if "try_" not in fast:
            return f"({fast})"
        return f"coalesce({fast}, {left.wide} {term.op} {right.wide})"
    if len(kinds) == 1 and term.op in ("=", "<>") and isinstance(term.left, Column) and isinstance(term.right, Column):
        return f"({_name(term.left)} {term.op} {_name(term.right)})"
    raise _NoSql


def _columns(node: Expression | Comparison) -> list[Column]:
    if isinstance(node, Column):
        return [node]
    if isinstance(node, Negate | Absolute):
        return _columns(node.operand)
    if isinstance(node, Arithmetic | Comparison):
        return _columns(node.left) + _columns(node.right)
    return []


def _name(column: Column) -> str:
    return named(column.side, column.name)


def _near(term: Comparison, schemas: Schemas) -> str | None:
    """`a` between `b + low` and `b + high` for two integers or times; None if the term is not of this form."""
    found = _difference(term)
    if found is None:
        return None
    gap, low, high = found
    columns: dict[tuple[str, str], Column] = {(one.side, one.name): one for one in _columns(term)}
    if columns.keys() != gap.factors.keys():  # a column that cancels out must still be known: null - null is null
        return None
    if sorted(gap.factors.values()) != [-1, 1] or any(abs(end) > _LARGEST for end in (low, high) if end is not None):
        return None
    if any(end is not None and end.denominator != 1 for end in (low, high)):
        return None
    by_factor = {int(factor): columns[key] for key, factor in gap.factors.items()}
    value, centre = (_exact_column(by_factor[sign], schemas) for sign in (1, -1))
    parts = []
    # An end that would stop at the very value that it must exclude is compared strictly.
    if low is not None:
        strict = low > 0
        parts.append(f"{value.fast} {'>' if strict else '>='} {_shifted(centre, int(low) - strict)}")
    if high is not None:
        strict = high < 0
        parts.append(f"{value.fast} {'<' if strict else '<='} {_shifted(centre, int(high) + strict)}")
    return f"({' AND '.join(parts)})"


def _difference(term: Comparison) -> tuple[Linear, Fraction | None, Fraction | None] | None:
    """A sum of columns, and between which ends it is if the term is true; the ends are inclusive, None if open."""
    for left, right, op in ((term.left, term.right, term.op), (term.right, term.left, _MIRRORED.get(term.op))):
        most = linear(right)
        if isinstance(left, Absolute) and op in ("<", "<=") and most is not None and not most.factors:
            inner = linear(left.operand)
            end = most.constant - (op == "<")
            return None if inner is None else (inner, -end - inner.constant, end - inner.constant)
    left_sum, right_sum = linear(term.left), linear(term.right)
    if left_sum is None or right_sum is None or term.op not in _WITHIN:
        return None
    gap = left_sum.plus(right_sum, -1)
    low, high = (None if end is None else end - gap.constant for end in _WITHIN[term.op])
    return gap, low, high


def _shifted(centre: _Exact, by: int) -> str:
    """`centre + by`, or the end of 64 bits that it would pass."""
    if not by:
        return centre.fast
    plain = f"({centre.fast} {'+' if by > 0 else '-'} {abs(by)}L)"
    if centre.most + abs(by) <= _LARGEST:
        return plain
    if by > 0:
        return f"if({centre.fast} > {_LARGEST - by}L, {_LARGEST}L, {plain})"
    return f"if({centre.fast} < {-_LARGEST - 1 - by}L, {-_LARGEST - 1}L, {plain})"


def _exact(node: Expression, schemas: Schemas) -> _Exact:
    """An expression of integers, or of times in microseconds."""
    if isinstance(node, Column):
        return _exact_column(node, schemas)
    if isinstance(node, Number | Instant | Duration):
        value = node.value if isinstance(node, Number) else Fraction(node.ns, 1000)
        if value.denominator != 1 or abs(value) >= 2**63:
            raise _NoSql
        return _Exact(f"({int(value)}L)", f"cast('{int(value)}' AS decimal(38, 0))", abs(int(value)))
    if isinstance(node, Negate | Absolute):
        inner = _exact(node.operand, schemas)
        negative = f"try_subtract(0L, {inner.fast})"
        if isinstance(node, Negate):
            return _Exact(negative, f"(-{inner.wide})", inner.most)
        return _Exact(f"if({inner.fast} < 0L, {negative}, {inner.fast})", f"abs({inner.wide})", inner.most)
    if not isinstance(node, Arithmetic):
        raise _NoSql
    left, right = _exact(node.left, schemas), _exact(node.right, schemas)
    most = left.most * right.most if node.op == "*" else left.most + right.most
    if most > MAX_DECIMAL:
        raise _NoSql
    wide = f"cast({left.wide} {node.op} {right.wide} AS decimal(38, 0))"
    if most < 2**63:
        return _Exact(f"({left.fast} {node.op} {right.fast})", wide, most)
    return _Exact(f"{_TRY[node.op]}({left.fast}, {right.fast})", wide, most)


def _exact_column(node: Column, schemas: Schemas) -> _Exact:
    name, data_type = _name(node), schemas[node.side][node.name].dataType
    if isinstance(data_type, ty.TimestampType):
        fast, bits = f"unix_micros({name})", 64
    elif isinstance(data_type, ty.DateType):
        fast, bits = f"(bigint(unix_date({name})) * {_US_PER_DAY}L)", 64
    else:
        fast, bits = f"bigint({name})", _BITS[type(data_type)]
    return _Exact(fast, f"cast({fast} AS decimal(38, 0))", 2 ** (bits - 1))


def _double(node: Expression, schemas: Schemas) -> str:
    """An expression of floats; a literal is the nearest double, as in the runtime."""
    if isinstance(node, Column):
        return f"double({_name(node)})"
    if isinstance(node, Number):
        try:
            value = float(node.value)
        except OverflowError:
            raise _NoSql from None
        if not node.decimal and Fraction(value) != node.value:
            raise _NoSql  # compared as an exact number
        return f"({value!r}D)"
    if isinstance(node, Negate):
        return f"(-{_double(node.operand, schemas)})"
    if isinstance(node, Absolute):
        return f"abs({_double(node.operand, schemas)})"
    if not isinstance(node, Arithmetic) or not _columns(node):
        raise _NoSql  # a sum of literals is an exact number
    return f"({_double(node.left, schemas)} {node.op} {_double(node.right, schemas)})"
