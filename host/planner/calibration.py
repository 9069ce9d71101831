"""What `millrace calibrate` measured on this machine: the rule of `index="auto"` and the device of `device="auto"`.

One JSON file in the cache folder, which is named by the hash of all kernel sources. The file is named by the
processor's model, the number of cores and the number of threads: on another machine, or after a change of a kernel,
nothing is calibrated. Without a file the built-in rule holds, and `auto` is the CPU. A file that cannot be read, or
with values out of bounds, counts as none. A process reads a file once.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from functools import lru_cache
from itertools import pairwise
from math import isqrt
from pathlib import Path

from millrace.host.planner.rule import Rule
from millrace.host.runtime.jit import cache_dir
from millrace.host.runtime.pool import cores
from millrace.host.runtime.processor import cpu_model

CPU = "cpu"
MIN_SMALL_BATCH, MAX_SMALL_BATCH = 64, 1 << 14
"""Bounds of a measured `Rule.small_batch`: beyond them a measurement says more about noise than about the machine."""
Speeds = Mapping[int, Mapping[str, float]]
"""Tuples per second by batch size and index."""


@dataclass(frozen=True)
class Calibration:
    """The results of `millrace calibrate`; the defaults hold where it was not run."""

    small_batch: int = Rule.small_batch
    device: str = CPU
    """The device that won."""
    batches: dict[str, dict[str, float]] = field(default_factory=dict)
    """Tuples per second by batch size and index, as measured."""
    devices: dict[str, float] = field(default_factory=dict)
    """Tuples per second by device, as measured."""
    described: str = ""
    """What `millrace devices` said of the winner: another card in its place was not measured."""

    def __post_init__(self) -> None:
        """Refuse values that no measurement gives."""
        if type(self.small_batch) is not int or not MIN_SMALL_BATCH <= self.small_batch <= MAX_SMALL_BATCH:
            raise ValueError(f"small_batch={self.small_batch!r}: {MIN_SMALL_BATCH} to {MAX_SMALL_BATCH} is possible")
        if not isinstance(self.device, str) or not isinstance(self.described, str):
            raise ValueError(f"device={self.device!r}: a name and a description are expected")


def calibration(threads: int | None = None) -> Calibration:
    """The calibration of this machine for so many threads (default: one per core)."""
    return _read(calibration_file(threads))


def rule(threads: int) -> Rule:
    """The rule of `index="auto"`."""
    return Rule(small_batch=calibration(threads).small_batch)


def keep(measured: Calibration, threads: int | None = None) -> bool:
    """Store a calibration for later processes and this one; returns whether that was possible."""
    path = calibration_file(threads)
    growing = path.with_name(f"{path.name}.{os.getpid()}.tmp")
    try:
        growing.write_text(json.dumps(asdict(measured), indent=1) + "\n", encoding="utf-8")
        growing.replace(path)
    except OSError:
        return False
    finally:
        growing.unlink(missing_ok=True)
        _read.cache_clear()
    return calibration(threads) == measured


def calibration_file(threads: int | None = None) -> Path:
    """The file for this processor, number of cores and number of threads, in the folder of these kernels."""
    model = re.sub(r"[^A-Za-z0-9]+", "-", cpu_model()).strip("-")
    return cache_dir() / f"calibration-{model}-{os.cpu_count()}-{threads or cores()}.json"


def crossover(speeds: Speeds, small: str = "wib", large: str = "bisort") -> int:
    """The batch size from which on `large` is faster than `small`: the one that loses the least speed in total.

    Candidates lie between the measured sizes, below and above all of them. One noisy measurement counts little.
    """
    sizes = sorted(speeds)
    edges = [MIN_SMALL_BATCH, *(isqrt(a * b) for a, b in pairwise(sizes)), MAX_SMALL_BATCH]

    def lost(edge: int) -> float:
        total = 0.0
        for size, by_index in speeds.items():
            chosen = by_index[small if size < edge else large]
            total += 1 - chosen / max(by_index[small], by_index[large])
        return total

    return min(edges, key=lost)


@lru_cache(maxsize=16)
def _read(path: Path) -> Calibration:
    try:
        return Calibration(**json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError, RecursionError):
        return Calibration()
