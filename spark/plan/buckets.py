"""When Spark's own equi-join can do a join: over equal columns, and over *buckets* of a band's column.

A row of the home side is in the one bucket that contains its key. A row of the other side (a *guest*) is copied to
every bucket that its band touches; so each pair meets once. Exact SQL (`exact_sql.py`) decides every pair that meets.
No row passes through Python, but all pairs of a bucket are compared: a bucket that is full on both sides is slow, so
samples estimate the comparisons first.

Limits: a band has a constant width, in one column of each side. Buckets are computed in doubles. Keys beyond
`MAX_BUCKETS` buckets from zero share the outermost ones, so that `MARGIN` covers every rounding of at most
`MAX_OPERATIONS` operations.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from pyspark.sql import types as ty

from millrace.join_parts.routes import (
    Arithmetic,
    BoundCondition,
    Expression,
    Negate,
    Range,
)
from millrace.spark.plan.columns import quoted
from millrace.spark.plan.exact_sql import Schemas, Terms, exact_terms
from millrace.spark.plan.hows import other_side
from millrace.spark.plan.linear import linear
from millrace.spark.plan.routing import HASHED, as_double
from millrace.spark.plan.sampling import Sample

MAX_BUCKETS, MARGIN, MAX_OPERATIONS = 2.0**40, 2.0**-8, 8
MAX_COPIES = 8
"""A guest row is in at most about this many buckets."""
Doubles = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Band:
    """The partners of a guest row have a home `column` between `factor * guest + low` and `factor * guest + high`."""

    column: str
    guest: str
    factor: float
    low: float
    high: float

    @property
    def width(self) -> float:
        """The length of the band."""
        return self.high - self.low


@dataclass(frozen=True)
class BucketTerms:
    """A condition that buckets can serve: its exact terms, and for each home side its band, if it has one."""

    terms: Terms
    bands: dict[str, Band | None]

    def homes(self) -> list[str]:
        """The sides that can be home: all if columns are equal, else those with a band."""
        return [side for side in ("r", "s") if self.terms.equal or self.bands[side] is not None]


@dataclass(frozen=True)
class Buckets:
    """The chosen buckets; `width` 0: no band, only equal columns. `compared`: pairs that meet, by the sample."""

    terms: BucketTerms
    home: str
    width: float
    compared: float

    @property
    def band(self) -> Band | None:
        """The band whose column makes the buckets."""
        return self.terms.bands[self.home] if self.width else None

    def describe(self) -> str:
        """What makes the buckets, for `ms.explain`."""
        parts = [f"r.{r} = s.{s}" for r, s in self.terms.terms.equal]
        if self.band is not None:
            parts.append(f"{self.home}.{self.band.column} in steps of {self.width:g}")
        return ", ".join(parts)


def bucket_terms(condition: BoundCondition, schemas: Schemas) -> BucketTerms | None:
    """What buckets can use of a condition; None if they cannot serve it."""
    terms = exact_terms(condition, schemas)
    if terms is None:
        return None
    found = BucketTerms(terms, {side: _band(condition, schemas, side) for side in ("r", "s")})
    return found if found.homes() else None


def _band(condition: BoundCondition, schemas: Schemas, side: str) -> Band | None:
    """The first band of constant width in one column of each side."""
    for route in condition.routes[side]:  # type: ignore[index]
        if route.hashed or not route.bounded or len(route.ranges) != 1:
            continue
        found = _constant_band(route.column, route.ranges[0])
        if found is None or _shift(schemas[side][found.column].dataType) != _shift(
            schemas[other_side(side)][found.guest].dataType
        ):
            continue
        if found.width > 0 and max(abs(found.low), abs(found.high)) < found.width * MAX_BUCKETS:
            return found
    return None


def _constant_band(column: str, ends: Range) -> Band | None:
    assert ends[0] is not None
    assert ends[1] is not None
    low, high = linear(ends[0]), linear(ends[1])
    if low is None or high is None or max(_operations(end) for end in ends) > MAX_OPERATIONS:
        return None
    if len(low.factors) != 1 or high.factors != low.factors:
        return None
    ((_, guest), factor), *_ = low.factors.items()
    return Band(column, guest, float(factor), float(low.constant), float(high.constant))


def _operations(node: Expression | None) -> int:
    if isinstance(node, Arithmetic):
        return 1 + _operations(node.left) + _operations(node.right)
    return _operations(node.operand) if isinstance(node, Negate) else 0


# The keys of the join, as SQL.


def group_values(terms: Terms, schema: ty.StructType, side: str) -> list[str]:
    """SQL: a side's equal columns, such that values that are equal have one type and one hash."""
    names = [pair[side == "s"] for pair in terms.equal]
    return [_hashable(name, schema[name].dataType) for name in names]


