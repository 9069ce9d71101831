"""A local Spark session for the demo, the bench and the examples: quiet, with this Python in its workers."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyspark
from pyspark.sql import SparkSession

import millrace
from millrace.errors import DeviceUnavailable


def local_session(master: str = "local[2]", log: Path | None = None, **settings: str) -> SparkSession:
    """A session; dots in a setting's name are written as two underscores.

    `log`: a file for what a Java process that is started here, and the Python workers below it, would write to stderr.
    """
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("SPARK_HOME", str(Path(pyspark.__file__).parent))
    here = str(Path(millrace.__file__).parents[1])
    paths = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    if here not in paths:  # workers find the millrace that this process has, installed or not
        os.environ["PYTHONPATH"] = os.pathsep.join([here, *(p for p in paths if p)])
    given = {
        "spark.ui.enabled": "false",
        "spark.driver.memory": "2g",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.log.level": "ERROR",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.shuffle.partitions": "4",
        **{name.replace("__", "."): value for name, value in settings.items()},
    }
    builder = SparkSession.builder.master(master).appName("millrace")
    for name, value in given.items():
        builder = builder.config(name, value)
    try:
        with _errors_to(log):
            return builder.getOrCreate()
    except Exception as error:  # pyspark raises whatever Java's absence makes
        raise DeviceUnavailable(f"Spark does not start ({error}): it needs Java 17; see `millrace doctor`") from error


@contextmanager
def _errors_to(log: Path | None) -> Iterator[None]:
    """Processes that are started meanwhile write to a file what they would write to stderr; this one is as before."""
    if log is None:
        yield
        return
    own = os.dup(2)
    try:
        with log.open("ab") as file:
            os.dup2(file.fileno(), 2)
        yield
    finally:
        os.dup2(own, 2)
        os.close(own)
