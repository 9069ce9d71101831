"""What the OpenCL and the CUDA device share: buffers, checks, launches, lanes, counters, names, processes.

A `GpuDevice` speaks the device contract; an API adds how to allocate, copy, start and wait. A `Runtime` is the API in
one process: its devices and the kernels built for them so far. A *lane* is a further queue of an opened device, for
another thread: it takes the device's buffers, and commands of two lanes may run beside each other. `launch` returns at
once; `write` and `read` return when the copy is done, so what one lane has written or waited for, every lane sees.

`MILLRACE_DEVICE_SHARE`, read when a device is opened, holds a process to a share of the device's memory.

Limits: neither OpenCL nor CUDA survives a fork: a process whose parent has used one, be it only to look which devices
there are, finds none. Open devices after the fork, or start processes by `spawn`.
"""

from __future__ import annotations

import os
import re
import tempfile
import threading
import weakref
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Generic, Self, TypeVar

import numpy as np

from millrace.gpu import driver
from millrace.host.base.errors import ArgumentError, DeviceFault, DeviceUnavailable
from millrace.host.base.types import Array
from millrace.host.device.contract import Buffer, Device, DeviceInfo, Launch, Tally

Errors = tuple[type[BaseException], ...]
SHARE = "MILLRACE_DEVICE_SHARE"


def share() -> float:
    """The share of a device's memory that this process may take, where several share it: above 0, 1 is all."""
    given = os.environ.get(SHARE, "1")
    try:
        found = float(given)
    except ValueError:
        found = 0.0
    if not 0 < found <= 1:
        raise ArgumentError(f"{SHARE}={given!r}: allowed is a number above 0 and up to 1, such as 0.25")
    return found


class Runtime(ABC):
    """An API in one process: its devices, and what was made for them so far."""

    family: str
    """What its devices' names begin with."""
    errors: Errors
    """What the API's calls raise."""
    memory_errors: Errors
    """Those that mean that memory is full."""

    def __init__(self) -> None:
        """Nothing made so far."""
        self.pid = os.getpid()
        self._kernels: dict[tuple[int, str, int], Any] = {}
        self._lock = threading.Lock()

    def kernel(self, number: int, unit: driver.Unit, word_bits: int) -> Any:
        """A unit for a device and a word width, built when first asked for."""
        key = (number, unit.name, word_bits)
        with self._lock:
            if key not in self._kernels:
                self._kernels[key] = self._build(number, unit, word_bits)
            return self._kernels[key]

    @abstractmethod
    def _build(self, number: int, unit: driver.Unit, word_bits: int) -> Any:
        """Compile a unit."""

    @abstractmethod
    def infos(self) -> list[DeviceInfo]:
        """The devices there are, by number."""


class GpuBuffer:
    """Memory of a device; `memory` is None once it was given back."""

    def __init__(self, owner: GpuDevice, memory: Any, size: int, dtype: np.dtype[Any]) -> None:
        """`size` elements of `dtype` in `memory`, whatever the API calls such."""
        self.owner, self.memory, self.size, self.dtype = owner, memory, size, dtype


class GpuLaunch:
    """A unit at work; it keeps its buffers, which a queue does not own."""

    def __init__(self, unit: str, rows: int, event: Any, buffers: Sequence[GpuBuffer]) -> None:
        """`event` tells when it has ended; `counters` are there after the first wait."""
        self.unit, self.rows, self.event, self.buffers = unit, rows, event, buffers
        self.counters: dict[str, int] | None = None


