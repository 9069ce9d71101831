"""What Spark's pages and logs say about our jobs and tasks: descriptions, names of plan nodes, the tasks' logger.

Jobs that a call runs itself (samples, the held side, checks of workers) have a description, which Spark shows with the
job. The jobs of an action on the result belong to the user; there the plan's Python nodes have our names. Limit: Spark
Connect has no job descriptions for its clients.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from pyspark.sql import SparkSession

from millrace.spark.cluster.connect import is_connect
from millrace.spark.cluster.worker_python import active_context

DESCRIPTION = "spark.job.description"
LOGGER = "millrace"
F = TypeVar("F", bound=Callable[..., Any])


@contextmanager
def described(spark: SparkSession, text: str) -> Iterator[None]:
    """Jobs that start inside have this description, `millrace: …`."""
    context = None if is_connect(spark) else active_context()
    if context is None:
        yield
        return
    before = context.getLocalProperty(DESCRIPTION)
    context.setLocalProperty(DESCRIPTION, f"millrace: {text}")
    try:
        yield
    finally:
        context.setLocalProperty(DESCRIPTION, before)


def named_node(function: F, name: str) -> F:
    """The function of a plan's Python node, with the name that the plan shows."""
    function.__name__ = function.__qualname__ = f"millrace_{name}"
    return function


def log_in_worker(level: str | None) -> None:
    """Send the logger `millrace` of this worker to stderr, which Spark keeps with the executor's logs."""
    if level is None:
        return
    logger = logging.getLogger(LOGGER)
    logger.setLevel(level)
    if not any(isinstance(one, _WorkerHandler) for one in logger.handlers):
        handler = _WorkerHandler(sys.stderr)
        handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s millrace: %(message)s"))
        logger.addHandler(handler)


def log_held(device: str, rows: int, side: str) -> None:
    """Log what a join's task holds."""
    logging.getLogger(LOGGER).info("join task on %s: holds %d rows of %s", device, rows, side)


class _WorkerHandler(logging.StreamHandler):  # type: ignore[type-arg]
    """Our handler in a worker; there is at most one."""
