"""Code shared by the OpenCL and CUDA devices: buffers, checks, launches, lanes, counters.

A `GpuDevice` implements the device contract; a subclass adds allocation, copies, launch and wait of its API. A *lane*
is an additional queue of an opened device, for another thread: it uses the device's buffers, and commands of two lanes
may run concurrently. `launch` returns at once; `write` and `read` return when the copy is done, so data that one lane
has written or waited for is visible to every lane.

`MILLRACE_DEVICE_SHARE`, read when a device is opened, limits a process to a share of the device's memory. The process's
API, its devices and their names are in `gpu/runtime.py`.
"""

from __future__ import annotations

import os
import threading
import weakref
from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any, Self

import numpy as np

from millrace.gpu import driver
from millrace.gpu.runtime import Runtime, line
from millrace.host.base.errors import ArgumentError, DeviceFault, DeviceUnavailable
from millrace.host.base.faults import fault_point
from millrace.host.base.types import Array
from millrace.host.device.contract import Buffer, Device, Launch, Tally

SHARE = "MILLRACE_DEVICE_SHARE"


def share() -> float:
    """The share of a device's memory that this process may use: above 0, 1 means all."""
    given = os.environ.get(SHARE, "1")
    try:
        found = float(given)
    except ValueError:
        found = 0.0
    if not 0 < found <= 1:
        raise ArgumentError(f"{SHARE}={given!r}: allowed is a number above 0 and up to 1, such as 0.25")
    return found


class GpuBuffer:
    """Memory of a device; `memory` is None after it was freed."""

    def __init__(self, owner: GpuDevice, memory: Any, size: int, dtype: np.dtype[Any]) -> None:
        """`size` elements of `dtype` in `memory`, an object of the API."""
        self.owner, self.memory, self.size, self.dtype = owner, memory, size, dtype


class GpuLaunch:
    """A running unit; it keeps references to its buffers, which the queue does not own."""

    def __init__(self, unit: str, rows: int, event: Any, buffers: Sequence[GpuBuffer]) -> None:
        """`event` signals the end; `counters` are set by the first wait."""
        self.unit, self.rows, self.event, self.buffers = unit, rows, event, buffers
        self.counters: dict[str, int] | None = None


