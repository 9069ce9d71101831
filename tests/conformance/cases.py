"""Test cases: streams, a condition, a window and a list of calls. Hypothesis draws a `Shape`, `build` makes the case.

A `Shape` is small and shrinks well; its seed initializes `random.Random`, which draws the rows. `build(Shape(...))`
with the shape that a failure prints reproduces the case.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any, TypeVar

import pyarrow as pa
from hypothesis import strategies as st

from tests.conformance.conditions import (
    NO_FILTER,
    NUMBERS_ONLY,
    WEIGHTED_FAMILIES,
    Axis,
    ColumnPlan,
    Draft,
    make_axis,
    quoted,
    time_units,
    write_condition,
)
from tests.conformance.kinds import CODE_KINDS, KEY_KINDS, KINDS, TIME_KINDS, Kind, Raw
from tests.oracle import Row, RowWindow, TimeWindow, Value, Window

NUMBER_KINDS = [kinds for kinds in KEY_KINDS if not KINDS[kinds[0]].is_temporal]
_Option = TypeVar("_Option")
SMALL_PUSHES = 20  # after this many calls, pushes become larger to save time
SPREADS = ("uniform", "few", "constant", "skew", "drift", "ascending", "descending")


@dataclass(frozen=True)
class Shape:
    """The parameters that Hypothesis draws. `sizes` of a time window, `lateness` and `disorder` are in beats."""

    seed: int
    family: str
    key_kinds: tuple[str, str]
    other_kinds: tuple[str, str]
    rows: tuple[int, int]
    spread: str = "uniform"
    span: int = 10
    nulls: float = 0.0
    extremes: float = 0.0
    filters: int = 0
    names: str = "same"
    window: str = "rows"
    sizes: tuple[int, int] = (10, 10)
    time_kinds: tuple[str, str] | None = None
    time_term: bool = False
    lateness: int = 0
    disorder: int = 0
    density: float = 1.0
    edge_of_time: bool = False
    uneven: bool = False  # window and lateness are not multiples of the time columns' unit
    sources: tuple[int, int] = (1, 1)
    self_join: bool = False
    batches: str = "mixed"
    both: bool = False
    advances: int = 0
    flushes: int = 0
    checkpoints: int = 0
    payload: int = 0
    output: str = "pairs"
    schemas: bool = False
    code_kinds: tuple[str, str] = ("string", "string")


# --- Calls ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Push:
    """`push` of rows `start` to `stop` of the side's feed."""

    side: str
    source: int
    start: int
    stop: int


@dataclass(frozen=True)
class PushBoth:
    """`push_both` of rows of both feeds, source 0."""

    r: tuple[int, int]
    s: tuple[int, int]
    arrival: tuple[int, ...]


@dataclass(frozen=True)
class Advance:
    """`advance`; `ts` is raw."""

    side: str
    source: int
    ts: int


@dataclass(frozen=True)
class Flush:
    """`flush`."""


@dataclass(frozen=True)
class Checkpoint:
    """`state`; if `restore`, a new object continues from it."""

    restore: bool


Call = Push | PushBoth | Advance | Flush | Checkpoint


@dataclass
class Feed:
    """All rows of one side in the order in which they are pushed, whatever their source."""

    kinds: dict[str, Kind]
    raws: dict[str, list[Raw]]
    table: pa.Table | None = None

    def __len__(self) -> int:
        return len(next(iter(self.raws.values())))

    def known(self, start: int, stop: int) -> list[Row]:
        """Returns rows as the oracle's values."""
        columns = {name: [self.kinds[name].known(raw) for raw in raws[start:stop]] for name, raws in self.raws.items()}
        return [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]

    def given(self) -> pa.Table:
        """Returns the table in the types in which a user passes it."""
        table = self.table
        assert table is not None
        for name, kind in self.kinds.items():
            if kind.given is not None:
                table = table.set_column(table.schema.get_field_index(name), name, table[name].cast(kind.given))
        return table


