"""Checks the workers once per session and file, to find early what would make a job fail later: version and files.

A small job runs on as many tasks as the session has by default; problems are raised on the driver at once. The job
cannot check executors that start later, so every task checks again for itself (`task.py`). The function for the
workers is defined inside another function, so that Spark sends it by value: it also works on a worker without millrace.
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
from millrace.spark.cluster.files import SharedFile, copy_to_workers

_MAX_TASKS = 1 << 10
_known: weakref.WeakKeyDictionary[SparkSession, Workers] = weakref.WeakKeyDictionary()


@dataclass(frozen=True)
class Workers:
    """A session's workers: how many tasks it runs by default."""

    tasks: int


def _worker_check(path: str | None, known: tuple[int, str] | None) -> Callable[[Iterator[pa.RecordBatch]], Any]:
    """The function that workers run; it returns one line of JSON. Without `known` it describes the index `path`."""

    def check(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import json as _json
        import os as _os
        import socket as _socket

        import pyarrow as _pa

        report = {"host": _socket.gethostname(), "pid": _os.getpid()}
        try:
            import millrace as _millrace

            report["version"] = _millrace.__version__
            if path is not None:
                from millrace.spark.cluster.files import SharedFile as _SharedFile

                if known is not None:
                    report["sees"] = _SharedFile(path, *known).visible() is not None
                elif _os.path.exists(path):
                    from millrace.spark.cluster.index_file import describe_index as _describe

                    report["index"] = _describe(path)
        except Exception as error:
            report["error"] = f"{type(error).__name__}: {error}"
        for _ in batches:
            pass
        yield _pa.record_batch([_pa.array([_json.dumps(report)])], names=["report"])

    return check


def _collect_reports(
    spark: SparkSession, path: str | None, known: tuple[int, str] | None = None
) -> list[dict[str, Any]]:
    """One report of each task's worker."""
    checked = spark.range(_MAX_TASKS).mapInArrow(_worker_check(path, known), "report string")
    return [json.loads(row.report) for row in checked.collect()]


def _check_versions(reports: list[dict[str, Any]]) -> None:
    for report in reports:
        found = report.get("version")
        if found != mr.__version__:
            what = f"has millrace {found}" if found else f"cannot import millrace ({report.get('error')})"
            raise StateError(
                f"the worker on {report['host']} {what}, this driver has {mr.__version__}: install the same version "
                f"for spark.pyspark.python on every worker"
            )
        if "error" in report:
            raise StateError(f"the worker on {report['host']} cannot use millrace: {report['error']}")


def check_workers(spark: SparkSession) -> Workers:
    """Raise a `StateError` if a worker has another version of millrace; runs once per session."""
    if spark not in _known:
        reports = _collect_reports(spark, None)
        _check_versions(reports)
        _known[spark] = Workers(len(reports))
    return _known[spark]


def deliver(spark: SparkSession, file: SharedFile) -> None:
    """Make sure that workers can read a file; Spark copies it if they do not see it."""
    check_workers(spark)
    if str(spark.conf.get("spark.master", "") or "").startswith("local["):
        return  # all workers run on this machine
    known = file.size, file.head
    if all(report.get("sees") for report in _collect_reports(spark, file.path, known)):
        return
    copy_to_workers(spark, file)
    reports = _collect_reports(spark, file.path, known)
    hosts = sorted({report["host"] for report in reports if not report.get("sees")})
    if hosts:
        raise StateError(
            f"workers on {', '.join(hosts)} can neither see {file.path} nor get it from Spark: put it on a file system "
            f"that all workers share"
        )


def describe_remote(spark: SparkSession, path: str) -> dict[str, Any]:
    """The workers' description of an index file that only they see."""
    check_workers(spark)
    reports = _collect_reports(spark, path)
    for report in reports:
        if "error" in report:
            raise _as_error(report)
        if "index" not in report:
            raise ArgumentError(
                f"index {path!r}: neither the driver nor the worker on {report['host']} has such a file: put it on a "
                f"file system that all workers share, or pass the index itself instead of its path"
            )
    found: dict[str, Any] = reports[0]["index"]
    return found


def _as_error(report: dict[str, Any]) -> MillraceError:
    return StateError(f"the worker on {report['host']} cannot open the index: {report['error']}")
