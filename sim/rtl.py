"""The `rtl` device: the FPGA design of `hw/rtl`, simulated cycle by cycle in this process.

`rtl` has four lanes, two clusters, four probers and ideal memory. Options after a colon change that, as in
`rtl:w1,ddr3` or `rtl:n8,m8`: `w<lanes>`, `n<clusters>`, `m<probers>`, and the memory's timing, `ideal` or `ddr3`
(`model.py`). The first use builds the engine (half a minute) and stores it on disk (`build.py`). Counters are those of
the hardware. Limits: those of `device.py`. PanJoin, sections IV and V-B.
"""

from __future__ import annotations

import re

from millrace.host.base.errors import ArgumentError, DeviceUnavailable
from millrace.host.device.contract import DeviceInfo
from millrace.hw.driver import Engine
from millrace.sim import build
from millrace.sim.build import Config
from millrace.sim.device import SimDevice
from millrace.sim.memory import Memory
from millrace.sim.model import IDLE_CYCLES, TIMINGS, Model, timing

_OPTION = re.compile(r"([wnm])([1-9]\d?)")
_FIELDS = {"w": "lanes", "n": "clusters", "m": "probers"}


class RtlDevice(SimDevice):
    """A device of verilated engines; time is measured in clock cycles."""

    kind = "rtl"

    def __init__(self, name: str, config: Config, memory_model: str = "ideal") -> None:
        """The first launch determines the word width; that of `config` is not used."""
        super().__init__(name)
        self._config, self._timing = config, timing(memory_model)
        self.idle_cycles = IDLE_CYCLES

    def _start(self, bits: int, memory: Memory) -> tuple[Model, Engine]:
        config = Config(bits, self._config.lanes, self._config.clusters, self._config.probers)
        model = Model(build.library(config), memory, self._timing, self.idle_cycles)
        scratch = memory.alloc(config.index_depth * bits // 8)
        return model, Engine(model, scratch, config.index_depth)

    def _spent(self, cycles: int, nanoseconds: int) -> dict[str, int]:
        return {"cycles": cycles}


def probe() -> list[DeviceInfo]:
    """One simulated device, available if its tools are installed."""
    why = build.missing()
    config = Config()
    what = f"hw/rtl simulated by Verilator, {config.lanes} lanes, {config.clusters} mergers, {config.probers} probers"
    return [DeviceInfo("rtl", "rtl", why is None, why or what)]


def open_device(name: str, threads: int | None) -> RtlDevice:
    """Open `rtl` or `rtl:<options>`; the first launch builds the engine."""
    config, memory_model = options(name)
    why = build.missing()
    if why is not None:
        raise DeviceUnavailable(f"device {name!r} cannot be used: {why}")
    return RtlDevice(name, config, memory_model)


def options(name: str) -> tuple[Config, str]:
    """Parse a device name: the configuration, and the memory's timing model."""
    family, colon, text = name.partition(":")
    fields: dict[str, int] = {}
    memory_model = ""
    for option in text.split(",") if colon else ():
        parts = _OPTION.fullmatch(option)
        if parts is not None and _FIELDS[parts[1]] not in fields:
            fields[_FIELDS[parts[1]]] = int(parts[2])
        elif option in TIMINGS and not memory_model:
            memory_model = option
        else:
            raise ArgumentError(
                f"device={name!r}: options of rtl are w<lanes>, n<clusters>, m<probers> and "
                f"one of {', '.join(TIMINGS)}, each at most once, as in 'rtl:w1,ddr3'"
            )
    if family != "rtl":
        raise ArgumentError(f"device={name!r}: simulated devices are named 'rtl' or 'rtl:<options>'")
    return Config(**fields), memory_model or "ideal"
