"""The demo job: joins two sensor streams with every index on every device of this machine, and compares the outputs.

It joins temperature readings (r) with calibration and alarm events (s) within ten minutes and a narrow temperature
band. Some rows are late, some have no value or no time. Inputs and outputs are processed batch by batch, so that a slow
pair of index and device can be stopped at its time limit; its output up to that point must still be the same.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from millrace.errors import ArgumentError
from millrace.ingest.arguments import pairs_for
from millrace.ingest.choices import IndexName
from millrace.window_join import WindowJoin

ON = "abs(r.x - s.x) <= 0.005"
WINDOW = "10 minutes"
LATENESS = "5 seconds"
BATCH = 8192
SECONDS_PER_RUN = 10.0
SEED = 7
_START = 1_700_000_000_000_000
_STEP = 150_000  # microseconds between two rows, so that ten minutes hold 4,000 rows of a stream
Progress = Callable[[str, float], None]
Tables = tuple[pa.Table, pa.Table]


@dataclass(frozen=True)
class DemoRun:
    """The results of one pair of index and device; `complete` is false if it was stopped at its time limit."""

    index: str
    device: str
    rows_in: int
    pairs: int
    rows_per_second: int
    late: int
    held: int
    complete: bool
    identical: bool


@dataclass(frozen=True)
class Outcome:
    """All runs, the output of the first, and the differences found."""

    rows: int
    runs: list[DemoRun]
    result: pa.Table
    faults: list[str]


def streams(rows: int) -> Tables:
    """Readings and events; the same tables for the same number of rows."""
    rng = np.random.default_rng(SEED)
    readings = pa.table(
        {
            "ts": _times(rng, rows),
            "sensor": rng.integers(1, 40, rows, dtype=np.int32),
            "x": _temperatures(rng, rows),
            "humidity": rng.integers(20, 95, rows, dtype=np.int16),
        }
    )
    events = pa.table(
        {
            "ts": _times(rng, rows),
            "kind": pa.array(np.array(["calibration", "alarm"])[rng.integers(0, 2, rows)]),
            "x": _temperatures(rng, rows),
        }
    )
    return readings, events


def _times(rng: np.random.Generator, rows: int) -> pa.Array:
    """One row per 150 ms; one in a hundred is up to ten seconds late, one in a thousand has no time."""
    times = _START + np.arange(rows) * _STEP + rng.integers(0, _STEP, rows)
    times -= np.where(rng.random(rows) < 0.01, rng.integers(0, 10_000_000, rows), 0)
    return pa.array(times, pa.timestamp("us", "UTC"), mask=rng.random(rows) < 0.001)


def _temperatures(rng: np.random.Generator, rows: int) -> pa.Array:
    """Temperatures with three decimals; one in two hundred is missing."""
    return pa.array(np.round(rng.uniform(15, 35, rows), 3), mask=rng.random(rows) < 0.005)


def run(rows: int, progress: Progress) -> Outcome:
    """Run every index that serves the condition on every device; all outputs must equal that of the first run."""
    pairs, (r, s) = pairs_for(ON), streams(rows)
    runs: list[DemoRun] = []
    faults: list[str] = []
    expected: list[pa.Table] = []
    for number, (index, device) in enumerate(pairs):

        def within(share: float, number: int = number, name: str = f"{index} on {device}") -> None:
            progress(name, (number + share) / len(pairs))

        one, outputs, fault = _run_one(index, device, (r, s), expected, within)
        runs.append(one)
        expected = expected or outputs
        if fault is not None:
            faults.append(f"{index} on {device} differs from {runs[0].index} on {runs[0].device}: {fault}")
    return Outcome(rows, runs, pa.concat_tables(expected), faults)


def _run_one(
    index: IndexName, device: str, tables: Tables, expected: list[pa.Table], progress: Callable[[float], None]
) -> tuple[DemoRun, list[pa.Table], str | None]:
    _warm_up(index, device, tables)
    join = _join(index, device, tables)
    outputs: list[pa.Table] = []
    fault: str | None = None
    seconds, complete, held = 0.0, True, 0
    steps = list(_steps(tables))
    for number, (side, batch) in enumerate(steps):
        progress(number / len(steps))
        # The others are compared with the first run, so that one always runs to the end.
        if expected and seconds > SECONDS_PER_RUN:
            complete = False
            break
        held = join.stats["held"]
        start = time.perf_counter()
        outputs.append(join.push(side, batch) if side else join.close())
        seconds += time.perf_counter() - start
        if expected and fault is None and not outputs[-1].equals(expected[number]):
            fault = f"the output of batch {number} is not the same"
    stats = join.stats
    rows = sum(stats["rows"].values())
    speed = round(rows / max(seconds, 1e-9))
    done = DemoRun(index, device, rows, stats["pairs"], speed, stats["late"], held, complete, fault is None)
    return done, outputs, fault


def _join(index: IndexName, device: str, tables: Tables) -> WindowJoin:
    schemas = {"r": tables[0].schema, "s": tables[1].schema}
    return WindowJoin(on=ON, window=WINDOW, time="ts", lateness=LATENESS, index=index, device=device, schemas=schemas)


def _warm_up(index: IndexName, device: str, tables: Tables) -> None:
    """Compile or load the kernels before the timed run: small batches use others than a batch of the run."""
    join = _join(index, device, tables)
    for side, batch in _steps((tables[0].slice(0, BATCH), tables[1].slice(0, BATCH))):
        if side:
            join.push(side, batch)
        else:
            join.close()


def _steps(tables: Tables) -> Iterator[tuple[str | None, pa.Table | None]]:
    """Alternating batches of r and s, then the end (None)."""
    for start in range(0, tables[0].num_rows, BATCH):
        for side, table in zip("rs", tables, strict=True):
            yield side, table.slice(start, BATCH)
    yield None, None


def check_folder(folder: Path) -> None:
    """Create the folder for the result; raises an `ArgumentError` if that fails."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ArgumentError(
            f"results cannot be written to {folder}: {error.strerror}; choose a folder with --out"
        ) from error


def summary(outcome: Outcome) -> dict[str, Any]:
    """The arguments and results, for `demo.json`."""
    return {
        "on": ON,
        "window": WINDOW,
        "lateness": LATENESS,
        "rows": outcome.rows,
        "identical": not outcome.faults,
        "faults": outcome.faults,
        "runs": [asdict(one) for one in outcome.runs],
    }


def write(outcome: Outcome, folder: Path) -> None:
    """Write the pairs and the summary."""
    write_results(outcome.result, summary(outcome), folder)


def write_results(rows: pa.Table, summary: dict[str, Any], folder: Path) -> None:
    """Write `demo.parquet` and `demo.json`, for this demo and for the one in Spark."""
    try:
        pq.write_table(rows, folder / "demo.parquet")
        (folder / "demo.json").write_text(json.dumps(summary, indent=2) + "\n")
    except OSError as error:
        raise ArgumentError(f"results cannot be written to {folder}: {error}; choose a folder with --out") from error
