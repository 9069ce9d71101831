"""Which Python Spark's workers run: this interpreter, unless the user chose another.

Spark starts `python3` of the PATH as its workers, so a script that runs in an environment which is not activated gets
workers without millrace and without pyarrow. `use_this_python` runs when `millrace.spark` is imported, without
importing pyspark. It sets `PYSPARK_PYTHON`, which sessions read when they start; if a local session exists already, it
also changes the Python of that session's functions from then on. It changes nothing if the user set `PYSPARK_PYTHON` or
the session's `pythonExec`, if the session is on a cluster, or under `spark-submit`, where the driver itself runs the
workers' `python3`. Limit: a Connect server that is already there keeps its Python.
"""

from __future__ import annotations

import os
import sys
from typing import Any

VARIABLE = "PYSPARK_PYTHON"
DEFAULT = "python3"
"""What Spark starts if nothing is set."""
_SUBMITTED = "PYSPARK_GATEWAY_PORT"
"""`spark-submit` sets it for the driver that it starts."""


def use_this_python() -> None:
    """Let workers run this interpreter where the user has set nothing."""
    if not sys.executable or os.environ.get(VARIABLE) or _SUBMITTED in os.environ:
        return
    context = active_context()
    if context is not None:
        if not context.master.startswith("local") or context.pythonExec != DEFAULT:
            return
        context.pythonExec = sys.executable
    os.environ[VARIABLE] = sys.executable  # also for the next session, after this one has stopped


def active_context() -> Any:
    """This process's classic Spark context, or None; does not import pyspark."""
    core = sys.modules.get("pyspark.core.context")
    return None if core is None else core.SparkContext._active_spark_context


def worker_python() -> str:
    """The Python that workers are told to run, as far as the driver knows."""
    context = active_context()
    return str(os.environ.get(VARIABLE, DEFAULT) if context is None else context.pythonExec)


def advice() -> str:
    """How to give workers another Python."""
    return (
        f"set {VARIABLE} to a Python that has the driver's packages (the driver runs {sys.executable}) before the "
        f"session starts; on a cluster install them on every worker"
    )
