"""The `cuda` devices: NVIDIA GPUs through CuPy, which compiles the kernels in `gpu/kernels` with NVRTC.

Devices are named `cuda:0`, `cuda:1`, … in the driver's order; `cuda` opens the first usable one. Each opened device or
lane has its own stream and its own memory pool: CuPy's default pool would hand memory that was freed here to kernels of
other code, which run in other streams, while launches of this stream still use it. Staging memory is pinned, from
CuPy's pool. Tree searches vote by ballots (`kernels/line_search.h`). Code that is not specific to CUDA is in
`gpu/device.py` and `gpu/runtime.py`.

Limits: `threads` has no effect. Requires compute capability 7.5 or later, the oldest that CUDA 13 supports (with CUDA
12 too). Without a driver CuPy is not imported. This code has not run on a real card yet: tests compile the kernels for
three GPU generations and run this file and the kernels on a stand-in for CuPy (`docs/internals/gpu.md`).
"""

from __future__ import annotations

import ctypes
import os
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import numpy as np

from millrace.gpu import driver
from millrace.gpu import runtime as api
from millrace.gpu.device import GpuDevice
from millrace.gpu.runtime import line
from millrace.host.base.errors import DeviceUnavailable
from millrace.host.base.install import install_command
from millrace.host.base.types import Array
from millrace.host.device.contract import DeviceInfo

INSTALL = f"{install_command('cuda13')} (or cuda12, for drivers older than 580)"
DRIVER = "libcuda.so.1"
_OLDEST = (7, 5)


class CudaDevice(GpuDevice):
    """One card with its own stream."""

    _runtime: Runtime

    def _open_queue(self) -> None:
        self._cuda = self._runtime.cupy.cuda
        self._flying: deque[tuple[Any, list[Any]]] = deque()
        with self._card():
            # Independent of the default stream, which other code in this process may use.
            self._stream = self._cuda.Stream(non_blocking=True)
        self._pool = self._cuda.MemoryPool()

    @contextmanager
    def _card(self) -> Iterator[None]:
        """Select this card: CUDA calls apply to the calling thread's current card."""
        with self._cuda.Device(self._number):
            yield

    def _new(self, size: int) -> Any:
        with self._card(), self._stream:
            return self._pool.malloc(size)

    def _copy_in(self, memory: Any, at: int, data: Array) -> None:
        with self._card():
            (memory + at).copy_from_host_async(data.ctypes.data, data.nbytes, self._stream)
            self._stream.synchronize()

    def _copy_out(self, memory: Any, at: int, out: Array) -> None:
        with self._card():
            (memory + at).copy_to_host_async(out.ctypes.data, out.nbytes, self._stream)
            self._stream.synchronize()

    def _drop(self, memory: Any) -> None:
        """Nothing to call: the memory returns to the pool when the last launch that uses it has ended."""

    def _start(self, work: driver.Work, memories: list[Any]) -> Any:
        self._land()
        with self._card():
            kernel = self._runtime.kernel(self._number, work.unit, work.word_bits)
            # By value: addresses as 64-bit numbers, scalars as 32-bit ones.
            arguments = (*(np.uint64(m.ptr) for m in memories), *(np.uint32(value) for value in work.scalars))
            start, end = (self._cuda.Event(block=True) for _ in range(2))  # block instead of spinning on a core
            with self._stream:
                start.record(self._stream)
                kernel((work.groups(driver.GROUP),), (driver.GROUP,), arguments)
                end.record(self._stream)
        self._flying.append((end, memories))
        return start, end

    def _land(self) -> None:
        """Drop the references to memory of finished launches; earlier the pool could reuse memory still in use."""
        while self._flying and self._flying[0][0].done:
            self._flying.popleft()

    def _finish(self, event: Any) -> int:
        start, end = event
        end.synchronize()
        self._land()
        return int(self._cuda.get_elapsed_time(start, end) * 1e6)

    def _drain(self) -> None:
        with self._card():
            self._stream.synchronize()
            self._flying.clear()
            self._pool.free_all_blocks()

    def _stage(self, size: int) -> Array:
        with self._card():
            pinned = self._cuda.alloc_pinned_memory(size)
        return np.frombuffer(pinned, np.uint8, size)

    def _free_bytes(self) -> int:
        with self._card():
            free, _ = self._cuda.runtime.memGetInfo()
            return int(free + self._pool.free_bytes())

    def _total(self) -> int:
        with self._card():
            return int(self._cuda.runtime.memGetInfo()[1])


