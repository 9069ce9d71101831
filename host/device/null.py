"""The do-nothing device: accepts every call of the device contract, computes nothing, and logs its launches.

It tests host logic (what is written, what is launched, in which order) without an accelerator. Buffers read as zeros.
It offers no units, so no join or lookup can run on it by mistake.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from millrace.host.base.errors import ArgumentError
from millrace.host.base.types import Array
from millrace.host.device.contract import Buffer, Device, DeviceInfo, Launch, Tally


@dataclass(frozen=True)
class NullBuffer:
    """A size and a type, without memory."""

    size: int
    dtype: np.dtype[Any]


@dataclass(frozen=True)
class NullLaunch:
    """The arguments of a launch."""

    unit: str
    buffers: tuple[Buffer, ...]
    scalars: tuple[int, ...]


class NullDevice(Device):
    """A device that computes nothing; `log` holds the launches in order."""

    kind = "null"
    units: frozenset[str] = frozenset()

    def __init__(self) -> None:
        """A device with an empty log."""
        self.name = "null"
        self.log: list[NullLaunch] = []
        self._tally = Tally()

    def alloc(self, size: int, dtype: np.dtype[Any]) -> NullBuffer:
        """Return a buffer with that size and type."""
        return NullBuffer(size, np.dtype(dtype))

    def write(self, buffer: Buffer, offset: int, data: Array) -> None:
        """Count the bytes and drop them."""
        self._tally.add(bytes_in=data.nbytes)

    def read(self, buffer: Buffer, offset: int, size: int) -> Array:
        """Return zeros."""
        self._tally.add(bytes_out=size * buffer.dtype.itemsize)
        return np.zeros(size, buffer.dtype)

    def free(self, buffer: Buffer) -> None:
        """Nothing to free."""

    def launch(self, unit: str, buffers: Sequence[Buffer], scalars: Sequence[int]) -> NullLaunch:
        """Log the launch; every unit name is accepted."""
        launch = NullLaunch(unit, tuple(buffers), tuple(scalars))
        self.log.append(launch)
        return launch

    def wait(self, launch: Launch) -> Mapping[str, int]:
        """Return at once, with no rows."""
        self._tally.add(launches=1)
        return {"rows": 0, "ns": 0}

    def counters(self) -> dict[str, int]:
        """Return bytes and launches."""
        return self._tally.as_dict()


def probe() -> list[DeviceInfo]:
    """List the device, which is always available."""
    return [DeviceInfo("null", "null", True, "does nothing: accepts every launch and computes nothing, for tests")]


def open_device(name: str, threads: int | None) -> NullDevice:
    """Open a new do-nothing device."""
    if name != "null":
        raise ArgumentError(f"device={name!r}: there is one do-nothing device, named 'null'")
    return NullDevice()
