"""The CPU as a device: buffers are NumPy arrays, units are Numba kernels on the runtime's own threads.

A unit is a function `(arrays, scalars, threads) -> rows`: it returns how many rows passed through it. The table of
units names modules, so that a unit's kernels are compiled or loaded only when it is first launched.
"""

from __future__ import annotations

import platform
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import numpy as np

from millrace.host import pool
from millrace.host.device import Buffer, Device, DeviceInfo, Launch, Tally
from millrace.host.errors import ArgumentError, DeviceFault
from millrace.host.words import Array

Unit = Callable[[Sequence[Array], Sequence[int], int], int]
UNITS: dict[str, str] = {"scan_prober": "millrace.host.scan_prober"}


@dataclass(frozen=True)
class CpuBuffer:
    """A NumPy array as a device buffer."""

    array: Array

    @property
    def size(self) -> int:
        """How many elements."""
        return len(self.array)

    @property
    def dtype(self) -> np.dtype[Any]:
        """Of which type."""
        return self.array.dtype


@dataclass(frozen=True)
class CpuLaunch:
    """A unit at work on the pool."""

    unit: str
    future: Future[tuple[int, int]]


class CpuDevice(Device):
    """All cores of this machine, or `threads` of them."""

    kind = "cpu"
    units = frozenset(UNITS)

    def __init__(self, threads: int | None = None) -> None:
        """`threads`: how many work on one launch (default: as many as there are cores; no more than the pool has)."""
        self.name = "cpu"
        self.threads = min(threads or pool.cores(), pool.size())
        self._tally = Tally()

    def alloc(self, size: int, dtype: np.dtype[Any]) -> CpuBuffer:
        """An array, not initialised."""
        return CpuBuffer(np.empty(size, dtype))

    def write(self, buffer: Buffer, offset: int, data: Array) -> None:
        """Copy in."""
        _array(buffer)[offset : offset + len(data)] = data
        self._tally.add(bytes_in=data.nbytes)

    def read(self, buffer: Buffer, offset: int, size: int) -> Array:
        """Copy out."""
        data = _array(buffer)[offset : offset + size].copy()
        self._tally.add(bytes_out=data.nbytes)
        return data

    def free(self, buffer: Buffer) -> None:
        """Nothing to do: the array goes with its last user."""

    def launch(self, unit: str, buffers: Sequence[Buffer], scalars: Sequence[int]) -> CpuLaunch:
        """Hand a unit to the pool."""
        if unit not in self.units:
            raise DeviceFault(f"the cpu device has no unit {unit!r}; it has {', '.join(sorted(self.units))}")
        arrays = [_array(b) for b in buffers]
        function: Unit = getattr(import_module(UNITS[unit]), unit)

        def work() -> tuple[int, int]:
            start = time.perf_counter_ns()
            rows = function(arrays, scalars, self.threads)
            return rows, time.perf_counter_ns() - start

        return CpuLaunch(unit, pool.submit(work))

    def wait(self, launch: Launch) -> Mapping[str, int]:
        """Wait; add rows and time to the counters."""
        assert isinstance(launch, CpuLaunch)
        rows, nanoseconds = launch.future.result()
        self._tally.add(**{f"{launch.unit}_rows": rows, f"{launch.unit}_ns": nanoseconds})
        return {"rows": rows, "ns": nanoseconds}

    def counters(self) -> dict[str, int]:
        """Bytes in and out, and rows and nanoseconds per unit."""
        return self._tally.as_dict()


def _array(buffer: Buffer) -> Array:
    assert isinstance(buffer, CpuBuffer)
    return buffer.array


def probe() -> list[DeviceInfo]:
    """This machine's processor, always there."""
    return [DeviceInfo("cpu", "cpu", True, f"{platform.machine()}, {pool.cores()} cores, Numba kernels")]


def open_device(name: str, threads: int | None) -> CpuDevice:
    """Open the CPU."""
    if name != "cpu":
        raise ArgumentError(f"device={name!r}: there is one cpu device, named 'cpu'")
    return CpuDevice(threads)
