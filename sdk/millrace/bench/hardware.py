"""Bench `hardware`: the simulated engine of `hw/rtl`, in tuples per clock cycle, against what its means allow.

- `merger-w…`: one merger on ideal memory, two runs of 512 Ki tuples (`balanced`), or one of 1 Mi and one of a hundredth
  (`skew100`). The bound is W tuples a cycle; the cycles are those of the whole command, its beginning and end included.
- `merge-w…-n…`: N mergers at a batch of 64 Ki into 1 Mi tuples, the index made on the way. The bound with ideal memory
  is W times N tuples a cycle, with `ddr3` the memory's bandwidth: each tuple read and written once, and the index.
- `probe-w…-n…-m…`: M probers look a sorted batch up, a lower and an upper bound for each tuple, in a run with 64 Ki
  partitions. The bound is the memory's bandwidth: bounds and positions, and for either kind of bound the partitions in
  which bounds lie, once each. Ideal memory has the bandwidth of all ports, each way. The index is on the chip, as it is
  for all batches but the first after a merge; `cold` loads it, and then the bound counts it too.
- `2^23`: the paper's subwindow (Figure 14), batches of 1 Ki to 1 Mi. `w1-n8-m16` is the paper's engine: 8 mergers of a
  tuple a cycle and 8 probers, each for both bounds of a tuple, which here are two.

A case simulates once, since cycles are exact. `value` is work per cycle: the harness is given cycles for seconds, and
`work` / `value` gives them back. Answers are compared with NumPy's. The peers are `bound` and `model`: what the written
performance model (`sim/performance.py`) foretells. Words have 64 bits. PanJoin, IV and V-B.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from typing import Any, Protocol, cast

import numpy as np
import numpy.typing as npt

from millrace.bench.harness import Answer, Case, Contender, PeerMissing
from millrace.bench.options import Options
from millrace.errors import DeviceUnavailable
from millrace.host.device import Buffer, Device
from millrace.registry import device

LANES = (1, 4, 8)
SKEW = 100
ENGINES = ("w4,n2,m4", "w1,n8,m16")
"""The first one also does the paper's sizes."""
MEMORIES = ("ideal", "ddr3")
RUN, BATCH = 1 << 20, 1 << 16
PAPERS_RUN = 1 << 23
PAPERS_BATCHES = (1 << 10, 1 << 12, 1 << 14, 1 << 16, 1 << 18, 1 << 20)
PARTITIONS = 1 << 16
QUICK_RUN, QUICK_BATCH, QUICK_PARTITIONS = 1 << 15, 1 << 12, 1 << 11

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