class Runtime(api.Runtime):
    """CUDA in one process."""

    family = "cuda"

    def __init__(self, cupy: Any, votes: str = "") -> None:
        """`votes`: how teams vote, if not by ballots (`driver.defines`); used by tests."""
        super().__init__()
        self.cupy, self._votes = cupy, votes
        cuda = cupy.cuda
        self.memory_errors = (cuda.memory.OutOfMemoryError,)
        self.errors = (
            cuda.runtime.CUDARuntimeError,
            cuda.driver.CUDADriverError,
            cuda.compiler.CompileException,
            *self.memory_errors,
        )
        try:
            count = cuda.runtime.getDeviceCount()
            self._infos = [self._info(number) for number in range(count)]
        except cuda.runtime.CUDARuntimeError as error:
            raise DeviceUnavailable(f"CUDA does not start ({line(error)}): {_advice()}") from error
        if not count:
            raise DeviceUnavailable(f"CUDA's driver finds no card: {_advice()}")

    def infos(self) -> list[DeviceInfo]:
        """All cards; unusable ones with the reason."""
        return self._infos

    def _info(self, number: int) -> DeviceInfo:
        found = self.cupy.cuda.runtime.getDeviceProperties(number)
        capability = (found["major"], found["minor"])
        what = f"{found['name'].decode(errors='replace')}, compute capability {capability[0]}.{capability[1]}"
        more = f"{found['multiProcessorCount']} multiprocessors, {found['totalGlobalMem'] / 2**30:.1f} GiB"
        old = f"; CUDA 13 compiles for {_OLDEST[0]}.{_OLDEST[1]} and later: use it through OpenCL"
        fit = capability >= _OLDEST
        return DeviceInfo(f"{self.family}:{number}", self.family, fit, f"{what}, {more}{'' if fit else old}")

    def _build(self, number: int, unit: driver.Unit, word_bits: int) -> Any:
        """Compile for the current card; CuPy caches the result on disk."""
        wanted = driver.defines(unit, word_bits, votes=self._votes)
        options = ("-std=c++17", *(f"-D{name}={value}" for name, value in wanted.items()))
        module = self.cupy.RawModule(code=driver.source(unit.name), options=options)
        return module.get_function(unit.name)


def _start() -> Runtime:
    return Runtime(_load())


def _load() -> Any:
    """Import CuPy if it is installed and there is a driver; put its cache into a writable folder."""
    if find_spec("cupy") is None:
        raise DeviceUnavailable(f"CuPy is not installed: {INSTALL}")
    try:
        ctypes.CDLL(DRIVER)
    except OSError as error:
        raise DeviceUnavailable(f"there is no NVIDIA driver ({line(error)}): {_advice()}") from error
    if "CUPY_CACHE_DIR" not in os.environ:
        os.environ["CUPY_CACHE_DIR"] = str(api.cache_folder("cupy"))
    try:
        return import_module("cupy")
    except (ImportError, OSError) as error:
        raise DeviceUnavailable(f"CuPy does not import ({line(error)}): {INSTALL}") from error


def _advice() -> str:
    return "install NVIDIA's driver, until `nvidia-smi` lists a card"


runtime = api.Started("CUDA", _start)


def probe() -> list[DeviceInfo]:
    """All cards; without any, one entry with the reason."""
    return api.probe("cuda", runtime)


def open_device(name: str, threads: int | None) -> CudaDevice:
    """Open `cuda:<number>`, or the first usable card for the name `cuda`."""
    return CudaDevice(*api.choose("cuda", runtime, name))
