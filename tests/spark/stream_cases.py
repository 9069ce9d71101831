"""Two streams cut into micro-batches, which rows are late by Spark's watermark, and the expected pairs.

The expected pairs are those of `mr.WindowJoin` as a nested loop, fed the rows that are not late in the order of time.
The watermark is computed here by Spark's rules: after each batch, the newest time of each side minus the lateness, to
the millisecond; the lower of the two (`min`) or the higher (`max`); it never falls.
"""

from __future__ import annotations

import datetime as dt
import json
import os
from collections import Counter
from dataclasses import dataclass, field, replace
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

import millrace as mr

Pairs = Counter[tuple[int, int]]
UNIT = {"timestamp_ltz": 1000, "timestamp_ntz": 1000, "date": 1000, "long": 1}
"""Ticks of a time column in a millisecond of the watermark."""


@dataclass
class Streams:
    """Batches of both sides, each row with a unique id, and how they are joined."""

    r: list[pa.Table]
    s: list[pa.Table]
    on: str
    window: Any
    lateness: Any = 0
    lateness_ms: int = 0
    watermark: str = "min"
    per_ms: int = 1000
    idle: str | None = None
    idle_ms: int | None = None
    late: list[int] = field(default_factory=list)
    """Late rows of each batch, filled in by `wanted`."""

    def arguments(self) -> dict[str, Any]:
        """For `ms.window_join`."""
        return {
            "on": self.on,
            "window": self.window,
            "time": "ts",
            "lateness": self.lateness,
            "watermark": self.watermark,
            **({} if self.idle is None else {"idle": self.idle}),
        }

    def wanted(self) -> Pairs:
        """Pairs of ids."""
        join = mr.WindowJoin(on=self.on, window=self.window, time="ts", index="scan", device="cpu")
        kept = self._not_late()
        pairs: Pairs = Counter()
        tables = {side: pa.concat_tables(kept[side]).sort_by("ts") for side in "rs"}
        outputs = [join.push("r", tables["r"]), join.push("s", tables["s"]), join.close()]
        for table in outputs:
            if "r_id" in table.column_names and "s_id" in table.column_names:
                pairs.update(zip(table["r_id"].to_pylist(), table["s_id"].to_pylist(), strict=True))
        return pairs

    def _not_late(self) -> dict[str, list[pa.Table]]:
        kept: dict[str, list[pa.Table]] = {"r": [], "s": []}
        newest: dict[str, int] = {}
        watermark, self.late = 0, []
        for r, s in zip(self.r, self.s, strict=True):
            late = 0
            for side, table in (("r", r), ("s", s)):
                times = ticks(table["ts"])
                fine = [t is not None and (watermark <= 0 or t >= watermark * self.per_ms) for t in times]
                late += sum(t is not None and not ok for t, ok in zip(times, fine, strict=True))
                kept[side].append(table.filter(pa.array(fine, pa.bool_())))
                known = [t for t in times if t is not None]
                if known:
                    newest[side] = max(newest.get(side, 0), max(known) // self.per_ms - self.lateness_ms)
            self.late.append(late)
            both = [newest.get(side, 0) for side in "rs"]
            if self.idle_ms is not None:
                both = [max(own, other - self.idle_ms) for own, other in (both, both[::-1])]
            watermark = max(watermark, min(both) if self.watermark == "min" else max(both))
        return kept


def ticks(column: pa.ChunkedArray) -> list[int | None]:
    """Times as integers: microseconds, or the integers themselves."""
    if pa.types.is_date32(column.type):
        return [None if d is None else d * 86_400_000_000 for d in column.cast(pa.int32()).to_pylist()]
    found: list[int | None] = column.cast(pa.int64()).to_pylist()
    return found


def draw(seed: int, kind: str = "timestamp_ltz", batches: int = 4, rows: int = 150, **more: Any) -> Streams:
    """Batches that follow each other in time, with rows out of order, some late, and some without a key or a time."""
    rng = Random(f"{kind} {seed}")
    per_ms = UNIT[kind]
    second = 1000 * per_ms if kind != "date" else 86_400_000_000
    start = int(dt.datetime(2024, 3, 31, 0, 59, 30, tzinfo=dt.UTC).timestamp()) * 1_000_000 if per_ms == 1000 else 5000
    if kind == "timestamp_ntz":
        start += 3_600_000_000  # into the hour that this day does not have in the tests' zone
    if kind == "date":
        start = start // 86_400_000_000 * 86_400_000_000
    sides: dict[str, list[pa.Table]] = {"r": [], "s": []}
    number = 0
    for batch in range(batches):
        for side in "rs":
            times: list[int | None] = []
            for row in range(rows):
                at = start + batch * 20 * second + rng.randrange(20) * second
                if kind != "date":
                    at += rng.randrange(second)
                if batch and rng.random() < 0.15:
                    at -= rng.randrange(20, 45) * second
                times.append(None if rng.random() < 0.02 else at)
                if row == 0:  # the newest time of every batch is newer than all before, whatever restarts
                    times[-1] = start + (batch * 20 + 20) * second
            ids = range(number, number + rows)
            number += rows
            keys = [None if rng.random() < 0.03 else rng.randrange(200) for _ in range(rows)]
            others = [
                rng.choice([rng.uniform(0, 50), float("nan")]) if rng.random() < 0.1 else 7.0 * k for k in range(rows)
            ]
            sides[side].append(
                pa.table(
                    {
                        "id": pa.array(ids, pa.int64()),
                        "ts": _times(times, kind),
                        "x": pa.array(keys, pa.int64()),
                        "y": pa.array([v % 50 for v in others], pa.float64()),
                        "name": pa.array([f"n{i % 3}" if i % 5 else None for i in ids]),
                    }
                )
            )
    unit = "" if kind == "long" else " days" if kind == "date" else " seconds"
    given: dict[str, Any] = {
        "on": "abs(r.x - s.x) <= 3",
        "window": f"{15 * (1000 if kind == 'long' else 1)}{unit}",
        "lateness": f"{10 * (1000 if kind == 'long' else 1)}{unit}",
        "lateness_ms": 10 * (86_400_000 if kind == "date" else 1000),
        "per_ms": per_ms,
    }
    return Streams(sides["r"], sides["s"], **{**given, **more})


def _times(times: list[int | None], kind: str) -> pa.Array:
    if kind == "long":
        return pa.array(times, pa.int64())
    if kind == "date":
        return pa.array([None if t is None else t // 86_400_000_000 for t in times], pa.int32()).cast(pa.date32())
    return pa.array(times, pa.timestamp("us", "UTC" if kind == "timestamp_ltz" else None))


def write(streams: Streams, folder: Path, first: int = 0) -> None:
    """One file per batch and side; a file source reads them by age."""
    for side, tables in (("r", streams.r), ("s", streams.s)):
        (folder / side).mkdir(parents=True, exist_ok=True)
        for number, table in enumerate(tables[first:], first):
            path = folder / side / f"{number:05}.parquet"
            pq.write_table(table, path)
            os.utime(path, (1_000_000 + number, 1_000_000 + number))


def read(spark: SparkSession, folder: Path, side: str) -> DataFrame:
    """A side as a stream, a file at a time; `folder` may hold none yet of the other side's schema."""
    schema = spark.read.parquet(str(folder / side)).schema
    return spark.readStream.schema(schema).option("maxFilesPerTrigger", 1).parquet(str(folder / side))


def run(pairs: DataFrame, folder: Path) -> StreamingQuery:
    """All that is there, into files."""
    query = (
        pairs.writeStream.format("parquet")
        .option("path", str(folder / "sink"))
        .option("checkpointLocation", str(folder / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    error = query.exception()
    if error is not None:
        raise error
    return query


def found(folder: Path) -> Pairs:
    """Pairs of ids that the file sink holds, as Spark reads it: files that no batch committed do not count."""
    names = set()
    for log in (folder / "sink" / "_spark_metadata").iterdir():
        if not log.name.startswith("."):
            names |= {Path(json.loads(line)["path"]).name for line in log.read_text().splitlines()[1:]}
    pairs: Pairs = Counter()
    for name in names:
        table = pq.read_table(folder / "sink" / name, columns=["r_id", "s_id"], partitioning=None)
        pairs.update(zip(table["r_id"].to_pylist(), table["s_id"].to_pylist(), strict=True))
    return pairs


def as_read(streams: Streams, folder: Path) -> Streams:
    """The same rows in the batches that the checkpoint lists.

    A file source writes down what it has seen before the query writes down its batch. Where a driver dies in between,
    Spark makes the next batch of that file and the one after it, while the other side is a file behind.
    """
    offsets = sorted(
        (int(path.name), path) for path in (folder / "checkpoint/offsets").iterdir() if path.name.isdigit()
    )
    batches: dict[str, list[pa.Table]] = {"r": [], "s": []}
    read = {"r": 0, "s": 0}
    for _, path in offsets:
        for side, line in zip("rs", path.read_text().splitlines()[2:], strict=True):
            tables = streams.r if side == "r" else streams.s
            end = json.loads(line)["logOffset"] + 1
            batches[side].append(pa.concat_tables([tables[0].slice(0, 0), *tables[read[side] : end]]))
            read[side] = end
    assert read == {"r": len(streams.r), "s": len(streams.s)}, "all files were read"
    return replace(streams, r=batches["r"], s=batches["s"])


def counts(query: StreamingQuery) -> list[dict[str, int]]:
    """The counts of each batch of the query."""
    found = []
    for progress in query.recentProgress:
        for name, values in progress.observedMetrics.items():
            if name.startswith("millrace_window_join"):
                found.append({key: int(value or 0) for key, value in values.asDict().items()})
    return found


def same(found_pairs: Pairs, wanted: Pairs) -> None:
    """A helpful assertion."""
    missing, extra = sum((wanted - found_pairs).values()), sum((found_pairs - wanted).values())
    assert (missing, extra) == (0, 0), f"{missing} missing, {extra} extra of {sum(wanted.values())}"


def total(table: pa.Table, name: str) -> int:
    """A column's sum."""
    summed: int = pc.sum(table[name]).as_py() or 0
    return summed