def _hashable(name: str, data_type: ty.DataType) -> str:
    if isinstance(data_type, ty.IntegralType):
        return f"bigint({quoted(name)})"
    if isinstance(data_type, ty.FloatType | ty.DoubleType):
        return f"(double({quoted(name)}) + 0.0D)"  # -0.0 becomes 0.0
    if isinstance(data_type, ty.DecimalType):
        return f"cast({quoted(name)} AS decimal(38, {data_type.scale}))"
    assert isinstance(data_type, (*HASHED, ty.TimestampType, ty.DateType))
    return quoted(name)


def home_bucket(band: Band, width: float, schema: ty.StructType) -> str:
    """SQL: the bucket of a home row."""
    data_type = schema[band.column].dataType
    return _bucket(as_double(band.column, data_type), width, 0.0, _shift(data_type))


def guest_buckets(band: Band, width: float, schema: ty.StructType) -> str:
    """SQL: all buckets of a guest row, as an array."""
    low, high = guest_ends(band, schema)
    shift = _shift(schema[band.guest].dataType)
    return f"sequence({_bucket(low, width, -MARGIN, shift)}, {_bucket(high, width, MARGIN, shift)})"


def guest_ends(band: Band, schema: ty.StructType) -> tuple[str, str]:
    """SQL: the ends of a guest row's band."""
    value = as_double(band.guest, schema[band.guest].dataType)
    scaled = value if band.factor == 1 else f"({value} * ({band.factor!r}D))"
    return f"({scaled} + ({band.low!r}D))", f"({scaled} + ({band.high!r}D))"


def _shift(data_type: ty.DataType) -> str:
    """SQL: what is added to integers, so that few ends are within `MARGIN` of a border, where a copy is needless."""
    return " + 0.5D" if isinstance(data_type, ty.IntegralType) else ""


def _bucket(value: str, width: float, margin: float, shift: str) -> str:
    most = width * MAX_BUCKETS
    inside = f"greatest(({-most!r}D), least(({most!r}D), {value}{shift}))"
    return f"floor({inside} / ({width!r}D) + ({margin!r}D))"


# Estimates.


def sampled_columns(terms: BucketTerms, schema: ty.StructType, side: str) -> list[str]:
    """SQL: what a sample needs of a side: its groups, its key as home, and its ends as guest."""
    wanted = []
    if terms.terms.equal:
        wanted.append(f"double(xxhash64({', '.join(group_values(terms.terms, schema, side))}))")
    own, across = terms.bands[side], terms.bands[other_side(side)]
    if own is not None:
        wanted.append(as_double(own.column, schema[own.column].dataType))
    if across is not None:
        wanted += guest_ends(across, schema)
    return wanted


def compared(terms: BucketTerms, samples: dict[str, Sample], home: str, width: float) -> float:
    """Estimated pairs that meet in a bucket."""
    guest, grouped = other_side(home), bool(terms.terms.equal)
    codes: dict[str, npt.NDArray[Any]] = {}
    for side in (home, guest):
        values = samples[side].values[-len_of(terms, side) :]
        groups = values[0] if grouped else np.zeros(len(values[0]))
        rest = values[grouped:]
        if not width:
            codes[side] = groups
        elif side == home:
            codes[side] = _mixed(groups, np.floor(_clamped(rest[0], width) / width))
        else:
            codes[side] = _copies(groups, rest[-2], rest[-1], width)
    found = {side: np.unique(code, return_counts=True) for side, code in codes.items()}
    _, at, other = np.intersect1d(found[home][0], found[guest][0], assume_unique=True, return_indices=True)
    met = float(np.sum(found[home][1][at].astype(float) * found[guest][1][other]))
    return met * math.prod(one.rows / max(1, len(one.values[0])) for one in samples.values())


def len_of(terms: BucketTerms, side: str) -> int:
    """The number of columns of `sampled_columns`."""
    return bool(terms.terms.equal) + (terms.bands[side] is not None) + 2 * (terms.bands[other_side(side)] is not None)


def _clamped(values: Doubles, width: float) -> Doubles:
    return np.clip(values, -width * MAX_BUCKETS, width * MAX_BUCKETS)


def _mixed(groups: Doubles, buckets: Doubles) -> npt.NDArray[np.int64]:
    """One number for a group and a bucket."""
    with np.errstate(over="ignore"):
        mixed: npt.NDArray[np.int64] = groups.view(np.int64) * np.int64(0x9E3779B97F4A7C1) + buckets.astype(np.int64)
    return mixed


def _copies(groups: Doubles, low: Doubles, high: Doubles, width: float) -> npt.NDArray[np.int64]:
    """The same for every bucket that a guest row is copied to."""
    first, last = (np.floor(_clamped(end, width) / width) for end in (low, high))
    parts = [_mixed(groups[first + step <= last], (first + step)[first + step <= last]) for step in range(MAX_COPIES)]
    return np.concatenate(parts)
