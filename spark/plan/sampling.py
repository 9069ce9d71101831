"""Draws a small sample of each frame, and cuts the cells of a shuffled join from the samples.

Every row gets a uniform random number; the rows with the smallest numbers are a fair sample, which the JVM finds in one
pass. The largest of the sampled numbers gives the row count (to a few per cent). Cells are cut so that the rows of both
sides fill them evenly. A key with more than `HEAVY` times the home rows of an even cell is a heavy hitter: it gets a
cell of its own, split into several ways.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyspark import inheritable_thread_target
from pyspark.sql import DataFrame
from pyspark.sql import functions as fn

from millrace.join_parts.routes import Route
from millrace.spark.cluster.jobs import described
from millrace.spark.plan.columns import column
from millrace.spark.plan.routing import Blocks, Cells

ROWS = 4096
"""Rows in a sample, unless a call wants more."""
SEED = 7
_DRAWN, _POSITION = "__millrace_drawn", "__millrace_position"
HEAVY = 1.5
"""A key is a heavy hitter if it has more than this many times the home rows of an even cell."""
Doubles = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Sample:
    """Sampled values as doubles, one array per column, and the estimated row count of the frame."""

    rows: int
    values: tuple[Doubles, ...]
    table: pa.Table | None = None
    """The sampled rows' own columns, as far as they were wanted."""

    @property
    def drawn(self) -> int:
        """The number of sampled rows."""
        return 0 if self.table is None else self.table.num_rows


def sample(
    frames: Mapping[str, DataFrame],
    wanted: Mapping[str, Sequence[str]],
    rows: int = ROWS,
    own: Mapping[str, Sequence[str]] | None = None,
) -> dict[str, Sample]:
    """Sample each frame, in concurrent jobs; rows with a null or NaN count in `rows`, but are not in `values`.

    `wanted`: SQL of doubles; `own`: names of columns to return as they are.

    Spark spends most of the time on planning and starting a job, so two jobs at once take little longer than one.
    """

    def draw(name: str) -> Sample:
        columns = (fn.expr(value).alias(f"c{i}") for i, value in enumerate(wanted[name]))
        names = [] if own is None else own[name]
        kept = (column(one).alias(f"own{i}") for i, one in enumerate(names))
        drawn = _smallest(frames[name], rows).select(fn.col(_DRAWN).alias("u"), *columns, *kept).toArrow()
        table = pa.table({one: drawn[f"own{i}"] for i, one in enumerate(names)}) if names else None
        return replace(_sample(drawn, len(wanted[name]), rows), table=table)

    session = next(iter(frames.values())).sparkSession
    with ThreadPoolExecutor(len(frames)) as pool, described(session, f"sample of {' and '.join(frames)}"):
        drawn = pool.map(inheritable_thread_target(session)(draw), frames)
        return dict(zip(frames, drawn, strict=True))


def _smallest(frame: DataFrame, rows: int) -> DataFrame:
    """The rows with the smallest random numbers; later columns are computed for these rows only."""
    position = fn.monotonically_increasing_id().bitwiseAND((1 << 33) - 1)
    every = frame.select("*", fn.rand(SEED).alias(_DRAWN), position.alias(_POSITION))
    # Drop rows before the sort that are almost certainly not in the sample: those whose own partition alone should have
    # 2 * rows smaller numbers before them. Such a row is sampled only if fewer than half of these exist.
    some = every.where(fn.col(_DRAWN) * fn.col(_POSITION) < 2 * rows)
    return some.orderBy(_DRAWN).limit(rows)


def _sample(drawn: pa.Table, width: int, most: int) -> Sample:
    u = np.sort(drawn["u"].to_numpy())
    rows = len(u) if len(u) < most else round(most / float(u[-1]))
    values = [drawn[f"c{i}"].to_numpy(zero_copy_only=False).astype(np.float64) for i in range(width)]
    if values:
        known = ~np.logical_or.reduce([np.isnan(v) for v in values])
        values = [v[known] for v in values]
    return Sample(rows, tuple(values))


def cut(home: Sample, guest: Sample | None, shards: int) -> Cells:
    """Cells for about `shards` shards. `guest`: ends of the other side's ranges, if its rows count in the balance."""
    keys = home.values[0]
    if not len(keys) or shards <= 1:
        return Cells((), (1,))
    weight = home.rows / len(keys)
    points, weights = [keys], [np.full(len(keys), weight)]
    if guest is not None and guest.values and len(guest.values[0]):
        middle = _middle(guest.values)
        points.append(middle)
        weights.append(np.full(len(middle), guest.rows / len(middle)))
    return _even(np.concatenate(points), np.concatenate(weights), _heavy(keys, shards), shards)


def cut_blocks(first: Doubles, second: Doubles, rows: int, shards: int, route: Route) -> Blocks:
    """About `shards` blocks with equal numbers of home rows; `first`, `second`: the sampled keys of the same rows."""
    across = max(1, math.isqrt(shards))
    order = np.argsort(first, kind="stable")
    steps = [len(first) * i // across for i in range(1, across)]
    bounds = tuple(sorted({float(first[order[at]]) for at in steps if math.isfinite(first[order[at]])}))
    slab = np.searchsorted(bounds, first, side="right")
    inner = []
    for i in range(len(bounds) + 1):
        inside = second[slab == i]
        inner.append(cut(Sample(rows, (inside,)), None, -(-shards // across)))
    return Blocks(Cells(bounds, (1,) * len(inner)), tuple(inner), route)


def _middle(ends: tuple[Doubles, ...]) -> Doubles:
    """The middle of each row's first range; the finite end if the other is infinite."""
    low, high = ends[0], ends[1]
    low, high = np.where(np.isinf(low), high, low), np.where(np.isinf(high), low, high)
    known = np.isfinite(low) & np.isfinite(high)
    middle: Doubles = low[known] / 2 + high[known] / 2
    return middle


def _heavy(keys: Doubles, shards: int) -> dict[float, int]:
    """Heavy hitters among the home side's keys, and into how many ways each is split."""
    values, counts = np.unique(keys, return_counts=True)
    even = len(keys) / shards
    return {
        float(value): math.ceil(count / even)
        for value, count in zip(values, counts, strict=True)
        if count > HEAVY * even and math.isfinite(value)
    }


def _even(points: Doubles, weights: Doubles, heavy: dict[float, int], shards: int) -> Cells:
    """Bounds at equal shares of the weight; a heavy hitter's cell contains no other key."""
    order = np.argsort(points, kind="stable")
    points, share = points[order], np.cumsum(weights[order])
    at = np.searchsorted(share, share[-1] * np.arange(1, shards) / shards)
    bounds = {float(p) for p in points[np.minimum(at, len(points) - 1)] if math.isfinite(p)}
    for value in heavy:
        bounds |= {value, math.nextafter(value, math.inf)}
    ordered = tuple(sorted(b for b in bounds if math.isfinite(b)))
    return Cells(ordered, (1, *(heavy.get(bound, 1) for bound in ordered)))


def given_cells(splits: Sequence[float]) -> Cells:
    """Cells that begin at the splits given by the user."""
    bounds = tuple(sorted(set(splits)))
    return Cells(bounds, (1,) * (len(bounds) + 1))


def as_split(given: Any, temporal: bool) -> float | None:
    """A user's split as a double, in the unit of keys; None if it is not a valid value."""
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
    except (OverflowError, TypeError):  # an integer too large for a double; a complex number
        return None
    return value if math.isfinite(value) else None
