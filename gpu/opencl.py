"""The `opencl` devices: every GPU, CPU or accelerator that an OpenCL driver on this machine offers, through pyopencl.

Devices are numbered `opencl:0`, `opencl:1`, …, GPUs first; `opencl` opens the first that can be used. Units are the
kernels in `gpu/kernels`, in OpenCL C 1.2, built once per process, device and word width. Commands of one opened device
run in the order given; `launch` returns at once, `write` and `read` return when the copy is done.

Limits: `threads` has no effect, a driver takes the cores it likes. OpenCL does not survive a fork: its threads stay in
the parent, and a child that used it would wait for them for ever. So a process whose parent has used OpenCL, be it
only to look which devices there are, finds none: open devices after the fork, or start processes by `spawn`.
"""

from __future__ import annotations

import os
import re
import sys
import tempfile
import threading
import warnings
import weakref
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from millrace.gpu import driver
from millrace.host.device import Buffer, Device, DeviceInfo, Launch, Tally
from millrace.host.errors import ArgumentError, DeviceFault, DeviceUnavailable
from millrace.host.words import Array

INSTALL = "pip install 'millrace[opencl]'"
_NAME = re.compile(r"opencl(?::(0|[1-9]\d{0,5}))?")


class OpenclBuffer:
    """Memory of an OpenCL device; `memory` is None once it was given back."""

    def __init__(self, owner: OpenclDevice, memory: Any, size: int, dtype: np.dtype[Any]) -> None:
        """`size` elements of `dtype` in `memory`, a pyopencl buffer."""
        self.owner, self.memory, self.size, self.dtype = owner, memory, size, dtype


class OpenclLaunch:
    """A unit at work; it keeps its buffers, which the queue does not own."""

    def __init__(self, unit: str, rows: int, event: Any, buffers: Sequence[OpenclBuffer]) -> None:
        """`event` tells when it has ended; `counters` are there after the first wait."""
        self.unit, self.rows, self.event, self.buffers = unit, rows, event, buffers
        self.counters: dict[str, int] | None = None


