"""A local Spark session for the demo and the bench: little logging, and workers that find this millrace."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyspark
from pyspark.sql import SparkSession

import millrace
from millrace.errors import DeviceUnavailable


def local_session(master: str = "local[2]", log: Path | None = None, **settings: str) -> SparkSession:
    """Start or get a session; write dots in a setting's name as two underscores.

    `log`: a file for the stderr of the Java process that this call starts, and of its Python workers.
    """
    os.environ.setdefault("SPARK_HOME", str(Path(pyspark.__file__).parent))
    package = str(Path(millrace.__file__).parents[1])
    paths = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    if package not in paths:  # workers find the same millrace as this process, installed or not
        os.environ["PYTHONPATH"] = os.pathsep.join([package, *(p for p in paths if p)])
    conf = {
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
    for name, value in conf.items():
        builder = builder.config(name, value)
    try:
        with _errors_to(log):
            return builder.getOrCreate()
    except Exception as error:  # pyspark raises various types if Java is missing
        raise DeviceUnavailable(f"Spark does not start ({error}): it needs Java 17; see `millrace doctor`") from error


@contextmanager
def _errors_to(log: Path | None) -> Iterator[None]:
    """Redirect the stderr of processes that start inside this context to a file; restore it for this process after."""
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
