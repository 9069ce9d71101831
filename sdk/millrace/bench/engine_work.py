"""Engine commands as bench work: input data, expected results from NumPy, and lower bounds on the cycles.

Used by the benches of simulated engines (`hardware.py`, `csim.py`). The data depend only on the sizes (fixed seed).
Words have 64 bits. PanJoin, IV and V-B.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any, Protocol, cast

import numpy as np
import numpy.typing as npt

from millrace.bench.harness import Answer
from millrace.host.device.contract import Buffer, Device

WORD = np.dtype(np.uint64)
ID = np.dtype(np.uint32)
SEED = 20_251

Array = npt.NDArray[Any]


class Engine(Protocol):
    """The part of `sim.performance.Engine` that the benches use."""

    @property
    def tuples_per_cycle(self) -> int:
        """Of all mergers together."""

    @property
    def bytes_per_cycle(self) -> float:
        """Memory bandwidth."""

    def merge(self, a_n: int, b_n: int, step: int | None = None) -> float:
        """Predicted cycles."""

    def probe(self, size: int, bounds: int, step: int, resident: bool) -> float:
        """Predicted cycles."""


@dataclass(frozen=True)
class PreparedLaunch:
    """A launch with all buffers allocated and filled; it can run repeatedly."""

    device: Device
    unit: str
    given: Sequence[Buffer]
    out: Mapping[str, Buffer]
    scalars: tuple[int, ...]

    def run(self) -> Mapping[str, int]:
        """Run it; returns the launch's counters."""
        return self.device.wait(self.device.launch(self.unit, [*self.given, *self.out.values()], self.scalars))

    def answer(self) -> Answer:
        """The output buffers, read from the device."""
        return {name: self.device.read(buffer, 0, buffer.size) for name, buffer in self.out.items()}


@dataclass(frozen=True)
class Work(ABC):
    """A command for an engine, with data from a fixed seed."""

    device: str

    unit = "tuples/cycle"

    @property
    def engine(self) -> Engine:
        """The performance model of the device, found by the device's name."""
        module = import_module("millrace.sim.performance")
        return cast(Engine, module.engine(self.device, WORD.itemsize * 8))

    @property
    def ideal(self) -> bool:
        """Whether memory is limited by its ports alone, which read and write at the same time."""
        return not self.device.endswith("ddr3")

    @property
    @abstractmethod
    def rows(self) -> int:
        """The amount of work."""

    @property
    @abstractmethod
    def facts(self) -> dict[str, Any]:
        """What a result line reports about the work."""

    @abstractmethod
    def make(self) -> list[Array]:
        """The input arrays."""

    @abstractmethod
    def prepare(self, opened: Device, made: Sequence[Array]) -> PreparedLaunch:
        """Copy the data to the device and load what must be on the chip before the launch."""

    @abstractmethod
    def expected(self, made: Sequence[Array]) -> Answer:
        """The expected result, from NumPy."""

    @abstractmethod
    def bound(self, answer: Answer) -> float:
        """The minimum number of cycles that lanes or bandwidth allow."""

    @abstractmethod
    def predicted_cycles(self) -> float:
        """The cycles that the performance model predicts."""


