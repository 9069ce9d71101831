"""Private memory of a worker before and after lookups: `python -m millrace.spark.tools.worker_memory INDEX KEYS`.

The bench `spark` runs it in a separate process, so that the workers have done nothing else. First, rows pass through
identity, with the same imports as a lookup; then the same workers look up keys. It prints, in bytes, the largest
`Private_Dirty` of any worker: pages that belong to the worker, not to the mapped file.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
from pyspark.sql import SparkSession

import millrace as mr
from millrace.spark.cluster.files import SharedFile, shared_file
from millrace.spark.cluster.session import local_session
from millrace.spark.cluster.task import DeviceRequest

ROWS = 2_000_000


def private() -> int:
    """The private dirty pages of this process, in bytes."""
    lines = Path("/proc/self/smaps_rollup").read_text().splitlines()
    return next(int(line.split()[1]) << 10 for line in lines if line.startswith("Private_Dirty"))


def held(spark: SparkSession, keys: int, file: SharedFile | None) -> int:
    """The largest private memory of a worker after its rows; without a file, rows only pass through."""
    device_request = DeviceRequest("cpu", None, mr.__version__)

    def measure(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from millrace import OrderedIndex
        from millrace.spark.api.lookup import find

        # Numba imports about 400 modules on its first call; a lookup in a tiny index makes every worker import them.
        OrderedIndex([1], [1], device="cpu").lookup([1])
        for batch in batches:
            if file is not None:
                find(file, device_request, batch.column(0))
        yield pa.record_batch([pa.array([private()])], names=["held"])

    frame = spark.range(0, ROWS, 1, 2).selectExpr(f"2 * ((id * 2654435761) % {keys}) AS k")
    return max(int(row.held) for row in frame.mapInArrow(measure, "held long").collect())


def main() -> None:
    """Measure identity, then lookup; print both."""
    file, keys = shared_file(sys.argv[1]), int(sys.argv[2])
    spark = local_session()
    report = {"identity": held(spark, keys, None), "lookup": held(spark, keys, file)}
    spark.stop()
    sys.stdout.write(json.dumps(report) + "\n")


if __name__ == "__main__":
    main()
