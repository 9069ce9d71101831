"""Wide rows and many pairs at a heap of 1 GB: rows found, and the peak private memory of a Python worker, in MB."""

from __future__ import annotations

import json
import os
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import SparkSession
from pyspark.sql import functions as fn

import millrace as mr
from millrace import spark as ms
from millrace.spark.plan.strategy import StrategyName
from tests.spark import stream_cases as sc
from tests.spark.sessions import local_session


class Peak:
    """Samples the anonymous memory of Spark's Python workers, which are children of one daemon."""

    def __init__(self) -> None:
        self.bytes = 0
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._watch)

    def __enter__(self) -> Peak:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._end.wait(0.02):
            for pid in _descendants(os.getpid()):
                self.bytes = max(self.bytes, _anonymous(pid))


def _descendants(pid: int) -> list[int]:
    """The processes that a process started, and theirs."""
    try:
        lists = [path.read_text().split() for path in Path(f"/proc/{pid}/task").glob("*/children")]
    except OSError:
        return []
    children = [int(child) for one in lists for child in one]
    return [*children, *(one for child in children for one in _descendants(child))]


def _anonymous(pid: int) -> int:
    """The private memory of a Python worker; 0 for any other process."""
    try:
        if b"pyspark.daemon" not in Path(f"/proc/{pid}/cmdline").read_bytes():
            return 0
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) << 10 for line in lines if line.startswith("RssAnon")), 0)


def streams(spark: SparkSession, folder: Path) -> int:
    """Two streams of 150,000 rows with a text of 1 KB, all in one micro-batch."""
    rng = np.random.default_rng(4)
    for side in "rs":
        (folder / side).mkdir(parents=True)
        keys = rng.integers(0, 10**7, 150_000)
        text = pa.array([f"{i:01000d}" for i in range(150_000)])
        times = pa.array(rng.integers(0, 10**6, 150_000)).cast(pa.timestamp("us", "UTC"))
        pq.write_table(pa.table({"id": keys, "ts": times, "text": text}), folder / side / "0.parquet")
    r, s = (sc.read(spark, folder, side) for side in "rs")
    pairs = ms.window_join(r, s, on="abs(r.id - s.id) <= 5", window="1 minute", time="ts", device="cpu")
    sc.run(pairs.select("r_id", "s_id", fn.length("r_text").alias("n")), folder)
    return spark.read.parquet(str(folder / "sink")).where("n = 1000").count()


def documents(spark: SparkSession, folder: Path, strategy: StrategyName) -> int:
    """7,000 documents of 12 KB, each with eleven partners: more rows than a batch of 2**16."""
    r = spark.range(7_000).select("id", fn.rpad(fn.col("id").cast("string"), 12_000, "x").alias("text"))
    s = spark.range(7_000).select("id")
    pairs = ms.join(r, s, on="abs(r.id - s.id) <= 5", strategy=strategy, device="cpu")
    return pairs.where("length(r_text) = 12000").count()


def many_pairs(spark: SparkSession, folder: Path) -> int:
    """39 million pairs from 131,072 rows."""
    r, s = spark.range(0, 1 << 17, 1, 1), spark.range(0, 1 << 17, 1, 1)
    return ms.join(r, s, on="abs(r.id - s.id) <= 150", strategy="broadcast", device="cpu").count()


def lookups(spark: SparkSession, folder: Path) -> int:
    """200,000 rows, of which each finds a document of 12 KB."""
    index = mr.OrderedIndex(list(range(2_000)), [f"{i:012000d}" for i in range(2_000)], device="cpu")
    keys = spark.range(0, 200_000, 1, 2).selectExpr("id % 2000 AS k")
    return ms.lookup(keys, index, key="k", device="cpu").where("int(value) = k AND length(value) = 12000").count()


CASES: dict[str, Callable[[SparkSession, Path], int]] = {
    "streams": streams,
    "documents, broadcast": lambda spark, folder: documents(spark, folder, "broadcast"),
    "documents, range": lambda spark, folder: documents(spark, folder, "range"),
    "many pairs": many_pairs,
    "lookups": lookups,
}


def main() -> None:
    folder = Path(sys.argv[1])
    spark = local_session()
    report = {}
    for name in sys.argv[2:] or CASES:
        with Peak() as peak:
            rows = CASES[name](spark, folder / name.replace(" ", "-"))
        report[name] = {"rows": rows, "peak": peak.bytes >> 20}
    spark.stop()
    print(json.dumps(report))  # noqa: T201 - what the test reads


if __name__ == "__main__":
    main()
