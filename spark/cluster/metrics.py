"""What a call counted, by Spark's observed metrics: rows, rows that cannot match, and what devices did.

Streaming calls always observe their input: the counts are in the query's progress (`observedMetrics`, under names
that begin with `millrace`). To count in a batch action, give a `Metrics` to the call and read it afterwards; it also
counts what the devices did, by a column that tasks fill and that is gone before the user sees the rows. Spark updates
observed metrics row by row, about as slowly as it does anything, so a batch call without a `Metrics` counts nothing.
They tell of the first action that ends; a limit may stop an action early. The names of counts are in `docs/spark.md`.
"""

from __future__ import annotations

import itertools
from typing import Any

from pyspark.sql import Column, DataFrame, Observation
from pyspark.sql import functions as fn
from pyspark.sql import types as ty

_numbers = itertools.count()
TASK_FIELDS = ("tasks", "asked", "held", "pairs", "device_rows", "device_cycles", "device_ns", "fallbacks")
"""What a task tells of its device, as 64-bit integers; see `work.tally`."""
TASK_COLUMN = "__millrace_task"
TASK_TYPE = ty.StructType([ty.StructField(name, ty.LongType()) for name in TASK_FIELDS])


class Metrics:
    """Counts of one call, to be read after the action: `m = Metrics(); ms.join(..., metrics=m).count(); m.get`."""

    def __init__(self) -> None:
        """Nothing counted yet."""
        self._observed: list[Any] = []
        self._known: dict[str, int] = {}
        self._used = False

    def start(self) -> None:
        """One object counts one call."""
        from millrace.errors import ArgumentError

        if self._used:
            raise ArgumentError("this Metrics was given to a call already: make a new one for each call")
        self._used = True

    @property
    def get(self) -> dict[str, int]:
        """The counts, by name; waits until an action on the call's result has ended."""
        found = dict(self._known)
        for one in self._observed:
            found |= {name: int(value or 0) for name, value in one.get.items()}
        return found

    def know(self, counts: dict[str, int]) -> None:
        """Counts that were known on the driver."""
        self._known |= counts

    def watch(self, frame: DataFrame, counts: dict[str, Column]) -> DataFrame:
        """The frame, observed."""
        self._observed.append(_observation(frame))
        return _observe(frame, self._observed[-1], counts)


def _observation(frame: DataFrame) -> Any:
    """Classic and Connect have a class each."""
    if type(frame).__module__.startswith("pyspark.sql.connect"):
        from pyspark.sql.connect.observation import Observation as ConnectObservation

        return ConnectObservation()
    return Observation()


def watched(frame: DataFrame, counts: dict[str, Column], call: str, metrics: Metrics | None) -> DataFrame:
    """The frame, observed for whoever asked; a stream always, for its progress."""
    if frame.isStreaming:
        return _observe(frame, f"millrace_{call}_{next(_numbers)}", counts)
    return frame if metrics is None else metrics.watch(frame, counts)


def _observe(frame: DataFrame, observation: Any, counts: dict[str, Column]) -> DataFrame:
    return frame.observe(observation, *(value.alias(name) for name, value in counts.items()))


def input_counts(side: str, unusable: str) -> dict[str, Column]:
    """Rows, and rows that cannot match, of an input."""
    return {f"{side}_rows": fn.count(fn.lit(1)), f"{side}_null_keys": fn.count_if(fn.expr(unusable))}


def task_counts() -> dict[str, Column]:
    """Sums over what tasks told."""
    return {name: fn.sum(fn.col(f"{TASK_COLUMN}.{name}")) for name in TASK_FIELDS}
