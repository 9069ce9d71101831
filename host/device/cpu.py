"""The CPU as a device: buffers are NumPy arrays, units are Numba kernels on a team of threads.

A unit is a function `(arrays, scalars, team) -> rows` that returns how many rows it processed. `UNITS` holds module
names, so that the kernels of a unit are compiled or loaded on its first launch. `wait` executes a launch, on the
waiting thread and its team: all cores then work on it. If the unit's module has a function `begin`, the helper threads
start at once; this pays off for launches that are waited for much later.
"""

from __future__ import annotations

import platform
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from millrace.host.base.errors import ArgumentError, DeviceFault
from millrace.host.base.faults import ARMED, fault_point
from millrace.host.base.types import Array
from millrace.host.device.contract import Buffer, Device, DeviceInfo, Launch, Tally
from millrace.host.runtime import pool
from millrace.host.runtime.allocator import allocate, free
from millrace.host.runtime.critical import load_module
from millrace.host.runtime.team import Team

Unit = Callable[[Sequence[Array], Sequence[int], Team], int]
BeginUnit = Callable[[Sequence[Array], Sequence[int], Team], Callable[[], int]]
UNITS: dict[str, str] = {
    unit: f"millrace.host.{folder}.{unit}"
    for folder, units in {
        "join.baseline": ("scan_prober",),
        "join.panjoin": ("bisort_merger", "bisort_indexer", "bisort_prober", "bisort_trimmer"),
        "join.spo": ("spo_bits",),
        "hbtree": ("hb_search_implicit", "hb_search_regular", "hb_lookup"),
    }.items()
    for unit in units
}


@dataclass(frozen=True)
class CpuBuffer:
    """A NumPy array as a device buffer."""

    array: Array

    @property
    def size(self) -> int:
        """The number of elements."""
        return len(self.array)

    @property
    def dtype(self) -> np.dtype[Any]:
        """The type of the elements."""
        return self.array.dtype


class CpuLaunch:
    """A launched unit, with its counters or its error after it has run."""

    def __init__(self, unit: str, work: Callable[[], int]) -> None:
        """A launch that has not run yet."""
        self.unit = unit
        self._work = work
        self.result: dict[str, int] | None = None
        self.error: Exception | None = None

    def run(self) -> None:
        """Execute the launch. Errors are kept for `wait`; an interrupt is raised at once, and `wait` then fails too."""
        start = time.perf_counter_ns()
        try:
            rows = self._work()
            self.result = {"rows": rows, "ns": time.perf_counter_ns() - start}
        except Exception as error:
            self.error = error
        except BaseException:
            self.error = DeviceFault(f"the launch of {self.unit} was interrupted: its results are incomplete")
            raise


class CpuDevice(Device):
    """All cores of this machine, or `threads` of them."""

    kind = "cpu"
    team: Team
    units = frozenset(UNITS)

    def __init__(self, threads: int | None = None, team: Team | None = None) -> None:
        """`threads`: the threads that work on one launch (default: one per core; at most `pool.size()`).

        Alternatively `team`: a team of another owner, which also closes it.
        """
        self.name = "cpu"
        self.team = team or Team(min(threads or pool.cores(), pool.size()))
        self._tally = Tally()
        self._queue: deque[CpuLaunch] = deque()

    @property
    def threads(self) -> int:
        """The number of threads that work on one launch."""
        return self.team.threads

    def alloc(self, size: int, dtype: np.dtype[Any]) -> CpuBuffer:
        """Allocate an uninitialised array."""
        if ARMED:
            fault_point("cpu.alloc")
        return CpuBuffer(allocate(size, dtype))

    def write(self, buffer: Buffer, offset: int, data: Array) -> None:
        """Copy an array into a buffer."""
        if ARMED:
            fault_point("cpu.write")
        self._finish()
        _array(buffer)[offset : offset + len(data)] = data
        self._tally.add(bytes_in=data.nbytes)

    def read(self, buffer: Buffer, offset: int, size: int) -> Array:
        """Return a copy of a part of a buffer."""
        if ARMED:
            fault_point("cpu.read")
        self._finish()
        data = _array(buffer)[offset : offset + size].copy()
        self._tally.add(bytes_out=data.nbytes)
        return data

    def adopt(self, data: Array, spare: int = 0) -> CpuBuffer:
        """Use the array itself as the buffer."""
        self._tally.add(bytes_in=data.nbytes)
        return CpuBuffer(data)

    def view(self, buffer: Buffer, size: int) -> Array:
        """Return a view of the array."""
        self._finish()
        return _array(buffer)[:size]

    def free(self, buffer: Buffer) -> None:
        """Return the memory to the allocator for reuse."""
        self._finish()
        free(_array(buffer))

    def launch(self, unit: str, buffers: Sequence[Buffer], scalars: Sequence[int]) -> CpuLaunch:
        """Queue a unit; start it on the helper threads if it supports that and the queue is empty."""
        if unit not in self.units:
            raise DeviceFault(f"the cpu device has no unit {unit!r}; it has {', '.join(sorted(self.units))}")
        if ARMED:
            fault_point("cpu.launch")
        arrays = [_array(b) for b in buffers]
        function, begin = _unit(unit)
        if begin is not None and not self._queue:
            launch = CpuLaunch(unit, begin(arrays, scalars, self.team))
        else:
            launch = CpuLaunch(unit, lambda: function(arrays, scalars, self.team))
        self._queue.append(launch)
        return launch

    def wait(self, launch: Launch) -> Mapping[str, int]:
        """Execute the queue up to this launch; add its rows and time to the counters."""
        assert isinstance(launch, CpuLaunch)
        if ARMED:
            fault_point("cpu.wait")
        while launch.result is None and launch.error is None:
            self._queue.popleft().run()
        if launch.result is None:
            assert launch.error is not None
            raise launch.error
        rows, nanoseconds = launch.result["rows"], launch.result["ns"]
        self._tally.add(**{f"{launch.unit}_rows": rows, f"{launch.unit}_ns": nanoseconds})
        return launch.result

    def _finish(self) -> None:
        """Execute all queued launches, so that they take effect before the next operation."""
        while self._queue:
            self._queue.popleft().run()

    def count(self, unit: str, rows: int) -> None:
        """Count rows that host code has processed for a unit, outside of a launch."""
        self._tally.add(**{f"{unit}_rows": rows})

    def counters(self) -> dict[str, int]:
        """Return bytes in and out, and rows and nanoseconds per unit."""
        return self._tally.as_dict()

    def close(self) -> None:
        """Return the helper threads."""
        self.team.close()


@cache
def _unit(name: str) -> tuple[Unit, BeginUnit | None]:
    """Import a unit; return its function, and its `begin` function if it has one."""
    module = load_module(UNITS[name])
    return getattr(module, name), getattr(module, "begin", None)


def _array(buffer: Buffer) -> Array:
    assert isinstance(buffer, CpuBuffer)
    return buffer.array


def probe() -> list[DeviceInfo]:
    """List the CPU, which is always available."""
    return [DeviceInfo("cpu", "cpu", True, f"{platform.machine()}, {pool.cores()} cores, Numba kernels")]


def open_device(name: str, threads: int | None) -> CpuDevice:
    """Open the CPU device."""
    if name != "cpu":
        raise ArgumentError(f"device={name!r}: there is one cpu device, named 'cpu'")
    return CpuDevice(threads)
