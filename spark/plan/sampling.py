"""Draws a small sample of each frame, and cuts the cells of a shuffled join from the samples.

Every row gets a uniform random number; the rows with the smallest numbers are a fair sample, which the JVM finds in one
pass. The largest of the sampled numbers gives the row count (to a few per cent). Of a frame in Spark's cache the row
count is known, so rows are drawn without an order, which takes two thirds of the time.

Cells are cut so that the rows of both sides fill them evenly. A key with more than `HEAVY` times the home rows of an
even cell is a heavy hitter: it gets a cell of its own, split into several ways.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial, reduce
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame
from pyspark.sql import functions as fn
from pyspark.sql import types as ty

from millrace.join_parts.routes import Route
from millrace.spark.cluster.jobs import described
from millrace.spark.plan.cached_frames import MAX_KEPT, MAX_KEPT_BYTES, CachedFrame, KeptResults, cached_frame
from millrace.spark.plan.columns import has_fixed_rows, quoted, row_bytes, row_size
from millrace.spark.plan.routing import Blocks, Cells

ROWS = 4096
"""Rows in a sample, unless a call wants more."""
SEED, SEED_STEP = 7, 7919
"""The seed of the first frame, and between frames: each partition adds its number to the seed."""
_DRAWN, _POSITION, _BYTES = "__millrace_drawn", "__millrace_position", "__millrace_bytes"
HEAVY = 1.5
"""A key is a heavy hitter if it has more than this many times the home rows of an even cell."""
Doubles = npt.NDArray[np.float64]
_kept = KeptResults(MAX_KEPT)


@dataclass(frozen=True)
class Sample:
    """Sampled values as doubles, one array per column, and the estimated row count of the frame."""

    rows: int
    values: tuple[Doubles, ...]
    table: pa.Table | None = None
    """The sampled rows' own columns, as far as they were wanted."""
    row_bytes: float | None = None
    """The average bytes of the sampled rows, if sizes were wanted."""

    @property
    def drawn(self) -> int:
        """The number of sampled rows."""
        return 0 if self.table is None else self.table.num_rows

    @property
    def nbytes(self) -> int:
        """The bytes of the sampled values."""
        return sum(one.nbytes for one in self.values) + (0 if self.table is None else self.table.nbytes)

    def width(self, schema: ty.StructType) -> float:
        """Bytes of a row: as sampled, or else by the columns' types."""
        return row_bytes(schema) if self.row_bytes is None else self.row_bytes


def sample(
    frames: Mapping[str, DataFrame],
    wanted: Mapping[str, Sequence[str]],
    rows: int = ROWS,
    own: Mapping[str, Sequence[str]] | None = None,
    tasks: int | None = None,
    sizes: bool = False,
) -> dict[str, Sample]:
    """Sample all frames in one job; rows with a null or NaN count in `rows`, but are not in `values`.

    `wanted`: SQL of doubles; `own`: names of columns to return as they are. `tasks`: how many run at a time; a sample
    of cached frames starts no more, because starting one takes longer than reading a partition from memory. `sizes`:
    draw the sizes of rows of variable length too, for which Spark must read all columns. Samples of cached frames are
    kept (`cached_frames.py`).
    """
    names = {frame: () if own is None else tuple(own[frame]) for frame in frames}
    cached = {name: cached_frame(frame) for name, frame in frames.items()}
    measured = {name for name, frame in frames.items() if sizes and not has_fixed_rows(frame.schema)}
    draw = partial(_draw, frames, wanted, rows, names, cached, measured, tasks)
    known = [(name, one.names) for name, one in cached.items() if one is not None]
    if len(known) < len(frames):
        return draw()
    columns = [(tuple(wanted[frame]), names[frame]) for frame in frames]
    key = *known, *columns, rows
    found: dict[str, Sample] | None = _kept.get(key)
    if found is None or any(found[frame].row_bytes is None for frame in measured):
        found = draw()
        if sum(one.nbytes for one in found.values()) <= MAX_KEPT_BYTES:
            _kept.keep(key, found)
    return {frame: one if frame in measured else replace(one, row_bytes=None) for frame, one in found.items()}


