"""How large batches may be: in bytes by `spark.millrace.batchBytes`, in rows by Spark's `maxRecordsPerBatch`.

The driver reads both settings at the call; the tasks get them with their job. An Arrow batch is copied into the JVM as
one piece of direct memory, and a Python worker holds several at a time, so their bytes must be bounded, not their rows.
"""

from __future__ import annotations

from dataclasses import dataclass

from pyspark.sql import SparkSession

from millrace.spark.cluster.settings import DEFAULTS, PREFIX, read_settings

SETTING = f"{PREFIX}batchBytes"
RECORDS = "spark.sql.execution.arrow.maxRecordsPerBatch"
DEFAULT_RECORDS = 10_000
OUT_ROWS = 1 << 16
"""Rows of a batch if Spark's setting is 0, which means no limit."""


@dataclass(frozen=True)
class BatchLimits:
    """The limits of one batch; a batch always has at least one row."""

    bytes: int = DEFAULTS.batch_bytes
    rows: int = DEFAULT_RECORDS

    @property
    def pairs(self) -> int:
        """Pairs of row numbers, of 16 bytes each, that a task makes at once."""
        return self.bytes // 16

    @property
    def bulk_bytes(self) -> int:
        """Bytes of input rows that a task searches with at once."""
        return 2 * self.bytes

    @property
    def run_bytes(self) -> int:
        """Bytes of a stored run of a stream."""
        return self.bytes


DEFAULT_LIMITS = BatchLimits()


def read_limits(spark: SparkSession) -> BatchLimits:
    """The session's limits; a setting that cannot be read is an `ArgumentError`."""
    records = int(str(spark.conf.get(RECORDS, str(DEFAULT_RECORDS)) or DEFAULT_RECORDS))
    return BatchLimits(read_settings(spark).batch_bytes, records if records > 0 else OUT_ROWS)
