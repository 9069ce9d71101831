"""Bench `spark_stream`: band joins of two streams on `local[2]`, compared with a query without matches and Spark's.

Each step is one micro-batch of 250,000 rows a side, read from Parquet files. A window has that many rows of each side,
and a row has about one partner. Contenders: `range` (splits given) and `store-one` (every shard sees all rows);
`empty`, the same queries that keep the same state and match nothing; and `spark-buckets`, Spark's stream-stream join
over buckets as wide as the band, with the same window, watermark and state store.

- `window-1M`: a window of 1 M rows.
- `window-4M`: 4 M rows, compared with the same join at 256 K.
- `written-2^16`, `written-2^20`: six times the bytes of the micro-batches as stored, divided by the bytes of all state
  files of the checkpoint. It is at least 1 if no more than six times the batch was written. Batches are a sixteenth of
  the window. It is not a speed.

The time of a step is the trigger time that Spark reports. The sink counts and hashes the pairs. Batches without data
are disabled, so that no contender works during another's step.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as fn

from millrace.bench.harness import Answer, Case, Contender
from millrace.bench.options import Options
from millrace.spark.api.stream_query import CHANGELOG, PROVIDER, ROCKSDB, build
from millrace.spark.api.window_join import read_call
from millrace.spark.cluster.files import new_path
from millrace.spark.cluster.session import local_session
from millrace.spark.stream.state import pack_rows

BATCH, QUICK_BATCH = 250_000, 2_000
BAND, SPREAD = 5, 10
"""Key values per row of a window, so that a band of 11 has about one partner."""
ON = f"abs(r.x - s.x) <= {BAND}"
SEED = 77
US_PER_ROW = 40
_START = 1_700_000_000_000_000
NO_DATA = "spark.sql.streaming.noDataMicroBatches.enabled"
WRITTEN_BATCHES = 40
ALLOWED = 6
Make = Callable[[DataFrame, DataFrame, int], DataFrame]


def cases(options: Options) -> list[Case]:
    """The cases, by window."""
    batch = QUICK_BATCH if options.quick else BATCH
    million = 4 * batch
    return [
        _window("window-1M", million, batch),
        _window("window-4M", 4 * million, batch),
        *(_written(power, options.quick) for power in (16, 20)),
    ]


@cache
def session() -> SparkSession:
    """One session for all cases."""
    return local_session(spark__driver__memory="3g")


def _window_text(window: int) -> str:
    return f"{window * US_PER_ROW} microseconds"


def _splits(window: int) -> list[int]:
    span = window * SPREAD
    return [span * i // 4 for i in range(1, 4)]


@cache
def _file(window: int, batch: int, number: int) -> Path:
    """The rows of a micro-batch: r's in one row group, s's in another, so that both always arrive together."""
    rng = np.random.default_rng([SEED, window, batch, number])
    ids = np.arange(number * batch, (number + 1) * batch)
    sides = []
    for of_s in (0, 1):
        times = pa.array(_START + ids * US_PER_ROW + of_s, pa.timestamp("us", "UTC"))
        keys = rng.integers(0, window * SPREAD, batch)
        sides.append(pa.table({"of_s": np.full(batch, of_s), "id": ids, "ts": times, "x": keys}))
    path = new_path(".parquet")
    pq.write_table(pa.concat_tables(sides), path, compression="none", row_group_size=batch)
    return path


class Streaming:
    """A query that processes one micro-batch per step."""

    def __init__(self, make: Make, window: int, batch: int, fill: int) -> None:
        """Start the query, and process `fill` batches to fill its window."""
        self._window, self._batch, self._number = window, batch, 0
        self._folder = new_path("")
        self._last_result: tuple[int, int] = (0, 0)
        (self._folder / "rows").mkdir(parents=True)
        spark = session()
        for name, value in ((PROVIDER, ROCKSDB), (CHANGELOG, "true"), (NO_DATA, "false")):
            spark.conf.set(name, value)
        stream = spark.readStream.schema("of_s long, id long, ts timestamp, x long").option("maxFilesPerTrigger", 1)
        rows = stream.parquet(str(self._folder / "rows"))
        r, s = (rows.where(f"of_s = {of_s}").drop("of_s") for of_s in (0, 1))
        self._query = (
            make(r, s, window)
            .writeStream.foreachBatch(self._sink)
            .option("checkpointLocation", str(self._folder / "checkpoint"))
            .start()
        )
        for _ in range(fill):
            self.step()

    def _sink(self, rows: DataFrame, number: int) -> None:
        row = rows.agg(fn.count(fn.lit(1)), fn.sum(fn.xxhash64("r_id", "s_id") % 1_000_003)).collect()[0]
        self._last_result = int(row[0]), int(row[1] or 0)

    def step(self) -> tuple[float, float]:
        """Process one micro-batch; return its rows and the trigger's seconds."""
        os.link(_file(self._window, self._batch, self._number), self._folder / "rows" / f"{self._number}.parquet")
        self._number += 1
        while True:
            error = self._query.exception()
            if error is not None:
                raise error
            last = self._query.lastProgress
            if last is not None and last.batchId == self._number - 1 and last.numInputRows:
                return 2 * self._batch, last.durationMs["triggerExecution"] / 1000
            time.sleep(0.01)

    def state_bytes(self) -> int:
        """The bytes of all state files; Spark has not removed any yet."""
        state = self._folder / "checkpoint" / "state"
        return sum(path.stat().st_size for path in state.rglob("*") if path.is_file() and path.suffix != ".crc")

    def answer(self) -> Answer:
        """The last batch's pairs."""
        return {"pairs": np.array([self._last_result[0]]), "sum": np.array([self._last_result[1]])}

    def pause(self) -> None:
        """Nothing to release: an idle query only polls for files."""

    def close(self) -> None:
        """Stop the query, and remove its files."""
        self._query.stop()
        shutil.rmtree(self._folder, ignore_errors=True)


