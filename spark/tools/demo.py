"""The main job, a stream in Spark on every device here: readings get their site, and meet events in a band and window.

Readings (r) have a serial number, whose site is looked up in an ordered index of all serial numbers, and a temperature
in thousandths of a degree; events (s) are alarms and calibrations. A reading meets an event within two thousandths and
ten minutes. Both come as files, a micro-batch each; some rows are late, some have no temperature or no time. `cpu`
and the GPUs do all of it; simulators join a slice of both streams, the lookup being done by the CPU. A device passes if
its rows are those of the CPU, and if the counts account for all of it: every row that came was counted, as many pairs
were found as came out, and no fewer rows went through the device's probers than asked. (On the CPU, small runs are
asked by structures without probers.)
"""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

import millrace as mr
from millrace.cli.demo_job import write_results
from millrace.registry import join_pairs
from millrace.spark.api.lookup import lookup
from millrace.spark.api.window_join import window_join
from millrace.spark.cluster.session import local_session
from millrace.spark.stream.task import COUNTS

ON = "abs(r.x - s.x) <= 2"
WINDOW, LATENESS = "10 minutes", "30 seconds"
SERIALS = 1 << 18
BATCHES = 4
PLACES = 2
SEED = 11
SLICED = ("rtl", "hls")
"""Families that are simulated: they do a slice."""
SLICE = 20
"""One row in so many is in the slice."""
LOOKUPS = ("cpu", "opencl", "cuda")
"""Families that do the lookup too."""
_START, _HOUR = 1_700_000_000_000_000, 3_600_000_000
PATIENCE = 600
Progress = Callable[[str, float], None]


@dataclass(frozen=True)
class Run:
    """What one device did."""

    device: str
    rows: int
    late: int
    pairs: int
    seconds: float
    rows_per_second: int
    asked: int
    device_rows: int
    device_cycles: int
    accounted: bool
    identical: bool


@dataclass(frozen=True)
class Outcome:
    """All runs, the CPU's rows, and what was found wrong."""

    rows: int
    runs: list[Run]
    result: pa.Table
    faults: list[str]


@dataclass(frozen=True)
class Sources:
    """The two streams, and the index of sites."""

    readings: pa.Table
    events: pa.Table
    sites: mr.OrderedIndex


def sources(rows: int) -> Sources:
    """The same for the same number of rows; one temperature in two hundred is missing."""
    rng = np.random.default_rng(SEED)
    serials = np.sort(rng.choice(1 << 40, SERIALS, replace=False))
    readings = {"n": np.arange(rows), "ts": _times(rng, rows), "serial": serials[rng.integers(0, SERIALS, rows)]}
    kinds = np.array(["alarm", "calibration"])[rng.integers(0, 2, rows)]
    events = {"n": np.arange(rows), "ts": _times(rng, rows), "kind": kinds}
    sites = mr.OrderedIndex(serials, pa.array(rng.integers(0, 900, SERIALS, dtype=np.int32)), device="cpu")
    r, s = (pa.table({**columns, "x": _temperatures(rng, rows)}) for columns in (readings, events))
    return Sources(r, s, sites)


def _times(rng: np.random.Generator, rows: int) -> pa.Array:
    """Spread over an hour; one in a hundred held up by as much as an hour, one in a thousand without a time.

    The last row of each micro-batch, which is in the slice too, is neither: it sets the watermark, the same for all.
    """
    times = _START + np.arange(rows) * _HOUR // max(rows, 1)
    steady = np.arange(rows) % _batch_rows(rows) == _batch_rows(rows) - 1
    times -= np.where((rng.random(rows) < 0.01) & ~steady, rng.integers(0, _HOUR, rows), 0)
    return pa.array(times, pa.timestamp("us", "UTC"), mask=(rng.random(rows) < 0.001) & ~steady)


