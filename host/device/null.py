"""The do-nothing device: takes every call of the device contract, computes nothing, remembers what it was asked.

It tests host logic (what is sent, what is launched, in which order) without any accelerator. Buffers read as zeros.
It offers no units that an operator could use, so no join or lookup ever runs on it by mistake.
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
    """A size and a type, with no memory behind them."""

    size: int
    dtype: np.dtype[Any]


@dataclass(frozen=True)
class NullLaunch:
    """What a launch was asked to do."""

    unit: str
    buffers: tuple[Buffer, ...]
    scalars: tuple[int, ...]


class NullDevice(Device):
    """Does nothing; `log` holds the launches in order."""

    kind = "null"
    units: frozenset[str] = frozenset()

    def __init__(self) -> None:
        """Nothing asked yet."""
        self.name = "null"
        self.log: list[NullLaunch] = []
        self._tally = Tally()

    def alloc(self, size: int, dtype: np.dtype[Any]) -> NullBuffer:
        """Remember size and type."""
        return NullBuffer(size, np.dtype(dtype))

    def write(self, buffer: Buffer, offset: int, data: Array) -> None:
        """Count the bytes and forget them."""
        self._tally.add(bytes_in=data.nbytes)

    def read(self, buffer: Buffer, offset: int, size: int) -> Array:
        """Zeros."""
        self._tally.add(bytes_out=size * buffer.dtype.itemsize)
        return np.zeros(size, buffer.dtype)

    def free(self, buffer: Buffer) -> None:
        """Nothing to give back."""

    def launch(self, unit: str, buffers: Sequence[Buffer], scalars: Sequence[int]) -> NullLaunch:
        """Remember any unit, whatever its name."""
        launch = NullLaunch(unit, tuple(buffers), tuple(scalars))
        self.log.append(launch)
        return launch

    def wait(self, launch: Launch) -> Mapping[str, int]:
        """Done at once, with no rows."""
        self._tally.add(launches=1)
        return {"rows": 0, "ns": 0}

    def counters(self) -> dict[str, int]:
        """Bytes and launches."""
        return self._tally.as_dict()


def probe() -> list[DeviceInfo]:
    """Always there."""
    return [DeviceInfo("null", "null", True, "does nothing: takes every launch and computes nothing, for tests")]


def open_device(name: str, threads: int | None) -> NullDevice:
    """Open a fresh one."""
    if name != "null":
        raise ArgumentError(f"device={name!r}: there is one do-nothing device, named 'null'")
    return NullDevice()