@dataclass(frozen=True)
class Case:
    """A case ready to run: `arguments` are those of `mr.WindowJoin`, without index, device and threads."""

    shape: Shape
    on: str
    arguments: Mapping[str, Any]
    window: Window
    lateness: int
    tick: int
    feeds: Mapping[str, Feed]
    calls: tuple[Call, ...]
    feed_rows: Mapping[tuple[str, int], list[int]]  # (side, source) -> seq -> row of the side's feed

    def known_time(self, call: Advance) -> Value:
        return self.time_kind(call.side).known(call.ts)

    def time_kind(self, side: str) -> Kind:
        time = self.arguments["time"]
        return self.feeds[side].kinds[time if isinstance(time, str) else time["rs".index(side)]]


# --- Building ------------------------------------------------------------------------------------


def build(shape: Shape) -> Case:
    """Returns the case of a shape; deterministic."""
    return _Builder(shape).build()


class _Builder:
    def __init__(self, shape: Shape) -> None:
        self.shape = shape
        self.rng = Random(shape.seed)
        self.sides = "r" if shape.self_join else "rs"
        at_zero = shape.family in NUMBERS_ONLY
        self.axes = {
            "x": make_axis(self.rng, shape.key_kinds, shape.span, at_zero),
            "y": make_axis(self.rng, shape.other_kinds, shape.span, at_zero),
            "t": make_axis(self.rng, shape.code_kinds, shape.span, at_zero),
        }
        self.draft = Draft(self.rng, self.axes, _names(shape.names))
        self.time_names = ("ts", "ts") if shape.self_join or self.rng.random() < 0.6 else ("ts", "at time")
        self.time_axis = None if shape.time_kinds is None else self._make_time_axis(shape.time_kinds)
        self.counts = self._rows_per_source()
        self.done = dict.fromkeys(self.counts, 0)

    def build(self) -> Case:
        on = self._condition()
        self.plans = self._column_plans()
        self.feeds = {side: self._empty_feed(side) for side in self.sides}
        self.feed_rows: dict[tuple[str, int], list[int]] = {source: [] for source in self.counts}
        self.calls: list[Call] = []
        calls = self._calls()
        for feed in self.feeds.values():
            feed.table = _table(self.rng, feed, self.shape.payload)
        if self.shape.self_join:
            self.feeds["s"] = self.feeds["r"]
        window, text = self._window()
        return Case(
            shape=self.shape,
            on=on,
            arguments=self._arguments(on, text, calls),
            window=window,
            lateness=self._length(self.shape.lateness) if self.shape.lateness else 0,
            tick=self._tick(),
            feeds=self.feeds,
            calls=tuple(calls),
            feed_rows=self.feed_rows,
        )

    # The condition and its columns

    def _condition(self) -> str:
        on = write_condition(self.draft, self.shape.family, self.shape.filters)
        if self.shape.time_term and self.time_axis is not None and self.shape.family not in NO_FILTER:
            r, s = (quoted(name) for name in self.time_names)
            on += f" AND r.{r} {self.rng.choice(('<=', '>=', '<>'))} s.{s}"
        return on

    def _column_plans(self) -> dict[str, dict[str, ColumnPlan]]:
        plans = self.draft.columns
        return {"r": plans["r"] | plans["s"]} if self.shape.self_join else plans

    def _empty_feed(self, side: str) -> Feed:
        kinds = {name: self.axes[plan.axis].kinds[side] for name, plan in self.plans[side].items()}
        if self.time_axis is not None:
            kinds[self.time_names["rs".index(side)]] = self.time_axis.kinds[side]
        names = list(kinds)
        self.rng.shuffle(names)
        return Feed({name: kinds[name] for name in names}, {name: [] for name in names})

    # Time

    def _make_time_axis(self, kinds: tuple[str, str]) -> Axis:
        of = {"r": KINDS[kinds[0]], "s": KINDS[kinds[1]]}
        beats = 2 + int(max(self.shape.rows) * self.shape.density)
        if of["r"].is_temporal:
            beat = max(kind.unit * kind.step for kind in of.values()) * self.rng.choice((1, 1, 2, 10))
            origin = self.rng.choice((0, 19843, 19843)) * 86400 * 10**9
        else:
            beat, origin = self.rng.choice((1, 1, 2, 5)), self.rng.choice((0, 0, 1000, 100_000))
        if self.shape.edge_of_time:
            origin = self.rng.choice(self._ends_of_time(of, beat, beats))
        return Axis(of, origin, beat, beats)

    def _ends_of_time(self, kinds: dict[str, Kind], beat: int, beats: int) -> tuple[int, int]:
        """Returns origins at both ends of the range of both types; the margin keeps a coarser type in range."""
        units = {kind.unit * kind.step or 1 for kind in kinds.values()}
        low = max(kind.low * (kind.unit or 1) for kind in kinds.values())
        high = min(kind.high * (kind.unit or 1) for kind in kinds.values())
        margin = 6 * beat if len(units) > 1 else 0
        coarse = max(units)
        first, last = low + self.shape.disorder * beat + margin, high - beats * beat - margin
        return -(-first // coarse) * coarse, last // coarse * coarse

    def _time(self, side: str, source: int, i: int) -> Raw:
        """Returns the time of a source's i-th row: even progress through the same span, with noise and disorder."""
        axis, rng, shape = self.time_axis, self.rng, self.shape
        assert axis is not None
        if shape.nulls and rng.random() < shape.nulls / 3:
            return None
        beat = i * axis.span // max(1, self.counts[side, source])
        if rng.random() < 0.3:
            beat -= rng.randrange(shape.disorder + 1)
        fine = axis.kinds[side].unit * axis.kinds[side].step
        extra = rng.randrange(int(axis.step)) if 0 < fine < axis.step and rng.random() < 0.1 else 0
        return axis.raw(side, beat, extra)

    def _length(self, beats: int) -> int:
        axis = self.time_axis
        if axis is None:
            return 0
        odd = self._tick() // 2 if self.shape.uneven and axis.is_temporal else 0
        return beats * int(axis.step) + odd

    def _tick(self) -> int:
        axis = self.time_axis
        return min(kind.unit for kind in axis.kinds.values()) if axis is not None and axis.is_temporal else 1

    def _length_text(self, beats: int) -> str:
        assert self.time_axis is not None
        length = self._length(beats)
        if not self.time_axis.is_temporal:
            return str(length)
        count, unit = self.rng.choice(time_units(length))
        return f"{count} {unit}{'' if count == 1 else 's'}"

    # Arguments

    def _window(self) -> tuple[Window, str | tuple[str, str]]:
        first, second = self.shape.sizes
        if self.shape.window == "rows":
            texts = (f"{first} rows", f"{second} rows")
            return RowWindow(first, second), texts[0] if first == second else texts
        texts = (self._length_text(first), self._length_text(second))
        window = TimeWindow(self._length(first), self._length(second))
        return window, texts[0] if first == second else texts

    def _arguments(self, on: str, window: str | tuple[str, str], calls: list[Call]) -> dict[str, Any]:
        shape = self.shape
        given: dict[str, Any] = {"on": on, "window": window}
        if self.time_axis is not None:
            given["time"] = self.time_names[0] if len(set(self.time_names)) == 1 else self.time_names
            if shape.lateness:
                given["lateness"] = self._length_text(shape.lateness)
        if shape.sources != (1, 1):
            given["sources"] = dict(zip(self.sides, shape.sources, strict=False))
        if shape.self_join:
            given["self_join"] = True
        if shape.output != "pairs":
            given["output"] = shape.output
        if not shape.self_join and (shape.schemas or self._flushes_too_early(calls)):
            given["schemas"] = {side: _filled(self.feeds[side]).schema for side in "rs"}
        return given

    def _flushes_too_early(self, calls: list[Call]) -> bool:
        """Returns whether a flush precedes a schema: the finer unit would not be known yet."""
        if self.time_axis is None or self.time_axis.kinds["r"].unit == self.time_axis.kinds["s"].unit:
            return False
        first = {side: self._first_push(side, calls) for side in "rs"}
        return any(isinstance(call, Flush) and i < max(first.values()) for i, call in enumerate(calls))

    @staticmethod
    def _first_push(side: str, calls: list[Call]) -> int:
        pushes = (isinstance(call, PushBoth) or (isinstance(call, Push) and call.side == side) for call in calls)
        return next((i for i, hit in enumerate(pushes) if hit), len(calls))

    # Rows

    def _rows_per_source(self) -> dict[tuple[str, int], int]:
        """Returns the number of rows of each source; one of several sources may have none."""
        counts: dict[tuple[str, int], int] = {}
        for side, total, sources in zip("rs", self.shape.rows, self.shape.sources, strict=True):
            if side not in self.sides:
                continue
            weights = [self.rng.choice((0, 1, 2, 3)) if sources > 1 else 1 for _ in range(sources)]
            total_weight = max(1, sum(weights))
            counts |= {(side, i): total * weight // total_weight for i, weight in enumerate(weights)}
        return counts

    def _point(self, side: str, source: int, i: int) -> int:
        """Returns the point k of a row's keys, by the spread of the case."""
        span, rng = self.shape.span, self.rng
        share = i / max(1, self.counts[side, source])
        match self.shape.spread:
            case "few":
                return rng.randrange(3)
            case "constant":
                return 0
            case "skew":
                return int(span * rng.random() ** 4)
            case "drift":
                return int(share * span * 2) + rng.randrange(max(2, span // 4))
            case "ascending":
                return int(share * span)
            case "descending":
                return int((1 - share) * span)
        return rng.randrange(span)

    def _add_row(self, side: str, source: int) -> None:
        feed, i = self.feeds[side], self.done[side, source]
        self.feed_rows[side, source].append(len(feed))
        self.done[side, source] += 1
        points = {axis: self._point(side, source, i) for axis in self.axes}
        for name, raws in feed.raws.items():
            plan = self.plans[side].get(name)
            if plan is None:
                raws.append(self._time(side, source, i))
            else:
                raws.append(self._key(side, plan, points))

    def _key(self, side: str, plan: ColumnPlan, points: dict[str, int]) -> Raw:
        kind = self.axes[plan.axis].kinds[side]
        if self.shape.nulls and self.rng.random() < self.shape.nulls:
            return float("nan") if kind.is_float and self.rng.random() < 0.5 else None
        if self.shape.extremes and self.rng.random() < self.shape.extremes:
            return self.rng.choice(kind.extremes())
        return self.axes[plan.axis].raw(side, points[plan.axis] + plan.shift)

    # Calls

    def _calls(self) -> list[Call]:
        calls = self.calls
        while any(self._left(source) for source in self.counts):
            calls.append(self._push_both() if self._may_push_both() else self._push())
            if self.rng.random() < 0.05:
                calls.append(self._empty_push())
        for _ in range(self.shape.advances if self.time_axis is not None else 0):
            at = self.rng.randrange(len(calls) + 1)
            calls.insert(at, self._advance(at / (len(calls) + 1)))
        for _ in range(self.shape.flushes):
            calls.insert(self.rng.randrange(len(calls) + 1), Flush())
        for i in range(self.shape.checkpoints):
            restore = i == 0 or self.rng.random() < 0.5
            calls.insert(self.rng.randrange(len(calls) + 1), Checkpoint(restore))
        return calls

    def _left(self, source: tuple[str, int]) -> int:
        return self.counts[source] - self.done[source]

    def _size(self, left: int) -> int:
        rng = self.rng
        style = self.shape.batches if self.shape.batches != "mixed" else rng.choice(("one", "small", "large"))
        if len(self.calls) > SMALL_PUSHES:
            style = "all" if style == "all" else "large"
        size = {"one": 1, "small": rng.randrange(6), "large": rng.randrange(1, 60), "all": left}[style]
        return min(size, left)

    def _push(self) -> Push:
        side, source = self.rng.choice([source for source in self.counts if self._left(source)])
        return self._grow(side, source, self._size(self._left((side, source))))

    def _grow(self, side: str, source: int, size: int) -> Push:
        start = len(self.feeds[side])
        for _ in range(size):
            self._add_row(side, source)
        return Push(side, source, start, start + size)

    def _empty_push(self) -> Push:
        side, source = self.rng.choice(list(self.counts))
        return self._grow(side, source, 0)

    def _may_push_both(self) -> bool:
        left = self._left(("r", 0)) and self._left(("s", 0)) if self.shape.both else 0
        return bool(left) and self.rng.random() < 0.6

    def _push_both(self) -> PushBoth:
        r = self._grow("r", 0, self._size(self._left(("r", 0))))
        s = self._grow("s", 0, self._size(self._left(("s", 0))))
        arrival = [0] * (r.stop - r.start) + [1] * (s.stop - s.start)
        if self.rng.random() < 0.7:
            self.rng.shuffle(arrival)
        return PushBoth((r.start, r.stop), (s.start, s.stop), tuple(arrival))

    def _advance(self, share: float) -> Advance:
        """Returns an advance to about the stream time after this share of the calls."""
        axis, rng = self.time_axis, self.rng
        assert axis is not None
        silent = [source for source, count in self.counts.items() if count == 0]
        side, source = rng.choice(silent if silent and rng.random() < 0.7 else list(self.counts))
        beat = int(axis.span * share) + rng.randrange(-4, 3)
        return Advance(side, source, int(axis.raw(side, beat) or 0))


def _names(style: str) -> dict[str, dict[str, str]]:
    same = {"x": "x", "y": "y", "t": "t", "lo": "lo", "hi": "hi"}
    if style == "same":
        return {"r": same, "s": same}
    if style == "apart":
        return {"r": same, "s": {"x": "k", "y": "v", "t": "site", "lo": "low", "hi": "high"}}
    odd = {"x": "odd name", "y": "select", "t": "it's", "lo": 'say "lo"', "hi": "Ünï.hi"}
    return {"r": odd, "s": {"x": "X", "y": "y", "t": "TRUE", "lo": "1st", "hi": "r.x"}}


def _filled(feed: Feed) -> pa.Table:
    assert feed.table is not None
    return feed.table


# --- Payload -------------------------------------------------------------------------------------


def _table(rng: Random, feed: Feed, payload: int) -> pa.Table:
    """Returns the feed as an Arrow table, with some columns of other types among the keys."""
    columns = [(name, feed.kinds[name].arrow(raws)) for name, raws in feed.raws.items()]
    for extra in _payload(rng, len(feed))[:payload]:
        columns.insert(rng.randrange(len(columns) + 1), extra)
    return pa.table([array for _, array in columns], names=[name for name, _ in columns])


def _payload(rng: Random, rows: int) -> list[tuple[str, pa.Array]]:
    words = [rng.choice(("", "a", "längs", None, "x" * 40)) for _ in range(rows)]
    lists = [None if rng.random() < 0.2 else [rng.randrange(9)] * rng.randrange(3) for _ in range(rows)]
    extras = [
        ("note", pa.array(words, pa.string())),
        ("flag", pa.array([rng.choice((True, False, None)) for _ in range(rows)], pa.bool_())),
        ("tags", pa.array(lists, pa.list_(pa.int16()))),
        ("blob", pa.array([bytes([rng.randrange(256)]) for _ in range(rows)], pa.binary())),
        ("label", pa.array(words, pa.string()).dictionary_encode()),
        (
            "pair",
            pa.array(
                [{"a": i % 99, "b": str(i)} for i in range(rows)],
                pa.struct({"a": pa.int8(), "b": pa.string()}),
            ),
        ),
    ]
    rng.shuffle(extras)
    return extras


# --- Drawing -------------------------------------------------------------------------------------


class _Dice:
    """Reads choices from bytes: a low byte is a simple choice, so shapes shrink as bytes do."""

    def __init__(self, raw: bytes) -> None:
        self._raw = iter(raw)

    def pick(self, options: Sequence[_Option]) -> _Option:
        return options[next(self._raw) * len(options) // 256]

    def number(self, low: int, high: int) -> int:
        return low + next(self._raw) * (high - low + 1) // 256

    def seed(self) -> int:
        return int.from_bytes(bytes(next(self._raw) for _ in range(4)), "big")


@st.composite
def shapes(draw: st.DrawFn, families: Sequence[str] = WEIGHTED_FAMILIES) -> Shape:
    """Draws any case of these families.

    One block of bytes makes every case independent; with a strategy per field Hypothesis would spend most cases on
    copies of one case with two equal fields.
    """
    return _draw(_Dice(draw(st.binary(min_size=_BYTES, max_size=_BYTES))), families)


def random_shape(rng: Random, families: Sequence[str] = WEIGHTED_FAMILIES) -> Shape:
    """Returns a shape without Hypothesis, for tests that need a fixed sequence of cases."""
    return _draw(_Dice(rng.randbytes(_BYTES)), families)


_BYTES = 49
_ROW_SIZES = (1, 2, 5, 20, 100, 150, 200, 1_000_000, 1_000_000)
_BEATS = (0, 1, 2, 5, 10, 20, 100, 100, 300, 300)


def _draw(dice: _Dice, families: Sequence[str]) -> Shape:
    pick = dice.pick
    family = pick(families)
    self_join = pick((False,) * 7 + (True,))
    key_kinds, time_kinds = NUMBER_KINDS if family in NUMBERS_ONLY else KEY_KINDS, TIME_KINDS
    code_kinds = CODE_KINDS
    if self_join:  # one table has one type for a column
        code_kinds = [pair for pair in code_kinds if pair[0] == pair[1]]
        key_kinds = [pair for pair in key_kinds if pair[0] == pair[1]]
        time_kinds = [pair for pair in time_kinds if pair[0] == pair[1]]
    mode = pick(("rows", "rows", "time", "time", "time", "time", "rows in time"))
    timed = mode != "rows"
    sizes = _BEATS if mode == "time" else _ROW_SIZES
    first = pick(sizes)
    return Shape(
        family=family,
        key_kinds=pick(key_kinds),
        other_kinds=pick(key_kinds),
        rows=(_row_count(dice), _row_count(dice)),
        spread=pick(SPREADS),
        span=pick((2, 5, 10, 10, 30, 100)),
        nulls=pick((0.0, 0.0, 0.05, 0.05, 0.05, 0.3)),
        extremes=pick((0.0, 0.0, 0.1, 0.4)),
        filters=pick((0, 0, 0, 0, 1, 2)),
        names=pick(("same", "same", "apart", "odd")),
        window="time" if mode == "time" else "rows",
        sizes=(first, pick((first, pick(sizes)))),
        time_kinds=pick(time_kinds) if timed else None,
        time_term=pick((False,) * 9 + (True,)) and timed,
        lateness=pick((0, 0, 2, 5, 20)) if timed else 0,
        disorder=pick((0, 0, 2, 5, 10, 30)) if timed else 0,
        density=pick((1.0, 0.5, 0.2, 0.1, 2.0)) if timed else 1.0,
        edge_of_time=(edge := pick((False,) * 19 + (True,)) and timed),
        uneven=pick((False,) * 19 + (True,)) and timed and not edge,
        sources=(pick((1, 1, 1, 2, 3)), 1 if self_join else pick((1, 1, 1, 2, 3))) if timed else (1, 1),
        self_join=self_join,
        batches=pick(("all", "mixed", "mixed", "one", "small", "large")),
        both=pick((False, False, True)) and not self_join,
        advances=pick((0, 0, 1, 3, 6)) if timed else 0,
        flushes=pick((0, 0, 0, 0, 1, 2)),
        checkpoints=pick((0, 0, 0, 0, 1, 2)),
        payload=pick((0, 0, 1, 2, 6)),
        output=pick(("pairs", "pairs", "pairs", "seqs", "count")),
        schemas=pick((False, False, True)),
        code_kinds=pick(code_kinds),
        seed=dice.seed(),
    )


def _row_count(dice: _Dice) -> int:
    low, high = dice.pick(((0, 6), *[(20, 80)] * 3, *[(110, 190)] * 8, *[(200, 320)] * 3))
    return dice.number(low, high)
