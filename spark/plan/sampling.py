"""A small sample of a frame, and from samples the cells of a spread join.

The rows with the smallest of evenly drawn numbers are a fair sample, found in one pass by the JVM; how small the
largest of them is tells how many rows there are (to a few per cent). Cells are cut so that both sides' rows fill them
evenly; a key that alone would fill more than a cell of home rows is a heavy hitter and gets a cell of its own, in
several ways.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyspark import inheritable_thread_target
from pyspark.sql import DataFrame
from pyspark.sql import functions as fn

from millrace.spark.plan.routing import Cells

ROWS = 4096
"""Rows of a sample."""
SEED = 7
_DRAWN, _PLACE = "__millrace_drawn", "__millrace_place"
HEAVY = 1.5
"""A key is a heavy hitter if it has this many times the home rows of an even cell."""
Doubles = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Sample:
    """Doubles of some rows, one array per column asked for, and about how many rows there are."""

    rows: int
    values: tuple[Doubles, ...]


def sample(frames: Mapping[str, DataFrame], wanted: Mapping[str, Sequence[str]]) -> dict[str, Sample]:
    """Draw one of each frame, by jobs at once; rows with a null or NaN in a column count, but are not in `values`.

    Most of what such a job takes is Spark's own, for planning and starting it, so that two at once take little longer.
    """

    def draw(name: str) -> Sample:
        columns = (fn.expr(value).alias(f"c{i}") for i, value in enumerate(wanted[name]))
        return _sample(_smallest(frames[name]).select(fn.col(_DRAWN).alias("u"), *columns).toArrow(), len(wanted[name]))

    session = next(iter(frames.values())).sparkSession
    with ThreadPoolExecutor(len(frames)) as pool:
        drawn = pool.map(inheritable_thread_target(session)(draw), frames)
        return dict(zip(frames, drawn, strict=True))


def _smallest(frame: DataFrame) -> DataFrame:
    """The rows with the smallest numbers drawn; what is computed of rows is computed of these alone."""
    place = fn.monotonically_increasing_id().bitwiseAND((1 << 33) - 1)
    every = frame.select("*", fn.rand(SEED).alias(_DRAWN), place.alias(_PLACE))
    # Where so many rows came before in its partition alone, a larger number is not among the smallest, all but surely:
    # there would have to be half as many below it as are to be expected. So it need not be sorted.
    some = every.where(fn.col(_DRAWN) * fn.col(_PLACE) < 2 * ROWS)
    return some.orderBy(_DRAWN).limit(ROWS)


def _sample(drawn: pa.Table, width: int) -> Sample:
    u = np.sort(drawn["u"].to_numpy())
    rows = len(u) if len(u) < ROWS else round(ROWS / float(u[-1]))
    values = [drawn[f"c{i}"].to_numpy(zero_copy_only=False).astype(np.float64) for i in range(width)]
    if values:
        known = ~np.logical_or.reduce([np.isnan(v) for v in values])
        values = [v[known] for v in values]
    return Sample(rows, tuple(values))


def cut(home: Sample, guest: Sample | None, places: int) -> Cells:
    """Cells for about so many places. `guest` are the low and high ends of the other side's ranges, if they count."""
    keys = home.values[0]
    if not len(keys) or places <= 1:
        return Cells((), (1,))
    weight = home.rows / len(keys)
    points, weights = [keys], [np.full(len(keys), weight)]
    if guest is not None and guest.values and len(guest.values[0]):
        middle = _middle(guest.values)
        points.append(middle)
        weights.append(np.full(len(middle), guest.rows / len(middle)))
    return _even(np.concatenate(points), np.concatenate(weights), _heavy(keys, places), places)


def _middle(ends: tuple[Doubles, ...]) -> Doubles:
    """The middle of each first range; one end where the other is endless."""
    low, high = ends[0], ends[1]
    low, high = np.where(np.isinf(low), high, low), np.where(np.isinf(high), low, high)
    known = np.isfinite(low) & np.isfinite(high)
    middle: Doubles = low[known] / 2 + high[known] / 2
    return middle


def _heavy(keys: Doubles, places: int) -> dict[float, int]:
    """Heavy hitters among the home side's keys, and in how many ways each is split."""
    values, counts = np.unique(keys, return_counts=True)
    even = len(keys) / places
    return {
        float(value): math.ceil(count / even)
        for value, count in zip(values, counts, strict=True)
        if count > HEAVY * even and math.isfinite(value)
    }


def _even(points: Doubles, weights: Doubles, heavy: dict[float, int], places: int) -> Cells:
    """Bounds at even shares of the weight; a heavy hitter's cell holds nothing else."""
    order = np.argsort(points, kind="stable")
    points, share = points[order], np.cumsum(weights[order])
    at = np.searchsorted(share, share[-1] * np.arange(1, places) / places)
    bounds = {float(p) for p in points[np.minimum(at, len(points) - 1)] if math.isfinite(p)}
    for value in heavy:
        bounds |= {value, math.nextafter(value, math.inf)}
    ordered = tuple(sorted(b for b in bounds if math.isfinite(b)))
    return Cells(ordered, (1, *(heavy.get(bound, 1) for bound in ordered)))


def given_cells(splits: Sequence[float]) -> Cells:
    """Cells that begin at the user's splits."""
    bounds = tuple(sorted(set(splits)))
    return Cells(bounds, (1,) * (len(bounds) + 1))


def as_split(given: Any, temporal: bool) -> float | None:
    """A split given by the user as a double, in the unit of keys; nothing where it is no such value."""
    from datetime import UTC, date, datetime

    if isinstance(given, bool):
        return None
    if not temporal:
        return _finite(given) if isinstance(given, int | float | np.number) else None
    if isinstance(given, datetime):
        zoned = given if given.tzinfo is not None else given.replace(tzinfo=UTC)
        return zoned.timestamp() * 1e6
    if isinstance(given, date):
        return datetime(given.year, given.month, given.day, tzinfo=UTC).timestamp() * 1e6
    return None


def _finite(given: Any) -> float | None:
    try:
        value = float(given)
    except (OverflowError, TypeError):  # an integer beyond all doubles; a complex number
        return None
    return value if math.isfinite(value) else None
