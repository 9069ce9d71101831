"""Counts of a call, by Spark's observed metrics: rows, rows that cannot match, and the work of the devices.

Streaming calls always observe their input: the counts are in the query's progress (`observedMetrics`, under names
that begin with `millrace`). To count in a batch action, pass a `Metrics` to the call and read it after the action. It
also counts the work of the devices, through a column that tasks fill and that is removed from the result. Spark updates
observed metrics row by row, which is slow, so a batch call without a `Metrics` counts nothing. The counts are those of
the first action that ends; a limit may stop an action early. docs/reference/spark-batch.md lists the counts.
"""

from __future__ import annotations

import itertools
import time
from typing import Any

from pyspark.sql import Column, DataFrame, Observation
from pyspark.sql import functions as fn
from pyspark.sql import types as ty

from millrace.spark.cluster.connect import is_connect

_numbers = itertools.count()
_POLL_SECONDS = 0.05
TASK_FIELDS = ("tasks", "asked", "held", "pairs", "device_rows", "device_cycles", "device_ns", "fallbacks")
"""The counts that a task reports, as 64-bit integers; see `tally` in `exec/join_rows.py`."""
TASK_COLUMN = "__millrace_task"
TASK_TYPE = ty.StructType([ty.StructField(name, ty.LongType()) for name in TASK_FIELDS])


class Metrics:
    """Counts of one call, read after the action: `m = Metrics(); ms.join(..., metrics=m).count(); m.get`."""

    def __init__(self) -> None:
        """All counts are still unknown."""
        self._observed: list[Any] = []
        self._known: dict[str, int] = {}
        self._used = False

    def start(self) -> None:
        """Begin a call; one object counts one call."""
        from millrace.errors import ArgumentError

        if self._used:
            raise ArgumentError("this Metrics was already passed to a call: make a new one for each call")
        self._used = True

    @property
    def get(self) -> dict[str, int]:
        """The counts, by name; waits until an action on the call's result has ended."""
        found = dict(self._known)
        for one in self._observed:
            while not (counts := one.get):  # with Connect it is empty until then; otherwise `get` itself waits
                time.sleep(_POLL_SECONDS)
            found |= {name: int(value or 0) for name, value in counts.items()}
        return found

    def know(self, counts: dict[str, int]) -> None:
        """Add counts that the driver knows."""
        self._known |= counts

    def watch(self, frame: DataFrame, counts: dict[str, Column]) -> DataFrame:
        """The frame with an observation of `counts`."""
        self._observed.append(_observation(frame))
        return _observe(frame, self._observed[-1], counts)


def _observation(frame: DataFrame) -> Any:
    """A new observation; Classic and Connect have separate classes."""
    if is_connect(frame):
        from pyspark.sql.connect.observation import Observation as ConnectObservation

        return ConnectObservation()
    return Observation()


def watched(frame: DataFrame, counts: dict[str, Column], call: str, metrics: Metrics | None) -> DataFrame:
    """The frame with an observation: always for a stream, for a batch frame only with `metrics`."""
    if frame.isStreaming:
        return _observe(frame, f"millrace_{call}_{next(_numbers)}", counts)
    return frame if metrics is None else metrics.watch(frame, counts)


def _observe(frame: DataFrame, observation: Any, counts: dict[str, Column]) -> DataFrame:
    return frame.observe(observation, *(value.alias(name) for name, value in counts.items()))


def input_counts(side: str, unusable: str) -> dict[str, Column]:
    """For an input: the rows, and the rows that cannot match."""
    return {f"{side}_rows": fn.count(fn.lit(1)), f"{side}_null_keys": fn.count_if(fn.expr(unusable))}


def task_counts() -> dict[str, Column]:
    """Sums of the counts that tasks report."""
    return {name: fn.sum(fn.col(f"{TASK_COLUMN}.{name}")) for name in TASK_FIELDS}