class OpenclDevice(Device):
    """One device with a command queue of its own."""

    units = frozenset(driver.UNITS)

    def __init__(self, runtime: Runtime, number: int) -> None:
        """Open the device of that number."""
        self.name, self.kind = f"opencl:{number}", _kind(runtime.devices[number])
        self._runtime, self._number, self._cl = runtime, number, runtime.cl
        self._tally = Tally()
        self._alive: weakref.WeakSet[OpenclBuffer] = weakref.WeakSet()
        try:
            profiling = self._cl.command_queue_properties.PROFILING_ENABLE
            self._queue: Any = self._cl.CommandQueue(runtime.context(number), properties=profiling)
        except self._cl.Error as error:
            raise DeviceUnavailable(f"device {self.name!r} does not open: {_line(error)}") from error

    def alloc(self, size: int, dtype: np.dtype[Any]) -> OpenclBuffer:
        """A buffer; one of no elements takes the room of one, because OpenCL knows no empty buffers."""
        dtype = np.dtype(dtype)
        wanted = max(1, size) * dtype.itemsize
        with self._faults(f"alloc of {wanted} bytes"):
            most = self._runtime.devices[self._number].max_mem_alloc_size
            if wanted > most:
                raise DeviceFault(f"device {self.name!r}: a buffer of {wanted} bytes; {most} are the most it allows")
            memory = self._cl.Buffer(self._runtime.context(self._number), self._cl.mem_flags.READ_WRITE, wanted)
        buffer = OpenclBuffer(self, memory, size, dtype)
        self._alive.add(buffer)
        return buffer

    def write(self, buffer: Buffer, offset: int, data: Array) -> None:
        """Copy in; `data` may be changed afterwards."""
        into = self._mine(buffer)
        self._check_range("write", into, offset, len(data))
        if data.dtype != into.dtype:
            raise DeviceFault(f"device {self.name!r}: write of {data.dtype} into a buffer of {into.dtype}")
        with self._faults(f"write of {data.nbytes} bytes"):
            if len(data):
                at = offset * into.dtype.itemsize
                self._cl.enqueue_copy(self._queue, into.memory, np.ascontiguousarray(data), dst_offset=at)
        self._tally.add(bytes_in=data.nbytes)

    def read(self, buffer: Buffer, offset: int, size: int) -> Array:
        """Copy out, after all that was launched before."""
        source = self._mine(buffer)
        self._check_range("read", source, offset, size)
        data: Array = np.empty(size, source.dtype)
        with self._faults(f"read of {data.nbytes} bytes"):
            if size:
                self._cl.enqueue_copy(self._queue, data, source.memory, src_offset=offset * source.dtype.itemsize)
        self._tally.add(bytes_out=data.nbytes)
        return data

    def free(self, buffer: Buffer) -> None:
        """Give the memory back; a launch under way keeps it until it ends."""
        if isinstance(buffer, OpenclBuffer) and buffer.memory is None:
            return
        mine = self._mine(buffer)
        with self._faults("free"):
            mine.memory.release()
        mine.memory = None

    def launch(self, unit: str, buffers: Sequence[Buffer], scalars: Sequence[int]) -> OpenclLaunch:
        """Put a unit into the queue."""
        mine = [self._mine(buffer) for buffer in buffers]
        work = driver.check(self.name, unit, buffers, scalars)
        with self._faults(f"launch of {unit}"):
            kernel = self._runtime.kernel(self._number, work.unit, work.word_bits)
            arguments = [*(buffer.memory for buffer in mine), *(np.uint32(value) for value in work.scalars)]
            event = kernel.start(self._queue, arguments, work.groups(kernel.group))
            self._queue.flush()
        return OpenclLaunch(unit, work.rows, event, mine)

    def wait(self, launch: Launch) -> Mapping[str, int]:
        """Wait; the first time, add rows and the device's own nanoseconds to the counters."""
        assert isinstance(launch, OpenclLaunch)
        if launch.counters is None:
            with self._faults(launch.unit):
                launch.event.wait()
                nanoseconds = launch.event.profile.end - launch.event.profile.start
            launch.counters = {"rows": launch.rows, "ns": nanoseconds}
            self._tally.add(**{f"{launch.unit}_{name}": value for name, value in launch.counters.items()})
        return launch.counters

    def counters(self) -> dict[str, int]:
        """Bytes in and out, and rows and nanoseconds per unit."""
        return self._tally.as_dict()

    def close(self) -> None:
        """Wait for what is under way and give all buffers back; in another process there is nothing to give."""
        queue, self._queue = self._queue, None
        if queue is None or self._runtime.pid != os.getpid():
            return
        with suppress(self._cl.Error):  # a fault of a launch that nobody waited for
            queue.finish()
        for buffer in list(self._alive):
            memory, buffer.memory = buffer.memory, None
            if memory is not None:
                memory.release()

    def _mine(self, buffer: Buffer) -> OpenclBuffer:
        """A live buffer of this device."""
        self._check_open()
        if not isinstance(buffer, OpenclBuffer) or buffer.owner is not self:
            raise DeviceFault(f"device {self.name!r}: this buffer belongs to another device")
        if buffer.memory is None:
            raise DeviceFault(f"device {self.name!r}: this buffer was given back already")
        return buffer

    def _check_range(self, what: str, buffer: OpenclBuffer, offset: int, size: int) -> None:
        if offset < 0 or size < 0 or offset + size > buffer.size:
            raise DeviceFault(
                f"device {self.name!r}: {what} of elements {offset} to {offset + size} of a buffer of {buffer.size}"
            )

    def _check_open(self) -> None:
        if self._queue is None:
            raise DeviceFault(f"device {self.name!r} is closed; open it again")
        if self._runtime.pid != os.getpid():
            raise DeviceFault(
                f"device {self.name!r} was opened in process {self._runtime.pid}, this is process {os.getpid()}; "
                f"open it in the process that uses it"
            )

    @contextmanager
    def _faults(self, what: str) -> Iterator[None]:
        """Make a `DeviceFault` of every error of OpenCL."""
        self._check_open()
        try:
            yield
        except self._cl.MemoryError as error:
            raise DeviceFault(
                f"device {self.name!r}: {what} failed, out of memory ({_line(error)}); free buffers or use smaller ones"
            ) from error
        except self._cl.Error as error:
            raise DeviceFault(f"device {self.name!r}: {what} failed: {_line(error)}") from error


