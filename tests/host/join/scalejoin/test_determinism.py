"""ScaleJoin is deterministic: one output for any number of threads, any interleaving of sources, any bursts."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest

import millrace as mr

SOURCES = {"r": 3, "s": 2}
"""Sources 0 to 2 of the gate carry r's rows, 3 and 4 those of s."""
GATE_SOURCES = SOURCES["r"] + SOURCES["s"]
ROWS = {0: 150, 1: 40, 2: 7, 3: 120, 4: 60}
"""Rows of each source: rates differ."""
WINDOW, EPS = 25, 3
Row = tuple[int, int, int]
"""Time, source, seq."""


def streams(seed: int) -> dict[int, list[tuple[int, int]]]:
    """The times and keys of each source: times tie within and between sources."""
    rng = random.Random(seed)
    return {
        source: sorted((rng.randrange(90), rng.randrange(30)) for _ in range(count)) for source, count in ROWS.items()
    }


def table(rows: list[tuple[int, int]]) -> pa.Table:
    return pa.table(
        {"ts": pa.array([ts for ts, _ in rows], pa.int64()), "x": pa.array([x for _, x in rows], pa.int32())}
    )


def batches(rows: dict[int, list[tuple[int, int]]], rng: random.Random) -> Iterator[tuple[int, pa.Table]]:
    """All rows in a random interleaving of the sources, in bursts."""
    done = dict.fromkeys(rows, 0)
    while left := [source for source in rows if done[source] < len(rows[source])]:
        source = rng.choice(left)
        first = done[source]
        done[source] = min(first + rng.choice([1, 2, 9, 80]), len(rows[source]))
        yield source, table(rows[source][first : done[source]])


def expected(rows: dict[int, list[tuple[int, int]]]) -> list[tuple[Row, Row]]:
    """The pairs (r, s) of a count window over the gate's order, by brute force."""
    order = sorted((ts, source, seq, x) for source in rows for seq, (ts, x) in enumerate(rows[source]))
    seen: dict[bool, list[tuple[int, int, int, int]]] = {True: [], False: []}
    found = []
    for new in order:
        is_r = new[1] < SOURCES["r"]
        for old in seen[not is_r][-WINDOW:]:
            if abs(new[3] - old[3]) <= EPS:
                pair = (new, old) if is_r else (old, new)
                found.append((pair[0][:3], pair[1][:3]))
        seen[is_r].append(new)
    return found


def gated(rows: dict[int, list[tuple[int, int]]], threads: int, rng: random.Random) -> list[tuple[Row, Row]]:
    """Two gates around the join, as in the paper: sources, `mr.ScaleGate`, `threads` stripes, one ordered output."""
    gate = mr.ScaleGate(sources=GATE_SOURCES, readers=1, time="ts")
    join = mr.WindowJoin(f"abs(r.x - s.x) <= {EPS}", window=f"{WINDOW} rows", index="scan", threads=threads)
    found: list[tuple[Row, Row]] = []

    def push() -> None:
        ready = gate.ready(0).rename_columns({"seq": "number"})
        if ready.num_rows:
            is_r = pa.compute.less(ready["source"], SOURCES["r"])
            arrival = pa.compute.invert(is_r).cast(pa.uint8()).to_numpy()
            out = join.push_both(ready.filter(is_r), ready.filter(pa.compute.invert(is_r)), arrival)
            if out.num_rows:
                r, s = (
                    zip(*(out[f"{side}_{name}"].to_pylist() for name in ("ts", "source", "number")), strict=True)
                    for side in "rs"
                )
                found.extend(zip(r, s, strict=True))

    for source, batch in batches(rows, rng):
        gate.add(source, batch)
        if rng.random() < 0.5:
            push()
    for source in range(GATE_SOURCES):
        gate.close(source)
    push()
    return found


@pytest.mark.usefixtures("four_threads")
@pytest.mark.parametrize("threads", [1, 2, 3, 4])
def test_any_interleaving_through_a_gate_gives_one_output(threads: int) -> None:
    rows = streams(seed=5)
    wanted = expected(rows)
    assert len(wanted) > 1000
    for seed in range(6):
        assert gated(rows, threads, random.Random(10 * threads + seed)) == wanted


@pytest.mark.usefixtures("four_threads")
@pytest.mark.parametrize("window", ["12", "25 rows"])
def test_any_interleaving_of_a_joins_own_sources_gives_one_output(window: str) -> None:
    """The clocks of `WindowJoin(sources=…)` do what the first gate does."""
    rows = streams(seed=6)
    outputs = []
    for threads in (1, 2, 3, 4):
        for seed in range(3):
            given: dict[str, Any] = {
                "window": window,
                "time": "ts",
                "sources": SOURCES,
                "index": "scan",
                "threads": threads,
            }
            schemas = dict.fromkeys(("r", "s"), table([]).schema)
            join = mr.WindowJoin(f"abs(r.x - s.x) <= {EPS}", schemas=schemas, **given)
            parts = [
                join.push("r", batch, source=source)
                if source < SOURCES["r"]
                else join.push("s", batch, source=source - SOURCES["r"])
                for source, batch in batches(rows, random.Random(100 * threads + seed))
            ]
            outputs.append(pa.concat_tables([*parts, join.close()]))
    assert outputs[0].num_rows > 1000
    assert all(output.equals(outputs[0]) for output in outputs)
