"""The base class of links to a board's engine: registers and memory, with time-outs. Also the free list of its memory.

Every failure of a link (no response, a wrong checksum, a lost connection) raises `DeviceFault` within the link's
time-out. After a failure the link is closed, because the state of the board is unknown. A simulated board has its own
clock: its time-outs count simulated seconds, so a busy or stopped machine cannot cause one. Implementations:
`serial_link.py`, `pynq_link.py`.
"""

from __future__ import annotations

import os
import struct
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from millrace.host.base.errors import ArgumentError, DeviceFault
from millrace.host.base.faults import fault_data
from millrace.host.base.types import Array
from millrace.hw import registers as reg

TIMEOUT_VARIABLE = "MILLRACE_BOARD_TIMEOUT"
Data = TypeVar("Data", bytes, Array)
TIMEOUT = 10.0
"""Seconds that a board may take for any operation."""
CLOCK_VARIABLE = "MILLRACE_BOARD_CLOCK"
"""Environment variable, set for simulated boards only: the file with the board's own time, a double in seconds."""
SLICE = 0.05
"""Seconds between two looks at the clock while a link waits."""


def timeout() -> float:
    """The time-out in seconds, from the environment or the default."""
    given = os.environ.get(TIMEOUT_VARIABLE)
    if given is None:
        return TIMEOUT
    try:
        seconds = float(given)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds < float("inf"):
        raise ArgumentError(f"{TIMEOUT_VARIABLE}={given!r}: allowed is a number of seconds above 0")
    return seconds


def clock() -> Callable[[], float]:
    """The clock of time-outs: the machine's, or that of the simulated board."""
    path = os.environ.get(CLOCK_VARIABLE)
    if not path:
        return time.monotonic
    file = Path(path)

    def simulated() -> float:
        try:
            seconds: float = struct.unpack("<d", file.read_bytes()[:8])[0]
        except (OSError, struct.error):
            raise DeviceFault(f"the simulated board is gone: {CLOCK_VARIABLE} names no clock") from None
        return seconds

    return simulated


class Link(ABC):
    """Access to one engine: a `Transport` of `driver.py` that also allocates the board's memory."""

    streams = False
    """Whether memory is scarce, so that bounds should be sent in pieces."""

    @property
    @abstractmethod
    def alive(self) -> bool:
        """Whether the link is usable: no fault yet, and not closed."""

    @property
    def free_bytes(self) -> int | None:
        """The number of free bytes, if known."""
        return None

    def __init__(self, seconds: float) -> None:
        """`seconds`: the time-out."""
        self.seconds = seconds
        self.clock = clock()
        self.meanwhile: Callable[[], None] = _nothing
        """Called while the engine works, so that the next transfer can overlap."""

    @abstractmethod
    def write_regs(self, pairs: Sequence[tuple[int, int]]) -> None:
        """Write registers, by offset, in this order."""

    @abstractmethod
    def read_regs(self, offsets: Sequence[int]) -> list[int]:
        """Read registers, by offset, in this order."""

    @abstractmethod
    def alloc(self, size: int) -> int:
        """Allocate `size` bytes and return their address; a `DeviceFault` if they do not fit."""

    @abstractmethod
    def free(self, address: int) -> None:
        """Free what `alloc` returned."""

    @abstractmethod
    def write_mem(self, address: int, data: Array) -> None:
        """Copy into the board's memory."""

    @abstractmethod
    def read_mem(self, address: int, count: int, dtype: np.dtype[Any]) -> Array:
        """A copy of `count` elements of the board's memory."""

    @abstractmethod
    def reset(self) -> None:
        """Reset the engine to its state after loading; frees all memory."""

    @abstractmethod
    def close(self) -> None:
        """Close the link; may be called twice."""

    def wait(self) -> None:
        """Return when the engine has a result."""
        until = self.clock() + self.seconds
        self.meanwhile()
        pause = 0.0
        while not self.read_regs((reg.REG_RESULT,))[0] >> 31:
            if self.clock() > until:
                raise DeviceFault(f"the engine gave no result in {self.seconds:g} s")
            time.sleep(pause)
            pause = min(0.002, pause + 0.0001)


def sent(data: Data) -> Data:
    """What goes over a link to a board."""
    return fault_data("link.write", data)


def received(data: Data) -> Data:
    """What came over a link from a board."""
    return fault_data("link.read", data)


def _nothing() -> None:
    """Do nothing."""


class FreeList:
    """A first-fit allocator of a small memory; adjacent free spans are joined."""

    ALIGN = 128

    def __init__(self, first: int, size: int) -> None:
        """Manages the addresses from `first` to `size`."""
        start = -(-first // self.ALIGN) * self.ALIGN
        self._span = (start, size)
        self._free: list[tuple[int, int]] = [self._span]
        self._sizes: dict[int, int] = {}

    @property
    def free_bytes(self) -> int:
        """The number of free bytes."""
        return sum(end - start for start, end in self._free)

    def alloc(self, size: int) -> int:
        """Allocate `size` bytes and return their address."""
        rounded = -(-max(1, size) // self.ALIGN) * self.ALIGN
        for position, (start, end) in enumerate(self._free):
            if end - start >= rounded:
                self._free[position : position + 1] = [(start + rounded, end)] if end - start > rounded else []
                self._sizes[start] = rounded
                return start
        raise DeviceFault(
            f"{size} bytes do not fit into the board's memory of {self._span[1]} bytes, of which {self.free_bytes} are "
            f"free: use a smaller window, or a device with more memory"
        )

    def free(self, address: int) -> None:
        """Free what `alloc` returned."""
        spans = sorted([*self._free, (address, address + self._sizes.pop(address))])
        joined = spans[:1]
        for start, end in spans[1:]:
            if start == joined[-1][1]:
                joined[-1] = (joined[-1][0], end)
            else:
                joined.append((start, end))
        self._free = joined

    def clear(self) -> None:
        """Free everything."""
        self._free, self._sizes = [self._span], {}