@dataclass(frozen=True)
class Merging(Work):
    """Merges a run of `short` tuples into one of `long`, and writes the sampled index."""

    long: int
    short: int
    step: int

    @property
    def rows(self) -> int:
        """Tuples of the merged run."""
        return self.long + self.short

    @property
    def facts(self) -> dict[str, Any]:
        """Sizes."""
        return {"operation": "merge", "rows": self.long, "batch": self.short, "step": self.step, "work": self.rows}

    def make(self) -> list[Array]:
        """Words and ids of both runs."""
        rng = np.random.default_rng([SEED, self.long, self.short])
        ids = np.arange(self.rows, dtype=ID)
        long, short = (np.sort(rng.integers(0, 1 << 63, size, dtype=WORD)) for size in (self.long, self.short))
        return [long, ids[: self.long], short, ids[self.long :]]

    def prepare(self, opened: Device, made: Sequence[Array]) -> PreparedLaunch:
        """One launch of the merger."""
        samples = -(-self.rows // self.step)
        out = [opened.alloc(self.rows, WORD), opened.alloc(self.rows, ID), opened.alloc(samples, WORD)]
        runs = [_put(opened, array) for array in made]
        scalars = (self.long, self.short, self.step)
        return PreparedLaunch(
            opened, "bisort_merger", runs, dict(zip(("words", "ids", "index"), out, strict=True)), scalars
        )

    def expected(self, made: Sequence[Array]) -> Answer:
        """A stable sort: equal words have ascending ids."""
        words, ids = np.concatenate([made[0], made[2]]), np.concatenate([made[1], made[3]])
        order = np.argsort(words, kind="stable")
        return {"words": words[order], "ids": ids[order], "index": words[order][:: self.step]}

    def bound(self, answer: Answer) -> float:
        """All lanes busy in every cycle, or all data read and written once."""
        if self.ideal:
            return self.rows / self.engine.tuples_per_cycle
        written = sum(column.nbytes for column in answer.values())
        return (self.rows * (WORD.itemsize + ID.itemsize) + written) / self.engine.bytes_per_cycle

    def predicted_cycles(self) -> float:
        """Of the command MERGE."""
        return self.engine.merge(self.long, self.short, self.step)


@dataclass(frozen=True)
class Probing(Work):
    """Searches a sorted batch of lower and upper bounds in a run; `resident`: its index is already on the chip."""

    size: int
    batch: int
    step: int
    resident: bool

    @property
    def rows(self) -> int:
        """Probing tuples."""
        return self.batch

    @property
    def facts(self) -> dict[str, Any]:
        """Sizes."""
        return {"operation": "probe", "rows": self.size, "batch": self.batch, "step": self.step, "work": self.rows}

    def make(self) -> list[Array]:
        """The run's words, its index, and the bounds, with about one match per tuple."""
        rng = np.random.default_rng([SEED, self.size, self.batch])
        words = np.sort(rng.integers(0, 1 << 63, self.size, dtype=WORD))
        keys = np.sort(rng.integers(1 << 45, (1 << 63) - (1 << 45), self.batch, dtype=WORD))
        half = WORD.type((1 << 62) // self.size)
        return [words, words[:: self.step].copy(), keys - half, keys + half]

    def prepare(self, opened: Device, made: Sequence[Array]) -> PreparedLaunch:
        """One launch of the prober; if `resident`, a launch with a single bound loads the index first."""
        run = [_put(opened, array) for array in made]
        found = {name: opened.alloc(self.batch, ID) for name in ("starts", "ends")}
        if self.resident:
            PreparedLaunch(opened, "bisort_prober", run, found, (self.size, self.step, 1)).run()
        return PreparedLaunch(opened, "bisort_prober", run, found, (self.size, self.step, self.batch))

    def expected(self, made: Sequence[Array]) -> Answer:
        """Two binary searches."""
        words, _, low, high = made
        return {
            "starts": np.searchsorted(words, low, "left").astype(ID),
            "ends": np.searchsorted(words, high, "right").astype(ID),
        }

    def bound(self, answer: Answer) -> float:
        """The bytes that must be read and written, at the memory's bandwidth."""
        written = sum(column.nbytes for column in answer.values())
        read = 2 * self.batch * WORD.itemsize + sum(self._touched(column) for column in answer.values())
        if not self.resident:
            read += -(-self.size // self.step) * WORD.itemsize
        moved = max(read, written) if self.ideal else read + written
        return moved / self.engine.bytes_per_cycle

    def _touched(self, positions: Array) -> int:
        """Bytes of the partitions that contain a bound: a partition holds the words before its bounds' positions."""
        partitions = np.unique((positions[positions > 0] - 1) // self.step)
        return int(np.minimum(self.size - partitions * self.step, self.step).sum()) * WORD.itemsize

    def predicted_cycles(self) -> float:
        """Of the command PROBE."""
        return self.engine.probe(self.size, self.batch, self.step, self.resident)


def _put(opened: Device, data: Array) -> Buffer:
    buffer = opened.alloc(len(data), data.dtype)
    opened.write(buffer, 0, data)
    return buffer


def min_step(size: int, parts: int) -> int:
    """The smallest power of two, at least 8, that gives at most `parts` partitions."""
    step = 8
    while -(-size // step) > parts:
        step *= 2
    return step


def power(rows: int) -> str:
    """For example `2^20`."""
    return f"2^{rows.bit_length() - 1}"
