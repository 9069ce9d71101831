"""A streaming join as Spark's stateful operator (`transformWithStateInPandas`); each shard is a group of it.

Its input rows are packed batches. The state is the manifest (a ValueState) and the runs (a MapState); event-time timers
remove dead runs when no rows arrive. A shard outputs rows of its own: its pairs (`pair_files.py`), then its counts.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Iterator, Mapping
from typing import Any

import pandas as pd
from pyspark.sql import types as ty
from pyspark.sql.streaming.stateful_processor import (
    ExpiredTimerInfo,
    MapState,
    StatefulProcessor,
    StatefulProcessorHandle,
    TimerValues,
    ValueState,
)

from millrace.spark.cluster.gc_freeze import freeze_loaded_objects
from millrace.spark.cluster.jobs import LOGGER
from millrace.spark.cluster.task import error_first, task_device
from millrace.spark.stream.input_spool import InputSpool
from millrace.spark.stream.packed_batches import unpack_input
from millrace.spark.stream.pair_files import PairOutput, Writer, remove_leftovers
from millrace.spark.stream.plan import StreamPlan
from millrace.spark.stream.state import StoredRun
from millrace.spark.stream.task import COUNTS, ShardBatch, ShardInput

log = logging.getLogger(LOGGER)
MANIFEST, RUNS = "manifest", "runs"
"""The names of the state variables, needed to read a checkpoint."""
_DATA = ty.StructField("data", ty.BinaryType())
MANIFEST_TYPE = ty.StructType([_DATA])
NAME_TYPE = ty.StructType([ty.StructField("name", ty.StringType())])
RUN_TYPE = ty.StructType([_DATA, ty.StructField("side", ty.StringType()), ty.StructField("rows", ty.LongType())])
OUT_TYPE = ty.StructType(
    [_DATA, ty.StructField("path", ty.StringType()), *(ty.StructField(name, ty.LongType()) for name in COUNTS)]
)


class StateStore:
    """The state variables of the current shard, which Spark has set before."""

    def __init__(self, handle: StatefulProcessorHandle) -> None:
        """Created once per task, for all its shards."""
        self._handle = handle
        self._manifest: ValueState = handle.getValueState(MANIFEST, MANIFEST_TYPE)
        self._runs: MapState = handle.getMapState(RUNS, NAME_TYPE, RUN_TYPE)

    def manifest(self) -> bytes | None:
        """The manifest that `keep` stored last."""
        found = self._manifest.get()
        return None if found is None else bytes(found[0])

    def run(self, name: str) -> bytes | None:
        """A run's bytes."""
        found = self._runs.getValue((name,))
        return None if found is None else bytes(found[0])

    def keep(self, manifest: bytes) -> None:
        """Store the manifest."""
        self._manifest.update((manifest,))

    def add(self, run: StoredRun, data: bytes) -> None:
        """Store a run."""
        self._runs.updateValue((run.name,), (data, run.side, run.rows))

    def remove(self, run: StoredRun) -> None:
        """Remove a run."""
        self._runs.removeKey((run.name,))

    def set_timer(self, before: int | None, at: int | None) -> None:
        """Move the shard's timer from `before` to `at`."""
        if before == at:
            return
        if before is not None:
            self._handle.deleteTimer(before)
        if at is not None:
            self._handle.registerTimer(at)


class JoinProcessor(StatefulProcessor):
    """The join of one task's shards."""

    def __init__(self, plan: StreamPlan) -> None:
        """Created on the driver, once for each call of `ms.window_join`."""
        self._plan = plan
        self._operator = uuid.uuid4().hex

    def init(self, handle: StatefulProcessorHandle) -> None:
        """Called on an executor before each micro-batch, and once on the driver, for the state's types."""
        freeze_loaded_objects()
        self._store = StateStore(handle)
        self._writer = Writer.of_task(self._operator)
        remove_leftovers(self._writer)

    def handleInputRows(  # noqa: N802 - Spark's name
        self, key: Any, rows: Iterator[pd.DataFrame], timerValues: TimerValues
    ) -> Iterator[pd.DataFrame]:
        """Join a shard's packed batches of a micro-batch."""
        output = PairOutput(self._writer)
        with error_first(), InputSpool(self._plan.limits.bytes) as spool:
            batch = self._shard_batch(timerValues)
            for table in batch.join(_inputs(self._plan, rows, spool)):
                yield _output_row(output.add(table))
        counts = batch.counts()
        log.info("window_join, shard %s: %s", key[0], {name: n for name, n in counts.items() if n})
        yield _output_row(counts)

    def handleExpiredTimer(  # noqa: N802 - Spark's name
        self, key: Any, timerValues: TimerValues, expiredTimerInfo: ExpiredTimerInfo
    ) -> Iterator[pd.DataFrame]:
        """Remove the dead rows of a shard."""
        with error_first():
            batch = self._shard_batch(timerValues)
            batch.expire()
        yield _output_row(batch.counts())

    def _shard_batch(self, timers: TimerValues) -> ShardBatch:
        device = task_device(self._plan.device_request)
        return ShardBatch(self._plan, self._store, device, timers.getCurrentWatermarkInMs())


def _inputs(plan: StreamPlan, frames: Iterator[pd.DataFrame], spool: InputSpool) -> Iterator[ShardInput]:
    """The packed batches of a shard; those of r wait for those of s (`ShardBatch.join`), on disk if they are many."""
    for frame in frames:
        for row in frame.itertuples(index=False):
            data = bytes(row.data) if row.of_s else spool.keep(bytes(row.data))
            yield unpack_input(plan, bool(row.of_s), data, int(row.own), int(row.counted))


def _output_row(values: Mapping[str, object]) -> pd.DataFrame:
    """One row for Spark."""
    return pd.DataFrame([{"data": None, "path": None, **dict.fromkeys(COUNTS, 0), **values}])
