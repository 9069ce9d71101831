"""The operators that the interrupt tests call, each with an endless stream of random calls.

A step is called on two equal operators, one of which is interrupted: their results must be equal. Calls that return
nothing return `True` here, as `recover` does. After `state`, the interrupted operator is replaced by one restored from
all that its states have given, with another index where there is one.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

import millrace as mr

Step = tuple[str, Callable[[Any], Any]]
"""The kind of a call, and the call."""


@dataclass
class Subject:
    """An operator with fixed arguments."""

    name: str
    make: Callable[[], Any]
    steps: Callable[[np.random.Generator], Iterator[Step]]
    restore: Callable[[bytes, dict[str, bytes]], Any] | None = None
    stored: dict[str, bytes] = field(default_factory=dict)

    def recover(self, operator: Any) -> Any:
        """What an interrupted call has completed; None if it did nothing."""
        return operator.recover()

    def after(self, operator: Any, result: Any) -> Any:
        """The operator to go on with: a restored one after `state`."""
        if not isinstance(result, mr.StateDelta):
            return operator
        assert self.restore is not None
        self.stored.update(result.added)
        for name in result.removed:
            del self.stored[name]
        return self.restore(result.manifest, self.stored)


def same(found: Any, wanted: Any) -> bool:
    """Whether two results are equal; states are equal if the operators that follow are."""
    if isinstance(wanted, mr.StateDelta):
        return isinstance(found, mr.StateDelta)
    if isinstance(wanted, pa.Table | pa.Array | pa.ChunkedArray):
        return bool(found.equals(wanted))
    return bool(found == wanted)


# Each call is direct: with `*arguments` or through functions of C, an interrupt could come before the caller has the
# result.


def _push(side: str, table: pa.Table) -> Step:
    return "push", lambda j: j.push(side, table)


def _advance(side: str, at: int) -> Step:
    return "advance", lambda j: j.advance(side, at)


def _lookup(keys: Any) -> Step:
    return "lookup", lambda ix: ix.lookup(keys)


def _range(keys: Any) -> Step:
    return "range", lambda ix: ix.range(keys, keys + 5)


def _update(keys: Any) -> Step:
    return "update", lambda ix: ix.update(upsert=keys[::2], delete=keys[1::2]) or True


def _add(source: int, table: pa.Table) -> Step:
    return "add", lambda gate: gate.add(source, table) or True


def _ready(reader: int) -> Step:
    return "ready", lambda gate: gate.ready(reader)


def _advance_source(source: int, at: int) -> Step:
    return "advance", lambda gate: gate.advance(source, at) or True


def _table_join(tables: list[pa.Table], on: str) -> Step:
    return "join", lambda _: mr.join(tables[0], tables[1], on=on)


def _table_knn(tables: list[pa.Table]) -> Step:
    return "knn", lambda _: mr.knn_join(tables[0], tables[1], on=("x", "z"), k=2)


# --- joins of streams ---


def _join_steps(
    columns: Callable[[np.random.Generator, int], dict[str, Any]], timed: bool, sides: str = "rs", rest: float = 0.06
) -> Callable[[np.random.Generator], Iterator[Step]]:
    def steps(rng: np.random.Generator) -> Iterator[Step]:
        now = {"r": 0, "s": 0}
        while True:
            side = sides[int(rng.integers(len(sides)))]
            rows = int(rng.choice([0, 1, 3, 40], p=[0.05, 0.35, 0.4, 0.2]))
            cells = columns(rng, rows)
            if timed:
                times = now[side] + np.cumsum(rng.integers(0, 3, rows))
                now[side] = int(times[-1]) if rows else now[side]
                cells["ts"] = times
            table, turn = pa.table(cells), rng.random()
            if timed and turn < rest:
                now[side] += 20
                yield _advance(side, now[side])
            elif turn < 1.4 * rest:
                yield "flush", lambda j: j.flush()
            elif turn < 1.7 * rest:
                yield "state", lambda j: j.state()
            else:
                yield _push(side, table)

    return steps


def _numbers(rng: np.random.Generator, rows: int) -> dict[str, Any]:
    return {"x": rng.integers(0, 200, rows), "y": rng.integers(0, 6, rows), "t": rng.choice(["a", "b", "c"], rows)}


def _points(rng: np.random.Generator, rows: int) -> dict[str, Any]:
    return {"x": rng.integers(0, 50, rows).astype(float), "y": rng.integers(0, 50, rows).astype(float)}


def _window_join(name: str, other: str = "bisort", **arguments: Any) -> Subject:
    given = {"on": "abs(r.x - s.x) <= 3", "window": "60 rows", **arguments}
    timed = "time" in given
    return Subject(
        name,
        lambda: mr.WindowJoin(**given),
        _join_steps(_numbers, timed, "r" if "self_join" in given else "rs"),
        lambda manifest, runs: mr.WindowJoin.restore(manifest, runs, **{**given, "index": other}),
    )


def _knn_join(name: str, **arguments: Any) -> Subject:
    given: dict[str, Any] = {"on": ("x", "y"), "k": 3, "window": "60 rows", **arguments}
    return Subject(
        name,
        lambda: mr.KnnJoin(**given),
        _join_steps(_points, "time" in given),
        lambda manifest, runs: mr.KnnJoin.restore(manifest, runs, **given),
    )


# --- ordered indexes, gates, tables ---


def _index_steps(rng: np.random.Generator) -> Iterator[Step]:
    while True:
        keys, turn = rng.integers(0, 4000, int(rng.integers(1, 40))), rng.random()
        if turn < 0.4:
            yield _lookup(keys)
        elif turn < 0.6:
            yield _range(keys)
        elif turn < 0.7:
            yield "len", lambda ix: (len(ix), 1)
        else:
            yield _update(keys)


def _index(layout: Any, device: str = "cpu") -> Subject:
    return Subject(
        f"index-{layout}-{device}",
        lambda: mr.OrderedIndex(np.arange(0, 4000, 2), layout=layout, device=device, duplicates="last"),
        _index_steps,
    )


def _gate_steps(rng: np.random.Generator) -> Iterator[Step]:
    now = [0, 0, 0]
    while True:
        source, reader, rows = int(rng.integers(3)), int(rng.integers(2)), int(rng.integers(1, 30))
        turn = rng.random()
        if turn < 0.5:
            times = now[source] + np.cumsum(rng.integers(0, 3, rows))
            now[source] = int(times[-1])
            table = pa.table({"ts": times, "x": rng.integers(0, 99, rows)})
            yield _add(source, table)
        elif turn < 0.9:
            yield _ready(reader)
        else:
            now[source] += 10
            yield _advance_source(source, now[source])


class LiveRun:
    """A live join and the results polled so far, which come in pieces of any size."""

    def __init__(self, live: mr.LiveJoin, tables: tuple[pa.Table, ...] = ()) -> None:
        """Go on with a live join."""
        self.live, self.tables = live, tables

    def recover(self) -> Any:
        """Keep recovered results."""
        result = self.live.recover()
        if isinstance(result, pa.Table):
            self.tables += (result,)
            return True
        return result

    def take(self) -> pa.Table:
        """All results since the last time."""
        result = pa.concat_tables(self.tables)
        self.tables = ()
        return result

    def poll(self) -> bool:
        """Keep what is ready."""
        self.tables += (self.live.poll(0.0002),)
        return True

    def flush(self) -> bool:
        """Keep all results."""
        self.tables += (self.live.flush(),)
        return True


def _put(side: str, rows: Any) -> Step:
    return "put", lambda run: run.live.put(side, rows)


def _live_steps(rng: np.random.Generator) -> Iterator[Step]:
    while True:
        side, turn = "rs"[int(rng.integers(2))], rng.random()
        if turn < 0.6:
            table = pa.table({"x": rng.integers(0, 60, int(rng.integers(1, 20)))})
            yield _put(side, table.to_pylist()[0] if turn < 0.2 else table)
        elif turn < 0.85:
            yield "poll", lambda run: run.poll()
        elif turn < 0.95:
            yield "flush", lambda run: run.flush()
            yield "take", lambda run: run.take()
        else:
            yield "state", lambda run: run.live.state()


class _LiveSubject(Subject):
    def after(self, operator: Any, result: Any) -> Any:
        """A restored join takes over what was polled."""
        found = super().after(operator, result)
        if found is operator:
            return operator
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ResourceWarning)
            operator.live.__exit__(None, None, None)
        return LiveRun(found, operator.tables)


_SCHEMA = pa.schema([("x", pa.int64())])
_LIVE: dict[str, Any] = {
    "on": "abs(r.x - s.x) <= 3",
    "window": "60 rows",
    "schemas": {"r": _SCHEMA, "s": _SCHEMA},
    "capacity": 4000,
}


class _Tables:
    """The joins of tables, which have no state."""

    def recover(self) -> None:
        """Nothing is kept: the call is made again."""


def _table_steps(rng: np.random.Generator) -> Iterator[Step]:
    conditions = ["abs(r.x - s.x) <= 3", "r.x < s.x and r.y > s.y", "r.x = s.x and r.t = s.t"]
    while True:
        tables = [pa.table({**_numbers(rng, 60), "z": rng.random(60)}) for _ in range(2)]
        on = conditions[int(rng.integers(3))]
        yield _table_join(tables, on)
        yield _table_knn(tables)


SUBJECTS = [
    _window_join("auto"),
    _window_join("count", output="count", index="rap", other="wib"),
    _window_join("btree", index="btree", threads=1),
    _window_join("scan", index="scan"),
    _window_join("pim", index="pim", other="chain"),
    _window_join("chain", index="chain", other="im"),
    _window_join("spo", on="r.x < s.x and r.y > s.y", index="spo", other="scan"),
    _window_join("grouped", on="abs(r.x - s.x) <= 3 and r.t = s.t", index="wib"),
    _window_join("timed", window="15", time="ts", lateness=5, index="bisort"),
    _window_join("self", self_join=True, other="rap"),
    _window_join("opencl", index="bisort", device="opencl"),
    _knn_join("knn"),
    _knn_join("knn-timed", window="15", time="ts", how="left"),
    _knn_join("knn-partitions", options={"partitions": 2}),
    _index("implicit"),
    _index("regular"),
    _index("regular", "opencl"),
    Subject("gate", lambda: mr.ScaleGate(sources=3, readers=2, time="ts"), _gate_steps),
    Subject("tables", _Tables, _table_steps),
    _LiveSubject(
        "live",
        lambda: LiveRun(mr.LiveJoin(**_LIVE)),
        _live_steps,
        lambda manifest, runs: mr.LiveJoin.restore(manifest, runs, **_LIVE),
    ),
]
NAMES = {subject.name: subject for subject in SUBJECTS}
