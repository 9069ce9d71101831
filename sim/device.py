"""The base class of the devices `rtl` and `hls`: buffers in a simulated memory, launches, engines behind the driver.

An engine has one word width. A device therefore has up to two engines over one memory; each is built and started on
first use. A launch is executed when it is waited for, or before the next copy, so an unused simulation costs no time.
The launches behind it are queued in the engine meanwhile, as far as they are probes or indexes for the same engine. A
fault drops an engine that could not be reset: the next launch starts another one over the same memory.
Limits: `threads` has no effect; a device serves one thread at a time, but several devices may run in parallel.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from time import perf_counter_ns
from typing import Any

import numpy as np

from millrace.host.base.errors import DeviceFault
from millrace.host.base.faults import fault_point
from millrace.host.base.types import Array
from millrace.host.device.contract import Buffer, Device, Launch, Tally
from millrace.host.device.units import Work, check
from millrace.hw.command_queue import Command
from millrace.hw.driver import BoundsBatch, Engine
from millrace.hw.transfers import IndexAt, RunAt
from millrace.sim.memory import Memory
from millrace.sim.model import Model

Finish = Callable[[], dict[str, int]]
"""Waits for a launch that has begun; returns its counters."""


class SimBuffer:
    """An array in the simulated memory."""

    def __init__(self, owner: SimDevice, address: int, size: int, dtype: np.dtype[Any]) -> None:
        """`size` elements of `dtype` at `address`."""
        self.owner, self.address, self.size, self.dtype = owner, address, size, dtype
        self.freed = False


class SimLaunch:
    """A launched unit: begun, then finished; its counters are there after that."""

    def __init__(self, unit: str, word: np.dtype[Any], ahead: bool, begin: Callable[[], Finish]) -> None:
        """`ahead`: it may begin while earlier launches on the same engine are in flight."""
        self.unit, self.word, self.ahead, self._begin = unit, word, ahead, begin
        self._finish: Finish | None = None
        self.result: dict[str, int] | None = None
        self.error: DeviceFault | None = None

    def begin(self) -> None:
        """Queue the launch in the engine, if that has not been done yet."""
        if self._finish is None and self.error is None:
            try:
                self._finish = self._begin()
            except DeviceFault as error:
                self.error = error

    def run(self) -> None:
        """Execute the launch."""
        self.begin()
        if self._finish is not None:
            try:
                self.result = self._finish()
            except DeviceFault as error:
                self.error = error


class SimDevice(Device, ABC):
    """Engines over one memory, one for each word width."""

    units = frozenset({"bisort_merger", "bisort_indexer", "bisort_prober", "bisort_band_prober"})

    def __init__(self, name: str) -> None:
        """The first launch builds the engine."""
        self.name = name
        self._memory: Memory | None = Memory()
        self._engines: dict[int, tuple[Model, Engine]] = {}
        self._queue: deque[SimLaunch] = deque()
        self._tally = Tally()
        self._lost = Tally()
        """What engines counted that hung and were replaced."""

    @abstractmethod
    def _start(self, bits: int, memory: Memory) -> tuple[Model, Engine]:
        """Start the engine of a word width on a memory; builds it on first use."""

    @abstractmethod
    def _spent(self, cycles: int, nanoseconds: int) -> dict[str, int]:
        """The time of a launch, as counters."""

    # Buffers.

    def alloc(self, size: int, dtype: np.dtype[Any]) -> SimBuffer:
        """Allocate in the simulated memory."""
        dtype = np.dtype(dtype)
        fault_point("sim.alloc")
        return SimBuffer(self, self._open().alloc(max(1, size) * dtype.itemsize), size, dtype)

    def write(self, buffer: Buffer, offset: int, data: Array) -> None:
        """Copy in, after all earlier launches."""
        into = self._mine(buffer)
        self._check_range("write", into, offset, len(data))
        if data.dtype != into.dtype:
            raise DeviceFault(f"device {self.name!r}: write of {data.dtype} into a buffer of {into.dtype}")
        fault_point("sim.write")
        self._finish()
        self._forget(into)
        self._view(into, offset, len(data))[:] = data
        self._tally.add(bytes_in=data.nbytes)

    def read(self, buffer: Buffer, offset: int, size: int) -> Array:
        """Copy out, after all earlier launches."""
        source = self._mine(buffer)
        self._check_range("read", source, offset, size)
        fault_point("sim.read")
        self._finish()
        data = self._view(source, offset, size).copy()
        self._tally.add(bytes_out=data.nbytes)
        return data

    def free(self, buffer: Buffer) -> None:
        """Free the memory, after all earlier launches."""
        if isinstance(buffer, SimBuffer) and buffer.freed:
            return
        mine = self._mine(buffer)
        self._finish()
        self._forget(mine)
        mine.freed = True
        self._open().free(mine.address)

    # Launches.

    def launch(self, unit: str, buffers: Sequence[Buffer], scalars: Sequence[int]) -> SimLaunch:
        """Queue a unit."""
        mine = [self._mine(buffer) for buffer in buffers]
        work = check(self.name, self.units, unit, buffers, scalars)
        fault_point("sim.launch")
        ahead = unit != "bisort_merger" and work.rows > 0 and work.scalars["n"] > 0
        launch = SimLaunch(unit, work.word, ahead, lambda: self._work(unit, work, mine))
        self._queue.append(launch)
        return launch

    def wait(self, launch: Launch) -> Mapping[str, int]:
        """Execute the queue up to this launch; returns its rows and its time."""
        assert isinstance(launch, SimLaunch)
        fault_point("sim.wait")
        while launch.result is None and launch.error is None:
            self._open()
            self._run_next()
        if launch.result is None:
            assert launch.error is not None
            raise launch.error
        return launch.result

    def counters(self) -> dict[str, int]:
        """Bytes in and out, rows and time per unit, and the engines' counters, prefixed with the device's kind."""
        counts = self._tally.as_dict()
        engines = [self._engine_counters(engine) for _, engine in self._engines.values()]
        for more in (self._lost.as_dict(), *engines):
            for name, value in more.items():
                counts[name] = counts.get(name, 0) + value
        return counts

    def _engine_counters(self, engine: Engine) -> dict[str, int]:
        """An engine's counters, prefixed with the device's kind; those last read if it does not answer any more."""
        return {f"{self.kind}_{name}": value for name, value in self._counted(engine.counters()).items()}

    def _counted(self, counters: dict[str, int]) -> dict[str, int]:
        """The engine counters that are meaningful for this kind of device."""
        return counters

    def close(self) -> None:
        """Stop the engines; counters can still be read."""
        if self._memory is None:
            return
        self._queue.clear()  # nobody waits for these
        counts = self.counters()
        for model, _ in self._engines.values():
            model.close()
        self._engines, self._memory = {}, None
        self._tally = Tally()
        self._tally.add(**counts)

    def engine(self, word: np.dtype[Any]) -> Engine:
        """The engine of a word width; built and started on first use."""
        bits = word.itemsize * 8
        if bits in self._engines and not self._engines[bits][1].usable:
            model, hung = self._engines.pop(bits)
            self._lost.add(**self._engine_counters(hung))
            model.close()
        if bits not in self._engines:
            self._engines[bits] = self._start(bits, self._open())
        return self._engines[bits][1]

    # Work.

    def _work(self, unit: str, work: Work, buffers: Sequence[SimBuffer]) -> Finish:
        """Begin one launch on the engine of its word width."""
        for slot, buffer in zip(work.unit.slots, buffers, strict=True):
            if slot.written:
                self._forget(buffer)
        begin = {"bisort_merger": self._merge, "bisort_indexer": self._index}.get(unit, self._probe)
        engine = self.engine(work.word)
        begun = begin(engine, work.scalars, [buffer.address for buffer in buffers]) if work.rows else []

        def finish() -> dict[str, int]:
            since = perf_counter_ns()
            cycles = engine.finish(begun) if begun else 0
            counters = {"rows": work.rows, **self._spent(cycles, perf_counter_ns() - since)}
            self._tally.add(**{f"{unit}_{name}": value for name, value in counters.items()})
            return counters

        return finish

    def _merge(self, engine: Engine, given: Mapping[str, int], at: Sequence[int]) -> list[Command]:
        size = given["a_n"] + given["b_n"]
        a, b, out = RunAt(at[0], at[1], given["a_n"]), RunAt(at[2], at[3], given["b_n"]), RunAt(at[4], at[5], size)
        return engine.begin_merge(a, b, out, IndexAt(at[6], given["step"]))

    def _index(self, engine: Engine, given: Mapping[str, int], at: Sequence[int]) -> list[Command]:
        return engine.begin_index(at[0], given["n"], IndexAt(at[1], given["step"]))

    def _probe(self, engine: Engine, given: Mapping[str, int], at: Sequence[int]) -> list[Command]:
        band = None
        if "below" in given:
            band = given["below"], given["above"], given["least"], given["most"]
        low, starts, ends = at[2], at[-2], at[-1]
        batch = BoundsBatch(given["m"], low, low if band else at[3], starts, ends, band)
        if given["n"] == 0:  # an empty run: every position is 0
            for address in (starts, ends):
                self._open().view(address, given["m"], np.dtype(np.uint32))[:] = 0
            return []
        return engine.begin_probe(at[0], given["n"], IndexAt(at[1], given["step"]), batch)

    # Checks and queue.

    def _finish(self) -> None:
        """Execute all queued launches; the error of a failed one is raised when it is waited for."""
        while self._queue:
            self._run_next()

    def _run_next(self) -> None:
        """Execute the oldest launch; those behind it that need nothing of the host are queued in the engine first."""
        launch = self._queue.popleft()
        launch.begin()
        for following in self._queue:
            engine = self._engines.get(launch.word.itemsize * 8)
            if not following.ahead or following.word != launch.word or engine is None or not engine[1].can_begin:
                break
            following.begin()
        launch.run()

    def _forget(self, buffer: SimBuffer) -> None:
        """Invalidate an on-chip index before its buffer changes."""
        for _, engine in self._engines.values():
            engine.forget(buffer.address)

    def _view(self, buffer: SimBuffer, offset: int, size: int) -> Array:
        return self._open().view(buffer.address + offset * buffer.dtype.itemsize, size, buffer.dtype)

    def _open(self) -> Memory:
        if self._memory is None:
            raise DeviceFault(f"device {self.name!r} is closed; open it again")
        return self._memory

    def _mine(self, buffer: Buffer) -> SimBuffer:
        """A live buffer of this device."""
        self._open()
        if not isinstance(buffer, SimBuffer) or buffer.owner is not self:
            raise DeviceFault(f"device {self.name!r}: this buffer belongs to another device")
        if buffer.freed:
            raise DeviceFault(f"device {self.name!r}: this buffer was freed already")
        return buffer

    def _check_range(self, what: str, buffer: SimBuffer, offset: int, size: int) -> None:
        if offset < 0 or size < 0 or offset + size > buffer.size:
            raise DeviceFault(
                f"device {self.name!r}: {what} of elements {offset} to {offset + size} of a buffer of {buffer.size}"
            )
