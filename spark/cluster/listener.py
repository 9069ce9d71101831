"""`ms.listener()`: hands the counts of streaming calls to a function, after every micro-batch.

Streaming calls observe their input and their tasks: the counts are in each query's progress (`observedMetrics`, under
names that begin with `millrace`). A listener saves users from looking for them there.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from pyspark.sql.streaming.listener import StreamingQueryListener

from millrace.errors import ArgumentError
from millrace.spark.cluster.jobs import LOGGER

_PREFIX = "millrace_"


@dataclass(frozen=True)
class BatchCounts:
    """The counts of one call in one micro-batch. `call`: such as `join_tasks` or `window_join`."""

    query: str
    batch: int
    call: str
    counts: dict[str, int]


def listener(report: Callable[[BatchCounts], Any] | None = None) -> StreamingQueryListener:
    """A listener for `spark.streams.addListener`, which reports the counts of streaming calls.

    Args:
        report: A function that gets a `BatchCounts` for each call in each micro-batch; None logs the counts by the
            logger `millrace`, as INFO.

    Raises:
        ArgumentError: `report` is no function.
    """
    if report is not None and not callable(report):
        raise ArgumentError(f"report is a {type(report).__name__}; allowed is a function of one BatchCounts")
    return _CountsListener(report or _log)


class _CountsListener(StreamingQueryListener):
    """Finds our counts in the progress of queries."""

    def __init__(self, report: Callable[[BatchCounts], Any]) -> None:
        self._report = report

    def onQueryStarted(self, event: Any) -> None:  # noqa: N802 - Spark's name
        """Nothing to do."""

    def onQueryProgress(self, event: Any) -> None:  # noqa: N802 - Spark's name
        """Report the counts of a micro-batch."""
        progress = event.progress
        for name, row in progress.observedMetrics.items():
            if name.startswith(_PREFIX):
                call = name.removeprefix(_PREFIX).rpartition("_")[0]
                counts = {key: int(value or 0) for key, value in row.asDict().items()}
                self._report(BatchCounts(progress.name or str(progress.id), progress.batchId, call, counts))

    def onQueryIdle(self, event: Any) -> None:  # noqa: N802 - Spark's name
        """Nothing to do."""

    def onQueryTerminated(self, event: Any) -> None:  # noqa: N802 - Spark's name
        """Nothing to do."""


def _log(counts: BatchCounts) -> None:
    logging.getLogger(LOGGER).info("%s, batch %d, %s: %s", counts.query, counts.batch, counts.call, counts.counts)
