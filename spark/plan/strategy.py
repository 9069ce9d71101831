"""How a join is spread over tasks: which of broadcast, range and grid, and why.

- *broadcast*: s is small (or r, for an inner join): it is saved once and mapped by every worker; nothing is shuffled.
- *range*: the condition bounds a column of the home side on both ends: rows go to cells of that column.
- *grid*: it does not: blocks of the home side meet the rows of the other that can match them.

Home is r, whose rows each lie in one place, so that every `how` is right; an inner join may take s, and does where only
s is bounded on both ends (`s.x BETWEEN r.lo AND r.hi`) or, both being alike in that, s has the heavier hitter. Sizes
and cells come from samples; `splits` spares them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import types as ty

from millrace.errors import ArgumentError
from millrace.ingest.checks import choice
from millrace.join_parts.routes import Outline, Route
from millrace.spark.plan import columns as cl
from millrace.spark.plan.routing import Cells, as_double, range_of
from millrace.spark.plan.sampling import Sample, as_split, cut, given_cells, sample

STRATEGIES = ("auto", "broadcast", "range", "grid")
BROADCAST_BYTES = 256 << 20
"""A side of up to so many bytes, by estimate, is held by every worker."""
CELL_ROWS = 1 << 21
"""Rows of a place at most, where they lie evenly."""
PLACES_PER_TASK = 2
"""Places for each task that runs at once, so that an uneven one does not hold up the rest for long."""
Frames = dict[str, DataFrame]


@dataclass(frozen=True)
class Strategy:
    """What was chosen. `held` is the side that every worker holds, `home` the one that is cut into cells."""

    name: str
    why: str
    held: str | None = None
    home: str = "r"
    route: Route | None = None
    cells: Cells | None = None

    def describe(self) -> str:
        """For people."""
        lines = [f"{self.name}: {self.why}"]
        if self.cells is not None:
            by = f"{self.home}.{self.route.column}" if self.route is not None else f"a hash of {self.home}'s rows"
            split = sum(way > 1 for way in self.cells.ways)
            lines.append(f"  {self.home} by {by}: {len(self.cells.ways)} cells in {self.cells.places} places")
            if split:
                lines.append(f"  heavy hitters: {split}, split in up to {max(self.cells.ways)} ways")
            lines.append(f"  splits: {', '.join(f'{b:.17g}' for b in self.cells.bounds) or 'none'}")
        return "\n".join(lines)


@dataclass(frozen=True)
class Question:
    """What is to be joined, as far as the choice depends on it."""

    frames: Frames
    outline: Outline
    how: str
    splits: Sequence[Any] | None
    strategy: str
    tasks: int

    def route(self, side: str) -> Route | None:
        """The best way to put a side in order."""
        routes = self.outline.routes[side]  # type: ignore[index]
        return routes[0] if routes else None


def choose(question: Question) -> Strategy:
    """The strategy, by size and condition, or the one that was asked for."""
    name = choice("strategy", question.strategy, STRATEGIES)
    if question.splits is not None:
        return _by_splits(question)
    if name == "broadcast":
        return Strategy("broadcast", "asked for; s is held by every worker", held="s")
    samples = sample(question.frames, {side: to_sample(question, side) for side in ("r", "s")})
    sizes = {side: samples[side].rows * cl.row_bytes(question.frames[side].schema) for side in samples}
    if name == "auto":
        small = _small(question, sizes)
        if small is not None:
            about = f"{small} has about {samples[small].rows:,} rows, {sizes[small] >> 20} MiB"
            return Strategy("broadcast", f"{about}: no more than {BROADCAST_BYTES >> 20} MiB", held=small)
    return _by_cells(question, samples, asked=name)


def _small(question: Question, sizes: dict[str, int]) -> str | None:
    """The side to hold: s, or r where that may be and is smaller; sizes that were guessed are measured first."""
    allowed = ("r", "s") if question.how == "inner" else ("s",)
    for side in sorted(allowed, key=lambda side: (sizes[side], side != "s")):
        frame = question.frames[side]
        if sizes[side] <= BROADCAST_BYTES and not cl.has_fixed_rows(frame.schema):
            sizes[side] = cl.measured_bytes(frame)
        if sizes[side] <= BROADCAST_BYTES:
            return side
    return None


def to_sample(question: Question, side: str) -> list[str]:
    """A side's key in its own route, and the ends of its rows' ranges in the other's."""
    frame = question.frames[side]
    own, across = question.route(side), question.route("s" if side == "r" else "r")
    wanted: list[str] = []
    if own is not None:
        wanted.append(as_double(own.column, frame.schema[own.column].dataType))
    if across is not None:
        wanted += list(range_of(across.ranges[0], frame.schema))
    return wanted