def _batch_rows(rows: int) -> int:
    """Rows of a micro-batch: whole slices."""
    return max(1, -(-rows // (BATCHES * SLICE))) * SLICE


def _temperatures(rng: np.random.Generator, rows: int) -> pa.Array:
    return pa.array(rng.integers(-20_000, 400_000, rows, dtype=np.int32), mask=rng.random(rows) < 0.005)


def usable_devices() -> list[str]:
    """The CPU first, then every other device that can join, simulators last."""
    able = dict.fromkeys(name for _, name in join_pairs())
    return sorted(able, key=lambda name: (name != "cpu", name.partition(":")[0] in SLICED))


def run(rows: int, progress: Progress) -> Outcome:
    """Every device, the CPU's rows as what the others must give."""
    progress("starting Spark", 0.0)
    given, names = sources(rows), usable_devices()
    folder = Path(tempfile.mkdtemp(prefix="millrace-demo-"))
    spark = local_session(log=folder / "spark.log", spark__sql__shuffle__partitions=str(PLACES))
    try:
        _write(given, folder)
        runs: list[Run] = []
        whole = sliced = pa.table({})
        for number, name in enumerate(names):
            progress(f"the stream on {name}", number / len(names))
            small = name.partition(":")[0] in SLICED
            done, table = _run_one(spark, given, folder, name, small)
            if name == "cpu":
                whole = table
                sliced = table.filter(_in_slice(table["r_n"]) & _in_slice(table["s_n"])).combine_chunks()
            runs.append(_judged(done, table, sliced if small else whole))
    finally:
        spark.stop()
        shutil.rmtree(folder, ignore_errors=True)
    return Outcome(rows, runs, whole, [fault for one in runs for fault in _faults(one)])


def _in_slice(numbers: pa.ChunkedArray) -> Any:
    return numbers.to_numpy() % SLICE == SLICE - 1


def _write(given: Sources, folder: Path) -> None:
    """A file for each micro-batch and side, in the order in which they come."""
    for name, table in (("readings", given.readings), ("events", given.events)):
        (folder / name).mkdir()
        size = _batch_rows(table.num_rows)
        for number, start in enumerate(range(0, table.num_rows, size)):
            path = folder / name / f"{number}.parquet"
            pq.write_table(table.slice(start, size), path)
            os.utime(path, (number, number))


def _read(spark: SparkSession, path: Path, small: bool) -> DataFrame:
    schema = spark.read.parquet(str(path)).schema
    stream = spark.readStream.schema(schema).option("maxFilesPerTrigger", 1).parquet(str(path))
    return stream.where(f"n % {SLICE} = {SLICE - 1}") if small else stream


def _run_one(
    spark: SparkSession, given: Sources, folder: Path, name: str, small: bool
) -> tuple[dict[str, Any], pa.Table]:
    """The stream on one device, from the first file to the last."""
    looks = name if name.partition(":")[0] in LOOKUPS else "cpu"
    readings, events = (_read(spark, folder / side, small) for side in ("readings", "events"))
    looked = lookup(readings, given.sites, key="serial", into="site", device=looks)
    pairs = window_join(looked, events, on=ON, window=WINDOW, time="ts", lateness=LATENESS, places=PLACES, device=name)
    sink = folder / f"pairs-{name.replace(':', '-')}"
    start = time.perf_counter()
    query = (
        pairs.writeStream.format("parquet")
        .option("path", str(sink / "rows"))
        .option("checkpointLocation", str(sink / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination(PATIENCE)
    error = query.exception()
    if error is not None:
        raise error
    counts = counted(query) | {"seconds": time.perf_counter() - start, "device": name}
    counts["given"] = sum(t.num_rows // SLICE if small else t.num_rows for t in (given.readings, given.events))
    return counts, _in_order(pq.read_table(sink / "rows", partitioning=None))


def counted(query: StreamingQuery) -> dict[str, Any]:
    """What all batches of a query counted, summed up."""
    total: Counter[str] = Counter()
    for progress in query.recentProgress:
        for name, values in progress.observedMetrics.items():
            if name.startswith("millrace_window_join"):
                total.update({key: int(value or 0) for key, value in values.asDict().items()})
    return {**dict.fromkeys(COUNTS, 0), **total}


def _in_order(table: pa.Table) -> pa.Table:
    """Spark's rows have no order: by reading, then by event."""
    return table.sort_by([("r_n", "ascending"), ("s_n", "ascending")]).combine_chunks()


def _judged(counts: dict[str, Any], table: pa.Table, wanted: pa.Table) -> Run:
    rows = counts["r_rows"] + counts["s_rows"]
    accounted = (
        rows == counts["given"]
        and counts["pairs"] == table.num_rows
        and counts["asked"] > 0
        and (counts["device_rows"] >= counts["asked"] or counts["device"] == "cpu")
        and not counts["fallbacks"]
    )
    return Run(
        counts["device"],
        rows,
        counts["r_late"] + counts["s_late"],
        table.num_rows,
        round(counts["seconds"], 3),
        round(rows / counts["seconds"]),
        counts["asked"],
        counts["device_rows"],
        counts["device_cycles"],
        bool(accounted),
        bool(table.equals(wanted)),
    )


def _faults(one: Run) -> list[str]:
    found = []
    if not one.identical:
        found.append(f"{one.device} gives other rows than cpu")
    if not one.accounted:
        found.append(
            f"{one.device} reports {one.pairs:,} pairs of {one.rows:,} rows, which asked {one.asked:,} times, but its "
            f"counters tell of {one.device_rows:,} rows through its probers"
        )
    return found


def summary(outcome: Outcome) -> dict[str, Any]:
    """What was run and what came of it, for programs."""
    return {
        "on": ON,
        "window": WINDOW,
        "lateness": LATENESS,
        "rows": outcome.rows,
        "serials": SERIALS,
        "batches": BATCHES,
        "identical": all(one.identical for one in outcome.runs),
        "accounted": all(one.accounted for one in outcome.runs),
        "faults": outcome.faults,
        "runs": [asdict(one) for one in outcome.runs],
    }


def write(outcome: Outcome, folder: Path) -> None:
    """The CPU's rows and the table of runs."""
    write_results(outcome.result, summary(outcome), folder)
