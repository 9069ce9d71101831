"""A device backend for tests: the CPU under another name, which fails when it is told to.

`arm("launch", 3)` makes the third launch from now on raise a `DeviceFault` (then it works again). Tests put it into
`millrace.registry.BACKENDS` under the name `faulty`.
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
    """The `number`-th use of a call from now on fails."""
    assert call in CALLS
    _armed[call] = number


def disarm() -> bool:
    """Forget what was armed; whether there was something that had not failed yet."""
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
    """Hands every call to a CPU device, except those that must fail."""

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
    """Always there."""
    return [DeviceInfo("faulty", "faulty", True, "fails when a test tells it to")]


def open_device(name: str, threads: int | None) -> FaultyDevice:
    """A fresh one."""
    return FaultyDevice()
