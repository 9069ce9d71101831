"""Stand-ins with set speeds: a device and a host that take exactly as long as they are told (never offered to users).

`PacedDevice` hands every call to another device, which does the real work, and takes its own time over it: transfers
by a fixed cost and a bandwidth, one link in each direction; searches by a fixed cost and a cost per query and level,
one search at a time. It has the optional abilities of a device: lanes and staging. `PacedTree` does the same to a tree
that the host walks. Both keep time by a clock: in virtual time pipelines and balancing are tested exactly, in real time
the bench `pipeline` measures how much really overlaps. A device or tree whose real work takes longer is late.
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
    """Nanoseconds: of a transfer and of each byte in it, of a launch and of each query at each level in it."""

    transfer: float = 0.0
    byte: float = 0.0
    launch: float = 0.0
    levels: tuple[float, ...] = ()

    def moving(self, size: int) -> int:
        """So many bytes in one direction."""
        return round(self.transfer + self.byte * size)

    def searching(self, queries: int, start: int) -> int:
        """So many queries from level `start` on."""
        return round(self.launch + queries * sum(self.levels[start:]))


@dataclass
class HostPace:
    """Nanoseconds of a query at each level, and in its leaf."""

    levels: tuple[float, ...] = ()
    leaf: float = 0.0


@dataclass
class _Timetable:
    """When each part of the device is free again: the link in, the link out, and what searches."""

    free: dict[str, int] = field(default_factory=dict)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def book(self, part: str, now: int, duration: int) -> int:
        """Take a part as soon as it is free; until when."""
        with self.lock:
            end = max(now, self.free.get(part, 0)) + duration
            self.free[part] = end
            return end


@dataclass(frozen=True)
class PacedLaunch:
    """A search, when it ends, and how long it takes."""

    unit: str
    inner: Launch
    end: int
    duration: int


class PacedDevice(Device):
    """Another device at a set pace."""

    kind = "paced"

    def __init__(self, inner: Device, pace: DevicePace, clock: Clock, timetable: _Timetable | None = None) -> None:
        """`pace` may be changed at any time; lanes share a `timetable`."""
        self.name, self.units = "paced", inner.units
        self.pace, self._inner, self._clock = pace, inner, clock
        self._timetable = timetable or _Timetable()

    def lane(self) -> PacedDevice:
        """Another queue at the same device."""
        return PacedDevice(self._inner, self.pace, self._clock, self._timetable)

    def staging(self, size: int, dtype: np.dtype[Any]) -> Array:
        """Plain memory."""
        return np.empty(size, dtype)

    def alloc(self, size: int, dtype: np.dtype[Any]) -> Buffer:
        """At once."""
        with self._timetable.lock:
            return self._inner.alloc(size, dtype)

    def free(self, buffer: Buffer) -> None:
        """At once."""
        with self._timetable.lock:
            self._inner.free(buffer)

    def write(self, buffer: Buffer, offset: int, data: Array) -> None:
        """Take the link in for a while."""
        end = self._timetable.book("in", self._clock.now(), self.pace.moving(data.nbytes))
        with self._timetable.lock:
            self._inner.write(buffer, offset, data)
        self._clock.sleep_until(end)

    def read(self, buffer: Buffer, offset: int, size: int) -> Array:
        """Take the link out for a while."""
        end = self._timetable.book("out", self._clock.now(), self.pace.moving(size * buffer.dtype.itemsize))
        with self._timetable.lock:
            data = self._inner.read(buffer, offset, size)
        self._clock.sleep_until(end)
        return data

    def read_into(self, buffer: Buffer, offset: int, out: Array) -> None:
        """Read, and copy."""
        out[:] = self.read(buffer, offset, len(out))

    def launch(self, unit: str, buffers: Sequence[Buffer], scalars: Sequence[int]) -> PacedLaunch:
        """The search begins when those before it have ended."""
        duration = self.pace.searching(scalars[0], scalars[1])
        end = self._timetable.book("search", self._clock.now(), duration)
        with self._timetable.lock:
            return PacedLaunch(unit, self._inner.launch(unit, buffers, scalars), end, duration)

    def wait(self, launch: Launch) -> Mapping[str, int]:
        """Wait for the end; the nanoseconds told are the set ones."""
        assert isinstance(launch, PacedLaunch)
        with self._timetable.lock:
            told = self._inner.wait(launch.inner)
        self._clock.sleep_until(launch.end)
        return {**told, "ns": launch.duration}

    def counters(self) -> dict[str, int]:
        """Those of the device behind it."""
        return self._inner.counters()


class PacedTree:
    """A tree that the host walks at a set pace."""

    def __init__(self, tree: WalkedTree, pace: HostPace, clock: Clock) -> None:
        """`pace` may be changed at any time."""
        self.layout, self.word, self.levels, self.fanout = tree.layout, tree.word, tree.levels, tree.fanout
        self.nodes, self.offsets, self.last = tree.nodes, tree.offsets, tree.last
        self.pace, self._tree, self._clock = pace, tree, clock
        self._late = 0

    def walk(self, queries: Array, depth: int, at: Numbers | None = None, start: int = 0) -> Numbers:
        """Walk, then wait until it is time."""
        end = self._end(len(queries) * sum(self.pace.levels[start:depth]))
        nodes = self._tree.walk(queries, depth, at, start)
        self._rest(end)
        return nodes

    def leaf(self, queries: Array, leaves: Numbers) -> Positions:
        """Search, then wait until it is time."""
        end = self._end(len(queries) * self.pace.leaf)
        positions = self._tree.leaf(queries, leaves)
        self._rest(end)
        return positions

    def _end(self, duration: float) -> int:
        """When work of a duration that begins now must end."""
        return self._clock.now() + round(duration) - self._late

    def _rest(self, end: int) -> None:
        """Sleep; what a busy machine adds to that is taken off the next work, since no real host would sleep here."""
        self._clock.sleep_until(end)
        self._late = self._clock.now() - end