class GpuDevice(Device):
    """One device with a command queue of its own."""

    units = frozenset(driver.UNITS)

    def __init__(self, runtime: Runtime, number: int, main: Self | None = None) -> None:
        """Open the device of that number; a lane has the `main` device that it belongs to."""
        self.name, self.kind = f"{runtime.family}:{number}", runtime.infos()[number].kind
        self._runtime, self._number = runtime, number
        self._main = self if main is None else main
        self._tally, self._lanes = Tally(), list[GpuDevice]()
        self._alive: weakref.WeakSet[GpuBuffer] = weakref.WeakSet()
        self._lock = threading.Lock()  # of what lanes in other threads change
        self._open = True
        self._share: float = share() if main is None else main._share
        try:
            self._open_queue()
        except runtime.errors as error:
            raise DeviceUnavailable(f"device {self.name!r} does not open: {line(error)}") from error

    # --- what an API adds ---

    @abstractmethod
    def _open_queue(self) -> None:
        """Make a queue of commands, which run in order."""

    @abstractmethod
    def _new(self, size: int) -> Any:
        """Memory of so many bytes, at least one."""

    @abstractmethod
    def _copy_in(self, memory: Any, at: int, data: Array) -> None:
        """Copy at least one element to byte `at` of a memory; done on return."""

    @abstractmethod
    def _copy_out(self, memory: Any, at: int, out: Array) -> None:
        """Copy at least one element from byte `at` of a memory; done on return."""

    @abstractmethod
    def _drop(self, memory: Any) -> None:
        """Give memory back; what is under way keeps it until it ends."""

    @abstractmethod
    def _start(self, work: driver.Work, memories: list[Any]) -> Any:
        """Queue a unit; an event."""

    @abstractmethod
    def _finish(self, event: Any) -> int:
        """Wait for an event; the nanoseconds that the device worked."""

    @abstractmethod
    def _drain(self) -> None:
        """Wait for all that is queued, and give the queue back."""

    @abstractmethod
    def _stage(self, size: int) -> Array:
        """At least one byte of host memory that the device copies from and to faster."""

    @abstractmethod
    def _room(self) -> int:
        """Bytes of the largest buffer that there is room for now."""

    @abstractmethod
    def _total(self) -> int:
        """Bytes that the device has in all."""

    # --- the contract ---

    @property
    def memory(self) -> int:
        """Bytes of the largest buffer that there is room for now, as far as the API tells, within our share."""
        with self._faults("asking for the memory left"):
            room = self._room()
            return room if self._share == 1 else max(0, min(room, int(self._share * self._total()) - self.held()))

    def held(self) -> int:
        """Bytes in buffers that were not given back."""
        with self._main._lock:
            return sum(b.size * b.dtype.itemsize for b in self._main._alive if b.memory is not None)

    def alloc(self, size: int, dtype: np.dtype[Any]) -> GpuBuffer:
        """A buffer; one of no elements takes the room of one, because no API knows empty buffers."""
        dtype = np.dtype(dtype)
        wanted = max(1, size) * dtype.itemsize
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
        """Copy in; `data` may be changed afterwards."""
        into = self._mine(buffer)
        self._check_copy("write", into, offset, data)
        with self._faults(f"write of {data.nbytes} bytes"):
            if len(data):
                self._copy_in(into.memory, offset * into.dtype.itemsize, np.ascontiguousarray(data))
        self._tally.add(bytes_in=data.nbytes)

    def read(self, buffer: Buffer, offset: int, size: int) -> Array:
        """Copy out, after all that was launched before."""
        source = self._mine(buffer)
        self._check_range("read", source, offset, size)
        data: Array = np.empty(size, source.dtype)
        self.read_into(buffer, offset, data)
        return data

    def read_into(self, buffer: Buffer, offset: int, out: Array) -> None:
        """Copy out into an array without gaps, after all that was launched before."""
        source = self._mine(buffer)
        self._check_copy("read", source, offset, out)
        if not out.flags.c_contiguous:
            raise DeviceFault(f"device {self.name!r}: read into an array with gaps; give one that is contiguous")
        with self._faults(f"read of {out.nbytes} bytes"):
            if len(out):
                self._copy_out(source.memory, offset * source.dtype.itemsize, out)
        self._tally.add(bytes_out=out.nbytes)

    def staging(self, size: int, dtype: np.dtype[Any]) -> Array:
        """An array in host memory that copies are fastest with; it is given back when nobody holds it any more."""
        dtype = np.dtype(dtype)
        wanted = size * dtype.itemsize
        with self._faults(f"staging of {wanted} bytes"):
            return self._stage(max(1, wanted))[:wanted].view(dtype)

    def free(self, buffer: Buffer) -> None:
        """Give the memory back; a launch under way keeps it until it ends."""
        if isinstance(buffer, GpuBuffer) and buffer.memory is None:
            return
        mine = self._mine(buffer)
        memory, mine.memory = mine.memory, None
        with self._faults("free"):
            self._drop(memory)

    def launch(self, unit: str, buffers: Sequence[Buffer], scalars: Sequence[int]) -> GpuLaunch:
        """Put a unit into the queue."""
        mine = [self._mine(buffer) for buffer in buffers]
        work = driver.check(self.name, unit, buffers, scalars)
        with self._faults(f"launch of {unit}"):
            event = self._start(work, [buffer.memory for buffer in mine])
        return GpuLaunch(unit, work.rows, event, mine)

    def wait(self, launch: Launch) -> Mapping[str, int]:
        """Wait; the first time, add rows and the device's own nanoseconds to the counters."""
        assert isinstance(launch, GpuLaunch)
        if launch.counters is None:
            with self._faults(launch.unit):
                nanoseconds = self._finish(launch.event)
            launch.counters = {"rows": launch.rows, "ns": nanoseconds}
            self._tally.add(**{f"{launch.unit}_{name}": value for name, value in launch.counters.items()})
        return launch.counters

    def lane(self) -> Self:
        """A further queue of this device, for another thread; closing it leaves the device and its buffers alone."""
        self._check_open()
        lane = type(self)(self._runtime, self._number, self._main)
        with self._main._lock:
            self._main._lanes.append(lane)
        return lane

    def counters(self) -> dict[str, int]:
        """Bytes in and out, and rows and nanoseconds per unit; a device's count what its lanes did."""
        total = Tally()
        with self._lock:
            for part in (self, *self._lanes):
                total.add(**part._tally.as_dict())
        return total.as_dict()

    def close(self) -> None:
        """Wait for what is under way; a device also closes its lanes and gives all buffers back.

        In another process than the one that opened it there is nothing to give.
        """
        was_open, self._open = self._open, False
        if not was_open or self._runtime.pid != os.getpid():
            return
        for lane in list(self._lanes):
            lane.close()
        with suppress(*self._runtime.errors):  # a fault of a launch that nobody waited for
            self._drain()
        for buffer in list(self._alive):
            memory, buffer.memory = buffer.memory, None
            if memory is not None:
                with suppress(*self._runtime.errors):
                    self._drop(memory)
        if self._main is not self:
            self._leave()

    def _leave(self) -> None:
        """A closed lane's counts become its device's."""
        with self._main._lock:
            if self in self._main._lanes:
                self._main._lanes.remove(self)
                self._main._tally.add(**self._tally.as_dict())

    # --- checks ---

    def _mine(self, buffer: Buffer) -> GpuBuffer:
        """A live buffer of this device."""
        self._check_open()
        if not isinstance(buffer, GpuBuffer) or buffer.owner is not self._main:
            raise DeviceFault(f"device {self.name!r}: this buffer belongs to another device")
        if buffer.memory is None:
            raise DeviceFault(f"device {self.name!r}: this buffer was given back already")
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
        if self._runtime.pid != os.getpid():
            raise DeviceFault(
                f"device {self.name!r} was opened in process {self._runtime.pid}, this is process {os.getpid()}; "
                f"open it in the process that uses it"
            )

    @contextmanager
    def _faults(self, what: str) -> Iterator[None]:
        """Make a `DeviceFault` of every error of the API."""
        self._check_open()
        try:
            yield
        except self._runtime.memory_errors as error:
            raise DeviceFault(
                f"device {self.name!r}: {what} failed, out of memory ({line(error)}); free buffers or use smaller ones"
            ) from error
        except self._runtime.errors as error:
            raise DeviceFault(f"device {self.name!r}: {what} failed: {line(error)}") from error