@dataclass(frozen=True)
class Kernel:
    """A built kernel. Its arguments are part of it until it is started, so one thread at a time may start it."""

    kernel: Any
    enqueue: Any
    group: int
    lock: threading.Lock

    def start(self, queue: Any, arguments: Sequence[Any], groups: int) -> Any:
        """Put it into a queue; the event tells when it has ended."""
        with self.lock:
            for place, argument in enumerate(arguments):
                self.kernel.set_arg(place, argument)
            return self.enqueue(queue, self.kernel, (groups * self.group,), (self.group,))


class Runtime:
    """OpenCL in one process: its devices, and what was made for them so far."""

    def __init__(self) -> None:
        """Start OpenCL, or raise `DeviceUnavailable` with the reason why there is none."""
        self.pid = os.getpid()
        self.cl: Any = _load()
        self.devices: list[Any] = _devices_of(self.cl)
        self._contexts: dict[int, Any] = {}
        self._kernels: dict[tuple[int, str, int], Kernel] = {}
        self._lock = threading.Lock()

    def context(self, number: int) -> Any:
        """The context of a device, shared by all who open it, because kernels belong to it."""
        with self._lock:
            if number not in self._contexts:
                self._contexts[number] = self.cl.Context([self.devices[number]])
            return self._contexts[number]

    def kernel(self, number: int, unit: driver.Unit, word_bits: int) -> Kernel:
        """A unit for a device and a word width, built when first asked for."""
        context, key = self.context(number), (number, unit.name, word_bits)
        with self._lock:
            if key not in self._kernels:
                self._kernels[key] = self._build(context, self.devices[number], unit, word_bits)
            return self._kernels[key]

    def _build(self, context: Any, device: Any, unit: driver.Unit, word_bits: int) -> Kernel:
        group = min(driver.GROUP, device.max_work_group_size)
        options = [f"-D{name}={value}" for name, value in driver.defines(unit, word_bits, group).items()]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", self.cl.CompilerWarning)  # some drivers are chatty where all is well
            program = self.cl.Program(context, driver.source(unit.name))
            # No cache of pyopencl's: drivers have their own, and its folder may be read-only.
            program.build(["-cl-std=CL1.2", *options], devices=[device], cache_dir=False)
        kernel = self.cl.Kernel(program, unit.name)
        return Kernel(kernel, self.cl.enqueue_nd_range_kernel, group, threading.Lock())


_runtime: Runtime | None = None
_lock = threading.Lock()


def _renew_lock() -> None:
    """A fork may have happened while another thread held the lock."""
    global _lock
    _lock = threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew_lock)


def runtime() -> Runtime:
    """This process's OpenCL, started when first asked for; where there was none, it is looked for again."""
    global _runtime
    with _lock:
        if _runtime is None:
            _runtime = Runtime()
        if _runtime.pid != os.getpid():
            raise DeviceUnavailable(
                f"process {_runtime.pid} had started OpenCL when it forked this one, and OpenCL does not survive a "
                f"fork: fork before devices are listed or opened, or start processes by 'spawn'"
            )
        return _runtime


def _load() -> Any:
    """Import pyopencl, with its caches and PoCL's in folders that can be written."""
    if "POCL_CACHE_DIR" not in os.environ:
        os.environ["POCL_CACHE_DIR"] = str(_pocl_cache())
    if not _writable(_user_cache()):
        os.environ.setdefault("PYOPENCL_NO_CACHE", "1")  # it would fail on the first kernel, not go on without
    try:
        return import_module("pyopencl")
    except ModuleNotFoundError as error:
        if error.name == "pyopencl":
            raise DeviceUnavailable(f"pyopencl is not installed: {INSTALL}") from error
        raise DeviceUnavailable(f"pyopencl does not import ({_line(error)}): {INSTALL}") from error
    except (ImportError, OSError) as error:
        raise DeviceUnavailable(f"pyopencl does not import ({_line(error)}): {INSTALL}") from error


