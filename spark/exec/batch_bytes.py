"""How large batches may be: in bytes by `spark.millrace.batchBytes`, in rows by Spark's `maxRecordsPerBatch`.

The driver reads both settings at the call; the tasks get them with their job. An Arrow batch is copied into the JVM as
one piece of direct memory, and a Python worker holds several at a time, so their bytes must be bounded, not their rows.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from pyspark.sql import SparkSession

from millrace.errors import ArgumentError

SETTING = "spark.millrace.batchBytes"
RECORDS = "spark.sql.execution.arrow.maxRecordsPerBatch"
DEFAULT_BYTES = 1 << 24
DEFAULT_RECORDS = 10_000
MIN_BYTES, MAX_BYTES = 1 << 16, 1 << 30
OUT_ROWS = 1 << 16
"""Rows of a batch if Spark's setting is 0, which means no limit."""
_SIZE = re.compile(r"(\d+)\s*([kmgt]?)(?:i?b)?", re.IGNORECASE)
_UNITS = {"": 0, "k": 10, "m": 20, "g": 30, "t": 40}


@dataclass(frozen=True)
class BatchLimits:
    """The limits of one batch; a batch always has at least one row."""

    bytes: int = DEFAULT_BYTES
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
    return BatchLimits(_read_bytes(str(spark.conf.get(SETTING, "") or "")), records if records > 0 else OUT_ROWS)


def _read_bytes(given: str) -> int:
    if not given:
        return DEFAULT_BYTES
    found = _SIZE.fullmatch(given.strip())
    size = int(found[1]) << _UNITS[found[2].lower()] if found else 0
    if not MIN_BYTES <= size <= MAX_BYTES:
        raise ArgumentError(f"{SETTING}={given!r}: allowed are 64k to 1g, as a number of bytes or such as '16m'")
    return size