R = TypeVar("R", bound=Runtime)


class Started(Generic[R]):
    """A process's runtime, started when first asked for; where there was none, it is looked for again."""

    def __init__(self, what: str, start: Callable[[], R]) -> None:
        """`what` it is called; `start` raises `DeviceUnavailable` with the reason where there is none."""
        self._what, self._start = what, start
        self.held: R | None = None
        self._lock = threading.Lock()
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self._renew_lock)

    def _renew_lock(self) -> None:
        """A fork may have happened while another thread held the lock."""
        self._lock = threading.Lock()

    def __call__(self) -> R:
        """The runtime, or a `DeviceUnavailable`."""
        with self._lock:
            if self.held is None:
                self.held = self._start()
            if self.held.pid != os.getpid():
                raise DeviceUnavailable(
                    f"process {self.held.pid} had started {self._what} when it forked this one, and {self._what} does "
                    f"not survive a fork: fork before devices are listed or opened, or start processes by 'spawn'"
                )
            return self.held


def probe(family: str, started: Started[R]) -> list[DeviceInfo]:
    """All devices of a family; where there are none, one entry that says why."""
    try:
        return started().infos()
    except DeviceUnavailable as error:
        return [DeviceInfo(family, family, False, str(error))]


def choose(family: str, started: Started[R], name: str) -> tuple[R, int]:
    """The runtime and the number of a device by its name; the bare family is the first that can be used."""
    parts = re.fullmatch(rf"{family}(?::(0|[1-9]\d{{0,5}}))?", name)
    if parts is None:
        raise ArgumentError(f"device={name!r}: such devices are named '{family}', '{family}:0', '{family}:1', …")
    try:
        runtime = started()
    except DeviceUnavailable as error:
        raise DeviceUnavailable(f"device {name!r} cannot be used: {error}") from error
    infos = runtime.infos()
    if parts[1] is not None and int(parts[1]) >= len(infos):
        known = ", ".join(info.name for info in infos)
        raise DeviceUnavailable(f"device {name!r} cannot be used: there are {known}")
    wanted = range(len(infos)) if parts[1] is None else [int(parts[1])]
    for number in wanted:
        if infos[number].available:
            return runtime, number
    raise DeviceUnavailable(f"device {name!r} cannot be used: {infos[wanted[0]].detail}")


def line(error: BaseException) -> str:
    """An error's text in one line."""
    return " ".join(str(error).split())


def user_cache() -> Path:
    """Where this user's programs keep what they can make again."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path("~/.cache").expanduser())


def cache_folder(name: str) -> Path:
    """Beside the other kernels' cache (`host/runtime/jit.py`); a temporary folder where that cannot be written."""
    base = os.environ.get("MILLRACE_CACHE_DIR")
    folder = (Path(base) if base else user_cache() / "millrace") / name
    return folder if writable(folder) else Path(tempfile.mkdtemp(prefix=f"millrace-{name}-"))


def writable(folder: Path) -> bool:
    """Whether files can be made in a folder, which is made if need be."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            return True
    except OSError:
        return False
