"""The `hls` device: the HLS C++ of `hls/`, compiled by g++ and run in this process (C simulation, no clock, no RTL).

`hls` has four lanes; `hls:w1`, `hls:w2`, `hls:w4` and `hls:w8` select the number of lanes. There are one merger and one
pair of probers. The first use builds the engine, which takes seconds, and stores it on disk (`hls_build.py`). Row
counters are those of the engine (`hls_…`); times are nanoseconds of the C simulation. Limits: those of `device.py`; a
launch cannot be interrupted. PanJoin, section IV.
"""

from __future__ import annotations

import re

from millrace.host.base.errors import ArgumentError, DeviceUnavailable
from millrace.host.device.contract import DeviceInfo
from millrace.hw.driver import Engine
from millrace.sim import hls_build
from millrace.sim.device import SimDevice
from millrace.sim.hls_build import Shape
from millrace.sim.memory import Memory
from millrace.sim.model import Model, timing

_NAME = re.compile(r"hls(?::w([1-9]\d?))?")
COUNTED = (
    *("commands", "index_rows", "merger_rows", "indexer_rows", "samples"),
    *("low_rows", "high_rows", "partitions"),
)
"""The counters that exist without a clock and without a memory port."""


class HlsDevice(SimDevice):
    """A device of C simulations; time is wall-clock time."""

    kind = "hls"

    def __init__(self, name: str, lanes: int) -> None:
        """The first launch determines the word width."""
        super().__init__(name)
        self._lanes = lanes

    def _start(self, bits: int, memory: Memory) -> tuple[Model, Engine]:
        shape = Shape(bits, self._lanes)
        model = Model(hls_build.library(shape), memory, timing("ideal"))
        depth = 1 << shape.index_log2
        return model, Engine(model, memory.alloc(depth * bits // 8), depth)

    def _spent(self, cycles: int, nanoseconds: int) -> dict[str, int]:
        return {"ns": nanoseconds}

    def _counted(self, counters: dict[str, int]) -> dict[str, int]:
        return {name: counters[name] for name in COUNTED if name in counters}


def probe() -> list[DeviceInfo]:
    """One device, available if there is a compiler."""
    why = hls_build.missing()
    what = f"hls/ compiled by g++ (C simulation), {Shape().lanes} lanes, 1 merger, 2 probers"
    return [DeviceInfo("hls", "hls", why is None, why or what)]


def open_device(name: str, threads: int | None) -> HlsDevice:
    """Open `hls` or `hls:w<lanes>`; the first launch builds the engine."""
    chosen = lanes(name)
    why = hls_build.missing()
    if why is not None:
        raise DeviceUnavailable(f"device {name!r} cannot be used: {why}")
    return HlsDevice(name, chosen)


def lanes(name: str) -> int:
    """The lanes of a device, from its name."""
    parts = _NAME.fullmatch(name)
    if parts is None:
        raise ArgumentError(f"device={name!r}: C simulations are named 'hls' or 'hls:w<lanes>', as in 'hls:w1'")
    return Shape(lanes=int(parts[1]) if parts[1] else Shape().lanes).lanes
