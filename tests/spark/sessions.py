"""Spark sessions for tests, and scripts run in processes of their own where a test needs another kind of session.

A process has one kind of session: classic ones on `local[2]` share a JVM; `local-cluster` and Spark Connect get a
script (`tests/spark/scripts`), which prints what it found as one line of JSON.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import pytest
from pyspark.sql import SparkSession

import millrace
from millrace.spark.cluster import session
from tests.watchdog import WATCHDOG

GROUP = pytest.mark.xdist_group("spark")
"""Tests that share the session run in one worker."""
SCRIPTS = Path(__file__).parent / "scripts"
ZONE = "Europe/Berlin"
T = TypeVar("T")


def set_up() -> None:
    """Workers run this Python and see this millrace and these tests."""
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    here = [str(Path(millrace.__file__).parents[1]), str(Path(__file__).parents[2])]
    others = [p for p in os.environ.get("PYTHONPATH", "").split(os.pathsep) if p and p not in here]
    os.environ["PYTHONPATH"] = os.pathsep.join([*here, *others])


def local_session(master: str = "local[2]", **settings: str) -> SparkSession:
    """A classic session; dots of a setting's name are written as two underscores."""
    set_up()
    given = {
        "spark__sql__session__timeZone": ZONE,
        "spark__driver__memory": "1g",
        # Executors of `local-cluster`; the driver reads the variable itself.
        "spark__executor__defaultJavaOptions": os.environ.get("SPARK_SUBMIT_OPTS", ""),
    }
    return session.local_session(master, None, **given, **settings)


def connect_session() -> SparkSession:
    """A Spark Connect session on a server that it starts itself."""
    set_up()
    builder = SparkSession.builder.remote("local[2]").config("spark.sql.session.timeZone", ZONE)
    # As in `local_session`: with Spark's 200, the stream of the script alone takes most of a minute.
    return builder.config("spark.sql.shuffle.partitions", "4").getOrCreate()


def run_script(script: str | Path, *arguments: str, environment: dict[str, str] | None = None) -> dict[str, Any]:
    """Run a script (by name: one of the scripts here); return the JSON of its last line."""
    set_up()
    command = [sys.executable, str(SCRIPTS / script), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=WATCHDOG, check=False, env=environment)
    lines = done.stdout.strip().splitlines()
    assert done.returncode == 0, f"{script}: {done.stderr[-4000:]}"
    assert lines, f"{script}: nothing was printed; {done.stderr[-2000:]}"
    report: dict[str, Any] = json.loads(lines[-1])
    return report


def jobs_of(spark: SparkSession, call: Callable[[], T]) -> tuple[int, T]:
    """How many jobs a call runs, by Spark's own tracker, and what it returns."""
    context = spark.sparkContext
    context.setJobGroup(group := f"counted {time.monotonic_ns()}", "")
    try:
        found = call()
    finally:
        context._jsc.clearJobGroup()
    context._jsc.sc().listenerBus().waitUntilEmpty()
    return len(context.statusTracker().getJobIdsForGroup(group)), found
