"""What inserting and probing cost on this machine, for each structure: measured once and kept in the cache folder.

Five constants per structure, in nanoseconds: a call to insert and each of its tuples, a call to probe, each of its
questions and each partner found. `millrace calibrate` measures them, on a small subwindow, and compiles all kernels on
the way; until then the constants of the machine that they were first measured on serve.
"""

from __future__ import annotations

import json
import os
import platform
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from millrace.host.device.cpu import CpuDevice
from millrace.host.join.panjoin.index import STRUCTURES, structure_class
from millrace.host.join.panjoin.match_collector import find_partners
from millrace.host.join.panjoin.subwindow import (
    ID_PADDING,
    InsertBatch,
    RangeProbes,
    Structure,
    StructureContext,
    VisibleIntervals,
    padded,
)
from millrace.host.runtime.jit import cache_dir

CAPACITY = 1 << 15
FEW, MANY = 4, 4096
"""Tuples of the batches that are timed: a fixed cost and a cost per tuple follow from two."""
SPARSE, DENSE = 2, 130
"""Partners per question of the probes that are timed."""
_REPEATS = 25
_DOMAIN = 1 << 32


@dataclass(frozen=True)
class Costs:
    """Nanoseconds."""

    insert_call: float
    insert_tuple: float
    probe_call: float
    probe_question: float
    partner: float

    def per_tuple(self, batch: float, asked: float, partners: float, records_only: bool) -> float:
        """A tuple is put in with a batch of others, and asked for by two subwindows' worth of such batches."""
        call = self.insert_call / batch + 2 * self.probe_call / asked
        found = 0 if records_only else partners * self.partner
        return call + self.insert_tuple + 2 * self.probe_question + found


DEFAULTS = {
    "bisort": Costs(1_900, 30, 190_000, 55, 36),
    "rap": Costs(2_200, 13, 140_000, 100, 29),
    "wib": Costs(1_500, 11, 120_000, 100, 28),
}


def costs(threads: int) -> dict[str, Costs]:
    """The constants of every structure: this machine's where they have been measured."""
    return _read(_path(threads)) or DEFAULTS


def ensure(threads: int) -> None:
    """Measure the constants, unless that was done on this machine before."""
    if _read(_path(threads)) is None:
        calibrate(threads, lambda what, share: None)


def calibrate(threads: int, report: Callable[[str, float], None]) -> dict[str, Costs]:
    """Measure the constants and keep them for later processes; `report` is told what is under way."""
    measured = {}
    for number, name in enumerate(STRUCTURES):
        report(f"calibrating {name}", number / len(STRUCTURES))
        measured[name] = _measure(name, threads)
    _write(_path(threads), measured)
    report("calibrated", 1.0)
    return measured


def _path(threads: int) -> Path:
    """A file for this kind of machine and this many threads."""
    return cache_dir().parent / f"costs-{platform.machine()}-{os.cpu_count()}-{threads}.json"


def _read(path: Path) -> dict[str, Costs] | None:
    """What an earlier process measured; nothing where there is none, or it is of other structures."""
    try:
        found = {name: Costs(**numbers) for name, numbers in json.loads(path.read_text()).items()}
    except (OSError, ValueError, TypeError, AttributeError):
        return None
    return found if set(found) == set(STRUCTURES) else None


def _write(path: Path, measured: dict[str, Costs]) -> None:
    """Keep what was measured; whoever writes last wins, and nobody ever reads half a file."""
    try:
        part = path.with_suffix(f".{os.getpid()}")
        part.write_text(json.dumps({name: asdict(one) for name, one in measured.items()}))
        part.replace(path)
    except OSError:
        return


def _measure(name: str, threads: int) -> Costs:
    device = CpuDevice(threads)
    try:
        return _fitted(name, device)
    finally:
        device.close()


def _fitted(name: str, device: CpuDevice) -> Costs:
    inserts = {size: _insert_time(name, device, size) for size in (FEW, MANY)}
    full, _ = _filled(name, device, CAPACITY, MANY)
    full.seal()
    probes = {size: _probe_time(full, size, SPARSE) for size in (FEW, MANY)}
    dense = _probe_time(full, MANY // 4, DENSE)
    insert_tuple = (inserts[MANY] - inserts[FEW]) / (MANY - FEW)
    question = (probes[MANY] - probes[FEW]) / (MANY - FEW)
    insert_call, probe_call = inserts[FEW] - FEW * insert_tuple, probes[FEW] - FEW * question
    partner = (dense - probe_call - MANY // 4 * question) / (MANY // 4 * (DENSE - SPARSE))
    return Costs(*(max(float(value), 0.1) for value in (insert_call, insert_tuple, probe_call, question, partner)))


def _insert_time(name: str, device: CpuDevice, size: int) -> float:
    """Nanoseconds that a batch takes, on the average over a subwindow."""
    batches = min(CAPACITY // size, 256)
    return min(_filled(name, device, batches * size, size)[1] for _ in range(_REPEATS // 3)) / batches


def _filled(name: str, device: CpuDevice, rows: int, size: int) -> tuple[Structure, int]:
    """A subwindow filled in batches of a size, and how long that took."""
    device.team.acquire()
    rng = np.random.default_rng(rows + size)
    structure = structure_class(name)(StructureContext(np.dtype(np.uint64), CAPACITY, device, device.team), 0)
    took = 0
    for first in range(0, rows, size):
        words = np.sort(rng.integers(0, _DOMAIN, size, dtype=np.uint64))
        batch = InsertBatch(padded(words), np.arange(first, first + size + ID_PADDING, dtype=np.uint32)[:size])
        start = time.perf_counter_ns()
        structure.insert(batch)
        took += time.perf_counter_ns() - start
    return structure, took


def _probe_time(structure: Structure, size: int, partners: int) -> float:
    """Nanoseconds to look up questions with so many partners each, and to find those: the quickest of many runs.

    The first of all compiles; others may meet whatever else the machine does.
    """
    rng = np.random.default_rng(size)
    low = np.sort(rng.integers(0, _DOMAIN - 1, size, dtype=np.uint64))
    high = low + np.uint64(_DOMAIN // CAPACITY * partners)
    probe_tuple = np.arange(size, dtype=np.uint32)
    asked = RangeProbes(low, high, probe_tuple, True, probe_tuple)
    every = VisibleIntervals(np.zeros(1, np.int64), np.full(1, CAPACITY))
    times = []
    for _ in range(_REPEATS):
        structure.context.team.acquire()
        start = time.perf_counter_ns()
        records = structure.probe(asked, None, want=True)
        find_partners(size, asked, records, every, 0, structure.context.team)
        times.append(time.perf_counter_ns() - start)
        for one in records:
            one.release()
    return float(min(times))
