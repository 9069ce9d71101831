"""Runs something when a frame is gone: when no frame, query, cache or view can run its tasks any more.

In a classic session a frame's Python function is a JVM object that all frames, plans and queries derived from it share.
A weak reference to that object, kept in the JVM, tells whether any of them is left. References are looked at whenever a
call makes another frame (`sweep`), and after a Python object and the JVM's collector have let go of it. With Spark
Connect the server's plans are not visible, so everything stays until the session stops or the process ends.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from pyspark.sql import DataFrame

from millrace.spark.cluster.worker_python import active_context


@dataclass(frozen=True)
class _Watched:
    """A JVM's weak reference, the application it belongs to, and what to do when its object is gone."""

    reference: Any
    application: str
    release: Callable[[], None]


_watched: list[_Watched] = []
_lock = threading.Lock()


def task_function(frame: DataFrame) -> Any:
    """The JVM's object of the function that `mapInArrow` runs for this frame; None with Spark Connect."""
    return frame._jdf.queryExecution().analyzed().functionExpr().func() if hasattr(frame, "_jdf") else None


def column_function(udf: Any) -> Any:
    """The same for a user-defined function of columns."""
    unwrapped = udf._unwrapped
    return unwrapped._judf.func() if hasattr(unwrapped, "_judf") else None


def when_gone(function: Any, release: Callable[[], None]) -> None:
    """Call `release` after the last frame with this function is gone, or its application has stopped."""
    context = active_context()
    if function is None or context is None:
        return
    reference = context._jvm.java.lang.ref.WeakReference(function)
    with _lock:
        _watched.append(_Watched(reference, context.applicationId, release))


def sweep() -> None:
    """Release what belongs to frames that are gone."""
    context = active_context()
    running = None if context is None else context.applicationId
    with _lock:
        gone = [one for one in _watched if one.application != running or one.reference.get() is None]
        for one in gone:
            _watched.remove(one)
    for one in gone:
        one.release()
