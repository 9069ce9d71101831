"""Builds `bisort_engine` for a simulator and runs its cocotb bench: protocol, idle and back-pressure.

The first run of a bench builds the engine; a bench that has passed is not run again by the same process. A failure
writes a waveform. Limit: one cluster, because cocotbext-axi drives one AXI port.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from pathlib import Path

from tests.hw.simulate import RTL, compile_design, fail, run_bench

SMALL = {"CLUSTERS": 1, "PROBERS": 2, "INDEX_DEPTH": 64, "BURST": 4, "FIFO_BEATS": 8, "PENDING": 4}
"""Small queues, so that a short bench fills them."""
SHAPES = {"key32w1": {"KEY_W": 32, "W": 1, "DATA_W": 64, "PROBERS": 4}, "key64w4": {"KEY_W": 64, "W": 4}}
PAUSES = {"verilator": "never,random,bursts", "icarus": "random,bursts"}
"""The idle and back-pressure patterns of the matrix; Icarus is far slower and runs only the hard ones."""


@dataclass(frozen=True)
class Engines:
    """Engines, compiled into subfolders of a folder."""

    folder: Path

    def run(self, simulator: str, shape: str) -> None:
        """Run the bench on one engine."""
        folder = self.folder / f"{simulator}-{shape}"
        if (folder / "passed").exists():
            return
        _compile(simulator, shape, folder, waves=False)
        try:
            _bench(simulator, shape, folder, waves=False)
        except (SystemExit, RuntimeError):
            traced = folder / "waves"
            _compile(simulator, shape, traced, waves=True)
            with contextlib.suppress(SystemExit, RuntimeError):
                _bench(simulator, shape, traced, waves=True)
            wave = traced / ("dump.vcd" if simulator == "verilator" else "bisort_engine.fst")
            fail(f"engine, {shape}, {simulator}", folder / "bench.log", wave)
        (folder / "passed").touch()


def _compile(simulator: str, shape: str, folder: Path, *, waves: bool) -> None:
    compile_design(
        simulator, folder, "bisort_engine", sorted(RTL.glob("*.sv")), {**SMALL, **SHAPES[shape]}, waves=waves
    )


def _bench(simulator: str, shape: str, folder: Path, *, waves: bool) -> None:
    given = {**SMALL, **SHAPES[shape]}
    settings = {"ENGINE_KEY_W": str(given["KEY_W"]), "ENGINE_PAIRS": str(given["PROBERS"] // 2)}
    settings["ENGINE_PAUSES"] = PAUSES[simulator]
    run_bench(simulator, folder, "bisort_engine", "bench_engine", "bench", settings, waves=waves)
