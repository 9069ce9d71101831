"""A way to a board's engine: its registers and its memory, with time-outs. Both kinds of board implement it.

Every failure of a link, be it silence, a wrong checksum or a connection that is gone, is a `DeviceFault`, raised within
the link's time-out; after one the link is closed, since nobody knows what the board still does.
"""

from __future__ import annotations

import os
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from millrace.host.base.errors import ArgumentError, DeviceFault
from millrace.host.base.types import Array
from millrace.hw import registers as reg

TIMEOUT_VARIABLE = "MILLRACE_BOARD_TIMEOUT"
TIMEOUT = 10.0
"""Seconds that a board may take for anything."""


def timeout() -> float:
    """The seconds in force."""
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


class Link(ABC):
    """Registers and memory of one engine; what `hw/driver.py` calls a transport, and who gives memory out."""

    streams = False
    """Whether memory is scarce, so that bounds should pass through it in pieces."""

    @property
    @abstractmethod
    def alive(self) -> bool:
        """Whether it can be used: no fault yet, and not closed."""

    @property
    def room(self) -> int | None:
        """Bytes that are free, where that is known."""
        return None

    def __init__(self, seconds: float) -> None:
        """`seconds`: the time-out."""
        self.seconds = seconds
        self.meanwhile: Callable[[], None] = _nothing
        """Called while the engine works: the next transfer can go on beside it."""

    @abstractmethod
    def write_regs(self, pairs: Sequence[tuple[int, int]]) -> None:
        """Write registers, by offset, in this order."""

    @abstractmethod
    def read_regs(self, offsets: Sequence[int]) -> list[int]:
        """Read registers, by offset, in this order."""

    @abstractmethod
    def alloc(self, size: int) -> int:
        """The address of `size` bytes; a `DeviceFault` where they do not fit."""

    @abstractmethod
    def free(self, address: int) -> None:
        """Give back what `alloc` gave."""

    @abstractmethod
    def write_mem(self, address: int, data: Array) -> None:
        """Copy into the board's memory."""

    @abstractmethod
    def read_mem(self, address: int, count: int, dtype: np.dtype[Any]) -> Array:
        """A copy of `count` elements of the board's memory."""

    @abstractmethod
    def reset(self) -> None:
        """The engine as it was after it was loaded; what was allocated is no more."""

    @abstractmethod
    def close(self) -> None:
        """Give the link up; may be called twice."""

    def wait(self) -> None:
        """Return when the engine has a result."""
        until = time.monotonic() + self.seconds
        self.meanwhile()
        pause = 0.0
        while not self.read_regs((reg.REG_RESULT,))[0] >> 31:
            if time.monotonic() > until:
                raise DeviceFault(f"the engine gave no result in {self.seconds:g} s")
            time.sleep(pause)
            pause = min(0.002, pause + 0.0001)


def _nothing() -> None:
    """Nothing else is to do."""


class Shelf:
    """Which parts of a small memory are free: the first part that is large enough is taken; neighbours are joined."""

    ALIGN = 128

    def __init__(self, first: int, size: int) -> None:
        """Addresses from `first` to `size`."""
        start = -(-first // self.ALIGN) * self.ALIGN
        self._whole = (start, size)
        self._free: list[tuple[int, int]] = [self._whole]
        self._taken: dict[int, int] = {}

    @property
    def room(self) -> int:
        """Bytes that are free."""
        return sum(end - start for start, end in self._free)

    def take(self, size: int) -> int:
        """The address of `size` free bytes."""
        rounded = -(-max(1, size) // self.ALIGN) * self.ALIGN
        for place, (start, end) in enumerate(self._free):
            if end - start >= rounded:
                self._free[place : place + 1] = [(start + rounded, end)] if end - start > rounded else []
                self._taken[start] = rounded
                return start
        raise DeviceFault(
            f"{size} bytes do not fit into the board's memory of {self._whole[1]} bytes, of which {self.room} are "
            f"free: take a smaller window, or a device with more memory"
        )

    def give(self, address: int) -> None:
        """Take back what `take` gave."""
        spans = sorted([*self._free, (address, address + self._taken.pop(address))])
        joined = spans[:1]
        for start, end in spans[1:]:
            if start == joined[-1][1]:
                joined[-1] = (joined[-1][0], end)
            else:
                joined.append((start, end))
        self._free = joined

    def clear(self) -> None:
        """All of it is free."""
        self._free, self._taken = [self._whole], {}
