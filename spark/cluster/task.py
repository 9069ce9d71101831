"""The start of every task, on its executor: check the version, find the device, lock the card.

Spark may assign the device. With `spark.task.resource.gpu.amount` set, `device="cuda"` or `"opencl"` means the card
whose address Spark gave this task; with `…fpga.amount`, `device="fpga"` means the board of that name. `"auto"` behaves
the same if it selects a device of that family. Device handles are opened in the Python worker, after the fork, and
belong to its process. Devices that run on the processor (the CPU, OpenCL on it, the simulators) need no lock. All
others are cards, and so is every device that Spark assigned as a resource.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache, wraps

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import DataFrame
from pyspark.sql import types as ty

import millrace as mr
from millrace.errors import StateError
from millrace.ingest.choices import Fallback
from millrace.registry import check_name
from millrace.spark.cluster.cards import card_lock
from millrace.spark.cluster.gc_freeze import freeze_loaded_objects
from millrace.spark.cluster.jobs import log_in_worker

RESOURCES = {"cuda": "gpu", "opencl": "gpu", "fpga": "fpga"}
"""Spark's resource name for a family of devices."""
log = logging.getLogger("millrace")
_HIDE_TRACE = "SPARK_HIDE_TRACEBACK"
"""PySpark's worker reads it when it reports an error."""
SHARED_KINDS = frozenset({"cpu", "null", "rtl", "hls", "opencl-cpu"})
"""Kinds of device that many tasks may use at once."""


@dataclass(frozen=True)
class DeviceRequest:
    """The driver's device request, sent to every task. `slots`: how many tasks may share one card, by resource.

    `log_level`: the level of the logger `millrace` in tasks; None leaves it as it is.
    """

    device: str
    fallback: Fallback | None
    version: str
    slots: tuple[tuple[str, int], ...] = ()
    log_level: str | None = None


@dataclass(frozen=True)
class TaskDevice:
    """The device of a task: its full name, whether it is a card, its slots, and the threads the task may use."""

    name: str
    card: bool
    slots: int
    threads: int


def task_device(request: DeviceRequest) -> TaskDevice:
    """Find the device of this task; does not open it."""
    if request.version != mr.__version__:
        raise StateError(
            f"this worker has millrace {mr.__version__}, the driver has {request.version}: install the same version "
            f"for spark.pyspark.python on every worker"
        )
    log_in_worker(request.log_level)
    freeze_loaded_objects()
    context = TaskContext.get()
    threads = max(1, context.cpus()) if context is not None else 1
    name = _auto_device() if request.device == "auto" else request.device
    family = check_name(name)
    resource = RESOURCES.get(family)
    slots = dict(request.slots).get(resource or "", 1)
    given = {} if context is None else context.resources()
    if resource in given and (":" not in name or request.device == "auto"):
        return TaskDevice(f"{family}:{given[resource].addresses[0]}", True, slots, threads)
    return TaskDevice(name, _is_card(name), slots, threads)


@cache
def _auto_device() -> str:
    """The device that `auto` selects on this machine."""
    opened = mr.device("auto")
    opened.close()
    return opened.name


@cache
def _is_card(name: str) -> bool:
    if name in ("cpu", "rtl", "hls"):  # skips the search of all devices
        return False
    kinds = {info.name: info.kind for info in mr.devices()}
    family = name.partition(":")[0]
    kind = kinds.get(name) or next((k for n, k in kinds.items() if n.partition(":")[0] == family), family)
    return kind not in SHARED_KINDS


@contextmanager
def error_first() -> Iterator[None]:
    """Let an error of millrace arrive at the driver as its own sentence, without the worker's stack trace before it.

    The worker ends after an error, so the setting holds for this one error alone. The trace goes to the worker's log.
    """
    try:
        yield
    except mr.MillraceError:
        log.debug("a task fails", exc_info=True)
        os.environ[_HIDE_TRACE] = "1"
        raise


Task = Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]


def reporting(task: Task) -> Task:
    """A task function whose errors of millrace come first (`error_first`)."""

    def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        with error_first():
            yield from task(batches)

    return run


def map_in_arrow(frame: DataFrame, task: Task, schema: ty.StructType) -> DataFrame:
    """`frame.mapInArrow`, which cannot read columns whose names contain dots or backticks: they travel renamed."""
    names = frame.columns
    if not any(mark in name for name in names for mark in ".`"):
        return frame.mapInArrow(task, schema)

    @wraps(task)  # the plan shows the task's name
    def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return task(batch.rename_columns(names) for batch in batches)

    run.__name__ = task.__name__  # Spark shows it in plans
    return frame.toDF(*(f"c{number}" for number in range(len(names)))).mapInArrow(run, schema)


@contextmanager
def device_lock(device: TaskDevice) -> Iterator[None]:
    """Lock the device while the task uses it, if it is a card."""
    if not device.card:
        yield
        return
    with card_lock(device.name, device.slots):
        yield
