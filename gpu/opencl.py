"""The `opencl` devices: every GPU, CPU or accelerator that an OpenCL driver on this machine offers, through pyopencl.

Devices are named `opencl:0`, `opencl:1`, …, GPUs first; `opencl` opens the first usable one. Units are the kernels in
`gpu/kernels` as OpenCL C 1.2, built once per process, device and word width. Units whose items vote use subgroups on
devices that have their ballots (`cl_khr_subgroup_ballot`), and otherwise barriers. Code that is not specific to OpenCL
is in `gpu/device.py`: commands of one opened device or lane run in order; there are no devices after a fork.

Limit: `threads` has no effect; the driver decides how many cores it uses.
"""

from __future__ import annotations

import os
import sys
import threading
import warnings
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import numpy as np

from millrace.gpu import driver
from millrace.gpu import runtime as api
from millrace.gpu.device import GpuDevice
from millrace.gpu.runtime import line
from millrace.host.base.errors import DeviceFault, DeviceUnavailable
from millrace.host.base.install import install_command
from millrace.host.base.types import Array
from millrace.host.device.contract import DeviceInfo
from millrace.host.device.units import LINE_BITS

INSTALL = install_command("opencl")
MAX_SUBGROUP = 128
"""The votes of a ballot: four numbers of 32 bits."""


class OpenclDevice(GpuDevice):
    """One device with its own command queue."""

    _runtime: Runtime

    def _open_queue(self) -> None:
        self._cl = self._runtime.cl
        self._context = self._runtime.context(self._number)
        profiling = self._cl.command_queue_properties.PROFILING_ENABLE
        self._queue = self._cl.CommandQueue(self._context, properties=profiling)

    def _new(self, size: int) -> Any:
        limit = self._runtime.devices[self._number].max_mem_alloc_size
        if size > limit:
            raise DeviceFault(f"device {self.name!r}: a buffer of {size} bytes; {limit} are the most it allows")
        return self._cl.Buffer(self._context, self._cl.mem_flags.READ_WRITE, size)

    def _copy_in(self, memory: Any, at: int, data: Array) -> None:
        self._cl.enqueue_copy(self._queue, memory, data, dst_offset=at)

    def _copy_out(self, memory: Any, at: int, out: Array) -> None:
        self._cl.enqueue_copy(self._queue, out, memory, src_offset=at)

    def _drop(self, memory: Any) -> None:
        memory.release()

    def _start(self, work: driver.Work, memories: list[Any]) -> Any:
        kernel = self._runtime.kernel(self._number, work.unit, work.word_bits)
        arguments = [*memories, *(np.uint32(value) for value in work.scalars)]
        event = kernel.start(self._queue, arguments, work.groups(kernel.group))
        self._queue.flush()
        return event

    def _finish(self, event: Any) -> int:
        event.wait()
        return int(event.profile.end - event.profile.start)

    def _drain(self) -> None:
        self._queue.finish()

    def _stage(self, size: int) -> Array:
        """Mapped host memory allocated by the driver, usually pinned; unmapped when the array is freed."""
        flags, ways = self._cl.mem_flags, self._cl.map_flags
        memory = self._cl.Buffer(self._context, flags.READ_WRITE | flags.ALLOC_HOST_PTR, size)
        array, _ = self._cl.enqueue_map_buffer(
            self._queue, memory, ways.READ | ways.WRITE, 0, (size,), np.dtype(np.uint8), is_blocking=True
        )
        mapped: Array = array
        return mapped

    def _free_bytes(self) -> int:
        """OpenCL reports the total, not the free memory: only this device's own buffers are subtracted."""
        device = self._runtime.devices[self._number]
        return int(max(0, min(device.max_mem_alloc_size, device.global_mem_size - self.held())))

    def _total(self) -> int:
        return int(self._runtime.devices[self._number].global_mem_size)


