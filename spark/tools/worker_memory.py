"""Private memory of a worker before and after lookups: `python -m millrace.spark.tools.worker_memory INDEX KEYS`.

Run by the bench `spark` in a process of its own, so that the workers have done nothing else. First rows go through
identity, with the same imports as a lookup; then the same workers look keys up. What is told, in bytes, is the most
that any worker has of `Private_Dirty`: pages that are its own, not the mapped file's.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
from pyspark.sql import SparkSession

import millrace as mr
from millrace.spark.cluster.files import Shipped, shipped
from millrace.spark.cluster.session import local_session
from millrace.spark.cluster.task import Asked

ROWS = 2_000_000


def private() -> int:
    """This process's own pages, in bytes."""
    lines = Path("/proc/self/smaps_rollup").read_text().splitlines()
    return next(int(line.split()[1]) << 10 for line in lines if line.startswith("Private_Dirty"))


def held(spark: SparkSession, keys: int, file: Shipped | None) -> int:
    """The most that a worker holds after its rows; without a file they pass through."""
    asked = Asked("cpu", None, mr.__version__)

    def work(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from millrace import OrderedIndex
        from millrace.spark.api.lookup import find

        # Numba imports some 400 modules with its first call: a lookup in a tiny index has either worker import them.
        OrderedIndex([1], [1], device="cpu").lookup([1])
        for batch in batches:
            if file is not None:
                find(file, asked, batch.column(0))
        yield pa.record_batch([pa.array([private()])], names=["held"])

    frame = spark.range(0, ROWS, 1, 2).selectExpr(f"2 * ((id * 2654435761) % {keys}) AS k")
    return max(int(row.held) for row in frame.mapInArrow(work, "held long").collect())


def main() -> None:
    """Both, one after the other."""
    file, keys = shipped(sys.argv[1]), int(sys.argv[2])
    spark = local_session()
    told = {"identity": held(spark, keys, None), "lookup": held(spark, keys, file)}
    spark.stop()
    sys.stdout.write(json.dumps(told) + "\n")


if __name__ == "__main__":
    main()