class GpuDevice(Device):
    """One device with its own command queue."""

    units = frozenset(driver.UNITS)

    def __init__(self, runtime: Runtime, number: int, main: Self | None = None) -> None:
        """Open the device with this number; a lane gets the `main` device that it belongs to."""
        self.name, self.kind = f"{runtime.family}:{number}", runtime.infos()[number].kind
        self._runtime, self._number = runtime, number
        self._main = self if main is None else main
        self._tally, self._lanes = Tally(), list[GpuDevice]()
        self._alive: weakref.WeakSet[GpuBuffer] = weakref.WeakSet()
        self._lock = threading.Lock()  # guards what lanes in other threads change
        self._open = True
        self._share: float = share() if main is None else main._share
        try:
            self._open_queue()
        except runtime.errors as error:
            raise DeviceUnavailable(f"device {self.name!r} does not open: {line(error)}") from error

    # --- implemented by the API ---

    @abstractmethod
    def _open_queue(self) -> None:
        """Create an in-order command queue."""

    @abstractmethod
    def _new(self, size: int) -> Any:
        """Allocate `size` bytes, at least one."""

    @abstractmethod
    def _copy_in(self, memory: Any, at: int, data: Array) -> None:
        """Copy at least one element to byte offset `at`; complete on return."""

    @abstractmethod
    def _copy_out(self, memory: Any, at: int, out: Array) -> None:
        """Copy at least one element from byte offset `at`; complete on return."""

    @abstractmethod
    def _drop(self, memory: Any) -> None:
        """Free memory; running commands keep it until they end."""

    @abstractmethod
    def _start(self, work: driver.Work, memories: list[Any]) -> Any:
        """Enqueue a unit; returns an event."""

    @abstractmethod
    def _finish(self, event: Any) -> int:
        """Wait for an event; returns the device's nanoseconds."""

    @abstractmethod
    def _drain(self) -> None:
        """Wait for all queued commands and release the queue."""

    @abstractmethod
    def _stage(self, size: int) -> Array:
        """At least one byte of host memory that is fast to copy from and to."""

    @abstractmethod
    def _free_bytes(self) -> int:
        """Bytes of the largest buffer that can be allocated now."""

    @abstractmethod
    def _total(self) -> int:
        """Total bytes of the device."""

    # --- the contract ---

    @property
    def memory(self) -> int:
        """Bytes of the largest buffer that can be allocated now, as far as the API reports, within our share."""
        with self._faults("query of the free memory"):
            free = self._free_bytes()
            return free if self._share == 1 else max(0, min(free, int(self._share * self._total()) - self.held()))

    def held(self) -> int:
        """Bytes in buffers that are not freed."""
        with self._main._lock:
            return sum(b.size * b.dtype.itemsize for b in self._main._alive if b.memory is not None)

    def alloc(self, size: int, dtype: np.dtype[Any]) -> GpuBuffer:
        """Allocate a buffer; an empty one takes the space of one element, because no API has empty buffers."""
        dtype = np.dtype(dtype)
        wanted = max(1, size) * dtype.itemsize
        fault_point("gpu.alloc")
        with self._faults(f"alloc of {wanted} bytes"):
            if self._share < 1 and self.held() + wanted > self._share * self._total():
                raise DeviceFault(
                    f"device {self.name!r}: alloc of {wanted} bytes failed, out of memory: {self.held()} are held, and "
                    f"{SHARE}={self._share:g} allows {int(self._share * self._total())}; give the task a larger share"
                )
            memory = self._new(wanted)
        buffer = GpuBuffer(self._main, memory, size, dtype)
        with self._main._lock:
            self._main._alive.add(buffer)
        return buffer

    def write(self, buffer: Buffer, offset: int, data: Array) -> None:
        """Copy to the device; `data` may change afterwards."""
        into = self._mine(buffer)
        self._check_copy("write", into, offset, data)
        fault_point("gpu.write")
        with self._faults(f"write of {data.nbytes} bytes"):
            if len(data):
                self._copy_in(into.memory, offset * into.dtype.itemsize, np.ascontiguousarray(data))
        self._tally.add(bytes_in=data.nbytes)

    def read(self, buffer: Buffer, offset: int, size: int) -> Array:
        """Copy from the device, after all earlier launches."""
        source = self._mine(buffer)
        self._check_range("read", source, offset, size)
        data: Array = np.empty(size, source.dtype)
        self.read_into(buffer, offset, data)
        return data

    def read_into(self, buffer: Buffer, offset: int, out: Array) -> None:
        """Copy from the device into a contiguous array, after all earlier launches."""
        source = self._mine(buffer)
        self._check_copy("read", source, offset, out)
        fault_point("gpu.read")
        if not out.flags.c_contiguous:
            raise DeviceFault(f"device {self.name!r}: read into an array with gaps; pass a contiguous one")
        with self._faults(f"read of {out.nbytes} bytes"):
            if len(out):
                self._copy_out(source.memory, offset * source.dtype.itemsize, out)
        self._tally.add(bytes_out=out.nbytes)

    def staging(self, size: int, dtype: np.dtype[Any]) -> Array:
        """An array in host memory with the fastest copies; freed with its last reference."""
        dtype = np.dtype(dtype)
        wanted = size * dtype.itemsize
        with self._faults(f"staging of {wanted} bytes"):
            return self._stage(max(1, wanted))[:wanted].view(dtype)

    def free(self, buffer: Buffer) -> None:
        """Free the memory; a running launch keeps it until it ends."""
        if isinstance(buffer, GpuBuffer) and buffer.memory is None:
            return
        mine = self._mine(buffer)
        memory, mine.memory = mine.memory, None
        with self._faults("free"):
            self._drop(memory)

    def launch(self, unit: str, buffers: Sequence[Buffer], scalars: Sequence[int]) -> GpuLaunch:
        """Enqueue a unit."""
        mine = [self._mine(buffer) for buffer in buffers]
        work = driver.check(self.name, unit, buffers, scalars)
        fault_point("gpu.launch")
        with self._faults(f"launch of {unit}"):
            event = self._start(work, [buffer.memory for buffer in mine])
        return GpuLaunch(unit, work.rows, event, mine)

    def wait(self, launch: Launch) -> Mapping[str, int]:
        """Wait for a launch; the first wait adds rows and the device's nanoseconds to the counters."""
        assert isinstance(launch, GpuLaunch)
        if launch.counters is None:
            fault_point("gpu.wait")
            with self._faults(launch.unit):
                nanoseconds = self._finish(launch.event)
            launch.counters = {"rows": launch.rows, "ns": nanoseconds}
            self._tally.add(**{f"{launch.unit}_{name}": value for name, value in launch.counters.items()})
        return launch.counters

    def lane(self) -> Self:
        """An additional queue of this device, for another thread; closing it does not affect the device's buffers."""
        self._check_open()
        lane = type(self)(self._runtime, self._number, self._main)
        with self._main._lock:
            self._main._lanes.append(lane)
        return lane

    def counters(self) -> dict[str, int]:
        """Bytes in and out, rows and nanoseconds per unit; a device's counters include its lanes."""
        total = Tally()
        with self._lock:
            for part in (self, *self._lanes):
                total.add(**part._tally.as_dict())
        return total.as_dict()

    def close(self) -> None:
        """Wait for running commands; a device also closes its lanes and frees all buffers.

        In another process than the one that opened the device, this does nothing.
        """
        was_open, self._open = self._open, False
        if not was_open or not self._runtime.process.is_here:
            return
        for lane in list(self._lanes):
            lane.close()
        with suppress(*self._runtime.errors):  # the fault of a launch without a wait
            self._drain()
        for buffer in list(self._alive):
            memory, buffer.memory = buffer.memory, None
            if memory is not None:
                with suppress(*self._runtime.errors):
                    self._drop(memory)
        if self._main is not self:
            self._leave()

    def _leave(self) -> None:
        """Add a closed lane's counters to its device."""
        with self._main._lock:
            if self in self._main._lanes:
                self._main._lanes.remove(self)
                self._main._tally.add(**self._tally.as_dict())

    # --- checks ---

    def _mine(self, buffer: Buffer) -> GpuBuffer:
        """Check that this is a live buffer of this device."""
        self._check_open()
        if not isinstance(buffer, GpuBuffer) or buffer.owner is not self._main:
            raise DeviceFault(f"device {self.name!r}: this buffer belongs to another device")
        if buffer.memory is None:
            raise DeviceFault(f"device {self.name!r}: this buffer is already freed")
        return buffer

    def _check_copy(self, what: str, buffer: GpuBuffer, offset: int, data: Array) -> None:
        self._check_range(what, buffer, offset, len(data))
        if data.dtype != buffer.dtype:
            way = "into a buffer" if what == "write" else "from a buffer"
            raise DeviceFault(f"device {self.name!r}: {what} of {data.dtype} {way} of {buffer.dtype}")

    def _check_range(self, what: str, buffer: GpuBuffer, offset: int, size: int) -> None:
        if offset < 0 or size < 0 or offset + size > buffer.size:
            raise DeviceFault(
                f"device {self.name!r}: {what} of elements {offset} to {offset + size} of a buffer of {buffer.size}"
            )

    def _check_open(self) -> None:
        if not (self._open and self._main._open):
            raise DeviceFault(f"device {self.name!r} is closed: open it again")
        if not self._runtime.process.is_here:
            raise DeviceFault(
                f"device {self.name!r} was opened in process {self._runtime.process.pid}, this is process "
                f"{os.getpid()}; open it in the process that uses it"
            )

    @contextmanager
    def _faults(self, what: str) -> Iterator[None]:
        """Convert every error of the API to a `DeviceFault`."""
        self._check_open()
        try:
            yield
        except self._runtime.memory_errors as error:
            raise DeviceFault(
                f"device {self.name!r}: {what} failed, out of memory ({line(error)}); free buffers or use smaller ones"
            ) from error
        except self._runtime.errors as error:
            raise DeviceFault(f"device {self.name!r}: {what} failed: {line(error)}") from error
