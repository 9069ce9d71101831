"""Fault points: named places where the library can be made to fail on purpose, to test what a failure does.

    MILLRACE_FAULTS="state.write=1*raise;link.read=5%sleep(50)" python job.py

A rule is `point=[skip+][count*][percent%]action`: let the first `skip` passes of the point through, act at most `count`
times, each time with this probability. Actions: `raise` (the error that a real failure has there), `oom` (MemoryError),
`sleep(ms)`, `kill` (SIGKILL to this process), and for points that carry data `corrupt` (flips one bit) and `short`
(drops the end). `seed=7` as a rule seeds the probabilities. All points are in `POINTS`; kernels have none.

A disarmed point costs one look-up in a dictionary; on hot paths `if ARMED:` comes before the call.
"""

from __future__ import annotations

import errno
import os
import random
import re
import signal
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NoReturn, TypeVar

import numpy as np

from millrace.host.base.errors import ArgumentError, DeviceFault

VARIABLE = "MILLRACE_FAULTS"
MARK = "injected fault at"
"""In the text of every injected error."""
DATA_ACTIONS = ("corrupt", "short")
ACTIONS = ("raise", "oom", "sleep", "kill", *DATA_ACTIONS)
_RULE = re.compile(r"(?:(\d+)\+)?(?:(\d+)\*)?(?:(\d+(?:\.\d+)?)%)?([a-z]+)(?:\((\d+(?:\.\d+)?)\))?")
Data = TypeVar("Data")


class InjectedFault(RuntimeError):
    """What an armed point raises where a real failure has no error type of its own."""


@dataclass(frozen=True)
class FaultPoint:
    """A place that can fail: what is done there, the kind of error a failure has, and whether data pass through."""

    name: str
    what: str
    error: str = "host"
    """`device`: DeviceFault; `file`: OSError; `memory`: MemoryError; `host`: InjectedFault."""
    data: bool = False


_INDEXES = ("auto", "bisort", "rap", "wib", "spo", "pim", "im", "chain", "btree", "scan")
_DEVICES = {"cpu": "the CPU device", "gpu": "a GPU", "sim": "a simulated engine", "board": "a board"}
_CALLS = {
    "alloc": "allocates a buffer",
    "write": "copies data in",
    "read": "copies data out",
    "launch": "launches a unit",
    "wait": "waits for a launch",
}


def _all_points() -> Iterator[FaultPoint]:
    for device, title in _DEVICES.items():
        yield from (FaultPoint(f"{device}.{call}", f"{title} {what}", "device") for call, what in _CALLS.items())
    yield FaultPoint("board.load", "an image is loaded on a board", "device")
    yield FaultPoint("link.write", "bytes are sent to a board, serial or PYNQ", "device", data=True)
    yield FaultPoint("link.read", "bytes come from a board, serial or PYNQ", "device", data=True)
    for index in _INDEXES:
        yield FaultPoint(f"{index}.load", f"index {index} takes the tuples of a window")
        yield FaultPoint(f"{index}.step", f"index {index} finds the partners of new tuples")
    yield FaultPoint("bisort.launch", "BI-Sort starts a unit on its device", "device")
    yield FaultPoint("spo.launch", "SPO-Join starts a unit on its device", "device")
    yield FaultPoint("direct.build", "mr.join buckets a table by key")
    yield FaultPoint("direct.probe", "mr.join looks partners up by key")
    yield FaultPoint("knn.insert", "points enter the index of nearest neighbours")
    yield FaultPoint("knn.query", "nearest neighbours are searched")
    yield FaultPoint("knn.partition", "partitions search their part of the neighbours")
    yield FaultPoint("knn.launch", "a GPU starts to select candidates", "device")
    yield FaultPoint("window.extend", "taken tuples enter a window")
    yield FaultPoint("window.evict", "expired tuples leave a window")
    yield FaultPoint("output.gather", "the table of pairs is built")
    yield FaultPoint("gate.add", "a ScaleGate takes rows of a source")
    yield FaultPoint("gate.merge", "a ScaleGate gathers merged rows")
    yield FaultPoint("live.put", "rows enter the queue of a live join")
    yield FaultPoint("live.step", "a live join processes queued rows")
    yield FaultPoint("state.write", "a run of the state is serialised", "file", data=True)
    yield FaultPoint("state.read", "a run of a stored state is read", "file", data=True)
    yield FaultPoint("manifest.write", "the manifest of a state is written", "file", data=True)
    yield FaultPoint("manifest.read", "the manifest of a stored state is read", "file", data=True)
    yield FaultPoint("index.build", "the tree of an ordered index is built")
    yield FaultPoint("index.update", "an update changes a tree in place")
    yield FaultPoint("index.journal", "an update reserves its undo journal")
    yield FaultPoint("index.send", "inner nodes are sent to a device", "device")
    yield FaultPoint("index.search", "a device searches inner nodes", "device")
    yield FaultPoint("index.save", "a section of an index file is written", "file", data=True)
    yield FaultPoint("index.open", "an index file is opened", "file")
    yield FaultPoint("memory.allocate", "the allocator hands out an array", "memory")
    yield FaultPoint("helpers.start", "the helper threads of a process are started")
    yield FaultPoint("spark.run_write", "a Spark worker publishes a run file", "file")
    yield FaultPoint("spark.run_read", "a Spark worker maps a run file", "file")
    yield FaultPoint("spark.pair_write", "a Spark worker writes a file of pairs", "file")
    yield FaultPoint("spark.pair_read", "a Spark worker reads a file of pairs", "file")


