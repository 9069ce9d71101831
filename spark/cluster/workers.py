"""Checks the workers once per session and file, to find early what would make a job fail later: version and files.

A small job runs on as many tasks as the session has by default; problems are raised on the driver at once. The job
cannot check executors that start later, so every task checks again for itself (`task.py`). The function for the
workers is defined inside another function, so that Spark sends it by value, and is a plain one: it also works on a
worker without millrace and without pyarrow.
"""

from __future__ import annotations

import json
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql import functions as fn

import millrace as mr
from millrace.errors import ArgumentError, MillraceError, StateError
from millrace.spark.cluster.files import SharedFile, copy_to_workers
from millrace.spark.cluster.jobs import described
from millrace.spark.cluster.worker_python import advice, worker_python

_MAX_TASKS = 1 << 10
_NEEDED = ("millrace", "pyarrow", "pandas", "numpy", "numba")
_known: weakref.WeakKeyDictionary[SparkSession, Workers] = weakref.WeakKeyDictionary()


@dataclass(frozen=True)
class Workers:
    """A session's workers: how many tasks it runs by default."""

    tasks: int


def _worker_check(path: str | None, known: tuple[int, str] | None) -> Callable[[int], str]:
    """The function that workers run; it returns one line of JSON. Without `known` it describes the index `path`."""
    needed = _NEEDED
    kept: list[str] = []

    def check(_: int) -> str:
        if kept:  # one report for all rows of a task
            return kept[0]
        import json as _json
        import os as _os
        import platform as _platform
        import socket as _socket
        import sys as _sys
        from importlib.util import find_spec as _find_spec

        report: dict[str, Any] = {}
        report["python"] = f"{_sys.executable} (Python {_platform.python_version()})"
        report["host"] = _socket.gethostname()
        report["lacks"] = [name for name in needed if _find_spec(name) is None]
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
        kept.append(_json.dumps(report))
        return kept[0]

    return check


def _collect_reports(
    spark: SparkSession, path: str | None, known: tuple[int, str] | None = None
) -> list[dict[str, Any]]:
    """One report of each task's worker."""
    check = fn.udf(_worker_check(path, known), "string", useArrow=False)
    rows = spark.range(_MAX_TASKS).select(fn.spark_partition_id().alias("task"), check("id").alias("report"))
    try:
        with described(spark, "checks the workers' packages" if path is None else f"checks that workers see {path}"):
            reports = {row.task: row.report for row in rows.collect()}
    except Exception as error:  # pyspark raises various types, with the stack traces of three processes
        raise StateError(
            f"Spark's workers, which run {worker_python()}, fail before they do anything ({_cause(error)}): {advice()}"
        ) from None
    return [json.loads(report) for report in reports.values()]


def _cause(error: Exception) -> str:
    """What Spark's error says on why a worker does not start, or else its first line."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()] or [type(error).__name__]
    telling = ("Cannot run program", "PYTHON_VERSION_MISMATCH", "ModuleNotFoundError", "ImportError")
    return next((line[line.index(word) :] for line in lines for word in telling if word in line), lines[0])


def _check_versions(reports: list[dict[str, Any]]) -> None:
    for report in reports:
        if report["lacks"]:
            raise StateError(
                f"the worker on {report['host']} runs {report['python']}, which lacks {', '.join(report['lacks'])}: "
                f"{advice()}"
            )
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
