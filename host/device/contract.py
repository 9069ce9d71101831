"""The device contract: what every accelerator offers the host, and nothing more.

A device holds buffers, copies in and out of them, and launches *units* by name: a unit has the same name in every
language it is written in. `launch` does not block; `wait` gives the result's counters or raises `DeviceFault`.
Buffers outlive a launch, so what was sent once stays there. Operators never see a device of another process: a
device is opened after the fork, in the process that uses it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from millrace.host.base.types import Array


@dataclass(frozen=True)
class DeviceInfo:
    """One line of `mr.devices()`; `detail` is what it is, or why it cannot be used and what would mend that."""

    name: str
    kind: str
    available: bool
    detail: str


class Buffer(Protocol):
    """Memory of a device: a number of elements of one dtype."""

    @property
    def size(self) -> int:
        """How many elements."""

    @property
    def dtype(self) -> np.dtype[Any]:
        """Of which type."""


class Launch(Protocol):
    """Work under way on a device."""

    @property
    def unit(self) -> str:
        """The unit at work."""


class Device(ABC):
    """One opened device."""

    name: str
    kind: str
    units: frozenset[str]
    most_rows: int | None = None
    """The most rows that count windows may hold, both together, where memory is scarce."""

    @abstractmethod
    def alloc(self, size: int, dtype: np.dtype[Any]) -> Buffer:
        """A buffer of `size` elements, not initialised."""

    @abstractmethod
    def write(self, buffer: Buffer, offset: int, data: Array) -> None:
        """Copy an array into a buffer from element `offset` on."""

    @abstractmethod
    def read(self, buffer: Buffer, offset: int, size: int) -> Array:
        """A copy of `size` elements of a buffer from element `offset` on."""

    @abstractmethod
    def free(self, buffer: Buffer) -> None:
        """Give a buffer back."""

    def adopt(self, data: Array, spare: int = 0) -> Buffer:
        """A buffer with the contents of an array, which the caller gives up: no copy where the host's memory is ours.

        The buffer is `spare` elements longer than what is in it, as the memory of the array is.
        """
        buffer = self.alloc(len(data) + spare, data.dtype)
        self.write(buffer, 0, data)
        return buffer

    def view(self, buffer: Buffer, size: int) -> Array:
        """The first `size` elements, to be read while the buffer is unchanged: a copy unless host memory is ours."""
        return self.read(buffer, 0, size)

    @abstractmethod
    def launch(self, unit: str, buffers: Sequence[Buffer], scalars: Sequence[int]) -> Launch:
        """Start a unit and return at once. Launches of one device take effect in order."""

    @abstractmethod
    def wait(self, launch: Launch) -> Mapping[str, int]:
        """Block until a launch has ended; its counters, or a `DeviceFault`."""

    @abstractmethod
    def counters(self) -> dict[str, int]:
        """What this device has done since it was opened: bytes moved, nanoseconds and rows per unit."""

    def close(self) -> None:  # noqa: B027 - most devices have nothing to give back
        """Give everything back; the device must not be used again."""

    def __repr__(self) -> str:
        """What it is and what it offers."""
        return f"<millrace device {self.name!r} ({self.kind}): {', '.join(sorted(self.units)) or 'no units'}>"


class Tally:
    """Counters that add up."""

    def __init__(self) -> None:
        """All at zero."""
        self._counts: dict[str, int] = {}

    def add(self, **amounts: int) -> None:
        """Add to counters by name."""
        for name, amount in amounts.items():
            self._counts[name] = self._counts.get(name, 0) + int(amount)

    def as_dict(self) -> dict[str, int]:
        """All counters, in the order they were first used."""
        return dict(self._counts)
