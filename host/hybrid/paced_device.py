"""Simulated device and host with configured speeds, for tests and benchmarks (never offered to users).

`PacedDevice` forwards each call to another device, which does the real work, and makes it take a configured time.
Transfers have a fixed cost and a bandwidth, with one link in each direction. Searches have a fixed cost and a cost per
query and level, one search at a time. It supports the optional abilities of a device: lanes and staging. `PacedTree`
does the same for a tree that the host walks. Both use a clock: in virtual time, tests of pipeline and balancing are
exact; in real time, the bench `pipeline` measures the real overlap. Limit: real work that takes longer than configured
ends late. (For the experiments of the thesis, appendix A, 5.4 and 5.5.)
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from millrace.host.base.types import Array
from millrace.host.device.contract import Buffer, Device, Launch
from millrace.host.hybrid.lookup_runner import Positions, WalkedTree
from millrace.host.hybrid.search_engine import Numbers
from millrace.host.runtime.clock import Clock


@dataclass
class DevicePace:
    """Nanoseconds per transfer and per byte, per launch and per query at each level."""

    transfer: float = 0.0
    byte: float = 0.0
    launch: float = 0.0
    levels: tuple[float, ...] = ()

    def moving(self, size: int) -> int:
        """Nanoseconds to transfer `size` bytes in one direction."""
        return round(self.transfer + self.byte * size)

    def searching(self, queries: int, start: int) -> int:
        """Nanoseconds to search `queries` queries from level `start` on."""
        return round(self.launch + queries * sum(self.levels[start:]))


@dataclass
class HostPace:
    """Nanoseconds per query at each level, and in its leaf."""

    levels: tuple[float, ...] = ()
    leaf: float = 0.0


@dataclass
class _Timetable:
    """When each part of the device is free again: input link, output link, search unit."""

    free: dict[str, int] = field(default_factory=dict)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def book(self, part: str, now: int, duration: int) -> int:
        """Reserve a part from when it is free; return the end time."""
        with self.lock:
            end = max(now, self.free.get(part, 0)) + duration
            self.free[part] = end
            return end


@dataclass(frozen=True)
class PacedLaunch:
    """A search with its end time and duration."""

    unit: str
    inner: Launch
    end: int
    duration: int


class PacedDevice(Device):
    """A device that runs another device at a configured pace."""

    kind = "paced"

    def __init__(self, inner: Device, pace: DevicePace, clock: Clock, timetable: _Timetable | None = None) -> None:
        """`pace` may be changed at any time; lanes share a `timetable`."""
        self.name, self.units = "paced", inner.units
        self.pace, self._inner, self._clock = pace, inner, clock
        self._timetable = timetable or _Timetable()

    def lane(self) -> PacedDevice:
        """Another queue on the same device."""
        return PacedDevice(self._inner, self.pace, self._clock, self._timetable)

    def staging(self, size: int, dtype: np.dtype[Any]) -> Array:
        """Plain memory."""
        return np.empty(size, dtype)

    def alloc(self, size: int, dtype: np.dtype[Any]) -> Buffer:
        """Allocate, in no simulated time."""
        with self._timetable.lock:
            return self._inner.alloc(size, dtype)

    def free(self, buffer: Buffer) -> None:
        """Free, in no simulated time."""
        with self._timetable.lock:
            self._inner.free(buffer)

    def write(self, buffer: Buffer, offset: int, data: Array) -> None:
        """Write, and occupy the input link."""
        end = self._timetable.book("in", self._clock.now(), self.pace.moving(data.nbytes))
        with self._timetable.lock:
            self._inner.write(buffer, offset, data)
        self._clock.sleep_until(end)

    def read(self, buffer: Buffer, offset: int, size: int) -> Array:
        """Read, and occupy the output link."""
        end = self._timetable.book("out", self._clock.now(), self.pace.moving(size * buffer.dtype.itemsize))
        with self._timetable.lock:
            data = self._inner.read(buffer, offset, size)
        self._clock.sleep_until(end)
        return data

    def read_into(self, buffer: Buffer, offset: int, out: Array) -> None:
        """Read and copy."""
        out[:] = self.read(buffer, offset, len(out))

    def launch(self, unit: str, buffers: Sequence[Buffer], scalars: Sequence[int]) -> PacedLaunch:
        """Launch a search; it starts when those before it have ended."""
        duration = self.pace.searching(scalars[0], scalars[1])
        end = self._timetable.book("search", self._clock.now(), duration)
        with self._timetable.lock:
            return PacedLaunch(unit, self._inner.launch(unit, buffers, scalars), end, duration)

    def wait(self, launch: Launch) -> Mapping[str, int]:
        """Wait for the end; report the configured nanoseconds."""
        assert isinstance(launch, PacedLaunch)
        with self._timetable.lock:
            counters = self._inner.wait(launch.inner)
        self._clock.sleep_until(launch.end)
        return {**counters, "ns": launch.duration}

    def counters(self) -> dict[str, int]:
        """The counters of the inner device."""
        return self._inner.counters()


class PacedTree:
    """A tree that the host walks at a configured pace."""

    def __init__(self, tree: WalkedTree, pace: HostPace, clock: Clock) -> None:
        """`pace` may be changed at any time."""
        self.layout, self.word, self.levels, self.fanout = tree.layout, tree.word, tree.levels, tree.fanout
        self.nodes, self.offsets, self.last = tree.nodes, tree.offsets, tree.last
        self.pace, self._tree, self._clock = pace, tree, clock
        self._late = 0

    def walk(self, queries: Array, depth: int, at: Numbers | None = None, start: int = 0) -> Numbers:
        """Walk, then wait until the configured end."""
        end = self._end(len(queries) * sum(self.pace.levels[start:depth]))
        nodes = self._tree.walk(queries, depth, at, start)
        self._wait_until(end)
        return nodes

    def leaf(self, queries: Array, leaves: Numbers) -> Positions:
        """Search, then wait until the configured end."""
        end = self._end(len(queries) * self.pace.leaf)
        positions = self._tree.leaf(queries, leaves)
        self._wait_until(end)
        return positions

    def _end(self, duration: float) -> int:
        """The end time of work that starts now."""
        return self._clock.now() + round(duration) - self._late

    def _wait_until(self, end: int) -> None:
        """Sleep; a delay on a busy machine is subtracted from the next work, since a real host would not sleep here."""
        self._clock.sleep_until(end)
        self._late = self._clock.now() - end
