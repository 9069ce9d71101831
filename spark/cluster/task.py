"""What a task does first, on its executor: check the version, find its device, wait for its card.

A device's name may come from Spark: with `spark.task.resource.gpu.amount` set, `device="cuda"` or `"opencl"` means
the card whose address Spark gave this task, and with `…fpga.amount`, `device="fpga"` the board of that name; so does
`"auto"`, where it takes a device of that family. Handles
are opened here, in the Python worker, after it was forked, and belong to its process. What runs on the processor (the
CPU, OpenCL on it, the simulators) needs no lock; everything else is a card, and so is whatever Spark handed out as a
resource.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache

from pyspark import TaskContext

import millrace as mr
from millrace.errors import StateError
from millrace.registry import check_name
from millrace.spark.cluster.cards import card_lock

RESOURCES = {"cuda": "gpu", "opencl": "gpu", "fpga": "fpga"}
"""Spark's name of the resource behind a family of devices."""
ON_THE_PROCESSOR = frozenset({"cpu", "null", "rtl", "hls", "opencl-cpu"})
"""Kinds of device that many may use at once."""


@dataclass(frozen=True)
class Asked:
    """What the driver asked of every task. `slots`: how many tasks may share one card, by resource."""

    device: str
    fallback: str | None
    version: str
    slots: tuple[tuple[str, int], ...] = ()


@dataclass(frozen=True)
class Place:
    """Where a task works: a device by its full name, whether it is a card, and the threads the task may use."""

    device: str
    card: bool
    slots: int
    threads: int


def place_of(asked: Asked) -> Place:
    """Find it; nothing is opened yet."""
    if asked.version != mr.__version__:
        raise StateError(
            f"this worker has millrace {mr.__version__}, the driver has {asked.version}: install the same version for "
            f"spark.pyspark.python on every worker"
        )
    context = TaskContext.get()
    threads = max(1, context.cpus()) if context is not None else 1
    name = _automatic() if asked.device == "auto" else asked.device
    family = check_name(name)
    resource = RESOURCES.get(family)
    slots = dict(asked.slots).get(resource or "", 1)
    given = {} if context is None else context.resources()
    if resource in given and (":" not in name or asked.device == "auto"):
        return Place(f"{family}:{given[resource].addresses[0]}", True, slots, threads)
    return Place(name, _is_card(name), slots, threads)


@cache
def _automatic() -> str:
    """The device that `auto` takes on this machine."""
    opened = mr.device("auto")
    opened.close()
    return opened.name


@cache
def _is_card(name: str) -> bool:
    if name in ("cpu", "rtl", "hls"):  # no need to look at all devices
        return False
    kinds = {info.name: info.kind for info in mr.devices()}
    family = name.partition(":")[0]
    kind = kinds.get(name) or next((k for n, k in kinds.items() if n.partition(":")[0] == family), family)
    return kind not in ON_THE_PROCESSOR


@contextmanager
def at_work(place: Place) -> Iterator[None]:
    """Hold the card, if it is one, until the task has given its device back."""
    if not place.card:
        yield
        return
    with card_lock(place.device, place.slots):
        yield