def _by_cells(question: Question, samples: dict[str, Sample], asked: str) -> Strategy:
    home = _home(question, samples)
    guest = "s" if home == "r" else "r"
    route = question.route(home)
    bounded = route is not None and route.bounded
    if asked == "range" and not bounded:
        raise ArgumentError(
            f"strategy='range' needs a condition that bounds a column of {home} on both ends, and this one "
            f"({question.outline.kind}) does not: use 'grid' or 'broadcast'"
        )
    places = places_for(question.tasks, sum(one.rows for one in samples.values()))
    if route is None:
        return Strategy("grid", "no comparison bounds a plain column", home=home, cells=Cells((), (places,)))
    ends = samples[guest].values[1 if question.route(guest) is not None else 0 :]
    weights = Sample(samples[guest].rows, ends) if bounded else None
    cells = cut(samples[home], weights, places)
    name = asked if asked != "auto" else "range" if bounded else "grid"
    why = f"the condition bounds {home}.{route.column} on {'both ends' if bounded else 'one end'}"
    return Strategy(name, why, home=home, route=route, cells=cells)


def _home(question: Question, samples: dict[str, Sample]) -> str:
    """r; an inner join may take s, and does if only s is bounded on both ends, or else has the heavier hitter."""
    routes = {side: question.route(side) for side in (("r", "s") if question.how == "inner" else ("r",))}

    def worth(side: str) -> tuple[bool, bool, int, bool]:
        route = routes[side]
        if route is None:
            return False, False, 0, side == "r"
        return True, route.bounded, _heaviest(samples[side]), side == "r"

    return max(routes, key=worth)


def _heaviest(given: Sample) -> int:
    """About how many rows the most frequent key has, in steps that chance does not take."""
    import numpy as np

    keys = given.values[0]
    if not len(keys):
        return 0
    most = int(np.unique(keys, return_counts=True)[1].max())
    return given.rows * (most * 20 // len(keys))


def places_for(tasks: int, rows: int) -> int:
    """How many places: enough for all tasks, and none too full."""
    return max(PLACES_PER_TASK * tasks, -(-rows // CELL_ROWS))


def _by_splits(question: Question) -> Strategy:
    """Cells as the user gave them."""
    if question.strategy == "broadcast":
        raise ArgumentError("splits are for strategy='range' or 'grid': leave one of the two out")
    route = question.route("r")
    if route is None:
        raise ArgumentError("splits need a condition that bounds a plain column of r, and this one bounds none")
    if question.strategy == "range" and not route.bounded:
        raise ArgumentError("strategy='range' needs a condition that bounds a column of r on both ends: use 'grid'")
    data_type = question.frames["r"].schema[route.column].dataType
    temporal = isinstance(data_type, ty.DatetimeType)
    given = question.splits
    if isinstance(given, str) or not isinstance(given, Sequence):
        raise ArgumentError(f"splits={given!r}: allowed is a list of values of r.{route.column}")
    bounds = [as_split(value, temporal) for value in given]
    for value, bound in zip(given, bounds, strict=True):
        if bound is None:
            kind = "dates or timestamps" if temporal else "finite numbers"
            raise ArgumentError(f"splits: {value!r} is no value of r.{route.column}; allowed are {kind}")
    cells = given_cells([bound for bound in bounds if bound is not None])
    name = "range" if route.bounded else "grid"
    return Strategy(name, f"splits of r.{route.column} were given", route=route, cells=cells)