POINTS: Mapping[str, FaultPoint] = {point.name: point for point in _all_points()}


def fault_points() -> tuple[FaultPoint, ...]:
    """All points, known without running anything."""
    return tuple(POINTS.values())


class Arming:
    """A rule for one point, how often the point was passed and how often the rule acted."""

    def __init__(self, point: FaultPoint, rule: str, rng: random.Random) -> None:
        """Parse the right side of a rule."""
        found = _RULE.fullmatch(rule)
        if found is None or found[4] not in ACTIONS:
            raise _bad(f"{point.name}={rule}", f"allowed is [skip+][count*][percent%]action with {', '.join(ACTIONS)}")
        self.point, self.rule, self._rng = point, rule, rng
        self.skip, self.action = int(found[1] or 0), found[4]
        self.left = None if found[2] is None else int(found[2])
        self._share = 1.0 if found[3] is None else float(found[3]) / 100
        self._milliseconds = float(found[5] or 0)
        self.hits = self.fired = 0
        self._lock = threading.Lock()
        if (self.action == "sleep") != (found[5] is not None):
            raise _bad(f"{point.name}={rule}", "sleep, and only sleep, has milliseconds: sleep(50)")
        if self.action in DATA_ACTIONS and not point.data:
            able = ", ".join(one.name for one in fault_points() if one.data)
            raise _bad(f"{point.name}={rule}", f"no data pass through this point; they do through {able}")
        if not 0 <= self._share <= 1:
            raise _bad(f"{point.name}={rule}", "a probability is at most 100%")

    def pass_through(self, data: Data) -> Data:
        """Act if it is time; return the data, changed by `corrupt` and `short`."""
        with self._lock:
            self.hits += 1
            due = self.hits > self.skip and self.left != 0 and self._rng.random() < self._share
            if not due:
                return data
            self.fired += 1
            self.left = None if self.left is None else self.left - 1
        return self._act(data)

    def _act(self, data: Data) -> Data:
        if self.action == "sleep":
            time.sleep(self._milliseconds / 1000)
        elif self.action == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        elif self.action in DATA_ACTIONS:
            changed: Data = _damaged(data, self.action, self._rng)
            return changed
        else:
            self._fail()
        return data

    def _fail(self) -> NoReturn:
        text = f"{MARK} {self.point.name}"
        if self.action == "oom" or self.point.error == "memory":
            raise MemoryError(text)
        if self.point.error == "device":
            raise DeviceFault(text)
        if self.point.error == "file":
            raise OSError(errno.EIO, text)
        raise InjectedFault(text)


ARMED: dict[str, Arming] = {}
"""The armed points; empty in normal use."""


def fault_point(name: str) -> None:
    """A place that can be made to fail."""
    arming = ARMED.get(name)
    if arming is not None:
        arming.pass_through(None)


def fault_data(name: str, data: Data) -> Data:
    """The same where bytes or an array pass through, which a rule may damage."""
    arming = ARMED.get(name)
    return data if arming is None else arming.pass_through(data)


def is_injected(error: BaseException | None) -> bool:
    """Whether an error, or one that led to it, comes from an armed point."""
    while error is not None:
        if MARK in str(error):
            return True
        error = error.__cause__ or error.__context__
    return False


def parse_faults(text: str) -> dict[str, Arming]:
    """The rules of a text, by point; a wrong one is an `ArgumentError`."""
    rules = [rule.strip() for rule in text.split(";") if rule.strip()]
    parts = [tuple(part.strip() for part in rule.partition("=")) for rule in rules]
    seeds = [action for name, _, action in parts if name == "seed"]
    if not all(seed.isdigit() for seed in seeds):
        raise _bad(f"seed={seeds[0]}", "a seed is a whole number")
    rng, found = random.Random(int(seeds[-1]) if seeds else 0), dict[str, Arming]()
    for name, _, action in parts:
        if name == "seed":
            continue
        if name not in POINTS:
            raise _bad(f"{name}={action}", "there is no such point; `millrace faults` lists them")
        found[name] = Arming(POINTS[name], action, rng)
    return found


def arm(text: str) -> dict[str, Arming]:
    """Arm the rules of a text, in place of all others; return them, to see what they did."""
    found = parse_faults(text)
    ARMED.clear()
    ARMED.update(found)
    return found


def disarm() -> None:
    """Disarm all points."""
    ARMED.clear()


@contextmanager
def injected(text: str) -> Iterator[dict[str, Arming]]:
    """Rules that are armed inside a `with` block."""
    before = dict(ARMED)
    try:
        yield arm(text)
    finally:
        ARMED.clear()
        ARMED.update(before)


def _bad(rule: str, why: str) -> ArgumentError:
    return ArgumentError(f"fault rule {rule!r}: {why}")


def _damaged(data: Any, action: str, rng: random.Random) -> Any:
    """A copy of bytes or of an array with one bit flipped, or without its second half."""
    if not len(data):
        return data
    if action == "short":
        return data[: len(data) // 2]
    raw = bytearray(data.tobytes() if isinstance(data, np.ndarray) else bytes(data))
    raw[rng.randrange(len(raw))] ^= 1 << rng.randrange(8)
    return np.frombuffer(bytes(raw), data.dtype).copy() if isinstance(data, np.ndarray) else bytes(raw)


if os.environ.get(VARIABLE):
    arm(os.environ[VARIABLE])
