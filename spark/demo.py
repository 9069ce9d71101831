"""The main job in Spark, on every device here: readings get their site by a lookup, and meet limits in a band.

Readings (r) have a serial number, whose site is looked up in an ordered index of all serial numbers, and a
temperature in thousandths of a degree, which is band-joined with a table of limits (s). `cpu` and the GPUs do all of
it; simulators do a slice of the join, the lookup being done by the CPU. A device passes if its rows are those of the
CPU, and if its own counters account for every row that it joined: no fewer went through its probers than readings
with a temperature, and it found as many pairs as came out.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame

import millrace as mr
from millrace.errors import ArgumentError
from millrace.registry import join_pairs
from millrace.spark.batch_join import join
from millrace.spark.index_lookup import lookup
from millrace.spark.metrics import Metrics
from millrace.spark.session import local_session

ON = "abs(r.x - s.x) <= 2"
SERIALS = 1 << 18
SEED = 11
SLICED = ("rtl", "hls")
"""Families that are simulated: they do a slice."""
SLICE = 20
"""One reading in so many is in the slice."""
LOOKUPS = ("cpu", "opencl", "cuda")
"""Families that do the lookup too."""
Progress = Callable[[str, float], None]


@dataclass(frozen=True)
class Run:
    """What one device did."""

    device: str
    rows: int
    usable: int
    pairs: int
    seconds: float
    rows_per_second: int
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
class Tables:
    """What is joined."""

    readings: pa.Table
    limits: pa.Table
    sites: mr.OrderedIndex


def tables(rows: int) -> Tables:
    """The same for the same number of rows; one temperature in two hundred is missing."""
    rng = np.random.default_rng(SEED)
    serials = np.sort(rng.choice(1 << 40, SERIALS, replace=False))
    readings = pa.table(
        {
            "n": np.arange(rows),
            "serial": serials[rng.integers(0, SERIALS, rows)],
            "x": _temperatures(rng, rows),
        }
    )
    limits = pa.table({"kind": pa.array(rng.integers(0, 5, rows, dtype=np.int32)), "x": _temperatures(rng, rows)})
    sites = mr.OrderedIndex(serials, pa.array(rng.integers(0, 900, SERIALS, dtype=np.int32)), device="cpu")
    return Tables(readings, limits, sites)


def _temperatures(rng: np.random.Generator, rows: int) -> pa.Array:
    return pa.array(rng.integers(-20_000, 2_000_000, rows, dtype=np.int32), mask=rng.random(rows) < 0.005)


def usable_devices() -> list[str]:
    """The CPU first, then every other device that can join, simulators last."""
    able = dict.fromkeys(name for _, name in join_pairs())
    return sorted(able, key=lambda name: (name != "cpu", name.partition(":")[0] in SLICED))


def run(rows: int, progress: Progress) -> Outcome:
    """Every device, the CPU's rows as what the others must give."""
    progress("starting Spark", 0.0)
    given, names = tables(rows), usable_devices()
    spark = local_session()
    try:
        readings = spark.createDataFrame(given.readings).repartition(4).cache()
        limits = spark.createDataFrame(given.limits).cache()
        runs: list[Run] = []
        whole = sliced = pa.table({})
        for number, name in enumerate(names):
            progress(f"the job on {name}", number / len(names))
            small = name.partition(":")[0] in SLICED
            done, table = _run_one(given, readings, limits, name, small)
            if name == "cpu":
                whole = table
                sliced = table.filter(_in_slice(table["r_n"])).combine_chunks()
            runs.append(_judged(done, table, sliced if small else whole))
    finally:
        spark.stop()
    return Outcome(rows, runs, whole, [fault for one in runs for fault in _faults(one)])


def _in_slice(numbers: pa.ChunkedArray) -> pa.Array:
    return pa.array(numbers.to_numpy() % SLICE == 0)


def _run_one(
    given: Tables, readings: DataFrame, limits: DataFrame, name: str, small: bool
) -> tuple[dict[str, Any], pa.Table]:
    """The job on one device: warmed up on a few rows, then timed."""
    looks = name if name.partition(":")[0] in LOOKUPS else "cpu"
    chosen = readings.where(f"n % {SLICE} = 0") if small else readings

    def job(source: DataFrame, metrics: Metrics) -> pa.Table:
        looked = lookup(source, given.sites, key="serial", into="site", device=looks)
        # The limits are held, so that it is the readings that must go through the probers.
        return join(looked, limits, on=ON, strategy="broadcast", device=name, metrics=metrics).toArrow()

    job(readings.where("n < 1000"), Metrics())
    metrics = Metrics()
    start = time.perf_counter()
    table = job(chosen, metrics)
    counts = metrics.get | {"seconds": time.perf_counter() - start, "device": name}
    return counts, _in_order(table)


def _in_order(table: pa.Table) -> pa.Table:
    """Spark's rows have no order: by reading, then by limit."""
    return table.sort_by([("r_n", "ascending"), ("s_x", "ascending"), ("s_kind", "ascending")]).combine_chunks()


def _judged(counts: dict[str, Any], table: pa.Table, wanted: pa.Table) -> Run:
    usable = counts["r_rows"] - counts["r_null_keys"]
    accounted = counts["device_rows"] >= usable and counts["pairs"] == table.num_rows and not counts["fallbacks"]
    return Run(
        counts["device"],
        counts["r_rows"],
        usable,
        table.num_rows,
        round(counts["seconds"], 3),
        round(counts["r_rows"] / counts["seconds"]),
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
            f"{one.device} reports {one.pairs:,} pairs of {one.usable:,} readings, but its counters tell of "
            f"{one.device_rows:,} rows through its probers"
        )
    return found


def summary(outcome: Outcome) -> dict[str, Any]:
    """What was run and what came of it, for programs."""
    return {
        "on": ON,
        "rows": outcome.rows,
        "serials": SERIALS,
        "identical": all(one.identical for one in outcome.runs),
        "accounted": all(one.accounted for one in outcome.runs),
        "faults": outcome.faults,
        "runs": [asdict(one) for one in outcome.runs],
    }


def write(outcome: Outcome, folder: Path) -> None:
    """`demo.parquet`, the CPU's rows, and `demo.json`, the table of runs."""
    try:
        pq.write_table(outcome.result, folder / "demo.parquet")
        (folder / "demo.json").write_text(json.dumps(summary(outcome), indent=2) + "\n")
    except OSError as error:
        raise ArgumentError(f"results cannot be written to {folder}: {error}; choose a folder with --out") from error