def _user_cache() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path("~/.cache").expanduser())


def _pocl_cache() -> Path:
    """Beside the other kernels' cache (`host/jit.py`); a temporary folder where that cannot be written."""
    base = os.environ.get("MILLRACE_CACHE_DIR")
    folder = (Path(base) if base else _user_cache() / "millrace") / "pocl"
    return folder if _writable(folder) else Path(tempfile.mkdtemp(prefix="millrace-pocl-"))


def _writable(folder: Path) -> bool:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            return True
    except OSError:
        return False


def _devices_of(cl: Any) -> list[Any]:
    """All devices, GPUs first, otherwise in the drivers' order."""
    found: list[Any] = []
    try:
        for platform in cl.get_platforms():
            found += _platform_devices(cl, platform)
    except cl.Error as error:
        raise DeviceUnavailable(f"OpenCL has no driver here ({_line(error)}): {_drivers()}") from error
    if not found:
        raise DeviceUnavailable(f"OpenCL's drivers offer no device: {_drivers()}")
    return sorted(found, key=lambda device: _kind(device) != "opencl-gpu")


def _platform_devices(cl: Any, platform: Any) -> list[Any]:
    """One driver's devices; a driver without any, or a broken one, hides no other."""
    try:
        return list(platform.get_devices())
    except cl.Error:
        return []


def _drivers() -> str:
    if sys.platform == "linux":
        return f"install the GPU's own driver, or {INSTALL} for PoCL, which runs on the CPU (x86)"
    return "install the GPU's own driver"


_TYPES = {2: "cpu", 4: "gpu", 8: "accelerator"}
"""CL_DEVICE_TYPE_…; bit 0 marks the default device, whatever its type."""


def _kind(device: Any) -> str:
    return f"opencl-{_TYPES.get(device.type & ~1, 'other')}"


def _unfit(device: Any) -> str | None:
    """Why a device cannot run our kernels; nothing if it can."""
    if not (device.available and device.compiler_available):
        return "its driver says that it is not available, or has no compiler: reinstall the driver"
    if not device.endian_little or "EMBEDDED" in device.profile:
        return "it lacks 64-bit integers or is not little-endian: use another device"
    return None


def _info(number: int, device: Any) -> DeviceInfo:
    what = f"{device.name.strip()}, {device.platform.name.strip()}, {device.max_compute_units} compute units"
    memory = f"{device.global_mem_size / 2**30:.1f} GiB"
    why = _unfit(device)
    detail = " ".join(f"{what}, {memory}{f'; {why}' if why else ''}".split())
    return DeviceInfo(f"opencl:{number}", _kind(device), why is None, detail)


def _line(error: BaseException) -> str:
    """An error's text in one line."""
    return " ".join(str(error).split())


def probe() -> list[DeviceInfo]:
    """All OpenCL devices; where there are none, one entry that says why."""
    try:
        return [_info(number, device) for number, device in enumerate(runtime().devices)]
    except DeviceUnavailable as error:
        return [DeviceInfo("opencl", "opencl", False, str(error))]


def open_device(name: str, threads: int | None) -> OpenclDevice:
    """Open `opencl:<number>`, or the first that can be used by the name `opencl`."""
    parts = _NAME.fullmatch(name)
    if parts is None:
        raise ArgumentError(f"device={name!r}: OpenCL devices are named 'opencl', 'opencl:0', 'opencl:1', …")
    try:
        found = runtime()
    except DeviceUnavailable as error:
        raise DeviceUnavailable(f"device {name!r} cannot be used: {error}") from error
    infos = [_info(number, device) for number, device in enumerate(found.devices)]
    if parts[1] is not None and int(parts[1]) >= len(infos):
        known = ", ".join(info.name for info in infos)
        raise DeviceUnavailable(f"device {name!r} cannot be used: there are {known}")
    wanted = range(len(infos)) if parts[1] is None else [int(parts[1])]
    for number in wanted:
        if infos[number].available:
            return OpenclDevice(found, number)
    raise DeviceUnavailable(f"device {name!r} cannot be used: {infos[wanted[0]].detail}")
