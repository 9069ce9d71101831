"""A device backend for tests: the CPU under another name, with injected faults.

`arm("launch", 3)` makes the third launch from now on raise a `DeviceFault` (later ones work again). Tests register it
in `millrace.registry.BACKENDS` under the name `faulty`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from millrace.host.base.errors import DeviceFault
from millrace.host.base.types import Array
from millrace.host.device.contract import Buffer, Device, DeviceInfo, Launch
from millrace.host.device.cpu import UNITS, CpuDevice

MODULE = "tests.host.faults"
CALLS = ("alloc", "write", "launch", "wait", "read", "free")
_armed: dict[str, int] = {}


def arm(call: str, number: int) -> None:
    """Make the `number`-th use of a call from now on fail."""
    assert call in CALLS
    _armed[call] = number


def disarm() -> bool:
    """Remove all armed faults; return whether one had not occurred yet."""
    left = bool(_armed)
    _armed.clear()
    return left


def _count(call: str) -> None:
    if call in _armed:
        _armed[call] -= 1
        if _armed[call] == 0:
            del _armed[call]
            raise DeviceFault(f"the faulty device lost its {call}")


class FaultyDevice(Device):
    """Forwards every call to a CPU device, except those that must fail."""

    kind = "faulty"
    units = frozenset(UNITS)

    def __init__(self) -> None:
        self.name = "faulty"
        self._cpu = CpuDevice(1)

    def alloc(self, size: int, dtype: np.dtype[Any]) -> Buffer:
        _count("alloc")
        return self._cpu.alloc(size, dtype)

    def write(self, buffer: Buffer, offset: int, data: Array) -> None:
        _count("write")
        self._cpu.write(buffer, offset, data)

    def read(self, buffer: Buffer, offset: int, size: int) -> Array:
        _count("read")
        return self._cpu.read(buffer, offset, size)

    def free(self, buffer: Buffer) -> None:
        _count("free")
        self._cpu.free(buffer)

    def launch(self, unit: str, buffers: Sequence[Buffer], scalars: Sequence[int]) -> Launch:
        _count("launch")
        return self._cpu.launch(unit, buffers, scalars)

    def wait(self, launch: Launch) -> Mapping[str, int]:
        _count("wait")
        return self._cpu.wait(launch)

    def counters(self) -> dict[str, int]:
        return self._cpu.counters()


def probe() -> list[DeviceInfo]:
    """List the device, which is always available."""
    return [DeviceInfo("faulty", "faulty", True, "fails where a test has armed a fault")]


def open_device(name: str, threads: int | None) -> FaultyDevice:
    """Open a new device."""
    return FaultyDevice()
