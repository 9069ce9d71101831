"""The executable specification of `mr.knn_join` and `mr.KnnJoin`: brute force in pure Python, row by row.

It imports nothing of Millrace, NumPy or Arrow. A row is a mapping of names to values: coordinates are `int`, `float` (a
float32 already widened) or `None`; times are `int`; values of `by` columns are anything that Python compares exactly.
The rules of the contract:

- a coordinate becomes a double; the sum of squared differences is added in the order of `on`, each step rounded;
- haversine: a point is the unit vector (cos lat cos lon, cos lat sin lon, sin lat), and the squared chord is compared;
- order: (squared distance, source of s, seq of s), before the root; `within` bounds the returned distance, inclusive;
- a null, NaN or infinite coordinate, or a latitude outside ±90, matches nothing; nor does a null in a `by` column;
- streams: the s rows taken before an r row and in s's window; at equal times s comes before r.
"""

from __future__ import annotations

import math
from bisect import insort
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

RADIUS = 6_371_008.8
Row = Mapping[str, Any]
Point = tuple[float, ...]
Found = tuple[int, int, int | None, int | None, int | None, float | None]
"""(r_source, r_seq, rank, s_source, s_seq, distance); the last four are None for an r row that `how="left"` keeps."""


@dataclass(frozen=True)
class Search:
    """The arguments that decide which pairs are neighbours. `on` and `by` are pairs: r's names, s's names."""

    on: tuple[tuple[str, ...], tuple[str, ...]]
    k: int
    metric: str = "euclidean"
    within: float | None = None
    by: tuple[tuple[str, ...], tuple[str, ...]] = ((), ())
    how: str = "inner"

    def point(self, row: Row, side: str) -> Point | None:
        """The point that is searched; None if the row matches nothing because of its coordinates."""
        values = [row[name] for name in self.on[side == "s"]]
        if any(value is None for value in values):
            return None
        numbers = tuple(float(value) for value in values)
        if not all(math.isfinite(number) for number in numbers):
            return None
        if self.metric == "euclidean":
            return numbers
        longitude, latitude = numbers
        return None if abs(latitude) > 90 else unit_vector(longitude, latitude)

    def group(self, row: Row, side: str) -> tuple[Any, ...] | None:
        values = tuple(row[name] for name in self.by[side == "s"])
        return None if any(value is None or value != value for value in values) else values

    def usable(self, row: Row, side: str) -> bool:
        return self.point(row, side) is not None and self.group(row, side) is not None

    def distance(self, squared: float) -> float:
        root = math.sqrt(squared)
        return root if self.metric == "euclidean" else 2 * RADIUS * math.asin(min(1.0, root / 2))

    def neighbours(self, r: Row, candidates: Iterable[tuple[int, int, Row]]) -> list[tuple[int, int, float]]:
        """(source, seq, distance) of the nearest among `candidates`, which are (source, seq, row of s)."""
        here, mine = self.point(r, "r"), self.group(r, "r")
        if here is None or mine is None:
            return []
        found = []
        for source, seq, row in candidates:
            there = self.point(row, "s")
            if there is None or self.group(row, "s") != mine:
                continue
            squared = 0.0
            for a, b in zip(here, there, strict=True):
                squared += (a - b) * (a - b)
            if self.within is None or self.distance(squared) <= self.within:
                found.append((squared, source, seq))
        return [(source, seq, self.distance(squared)) for squared, source, seq in sorted(found)[: self.k]]

    def rows(self, r_source: int, r_seq: int, found: list[tuple[int, int, float]]) -> list[Found]:
        if not found and self.how == "left":
            return [(r_source, r_seq, None, None, None, None)]
        return [(r_source, r_seq, rank, *one) for rank, one in enumerate(found)]


def unit_vector(longitude: float, latitude: float) -> Point:
    """A point on the unit sphere; degrees become radians by one multiplication."""
    a, b = longitude * (math.pi / 180), latitude * (math.pi / 180)
    return math.cos(b) * math.cos(a), math.cos(b) * math.sin(a), math.sin(b)


def knn_join(r_rows: Sequence[Row], s_rows: Sequence[Row] | None, search: Search) -> list[Found]:
    """`mr.knn_join`; `s_rows=None` is a self-join, in which a row is never its own neighbour."""
    found = []
    for r_seq, r in enumerate(r_rows):
        others = enumerate(r_rows if s_rows is None else s_rows)
        candidates = ((0, seq, row) for seq, row in others if s_rows is not None or seq != r_seq)
        found += search.rows(0, r_seq, search.neighbours(r, candidates))
    return found


