"""Commands for an engine as work of a bench: what goes in, what NumPy says comes out, and what an engine's means allow.

Used by the benches of simulated engines (`hardware.py`, `csim.py`). The data are the same whenever they are made. Words
have 64 bits. PanJoin, IV and V-B.
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
    """What is used of `sim.performance.Engine`."""

    @property
    def tuples_per_cycle(self) -> int:
        """Of all mergers."""

    @property
    def bytes_per_cycle(self) -> float:
        """Of the memory."""

    def merge(self, a_n: int, b_n: int, step: int | None = None) -> float:
        """Cycles foretold."""

    def probe(self, size: int, bounds: int, step: int, resident: bool) -> float:
        """Cycles foretold."""


@dataclass(frozen=True)
class Job:
    """A launch whose buffers are in place; it may be run again."""

    device: Device
    unit: str
    given: Sequence[Buffer]
    out: Mapping[str, Buffer]
    scalars: tuple[int, ...]

    def run(self) -> Mapping[str, int]:
        """The launch's counters."""
        return self.device.wait(self.device.launch(self.unit, [*self.given, *self.out.values()], self.scalars))

    def answer(self) -> Answer:
        """What lies in the device's memory after it."""
        return {name: self.device.read(buffer, 0, buffer.size) for name, buffer in self.out.items()}


@dataclass(frozen=True)
class Work(ABC):
    """A command for an engine; the data are the same whenever they are made."""

    device: str

    unit = "tuples/cycle"

    @property
    def engine(self) -> Engine:
        """The written model of the device, by name like the device itself."""
        module = import_module("millrace.sim.performance")
        return cast(Engine, module.engine(self.device, WORD.itemsize * 8))

    @property
    def ideal(self) -> bool:
        """Whether only the ports limit the memory, which read and write at the same time."""
        return not self.device.endswith("ddr3")

    @property
    @abstractmethod
    def rows(self) -> int:
        """The amount of work."""

    @property
    @abstractmethod
    def facts(self) -> dict[str, Any]:
        """What a result line says of the work."""

    @abstractmethod
    def make(self) -> list[Array]:
        """The arrays that go in."""

    @abstractmethod
    def job(self, opened: Device, made: Sequence[Array]) -> Job:
        """All of it in a device's memory, ready to run; whatever must be on the chip before is there."""

    @abstractmethod
    def expected(self, made: Sequence[Array]) -> Answer:
        """The answer of NumPy."""

    @abstractmethod
    def bound(self, answer: Answer) -> float:
        """The fewest cycles that the means allow."""

    @abstractmethod
    def foretold(self) -> float:
        """The cycles that the model foretells."""


@dataclass(frozen=True)
class Merging(Work):
    """A run of `short` tuples into one of `long`, and the index."""

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

    def job(self, opened: Device, made: Sequence[Array]) -> Job:
        """One launch of the merger."""
        samples = -(-self.rows // self.step)
        out = [opened.alloc(self.rows, WORD), opened.alloc(self.rows, ID), opened.alloc(samples, WORD)]
        runs = [_put(opened, array) for array in made]
        scalars = (self.long, self.short, self.step)
        return Job(opened, "bisort_merger", runs, dict(zip(("words", "ids", "index"), out, strict=True)), scalars)

    def expected(self, made: Sequence[Array]) -> Answer:
        """A stable sort, since equal words have ascending ids."""
        words, ids = np.concatenate([made[0], made[2]]), np.concatenate([made[1], made[3]])
        order = np.argsort(words, kind="stable")
        return {"words": words[order], "ids": ids[order], "index": words[order][:: self.step]}

    def bound(self, answer: Answer) -> float:
        """All lanes full in every cycle, or everything read and written once."""
        if self.ideal:
            return self.rows / self.engine.tuples_per_cycle
        written = sum(column.nbytes for column in answer.values())
        return (self.rows * (WORD.itemsize + ID.itemsize) + written) / self.engine.bytes_per_cycle

    def foretold(self) -> float:
        """MERGE."""
        return self.engine.merge(self.long, self.short, self.step)


@dataclass(frozen=True)
class Probing(Work):
    """A sorted batch of lower and upper bounds in a run; `resident`: its index is on the chip before."""

    size: int
    batch: int
    step: int
    resident: bool

    @property
    def rows(self) -> int:
        """Tuples that ask."""
        return self.batch

    @property
    def facts(self) -> dict[str, Any]:
        """Sizes."""
        return {"operation": "probe", "rows": self.size, "batch": self.batch, "step": self.step, "work": self.rows}

    def make(self) -> list[Array]:
        """The run's words, its index, and the bounds: about one match a tuple."""
        rng = np.random.default_rng([SEED, self.size, self.batch])
        words = np.sort(rng.integers(0, 1 << 63, self.size, dtype=WORD))
        keys = np.sort(rng.integers(1 << 45, (1 << 63) - (1 << 45), self.batch, dtype=WORD))
        half = WORD.type((1 << 62) // self.size)
        return [words, words[:: self.step].copy(), keys - half, keys + half]

    def job(self, opened: Device, made: Sequence[Array]) -> Job:
        """One launch of the prober; before it one with a single bound that leaves the index on the chip, or none."""
        run = [_put(opened, array) for array in made]
        found = {name: opened.alloc(self.batch, ID) for name in ("starts", "ends")}
        if self.resident:
            Job(opened, "bisort_prober", run, found, (self.size, self.step, 1)).run()
        return Job(opened, "bisort_prober", run, found, (self.size, self.step, self.batch))

    def expected(self, made: Sequence[Array]) -> Answer:
        """Two binary searches."""
        words, _, low, high = made
        return {
            "starts": np.searchsorted(words, low, "left").astype(ID),
            "ends": np.searchsorted(words, high, "right").astype(ID),
        }

    def bound(self, answer: Answer) -> float:
        """What must be read and written, at the memory's bandwidth."""
        written = sum(column.nbytes for column in answer.values())
        read = 2 * self.batch * WORD.itemsize + sum(self._touched(column) for column in answer.values())
        if not self.resident:
            read += -(-self.size // self.step) * WORD.itemsize
        moved = max(read, written) if self.ideal else read + written
        return moved / self.engine.bytes_per_cycle

    def _touched(self, positions: Array) -> int:
        """Bytes of the partitions in which bounds lie: a partition holds the words before its bounds' positions."""
        partitions = np.unique((positions[positions > 0] - 1) // self.step)
        return int(np.minimum(self.size - partitions * self.step, self.step).sum()) * WORD.itemsize

    def foretold(self) -> float:
        """PROBE."""
        return self.engine.probe(self.size, self.batch, self.step, self.resident)


def _put(opened: Device, data: Array) -> Buffer:
    buffer = opened.alloc(len(data), data.dtype)
    opened.write(buffer, 0, data)
    return buffer


def least_step(size: int, parts: int) -> int:
    """The least power of two, from 8 on, that gives no more than so many partitions."""
    step = 8
    while -(-size // step) > parts:
        step *= 2
    return step


def power(rows: int) -> str:
    """As in `2^20`."""
    return f"2^{rows.bit_length() - 1}"