def _ours(r: DataFrame, s: DataFrame, window: int, ranges: bool, empty: bool = False) -> DataFrame:
    splits = _splits(window) if ranges else None
    call = read_call(r, s, ON, window=_window_text(window), time="ts", splits=splits, device="cpu")
    return build(replace(call, plan=replace(call.plan, empty=empty)))


def _buckets(r: DataFrame, s: DataFrame, window: int) -> DataFrame:
    """Spark's own join: an equality of buckets, the band, and the window, which lets Spark drop state."""
    width, length = 2 * BAND + 1, fn.expr(f"make_dt_interval(0, 0, 0, {window * US_PER_ROW / 1e6})")

    def bucket(of: Any) -> Any:
        return fn.floor(of / width)

    left = r.withWatermark("ts", "0 seconds").select(
        *(fn.col(name).alias(f"r_{name}") for name in r.columns), bucket(fn.col("x")).alias("r_bucket")
    )
    buckets = fn.sequence(bucket(fn.col("x") - BAND), bucket(fn.col("x") + BAND))
    right = s.withWatermark("ts", "0 seconds").select(
        *(fn.col(name).alias(f"s_{name}") for name in s.columns), fn.explode(buckets).alias("s_bucket")
    )
    near = (fn.col("r_ts") >= fn.col("s_ts") - length) & (fn.col("r_ts") <= fn.col("s_ts") + length)
    both = (fn.col("r_bucket") == fn.col("s_bucket")) & (fn.abs(fn.col("r_x") - fn.col("s_x")) <= BAND) & near
    return left.join(right, both).drop("r_bucket", "s_bucket")


def _start(make: Make, window: int, batch: int) -> Streaming:
    return Streaming(make, window, batch, fill=window // batch + 1)


def _window(name: str, window: int, batch: int) -> Case:
    contenders: list[Contender] = []
    for index, ranges in (("range", True), ("store-one", False)):
        ours = partial(_ours, ranges=ranges)
        contenders.append(Contender(f"{index} on cpu", partial(_start, ours, window, batch), index, "cpu", "cpu"))
        if window == 4 * batch:
            empty = partial(_ours, ranges=ranges, empty=True)
            contenders.append(Contender(f"empty {index}", partial(_start, empty, window, batch), answers=False))
        else:
            small = partial(_start, ours, batch, batch)
            contenders.append(Contender(f"{index} at 256K", small, answers=False))
    if window == 4 * batch:
        contenders.append(Contender("spark-buckets", partial(_start, _buckets, window, batch)))
    facts = {"window": window, "batch": batch, "band": BAND}
    return Case(name, "rows/s", contenders, facts, check_steps=2)


# Bytes.


class Written:
    """A contender whose result is the allowed bytes divided by the written bytes."""

    def __init__(self, share: Callable[[], float]) -> None:
        """Measure once."""
        self._share = share()

    def step(self) -> tuple[float, float]:
        """Return the result as work done in one second."""
        return self._share, 1.0

    def answer(self) -> Answer:
        """There is nothing to compare."""
        return {}

    def pause(self) -> None:
        """Nothing to release."""

    def close(self) -> None:
        """Nothing to release."""


def _allowance_share(ranges: bool, window: int, batches: int) -> float:
    """Measure over the batches after the window is filled."""
    batch = window // 16
    stream = Streaming(partial(_ours, ranges=ranges), window, batch, fill=0)
    try:
        for _ in range(16):
            stream.step()
        before = stream.state_bytes()
        for _ in range(batches):
            stream.step()
        written = stream.state_bytes() - before
    finally:
        stream.close()
    own = len(pack_rows(pq.read_table(_file(window, batch, 0)).drop(["of_s"])))
    return ALLOWED * batches * own / written


def _written(power: int, quick: bool) -> Case:
    window, batches = (1 << power, WRITTEN_BATCHES) if not quick else (1 << (power - 4), 4)
    contenders = [
        Contender(
            f"{index} on cpu", partial(Written, partial(_allowance_share, ranges, window, batches)), index, "cpu", "cpu"
        )
        for index, ranges in (("range", True), ("store-one", False))
    ]
    contenders.append(Contender("6x the batch", partial(Written, lambda: 1.0), answers=False))
    facts = {"window": window, "batch": window // 16}
    return Case(f"written-2^{power}", "allowances per batch", contenders, facts, check_steps=1)
