"""A GPU API in one process: its devices and their names, the kernels built so far, and cache folders.

A `Runtime` is the API (OpenCL or CUDA) in one process. `Started` starts it on first use; `probe` lists its devices and
`choose` finds one by name.

Limit: neither OpenCL nor CUDA survives a fork. A process whose parent has used one, even to list the devices, finds
none. Open devices after the fork, or start processes with `spawn`.
"""

from __future__ import annotations

import os
import re
import tempfile
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable
from pathlib import Path
from typing import Any, Generic, TypeVar

from millrace.gpu import driver
from millrace.host.base.errors import ArgumentError, DeviceUnavailable
from millrace.host.base.log import log
from millrace.host.device.contract import DeviceInfo
from millrace.host.runtime.fork import ProcessMark, reset_in_child

Errors = tuple[type[BaseException], ...]


class Runtime(ABC):
    """An API in one process: its devices and the kernels built for them."""

    family: str
    """The prefix of its device names."""
    errors: Errors
    """The exceptions of the API's calls."""
    memory_errors: Errors
    """The exceptions that mean out of memory."""

    def __init__(self) -> None:
        """No kernels are built yet."""
        self.process = ProcessMark()
        self._kernels: dict[tuple[int, str, int], Any] = {}
        self._lock = threading.Lock()

    def kernel(self, number: int, unit: driver.Unit, word_bits: int) -> Any:
        """A unit for a device and a word width, built on first use."""
        key = (number, unit.name, word_bits)
        with self._lock:
            if key not in self._kernels:
                log.info("build: kernel %s for %s-bit words on %s:%s", unit.name, word_bits, self.family, number)
                self._kernels[key] = self._build(number, unit, word_bits)
            return self._kernels[key]

    @abstractmethod
    def _build(self, number: int, unit: driver.Unit, word_bits: int) -> Any:
        """Compile a unit."""

    @abstractmethod
    def infos(self) -> list[DeviceInfo]:
        """All devices, by number."""


R = TypeVar("R", bound=Runtime)


class Started(Generic[R]):
    """A process's runtime, started on first use; after a failure the next call tries again."""

    def __init__(self, what: str, start: Callable[[], R]) -> None:
        """`what`: the API's name; `start` raises `DeviceUnavailable` with the reason if it is unavailable."""
        self._what, self._start = what, start
        self.held: R | None = None
        self._lock = threading.Lock()
        reset_in_child(self)

    def reset_after_fork(self) -> None:
        """Replace the lock: another thread may have held it during the fork."""
        self._lock = threading.Lock()

    def __call__(self) -> R:
        """The runtime; raises `DeviceUnavailable` if there is none."""
        with self._lock:
            if self.held is None:
                self.held = self._start()
            if not self.held.process.is_here:
                raise DeviceUnavailable(
                    f"process {self.held.process.pid} had started {self._what} when it forked this one, and "
                    f"{self._what} does not survive a fork: fork before devices are listed or opened, "
                    f"or start processes by 'spawn'"
                )
            return self.held


def probe(family: str, started: Started[R]) -> list[DeviceInfo]:
    """All devices of a family; without any, one entry with the reason."""
    try:
        return started().infos()
    except DeviceUnavailable as error:
        return [DeviceInfo(family, family, False, str(error))]


def choose(family: str, started: Started[R], name: str) -> tuple[R, int]:
    """The runtime and the number of a device by name; the bare family means the first usable device."""
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
    """The text of an error in one line."""
    return " ".join(str(error).split())


def user_cache() -> Path:
    """This user's cache folder."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path("~/.cache").expanduser())


def cache_folder(name: str) -> Path:
    """A folder in the kernel cache (`host/runtime/jit.py`); a temporary folder if that is not writable."""
    base = os.environ.get("MILLRACE_CACHE_DIR")
    folder = (Path(base) if base else user_cache() / "millrace") / name
    return folder if writable(folder) else Path(tempfile.mkdtemp(prefix=f"millrace-{name}-"))


def writable(folder: Path) -> bool:
    """Whether files can be created in a folder; creates the folder if necessary."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            return True
    except OSError:
        return False