@dataclass(frozen=True)
class Kernel:
    """A built kernel. It stores its arguments until it starts, so only one thread at a time may start it."""

    kernel: Any
    enqueue: Any
    group: int
    lock: threading.Lock

    def start(self, queue: Any, arguments: Sequence[Any], groups: int) -> Any:
        """Enqueue the kernel; returns its completion event."""
        with self.lock:
            for position, argument in enumerate(arguments):
                self.kernel.set_arg(position, argument)
            return self.enqueue(queue, self.kernel, (groups * self.group,), (self.group,))


class Runtime(api.Runtime):
    """OpenCL in one process."""

    family = "opencl"

    def __init__(self) -> None:
        """Start OpenCL, or raise `DeviceUnavailable` with the reason."""
        super().__init__()
        self.cl: Any = _load()
        self.errors, self.memory_errors = (self.cl.Error,), (self.cl.MemoryError,)
        self.devices: list[Any] = _devices_of(self.cl)
        self._contexts: dict[int, Any] = {}
        self._unfit: dict[int, str | None] = {}

    def infos(self) -> list[DeviceInfo]:
        """All devices; unusable ones with the reason."""
        with self._lock:
            for number, device in enumerate(self.devices):
                if number not in self._unfit:
                    self._unfit[number] = _unfit(device) or self._unknown_processor(number)
        return [_info(number, device, self._unfit[number]) for number, device in enumerate(self.devices)]

    def _unknown_processor(self, number: int) -> str | None:
        """PoCL calls a processor `generic` that its LLVM does not know; older LLVMs then compile nothing for it."""
        if not self.devices[number].version.endswith("-generic"):
            return None
        try:
            self.cl.Program(self._context(number), "kernel void nothing(void) {}").build(cache_dir=False)
        except self.cl.Error:
            return "its compiler does not know this processor: use a newer version of it, or device='cpu'"
        return None

    def context(self, number: int) -> Any:
        """The context of a device; all who open the device share it, because kernels belong to a context."""
        with self._lock:
            return self._context(number)

    def _context(self, number: int) -> Any:
        if number not in self._contexts:
            self._contexts[number] = self.cl.Context([self.devices[number]])
        return self._contexts[number]

    def _build(self, number: int, unit: driver.Unit, word_bits: int) -> Kernel:
        context, device = self._context(number), self.devices[number]
        group = driver.group_of(device.max_work_group_size)
        kernel = None
        if unit.teams and (standard := _subgroup_standard(device)):
            with suppress(self.cl.Error):  # a driver that has the extension by name only
                built = self._compile(
                    context, device, unit, [standard, *_defined(unit, word_bits, group, driver.SUBGROUP)]
                )
                kernel = built if self._votes_fit(built, device, group, LINE_BITS // word_bits) else None
        if kernel is None:
            kernel = self._compile(context, device, unit, ["-cl-std=CL1.2", *_defined(unit, word_bits, group)])
        return Kernel(kernel, self.cl.enqueue_nd_range_kernel, group, threading.Lock())

    def _compile(self, context: Any, device: Any, unit: driver.Unit, options: list[str]) -> Any:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", self.cl.CompilerWarning)  # some drivers warn without a problem
            program = self.cl.Program(context, driver.source(unit.name))
            # Without pyopencl's cache: drivers have their own, and its folder may be read-only.
            program.build(options, devices=[device], cache_dir=False)
        return self.cl.Kernel(program, unit.name)

    def _votes_fit(self, kernel: Any, device: Any, group: int, team: int) -> bool:
        """Whether the subgroups of a kernel are full, and teams do not cross them."""
        wanted = self.cl.kernel_sub_group_info.MAX_SUB_GROUP_SIZE_FOR_NDRANGE
        size = int(kernel.get_sub_group_info(device, wanted, [group]))
        return team <= size <= MAX_SUBGROUP and size & (size - 1) == 0 and group % size == 0


runtime = api.Started("OpenCL", Runtime)


def _defined(unit: driver.Unit, word_bits: int, group: int, votes: str = "") -> list[str]:
    return [f"-D{name}={value}" for name, value in driver.defines(unit, word_bits, group, votes).items()]


def _subgroup_standard(device: Any) -> str | None:
    """The language option with which a device compiles subgroup ballots; None if it has none."""
    if "cl_khr_subgroup_ballot" not in device.extensions.split():
        return None
    version = device.version.split()[1]  # "OpenCL 3.0 …"
    return "-cl-std=CL3.0" if version.startswith("3") else "-cl-std=CL2.0"


def _load() -> Any:
    """Import pyopencl; put its cache and PoCL's into writable folders."""
    if "POCL_CACHE_DIR" not in os.environ:
        os.environ["POCL_CACHE_DIR"] = str(api.cache_folder("pocl"))
    if not api.writable(api.user_cache()):
        os.environ.setdefault("PYOPENCL_NO_CACHE", "1")  # pyopencl would fail on the first kernel
    try:
        return import_module("pyopencl")
    except ModuleNotFoundError as error:
        if error.name == "pyopencl":
            raise DeviceUnavailable(f"pyopencl is not installed: {INSTALL}") from error
        raise DeviceUnavailable(f"pyopencl does not import ({line(error)}): {INSTALL}") from error
    except (ImportError, OSError) as error:
        raise DeviceUnavailable(f"pyopencl does not import ({line(error)}): {INSTALL}") from error


def _devices_of(cl: Any) -> list[Any]:
    """All devices, GPUs first, otherwise in the drivers' order."""
    found: list[Any] = []
    try:
        for platform in cl.get_platforms():
            found += _platform_devices(cl, platform)
    except cl.Error as error:
        raise DeviceUnavailable(f"OpenCL has no driver here ({line(error)}): {_drivers()}") from error
    if not found:
        raise DeviceUnavailable(f"OpenCL's drivers offer no device: {_drivers()}")
    return sorted(found, key=lambda device: _kind(device) != "opencl-gpu")


def _platform_devices(cl: Any, platform: Any) -> list[Any]:
    """The devices of one driver; empty for a broken driver, so that it does not hide others."""
    try:
        return list(platform.get_devices())
    except cl.Error:
        return []


def _drivers() -> str:
    if sys.platform == "linux":
        return f"install the GPU's own driver, or {INSTALL} for PoCL, which runs on the CPU (x86)"
    return "install the GPU's own driver"


_TYPES = {2: "cpu", 4: "gpu", 8: "accelerator"}
"""CL_DEVICE_TYPE_…; bit 0 marks the default device and is ignored."""


def _kind(device: Any) -> str:
    return f"opencl-{_TYPES.get(device.type & ~1, 'other')}"


def _unfit(device: Any) -> str | None:
    """Why a device cannot run our kernels; None if it can."""
    if not (device.available and device.compiler_available):
        return "its driver says that it is not available, or has no compiler: reinstall the driver"
    if not device.endian_little or "EMBEDDED" in device.profile:
        return "it lacks 64-bit integers or is not little-endian: use another device"
    return None


def _info(number: int, device: Any, why: str | None) -> DeviceInfo:
    what = f"{device.name.strip()}, {device.platform.name.strip()}, {device.max_compute_units} compute units"
    memory = f"{device.global_mem_size / 2**30:.1f} GiB"
    detail = " ".join(f"{what}, {memory}{f'; {why}' if why else ''}".split())
    return DeviceInfo(f"opencl:{number}", _kind(device), why is None, detail)


def probe() -> list[DeviceInfo]:
    """All OpenCL devices; without any, one entry with the reason."""
    return api.probe("opencl", runtime)


def open_device(name: str, threads: int | None) -> OpenclDevice:
    """Open `opencl:<number>`, or the first usable device for the name `opencl`."""
    return OpenclDevice(*api.choose("opencl", runtime, name))