def cases(options: Options) -> Iterator[Case]:
    """Mergers alone, engines merging, engines probing, the paper's sizes."""
    if options.quick:
        for memory in MEMORIES:
            yield _merging(ENGINES[0], memory, QUICK_RUN, QUICK_BATCH)
            yield _probing(ENGINES[0], memory, QUICK_RUN, QUICK_BATCH, QUICK_PARTITIONS)
        return
    for lanes in LANES:
        yield _merger(lanes, RUN // 2, RUN // 2)
        yield _merger(lanes, RUN, RUN // SKEW)
    for engine in ENGINES:
        for memory in MEMORIES:
            yield _merging(engine, memory, RUN, BATCH)
    for engine in ENGINES:
        for memory in MEMORIES:
            yield _probing(engine, memory, RUN, BATCH, PARTITIONS)
            yield _probing(engine, memory, RUN, BATCH, PARTITIONS, resident=False)
    for memory in MEMORIES:
        for batch in PAPERS_BATCHES:
            yield _merging(ENGINES[0], memory, PAPERS_RUN, batch)
            yield _probing(ENGINES[0], memory, PAPERS_RUN, batch, PARTITIONS)
        # Loading the index weighs most in the smallest batch.
        yield _probing(ENGINES[0], memory, PAPERS_RUN, min(PAPERS_BATCHES), PARTITIONS, resident=False)


def _merger(lanes: int, long: int, short: int) -> Case:
    work = Merging(f"rtl:w{lanes},n1,m2", long, short, _step(long + short, PARTITIONS))
    return _case(f"merger-w{lanes}-ideal-{'balanced' if long == short else f'skew{long // short}'}", work)


def _merging(engine: str, memory: str, size: int, batch: int) -> Case:
    step = _step(size + batch, PARTITIONS)
    work = Merging(f"rtl:{engine},{memory}", size, batch, step)
    return _case(f"merge-{_shown(engine, 2)}-{memory}-{_power(size)}-batch{batch}", work)


def _probing(engine: str, memory: str, size: int, batch: int, parts: int, resident: bool = True) -> Case:
    work = Probing(f"rtl:{engine},{memory}", size, batch, _step(size, parts), resident)
    cold = "" if resident else "-cold"
    return _case(f"probe-{_shown(engine, 3)}-{memory}-{_power(size)}-batch{batch}{cold}", work)


def _case(name: str, work: Work) -> Case:
    """Ours, the bound and the model. The bound gives the right answer; the model gives none."""
    contenders = [
        Contender(f"bisort on {work.device}", partial(Simulated, work), "bisort", work.device, "rtl"),
        Contender("bound", partial(Bound, work)),
        Contender("model", partial(Foretold, work), answers=False),
    ]
    return Case(name, work.unit, contenders, work.facts, check_steps=1)


def _step(size: int, parts: int) -> int:
    """The least power of two, from 8 on, that gives no more than so many partitions."""
    step = 8
    while -(-size // step) > parts:
        step *= 2
    return step


def _shown(engine: str, parts: int) -> str:
    return "-".join(engine.split(",")[:parts])


def _power(rows: int) -> str:
    return f"2^{rows.bit_length() - 1}"


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
    def run(self, opened: Device, made: Sequence[Array]) -> tuple[int, Answer]:
        """Cycles and answer of a device."""

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

    def run(self, opened: Device, made: Sequence[Array]) -> tuple[int, Answer]:
        """One launch of the merger."""
        samples = -(-self.rows // self.step)
        out = [opened.alloc(self.rows, WORD), opened.alloc(self.rows, ID), opened.alloc(samples, WORD)]
        runs = [_put(opened, array) for array in made]
        cycles = _launch(opened, "bisort_merger", [*runs, *out], [self.long, self.short, self.step])
        return cycles, dict(zip(("words", "ids", "index"), (_get(opened, buffer) for buffer in out), strict=True))

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

    def run(self, opened: Device, made: Sequence[Array]) -> tuple[int, Answer]:
        """One launch of the prober; before it one with a single bound that leaves the index on the chip, or none."""
        run = [_put(opened, array) for array in made]
        found = [opened.alloc(self.batch, ID) for _ in range(2)]
        if self.resident:
            _launch(opened, "bisort_prober", [*run, *found], [self.size, self.step, 1])
        cycles = _launch(opened, "bisort_prober", [*run, *found], [self.size, self.step, self.batch])
        return cycles, {"starts": _get(opened, found[0]), "ends": _get(opened, found[1])}

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


def _get(opened: Device, buffer: Buffer) -> Array:
    return opened.read(buffer, 0, buffer.size)


def _launch(opened: Device, unit: str, buffers: Sequence[Buffer], scalars: Sequence[int]) -> int:
    """The cycles of a launch."""
    return opened.wait(opened.launch(unit, buffers, scalars))["cycles"]


class Once:
    """A runner whose every step is the same."""

    def __init__(self, work: Work, cycles: float, answer: Answer) -> None:
        """What was found out."""
        self._rows, self._cycles, self._answer = work.rows, cycles, answer

    def step(self) -> tuple[float, float]:
        """Work, and cycles in the place of seconds."""
        return self._rows, self._cycles

    def answer(self) -> Answer:
        """The same for all."""
        return self._answer

    def pause(self) -> None:
        """The answer was compared."""
        self._answer = {}

    def close(self) -> None:
        """Nothing is open."""


class Simulated(Once):
    """The engine, simulated when it starts."""

    def __init__(self, work: Work) -> None:
        """Builds the simulation if this engine was never built before."""
        try:
            opened = device(work.device)
        except DeviceUnavailable as reason:
            raise PeerMissing(str(reason)) from reason
        try:
            super().__init__(work, *work.run(opened, work.make()))
        finally:
            opened.close()


class Bound(Once):
    """The fewest cycles that the means allow, with NumPy's answer."""

    def __init__(self, work: Work) -> None:
        """Computed."""
        answer = work.expected(work.make())
        super().__init__(work, work.bound(answer), answer)


class Foretold(Once):
    """The cycles of the written performance model."""

    def __init__(self, work: Work) -> None:
        """Computed."""
        super().__init__(work, work.foretold(), {})
