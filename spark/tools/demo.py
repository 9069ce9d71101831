"""The main job as a stream in Spark, on every device of this machine: a lookup, then a join of readings and events.

Readings (r) have a serial number, whose site is looked up in an ordered index of all serial numbers, and a temperature
in thousandths of a degree. Events (s) are alarms and calibrations. A reading matches an event within two thousandths
and ten minutes. Both sides are files, one for each micro-batch; some rows are late, some lack a temperature or time.
`cpu` and the GPUs do the full job; simulators join a slice of both streams, and the CPU does their lookup. A device
passes if its rows equal those of the CPU and the counts are complete: every input row was counted, as many pairs were
found as were written, and the device's probers processed at least as many rows as were searched with. (On the CPU,
structures without probers search small runs.)
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
SHARDS = 2
SEED = 11
SLICED = ("rtl", "hls")
"""Families of simulated devices: they process a slice."""
SLICE = 20
"""One row in this many is in the slice."""
LOOKUPS = ("cpu", "opencl", "cuda")
"""Families that also do the lookup."""
_START, _HOUR = 1_700_000_000_000_000, 3_600_000_000
TIMEOUT_SECONDS = 600
Progress = Callable[[str, float], None]


@dataclass(frozen=True)
class DemoRun:
    """The result of one device."""

    device: str
    rows: int
    late: int
    pairs: int
    seconds: float
    first_batch_seconds: float
    """Until the first micro-batch is done: Spark starts workers, and they load the kernels."""
    rows_per_second: int
    """Of all micro-batches after the first."""
    asked: int
    device_rows: int
    device_cycles: int
    accounted: bool
    identical: bool


@dataclass(frozen=True)
class Outcome:
    """The results of all devices, the CPU's rows, and the faults found."""

    rows: int
    runs: list[DemoRun]
    result: pa.Table
    faults: list[str]
    setup_seconds: float
    """Until the first stream starts: the data, Spark, the index of sites."""


@dataclass(frozen=True)
class Sources:
    """The two streams, and the index of sites."""

    readings: pa.Table
    events: pa.Table
    sites: mr.OrderedIndex


def sources(rows: int) -> Sources:
    """Generate the input, the same for the same number of rows; one temperature in two hundred is missing."""
    rng = np.random.default_rng(SEED)
    serials = np.sort(rng.choice(1 << 40, SERIALS, replace=False))
    readings = {"n": np.arange(rows), "ts": _times(rng, rows), "serial": serials[rng.integers(0, SERIALS, rows)]}
    kinds = np.array(["alarm", "calibration"])[rng.integers(0, 2, rows)]
    events = {"n": np.arange(rows), "ts": _times(rng, rows), "kind": kinds}
    sites = mr.OrderedIndex(serials, pa.array(rng.integers(0, 900, SERIALS, dtype=np.int32)), device="cpu")
    r, s = (pa.table({**columns, "x": _temperatures(rng, rows)}) for columns in (readings, events))
    return Sources(r, s, sites)


def _times(rng: np.random.Generator, rows: int) -> pa.Array:
    """Times over one hour; one in a hundred is up to an hour late, one in a thousand is null.

    The last row of each micro-batch, which is in the slice too, is neither: it sets the same watermark for all devices.
    """
    times = _START + np.arange(rows) * _HOUR // max(rows, 1)
    steady = np.arange(rows) % _batch_rows(rows) == _batch_rows(rows) - 1
    times -= np.where((rng.random(rows) < 0.01) & ~steady, rng.integers(0, _HOUR, rows), 0)
    return pa.array(times, pa.timestamp("us", "UTC"), mask=(rng.random(rows) < 0.001) & ~steady)


