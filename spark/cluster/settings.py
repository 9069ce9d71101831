"""The settings `spark.millrace.*` of a session: one table, read in one place, checked when a call begins.

A call's own argument comes first; a setting stands for an argument that was left at its default (`"auto"` or None).
Set them as any Spark setting, before or during a session: `spark.conf.set("spark.millrace.device", "cuda")`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from pyspark.sql import SparkSession

from millrace.errors import ArgumentError
from millrace.spark.cluster.connect import is_connect

PREFIX = "spark.millrace."
LEVELS = ("DEBUG", "INFO", "WARNING", "ERROR")
_UNITS = {"": 0, "b": 0, "k": 10, "m": 20, "g": 30, "t": 40}
_SIZE = re.compile(r"\s*(\d+)\s*([bkmgt]?)(i?b)?\s*", re.IGNORECASE)


@dataclass(frozen=True)
class Settings:
    """The settings of a session, with their defaults."""

    device: str = "auto"
    """`device`: what `device="auto"` means in calls."""
    strategy: str = "auto"
    """`strategy`: what `strategy="auto"` means in `ms.join`, where the join allows it."""
    broadcast_limit: int = 256 << 20
    """`broadcastLimit`: a side of at most this estimated size is broadcast; bytes, or such as `64m`. Unset, it is an
    eighth of the driver's heap if that is less, because the driver reads the side.
    """
    batch_bytes: int = 16 << 20
    """`batchBytes`: about the size of a batch that tasks return to Spark; bytes, or such as `8m`."""
    shards: int | None = None
    """`shards`: the number of shards of shuffled joins and of `ms.window_join`; unset, the calls choose."""
    log_level: str | None = None
    """`logLevel`: the level of the logger `millrace` in Spark's workers: DEBUG, INFO, WARNING or ERROR."""


DEFAULTS = Settings()
HEAP_SHARE = 8
"""The largest default of `broadcastLimit` is the driver's heap divided by this."""


def read_settings(spark: SparkSession) -> Settings:
    """The session's settings; an invalid one is an `ArgumentError` that names it."""
    shards, level = _given(spark, "shards"), _given(spark, "logLevel")
    if level is not None and level.upper() not in LEVELS:
        raise _refused("logLevel", level, ", ".join(LEVELS))
    return Settings(
        device=_given(spark, "device") or DEFAULTS.device,
        strategy=_given(spark, "strategy") or DEFAULTS.strategy,
        broadcast_limit=_size(spark, "broadcastLimit", _broadcast_limit(spark), "0", "1024g"),
        batch_bytes=_size(spark, "batchBytes", DEFAULTS.batch_bytes, "64k", "1g"),
        shards=None if shards is None else _count("shards", shards),
        log_level=None if level is None else level.upper(),
    )


def _broadcast_limit(spark: SparkSession) -> int:
    """The default: reading a quarter of a heap of 1 GB to Python fails in Spark for want of direct memory."""
    if is_connect(spark):
        return DEFAULTS.broadcast_limit  # a client does not see the heap of its server
    return min(DEFAULTS.broadcast_limit, _heap(spark.sparkContext._jvm) // HEAP_SHARE)


@lru_cache(1)
def _heap(jvm: Any) -> int:
    """The bytes of a JVM's heap."""
    return int(jvm.java.lang.Runtime.getRuntime().maxMemory())


def _given(spark: SparkSession, name: str) -> str | None:
    found = spark.conf.get(PREFIX + name, None)
    return None if found is None or not found.strip() else found.strip()


def _size(spark: SparkSession, name: str, default: int, least: str, most: str) -> int:
    """A number of bytes from `least` to `most`, with Spark's units (`64m`)."""
    text = _given(spark, name)
    if text is None:
        return default
    size = _bytes(text)
    if size is None or not (_bytes(least) or 0) <= size <= (_bytes(most) or 0):
        raise _refused(name, text, f"{least} to {most}, as a number of bytes or such as '16m'")
    return size


def _bytes(text: str) -> int | None:
    found = _SIZE.fullmatch(text)
    return None if found is None else int(found[1]) << _UNITS[found[2].lower()]


def _count(name: str, text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise _refused(name, text, "whole numbers from 1 on")
    return int(text)


def _refused(name: str, given: Any, allowed: str) -> ArgumentError:
    return ArgumentError(f"the setting {PREFIX}{name} is {given!r}: allowed are {allowed}; set it again or unset it")
