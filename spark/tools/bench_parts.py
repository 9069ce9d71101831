"""What the cases of the bench `spark` share: the session, cached inputs, timed actions."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as fn

from millrace.bench.harness import Answer, Contender
from millrace.spark.cluster.files import new_path
from millrace.spark.cluster.session import local_session

Frame = Callable[[], DataFrame]


@cache
def session() -> SparkSession:
    """One session for all cases; its memory holds the cached inputs of the largest one."""
    return local_session(spark__driver__memory="8g")


def identity(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Pass rows through Python unchanged."""
    yield from batches


class TimedAction:
    """A contender: each step makes a frame and writes it to the sink."""

    def __init__(self, make: Frame, rows: int, answer: Callable[[DataFrame], Answer]) -> None:
        """`rows`: the rows that a step counts as its work."""
        self._make, self._rows, self._answer = make, rows, answer

    def step(self) -> tuple[float, float]:
        """Run the call and its action; return the rows and the seconds."""
        start = time.perf_counter()
        self._make().write.format("noop").mode("overwrite").save()
        return self._rows, time.perf_counter() - start

    def answer(self) -> Answer:
        """A sum over the rows, from a separate call."""
        return self._answer(self._make())

    def pause(self) -> None:
        """Nothing to release."""

    def close(self) -> None:
        """Nothing to close: the session serves the next case."""


def ours(name: str, start: Callable[[], TimedAction]) -> Contender:
    return Contender(f"{name} on cpu", start, name, "cpu", "cpu")


def cached(**columns: Any) -> DataFrame:
    """A table in Spark's memory, read from Parquet."""
    path = new_path(".parquet")
    pq.write_table(pa.table(columns), path)
    frame = session().read.parquet(str(path)).repartition(4).cache()
    frame.count()
    return frame


def sum_of_pairs(frame: DataFrame) -> Answer:
    row = frame.agg(fn.count("*"), fn.sum(fn.xxhash64("r_id", "s_id") % 1_000_003)).collect()[0]
    return {"pairs": np.array([row[0]]), "sum": np.array([row[1]])}


def size(rows: int) -> str:
    """A number of rows as part of a case's name."""
    if rows >= 1_000_000:
        return f"{rows // 1_000_000}M"
    return f"{rows // 1000}K" if rows >= 1000 else str(rows)