@dataclass
class Tuple:
    """A row that was not dropped. Without time, `ts` is 0 for all."""

    ts: int
    side: str
    source: int
    seq: int
    row: Row

    @property
    def rank(self) -> tuple[int, int]:
        """The rank of its source: s before r."""
        return (int(self.side == "r"), self.source)

    @property
    def order(self) -> tuple[int, tuple[int, int], int]:
        return (self.ts, self.rank, self.seq)


class KnnJoin:
    """`mr.KnnJoin` over Python rows. `window`: so many rows of s (`counts`), or so many ticks of time."""

    def __init__(
        self,
        search: Search,
        window: int,
        counts: bool = True,
        time: tuple[str, str] | None = None,
        lateness: int = 0,
        sources: Mapping[str, int] | None = None,
        self_join: bool = False,
        tick: int = 1,
    ) -> None:
        self._search, self._window, self._counts, self._time = search, window, counts, time
        self._lateness, self._self_join, self._tick = lateness, self_join, tick
        numbers = {"r": 1, "s": 1} | dict(sources or {})
        sides = "r" if self_join else "sr"
        self._seqs = {(side, i): 0 for side in sides for i in range(numbers[side])}
        self._high: dict[tuple[str, int], int] = {}
        self._floor: int | None = None
        self._pending: list[Tuple] = []
        self._held: list[Tuple] = []
        self.stats: dict[str, Any] = {"late": 0, "null_times": 0, "null_keys": 0, "pairs": 0}

    def push(self, side: str, rows: Iterable[Row], source: int = 0) -> list[Found]:
        return [found for row in rows for found in self._push_row((side, source), row)]

    def advance(self, side: str, ts: int, source: int = 0) -> list[Found]:
        self._raise_clock((side, source), ts)
        return self._take_ready()

    def flush(self) -> list[Found]:
        """Moves every clock one tick past the newest timestamp."""
        if self._high:
            self._floor = max(self._high.values()) + self._tick
        return self._take_ready()

    @property
    def rows(self) -> dict[str, int]:
        return {side: sum(n for (of, _), n in self._seqs.items() if of == side) for side in "rs"}

    @property
    def pending(self) -> int:
        return len(self._pending)

    @property
    def held(self) -> int:
        """The taken rows of s that a row which is not late could still meet."""
        if self._counts:
            return min(self._window, len(self._held))
        clocks = [self.clock(source) for source in self._seqs]
        if None in clocks:
            return len(self._held)
        frontier = min(clock for clock in clocks if clock is not None)
        return sum(one.ts + self._window >= frontier for one in self._held)

    def clock(self, source: tuple[str, int]) -> int | None:
        readings = [self._high[source] - self._lateness] if source in self._high else []
        return max([*readings, *([] if self._floor is None else [self._floor])], default=None)

    def _raise_clock(self, source: tuple[str, int], ts: int) -> None:
        self._high[source] = max(ts, self._high.get(source, ts))

    def _push_row(self, source: tuple[str, int], row: Row) -> list[Found]:
        side, number = source
        seq = self._seqs[source]
        self._seqs[source] += 1
        roles = "rs" if self._self_join else side
        self.stats["null_keys"] += not all(self._search.usable(row, role) for role in roles)
        if self._time is None:
            return self._take(Tuple(0, side, number, seq, row))
        ts = row[self._time[side == "s"]]
        if ts is None:
            self.stats["null_times"] += 1
            return []
        clock = self.clock(source)
        if clock is not None and ts < clock:
            self.stats["late"] += 1
            return []
        self._raise_clock(source, ts)
        insort(self._pending, Tuple(ts, side, number, seq, row), key=lambda waiting: waiting.order)
        return self._take_ready()

    def _ready(self, waiting: Tuple) -> bool:
        """Returns whether no source can still deliver an earlier row."""
        for side, number in self._seqs:
            clock = self.clock((side, number))
            behind = (int(side == "r"), number) < waiting.rank
            if clock is None or clock < waiting.ts or (clock == waiting.ts and behind):
                return False
        return True

    def _take_ready(self) -> list[Found]:
        found: list[Found] = []
        while self._pending and self._ready(self._pending[0]):
            found += self._take(self._pending.pop(0))
        return found

    def _take(self, new: Tuple) -> list[Found]:
        found: list[Found] = []
        if new.side == "r":
            near = self._search.neighbours(new.row, ((s.source, s.seq, s.row) for s in self._visible(new)))
            self.stats["pairs"] += len(near)
            found = self._search.rows(new.source, new.seq, near)
        if new.side == "s" or self._self_join:
            self._held.append(new)
        return found

    def _visible(self, r: Tuple) -> list[Tuple]:
        if self._counts:
            return self._held[-self._window :]
        return [s for s in self._held if 0 <= r.ts - s.ts <= self._window]
