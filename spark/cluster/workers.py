"""Asks the workers, once per session and file, what could make a job fail later: their millrace, and what they see.

A tiny job runs on as many tasks as the session has by default; what it finds wrong is raised on the driver at once. It
cannot reach executors that come later, so every task checks again for itself (`task.py`). The function that is sent is
made here, inside another: so it travels by value, and tells of a worker that has no millrace at all.
"""

from __future__ import annotations

import json
import weakref
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark.sql import SparkSession

import millrace as mr
from millrace.errors import ArgumentError, MillraceError, StateError
from millrace.spark.cluster.files import Shipped, bring

_MOST_TASKS = 1 << 10
_known: weakref.WeakKeyDictionary[SparkSession, Workers] = weakref.WeakKeyDictionary()


@dataclass(frozen=True)
class Workers:
    """What is known of a session's workers: how many tasks it runs by default."""

    tasks: int


def _question(path: str | None, known: tuple[int, str] | None) -> Callable[[Iterator[pa.RecordBatch]], Any]:
    """The function that workers run: one line of JSON each. A file of which nothing is `known` is described."""

    def answer(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import json as _json
        import os as _os
        import socket as _socket

        import pyarrow as _pa

        told = {"host": _socket.gethostname(), "pid": _os.getpid()}
        try:
            import millrace as _millrace

            told["version"] = _millrace.__version__
            if path is not None:
                from millrace.spark.cluster.files import Shipped as _Shipped

                if known is not None:
                    told["sees"] = _Shipped(path, *known).visible() is not None
                elif _os.path.exists(path):
                    from millrace.spark.cluster.index_file import describe_index as _describe

                    told["index"] = _describe(path)
        except Exception as error:
            told["error"] = f"{type(error).__name__}: {error}"
        for _ in batches:
            pass
        yield _pa.record_batch([_pa.array([_json.dumps(told)])], names=["told"])

    return answer


def _ask(spark: SparkSession, path: str | None, known: tuple[int, str] | None = None) -> list[dict[str, Any]]:
    """What each task's worker says."""
    asked = spark.range(_MOST_TASKS).mapInArrow(_question(path, known), "told string")
    return [json.loads(row.told) for row in asked.collect()]


def _check_versions(answers: list[dict[str, Any]]) -> None:
    for told in answers:
        found = told.get("version")
        if found != mr.__version__:
            what = f"has millrace {found}" if found else f"cannot import millrace ({told.get('error')})"
            raise StateError(
                f"the worker on {told['host']} {what}, this driver has {mr.__version__}: install the same version for "
                f"spark.pyspark.python on every worker"
            )
        if "error" in told:
            raise StateError(f"the worker on {told['host']} cannot use millrace: {told['error']}")


def check_workers(spark: SparkSession) -> Workers:
    """Raise a `StateError` if a worker's millrace is not the driver's; asked once per session."""
    if spark not in _known:
        answers = _ask(spark, None)
        _check_versions(answers)
        _known[spark] = Workers(len(answers))
    return _known[spark]


def deliver(spark: SparkSession, file: Shipped) -> None:
    """Make sure that workers can read a file, by having Spark copy it where they do not see it."""
    check_workers(spark)
    if str(spark.conf.get("spark.master", "") or "").startswith("local["):
        return  # workers are this machine's
    known = file.size, file.head
    if all(told.get("sees") for told in _ask(spark, file.path, known)):
        return
    bring(spark, file)
    answers = _ask(spark, file.path, known)
    blind = sorted({told["host"] for told in answers if not told.get("sees")})
    if blind:
        raise StateError(
            f"workers on {', '.join(blind)} can neither see {file.path} nor get it from Spark: put it on a file system "
            f"that all workers share"
        )


def describe_remote(spark: SparkSession, path: str) -> dict[str, Any]:
    """What workers say of an index file that only they see."""
    check_workers(spark)
    answers = _ask(spark, path)
    for told in answers:
        if "error" in told:
            raise _as_error(told)
        if "index" not in told:
            raise ArgumentError(
                f"index {path!r}: neither the driver nor the worker on {told['host']} has such a file: put it on a "
                f"file system that all workers share, or give the index itself instead of its path"
            )
    found: dict[str, Any] = answers[0]["index"]
    return found


def _as_error(told: dict[str, Any]) -> MillraceError:
    return StateError(f"the worker on {told['host']} cannot open the index: {told['error']}")