def _batch_rows(rows: int) -> int:
    """Rows of a micro-batch: a multiple of `SLICE`."""
    return max(1, -(-rows // (BATCHES * SLICE))) * SLICE


def _temperatures(rng: np.random.Generator, rows: int) -> pa.Array:
    return pa.array(rng.integers(-20_000, 400_000, rows, dtype=np.int32), mask=rng.random(rows) < 0.005)


def usable_devices() -> list[str]:
    """The CPU first, then every other device that can join, simulators last."""
    able = dict.fromkeys(name for _, name in join_pairs())
    return sorted(able, key=lambda name: (name != "cpu", name.partition(":")[0] in SLICED))


def run(rows: int, progress: Progress) -> Outcome:
    """Run every device, and compare its rows with the CPU's."""
    progress("starting Spark", 0.0)
    began = time.perf_counter()
    given, names = sources(rows), usable_devices()
    folder = Path(tempfile.mkdtemp(prefix="millrace-demo-"))
    spark = local_session(log=folder / "spark.log", spark__sql__shuffle__partitions=str(SHARDS))
    try:
        _write(given, folder)
        setup = time.perf_counter() - began
        runs: list[DemoRun] = []
        full = sliced = pa.table({})
        for number, name in enumerate(names):
            progress(f"the stream on {name}", number / len(names))
            small = name.partition(":")[0] in SLICED
            done, table = _run_one(spark, given, folder, name, small)
            if name == "cpu":
                full = table
                sliced = table.filter(_in_slice(table["r_n"]) & _in_slice(table["s_n"])).combine_chunks()
            runs.append(_evaluate(done, table, sliced if small else full))
    finally:
        spark.stop()
        shutil.rmtree(folder, ignore_errors=True)
    return Outcome(rows, runs, full, [fault for one in runs for fault in _faults(one)], round(setup, 3))


def _in_slice(numbers: pa.ChunkedArray) -> Any:
    return numbers.to_numpy() % SLICE == SLICE - 1


def _write(given: Sources, folder: Path) -> None:
    """Write a file for each micro-batch and side, with ages that give their order."""
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
    """Run the stream on one device, from the first file to the last."""
    lookup_device = name if name.partition(":")[0] in LOOKUPS else "cpu"
    readings, events = (_read(spark, folder / side, small) for side in ("readings", "events"))
    looked = lookup(readings, given.sites, key="serial", into="site", device=lookup_device)
    pairs = window_join(looked, events, on=ON, window=WINDOW, time="ts", lateness=LATENESS, shards=SHARDS, device=name)
    sink = folder / f"pairs-{name.replace(':', '-')}"
    start = time.perf_counter()
    query = (
        pairs.writeStream.format("parquet")
        .option("path", str(sink / "rows"))
        .option("checkpointLocation", str(sink / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination(TIMEOUT_SECONDS)
    error = query.exception()
    if error is not None:
        raise error
    seconds = time.perf_counter() - start
    counts = counted(query) | {"seconds": seconds, "device": name} | batch_speeds(query, seconds)
    counts["given"] = sum(t.num_rows // SLICE if small else t.num_rows for t in (given.readings, given.events))
    return counts, _in_order(pq.read_table(sink / "rows", partitioning=None))


def batch_speeds(query: StreamingQuery, seconds: float) -> dict[str, float]:
    """The time until the first micro-batch is done, and the rows per second of those after it (of one alone: its)."""
    batches = list(query.recentProgress)
    rows = sum(one.numInputRows for one in batches[1:])
    later = sum(one.batchDuration for one in batches[1:]) / 1000
    if rows == 0:
        return {"first": seconds, "speed": sum(one.numInputRows for one in batches) / seconds}
    return {"first": seconds - later, "speed": rows / max(later, 1e-3)}


def counted(query: StreamingQuery) -> dict[str, Any]:
    """The counts of all batches of a query, summed up."""
    total: Counter[str] = Counter()
    for progress in query.recentProgress:
        for name, values in progress.observedMetrics.items():
            if name.startswith("millrace_window_join"):
                total.update({key: int(value or 0) for key, value in values.asDict().items()})
    return {**dict.fromkeys(COUNTS, 0), **total}


def _in_order(table: pa.Table) -> pa.Table:
    """Sort by reading, then by event, because Spark's rows have no order."""
    return table.sort_by([("r_n", "ascending"), ("s_n", "ascending")]).combine_chunks()


def _evaluate(counts: dict[str, Any], table: pa.Table, wanted: pa.Table) -> DemoRun:
    rows = counts["r_rows"] + counts["s_rows"]
    accounted = (
        rows == counts["given"]
        and counts["pairs"] == table.num_rows
        and counts["asked"] > 0
        and (counts["device_rows"] >= counts["asked"] or counts["device"] == "cpu")
        and not counts["fallbacks"]
    )
    return DemoRun(
        counts["device"],
        rows,
        counts["r_late"] + counts["s_late"],
        table.num_rows,
        round(counts["seconds"], 3),
        round(counts["first"], 3),
        round(counts["speed"]),
        counts["asked"],
        counts["device_rows"],
        counts["device_cycles"],
        bool(accounted),
        bool(table.equals(wanted)),
    )


def _faults(one: DemoRun) -> list[str]:
    found = []
    if not one.identical:
        found.append(f"{one.device} returns other rows than cpu")
    if not one.accounted:
        found.append(
            f"{one.device} reports {one.pairs:,} pairs of {one.rows:,} rows, which searched {one.asked:,} times, but "
            f"its counters show {one.device_rows:,} rows through its probers"
        )
    return found


def summary(outcome: Outcome) -> dict[str, Any]:
    """The settings and the results, for programs."""
    return {
        "on": ON,
        "window": WINDOW,
        "lateness": LATENESS,
        "rows": outcome.rows,
        "serials": SERIALS,
        "batches": BATCHES,
        "setup_seconds": outcome.setup_seconds,
        "identical": all(one.identical for one in outcome.runs),
        "accounted": all(one.accounted for one in outcome.runs),
        "faults": outcome.faults,
        "runs": [asdict(one) for one in outcome.runs],
    }


def write(outcome: Outcome, folder: Path) -> None:
    """Write the CPU's rows and the table of results."""
    write_results(outcome.result, summary(outcome), folder)
