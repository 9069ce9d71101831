"""A streaming join as Spark's stateful operator (`transformWithStateInPandas`): places are groups, parcels their rows.

State is the manifest (a ValueState) and the runs (a MapState); event-time timers let dead runs leave where no rows
come. A place gives rows of its own: what it counted in the last, before it its pairs (`handing.py`).
"""

from __future__ import annotations

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

from millrace.spark.cluster.task import place_of
from millrace.spark.stream.gc_freeze import settle
from millrace.spark.stream.packed_batches import share
from millrace.spark.stream.pair_files import Handing
from millrace.spark.stream.plan import StreamPlan
from millrace.spark.stream.state import Run
from millrace.spark.stream.task import COUNTS, Batch, Share

MANIFEST, RUNS = "manifest", "runs"
"""The names of the state variables, for whoever reads a checkpoint."""
_DATA = ty.StructField("data", ty.BinaryType())
MANIFEST_TYPE = ty.StructType([_DATA])
NAME_TYPE = ty.StructType([ty.StructField("name", ty.StringType())])
RUN_TYPE = ty.StructType([_DATA, ty.StructField("side", ty.StringType()), ty.StructField("rows", ty.LongType())])
OUT_TYPE = ty.StructType(
    [_DATA, ty.StructField("path", ty.StringType()), *(ty.StructField(name, ty.LongType()) for name in COUNTS)]
)


class StateStore:
    """A place's state variables; Spark has set the place before."""

    def __init__(self, handle: StatefulProcessorHandle) -> None:
        """Made once per task, for all its places."""
        self._handle = handle
        self._manifest: ValueState = handle.getValueState(MANIFEST, MANIFEST_TYPE)
        self._runs: MapState = handle.getMapState(RUNS, NAME_TYPE, RUN_TYPE)

    def manifest(self) -> bytes | None:
        """What `keep` stored last."""
        found = self._manifest.get()
        return None if found is None else bytes(found[0])

    def run(self, name: str) -> bytes | None:
        """A run's bytes."""
        found = self._runs.getValue((name,))
        return None if found is None else bytes(found[0])

    def keep(self, manifest: bytes) -> None:
        """Store the manifest."""
        self._manifest.update((manifest,))

    def add(self, run: Run, data: bytes) -> None:
        """Store a run."""
        self._runs.updateValue((run.name,), (data, run.side, run.rows))

    def remove(self, run: Run) -> None:
        """Remove a run."""
        self._runs.removeKey((run.name,))

    def wake(self, before: int | None, at: int | None) -> None:
        """Move the place's timer."""
        if before == at:
            return
        if before is not None:
            self._handle.deleteTimer(before)
        if at is not None:
            self._handle.registerTimer(at)


class JoinProcessor(StatefulProcessor):
    """The join of one task's places."""

    def __init__(self, plan: StreamPlan) -> None:
        """On the driver."""
        self._plan = plan

    def init(self, handle: StatefulProcessorHandle) -> None:
        """On an executor, before each micro-batch; also once on the driver, for the state's types."""
        settle()
        self._store = StateStore(handle)

    def handleInputRows(  # noqa: N802 - Spark's name
        self, key: Any, rows: Iterator[pd.DataFrame], timerValues: TimerValues
    ) -> Iterator[pd.DataFrame]:
        """A place's parcels of a micro-batch."""
        batch = self._batch(timerValues)
        shares = [one for frame in rows for one in _shares(frame)]
        handing = Handing()
        for table in batch.meet(shares):
            yield _given(handing.give(table))
        yield _given(batch.counts())

    def handleExpiredTimer(  # noqa: N802 - Spark's name
        self, key: Any, timerValues: TimerValues, expiredTimerInfo: ExpiredTimerInfo
    ) -> Iterator[pd.DataFrame]:
        """A place of which some rows are dead."""
        batch = self._batch(timerValues)
        batch.wake()
        yield _given(batch.counts())

    def _batch(self, timers: TimerValues) -> Batch:
        place = place_of(self._plan.asked)
        return Batch(self._plan, self._store, place, timers.getCurrentWatermarkInMs())


def _shares(frame: pd.DataFrame) -> Iterator[Share]:
    for row in frame.itertuples(index=False):
        own, counted = (row.own_from, row.own_to), (row.counted_from, row.counted_to)
        yield share(bool(row.of_s), bytes(row.data), own, counted)


def _given(told: Mapping[str, object]) -> pd.DataFrame:
    """One row for Spark."""
    return pd.DataFrame([{"data": None, "path": None, **dict.fromkeys(COUNTS, 0), **told}])
