"""Compiles the kernels of operators ahead of their first use: `millrace warm`, and `python -m millrace.warm NAME …`.

An operator's kernels are compiled by running its typical calls on small data, with keys of 64 and of 32 bits; Numba
keeps the machine code on disk. So are time windows, several sources, stored states, two inequalities, gates and nearest
neighbours. Then the operator is marked as ready (`host/runtime/first_use.py`). Limits: kernels of
rarer calls (other options, other devices) compile when they are first used.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa

from millrace.host.base.types import Array
from millrace.host.runtime.first_use import set_ready
from millrace.index import OrderedIndex
from millrace.ingest.arguments import pairs_for
from millrace.ingest.choices import HOWS, OUTPUTS
from millrace.join_parts.window_engine import WINDOW_JOIN
from millrace.knn_stream import KnnJoin
from millrace.knn_table import knn_join
from millrace.live_join import LiveJoin
from millrace.scalegate import ScaleGate
from millrace.table_join import JOIN, join
from millrace.window_join import WindowJoin

BAND, EQUAL, INEQUALITY = "abs(r.x - s.x) <= 5", "r.x = s.x", "r.x < s.x"
TWO_INEQUALITIES = "r.x < s.x AND r.v > s.v"
ROWS = (3, 40, 600, 1 << 14)
"""Batches of few rows, of some and of many take different kernels."""
CPU = "cpu"
DTYPES: tuple[type, ...] = (np.int64, np.int32, np.float64)
Step = tuple[str, Callable[[], Any]]


def _rows(rows: int, dtype: type) -> pa.Table:
    rng = np.random.default_rng(rows)
    x: Array = rng.integers(0, 1 << 20, rows).astype(dtype)
    return pa.table({"x": x, "v": rng.random(rows), "n": rng.integers(0, 9, rows).astype(np.int32)})


def _window_joins() -> Iterator[Step]:
    for dtype in DTYPES:
        for output in OUTPUTS:
            yield f"window_join of {dtype.__name__}, {output}", partial(_pushes, dtype, output)
    yield "live_join", _live


def _pushes(dtype: type, output: Any, index: Any = "auto", on: str = BAND) -> None:
    with WindowJoin(on, window="1000 rows", index=index, device=CPU, output=output) as made:
        for rows in ROWS:
            for side in ("r", "s", "r", "s"):
                made.push(side, _rows(rows, dtype))


def _live() -> None:
    schema = _rows(1, np.int64).schema
    with LiveJoin(BAND, window="1000 rows", schemas={"r": schema, "s": schema}) as live:
        for number in range(8):
            live.put("rs"[number % 2], {"x": number, "v": 0.5, "n": number})
        live.put("r", _rows(40, np.int64))
        live.put("s", _rows(40, np.int64))
        live.flush()


def _joins() -> Iterator[Step]:
    for dtype in DTYPES:
        for rows in (600, 1 << 14):
            for on in (BAND, EQUAL):
                yield f"join of {rows} rows, {dtype.__name__}, {on}", partial(_join, dtype, rows, on)
    yield f"join, {INEQUALITY}", partial(_join, np.int64, 200, INEQUALITY)


def _join(dtype: type, rows: int, on: str) -> None:
    r, s = _rows(rows, dtype), _rows(rows + 1, dtype)
    for how in HOWS:
        join(r, s, on, how=how, device=CPU)
    join(r, s, on, output="count", device=CPU)


def _indexes() -> Iterator[Step]:
    for dtype in DTYPES:
        for layout in ("implicit", "regular"):
            yield f"ordered_index of {dtype.__name__}, {layout}", partial(_index, dtype, layout)


def _index(dtype: type, layout: Any) -> None:
    keys: Array = np.arange(5_000).astype(dtype)
    with OrderedIndex(keys, np.arange(len(keys)), layout=layout, device=CPU) as index:
        index.lookup(keys[:2])
        index.lookup(keys)
        index.range(keys[:3], keys[3:6])
        index.update(upsert=(keys[:2], np.arange(2)), delete=keys[4:5])


def _other_indexes() -> Iterator[Step]:
    for index, device in pairs_for(BAND):
        if device == CPU and index != "auto":
            for output in OUTPUTS:
                yield f"window_join, index {index}, {output}", partial(_pushes, np.int64, output, index)


def _timed_rows(rows: int) -> pa.Table:
    table = _rows(rows, np.int64)
    at: Array = np.arange(rows, dtype=np.int64) * 1_000
    return table.append_column("at", pa.array(at).cast(pa.timestamp("us")))


def _timed_windows() -> Iterator[Step]:
    yield "window_join, time", partial(_timed, {})
    yield "window_join, time and sources", partial(_timed, {"sources": {"r": 2, "s": 1}})
    yield "window_join, self_join", partial(_timed, {"self_join": True})
    yield "window_join, two inequalities", partial(_pushes, np.int64, "pairs", "spo", TWO_INEQUALITIES)
    yield "join, two inequalities", partial(_join, np.int64, 600, TWO_INEQUALITIES)


def _timed(arguments: dict[str, Any]) -> None:
    same: dict[str, Any] = {"on": BAND, "window": "1 second", "time": "at", "device": CPU, **arguments}
    with WindowJoin(**same) as made:
        for rows in ROWS[1:]:
            made.push("r", _timed_rows(rows))
            if "self_join" not in arguments:
                made.push("s", _timed_rows(rows))
        stored = made.state()
        made.close()
    WindowJoin.restore(stored.manifest, stored.added, **same).close()


def _gates() -> Iterator[Step]:
    yield "ScaleGate", _gate


def _gate() -> None:
    gate = ScaleGate(sources=2, readers=1, time="at")
    for rows in ROWS[1:]:
        for source in (0, 1):
            gate.add(source, _timed_rows(rows))
        gate.ready(0)
    gate.close(0)
    gate.close(1)
    gate.ready(0)


def _neighbours() -> Iterator[Step]:
    for metric in ("euclidean", "haversine"):
        yield f"knn_join, {metric}", partial(_knn, metric)
        yield f"KnnJoin, {metric}", partial(_knn_stream, metric)


def _points(rows: int) -> pa.Table:
    rng = np.random.default_rng(rows)
    return pa.table({"lon": rng.uniform(-180, 180, rows), "lat": rng.uniform(-90, 90, rows)})


def _knn(metric: Any) -> None:
    for rows in ROWS:
        knn_join(_points(rows), _points(rows + 1), on=("lon", "lat"), k=3, metric=metric, device=CPU)


def _knn_stream(metric: Any) -> None:
    with KnnJoin(on=("lon", "lat"), k=3, window="1000 rows", metric=metric, device=CPU) as made:
        for rows in ROWS:
            for side in ("s", "r"):
                made.push(side, _points(rows))


RECIPES: dict[str, Callable[[], Iterator[Step]]] = {
    WINDOW_JOIN: _window_joins,
    JOIN: _joins,
    "ordered_index": _indexes,
    "other_indexes": _other_indexes,
    "time_windows": _timed_windows,
    "gates": _gates,
    "neighbours": _neighbours,
}
"""What `millrace warm` compiles, by name, the most used first."""


def warm(names: list[str], report: Callable[[str, float], None]) -> None:
    """Compile the kernels of these recipes and mark them as ready."""
    os.environ["MILLRACE_COMPILE"] = "now"
    for number, name in enumerate(names):
        for what, run in RECIPES[name]():
            report(f"compiling {what}", number / len(names))
            run()
        set_ready(name)
    report("compiled", 1.0)


if __name__ == "__main__":
    warm([name for name in sys.argv[1:] if name in RECIPES], lambda what, share: None)
