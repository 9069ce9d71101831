"""What Spark knows of cached frames without a job, and the samples drawn of them, which later calls use again.

A frame counts as cached if it only selects or computes columns of a relation that is completely in Spark's cache: its
rows stay as they are while it is there. So a call on the same cached frames needs no second sampling job: `ms.join`
after `ms.explain`, or the next join of the same tables. Samples only decide the plan, never the result.

Limits: frames of Spark Connect never count as cached, since its clients do not see plans.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Hashable
from dataclasses import dataclass
from typing import Any

from pyspark.sql import DataFrame

from millrace.spark.cluster.connect import is_connect

MAX_KEPT = 16
"""Samples that are kept, the last used ones."""
MAX_KEPT_BYTES = 4 << 20
"""The most bytes of a sample that is kept: it has some thousand rows, but conditions may read long texts."""


@dataclass(frozen=True)
class CachedFrame:
    """The number of rows of a cached frame, and what names it: equal names mean the same rows of the same columns."""

    rows: int
    names: tuple[Hashable, ...]


def cached_frame(frame: DataFrame) -> CachedFrame | None:
    """What is known of a frame that is completely in Spark's cache, from Spark's statistics; None of other frames."""
    if is_connect(frame):
        return None
    top: Any = frame._jdf.queryExecution().optimizedPlan()
    plan = top
    while plan.nodeName() == "Project":
        plan = plan.children().apply(0)
    if plan.nodeName() != "InMemoryRelation":
        return None  # counts of other plans are estimates of Spark
    rows, builder = plan.stats().rowCount(), plan.cacheBuilder()
    if not rows.isDefined() or not builder.isCachedColumnBuffersLoaded():
        return None
    context = frame.sparkSession.sparkContext.applicationId
    names = context, builder.cachedColumnBuffers().id(), top.semanticHash(), *frame.columns
    return CachedFrame(int(str(rows.get())), names)


class KeptResults:
    """The last used results of calls by what they depend on, for all threads."""

    def __init__(self, limit: int) -> None:
        """Keep up to `limit` results."""
        self._limit = limit
        self._by_key: OrderedDict[Hashable, Any] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, key: Hashable) -> Any:
        """The result, or None."""
        with self._lock:
            if key in self._by_key:
                self._by_key.move_to_end(key)
            return self._by_key.get(key)

    def keep(self, key: Hashable, value: Any) -> None:
        """Keep a result; the one that was not used for the longest time makes room."""
        with self._lock:
            self._by_key[key] = value
            if len(self._by_key) > self._limit:
                self._by_key.popitem(last=False)

    def clear(self) -> None:
        """Forget all results."""
        with self._lock:
            self._by_key.clear()
