"""The devices of the unit tests: the CPU, OpenCL with several group sizes, the emulation with all voting methods."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest

from millrace.gpu import driver, opencl
from millrace.host.base.types import Array
from millrace.host.device.contract import Buffer, Device
from millrace.host.device.cpu import CpuDevice
from tests.gpu.emulated.backend import emulated

GROUPS = {"opencl": driver.GROUP, "opencl, small groups": 16, "opencl, tiny groups": 2, "opencl, single items": 1}
EMULATED = {
    "cuda-emulated, ballots": "",
    "cuda-emulated, barriers": driver.BARRIER,
    "opencl subgroups, emulated": driver.SUBGROUP,
}
"""How teams vote in the emulation; PoCL has no subgroups, so OpenCL's kernels with them are only emulated."""
THREADS = {"cpu": 1, "cpu, 3 threads": 3}
GPUS = (*GROUPS, *EMULATED)
KINDS = (*THREADS, *GPUS)


@contextmanager
def opened(kind: str) -> Iterator[Device]:
    """Open one of `KINDS`. In tiny groups most rows are near the edge of a tile, and items search alone."""
    if kind in EMULATED:
        device: Device = emulated(EMULATED[kind])
    elif kind in THREADS:
        device = CpuDevice(THREADS[kind])
    else:
        device = _in_groups(GROUPS[kind])
    yield device
    device.close()


def _in_groups(size: int) -> opencl.OpenclDevice:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(driver, "GROUP", size)
        device = opencl.OpenclDevice(opencl.Runtime(), 0)
        for unit in driver.UNITS.values():
            for width in (32, 64):
                device._runtime.kernel(0, unit, width)  # built now, with this group size
    return device


def send(device: Device, array: Array) -> Buffer:
    buffer = device.alloc(len(array), array.dtype)
    device.write(buffer, 0, array)
    return buffer


def run(device: Device, unit: str, inputs: list[Array], outputs: list[tuple[int, Any]], scalars: list[int]) -> Any:
    """The outputs of a unit and its row count. Checks that inputs and the canaries after the outputs are unchanged."""
    sent = [send(device, array) for array in inputs]
    made = [send(device, np.full(size + 3, 77, dtype)) for size, dtype in outputs]
    rows = device.wait(device.launch(unit, [*sent, *made], scalars))["rows"]
    found = [device.read(buffer, 0, buffer.size) for buffer in made]
    for array in found:
        assert array[-3:].tolist() == [77, 77, 77]
    for array, buffer in zip(inputs, sent, strict=True):
        assert np.array_equal(device.read(buffer, 0, len(array)), array)
    for buffer in (*sent, *made):
        device.free(buffer)
    return [array[:-3] for array in found], rows


def sample(device: Device, n: int = 1000, step: int = 10) -> tuple[Buffer, Any]:
    """Launch the indexer over 0, 1, …; returns its output and the launch."""
    index = device.alloc(-(-n // step), np.dtype(np.uint64))
    return index, device.launch("bisort_indexer", [send(device, np.arange(n, dtype=np.uint64)), index], [n, step])