def forget_samples() -> None:
    """Draw the next samples anew, of cached frames too."""
    _kept.clear()


def _draw(
    frames: Mapping[str, DataFrame],
    wanted: Mapping[str, Sequence[str]],
    rows: int,
    names: Mapping[str, Sequence[str]],
    cached: Mapping[str, CachedFrame | None],
    measured: set[str],
    tasks: int | None,
) -> dict[str, Sample]:
    """Run the job of `sample`."""
    known = {name: None if one is None else one.rows for name, one in cached.items()}
    sized = dict(frames)
    sized |= {name: frames[name].withColumn(_BYTES, row_size(frames[name].schema)) for name in measured}
    parts = [
        _some(sized[frame], rows, known[frame], SEED + SEED_STEP * i).selectExpr(
            f"{i} AS frame",
            f"{_DRAWN if known[frame] is None else '0.0D'} AS u",
            *(f"{value} AS f{i}c{j}" for j, value in enumerate(wanted[frame])),
            *(f"{quoted(name)} AS f{i}own{j}" for j, name in enumerate(names[frame])),
            *([f"{_BYTES} AS f{i}bytes"] if frame in measured else []),
        )
        for i, frame in enumerate(frames)
    ]
    with described(next(iter(frames.values())).sparkSession, f"sample of {' and '.join(frames)}"):
        every = reduce(lambda some, more: some.unionByName(more, allowMissingColumns=True), parts)
        drawn = (every if tasks is None or None in known.values() else every.coalesce(tasks)).toArrow()
    found = {}
    for i, frame in enumerate(frames):
        part = drawn.filter(pc.equal(drawn["frame"], i))
        table = pa.table({name: part[f"f{i}own{j}"] for j, name in enumerate(names[frame])}) if names[frame] else None
        values = [part[f"f{i}c{j}"] for j in range(len(wanted[frame]))]
        count = known[frame]
        width = pc.mean(part[f"f{i}bytes"]).as_py() if frame in measured else None
        one = _sample(_rows(part["u"], rows) if count is None else count, values)
        found[frame] = replace(one, table=table, row_bytes=width)
    return found


def _some(frame: DataFrame, rows: int, count: int | None, seed: int) -> DataFrame:
    """A sample of about `rows` rows, with a random number each if the frame's `count` is not known.

    Every frame has a seed of its own. With one seed, rows at the same position would be sampled of both sides: a frame
    that is joined with itself, or two frames in the same order, would seem to have far more pairs than they have.
    """
    if count is None:
        return _smallest(frame, rows, seed)
    return frame.where(f"rand({seed}) < {min(1.0, rows / max(1, count))!r}D")  # faster than frame.sample


def _smallest(frame: DataFrame, rows: int, seed: int) -> DataFrame:
    """The rows with the smallest random numbers; later columns are computed for these rows only."""
    position = fn.monotonically_increasing_id().bitwiseAND((1 << 33) - 1)
    every = frame.select("*", fn.rand(seed).alias(_DRAWN), position.alias(_POSITION))
    # Drop rows before the sort that are almost certainly not in the sample: those whose own partition alone should have
    # 2 * rows smaller numbers before them. Such a row is sampled only if fewer than half of these exist.
    some = every.where(fn.col(_DRAWN) * fn.col(_POSITION) < 2 * rows)
    return some.orderBy(_DRAWN).limit(rows)


def _rows(numbers: pa.ChunkedArray, most: int) -> int:
    """The rows of a frame, by the smallest random numbers."""
    u = np.sort(numbers.to_numpy())
    return len(u) if len(u) < most else round(most / float(u[-1]))


def _sample(rows: int, columns: Sequence[pa.ChunkedArray]) -> Sample:
    values = [one.to_numpy(zero_copy_only=False).astype(np.float64) for one in columns]
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
