"""Runs the engine's cocotb bench on Verilator: protocol, idle and back-pressure; a failure leaves a waveform."""

from __future__ import annotations

import contextlib
from pathlib import Path

import pytest
from cocotb_tools.runner import get_runner

from tests.hw.simulate import LOG_TAIL, RTL, SEED, VERILATOR_OPTIONS, tools_path

PARAMETERS = {
    "KEY_W": 32,
    "W": 1,
    "CLUSTERS": 1,
    "PROBERS": 2,
    "INDEX_DEPTH": 64,
    "BURST": 4,
    "FIFO_BEATS": 8,
    "PENDING": 4,
}
"""Small queues, so that a short bench fills them."""


def _build(folder: Path, waves: bool) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("VERILATOR_ROOT", raising=False)
        patch.setenv("PATH", tools_path())
        get_runner("verilator").build(
            sources=sorted(RTL.glob("*.sv")),
            includes=[RTL],
            hdl_toplevel="bisort_engine",
            parameters=PARAMETERS,
            build_dir=folder,
            build_args=VERILATOR_OPTIONS,
            timescale=("1ns", "1ps"),
            waves=waves,
            log_file=folder / "build.log",
        )


def _run(folder: Path, waves: bool) -> None:
    get_runner("verilator").test(
        test_module="tests.hw.bench_engine",
        hdl_toplevel="bisort_engine",
        hdl_toplevel_lang="verilog",
        build_dir=folder,
        test_dir=folder,
        seed=SEED,
        waves=waves,
        extra_env={"ENGINE_KEY_W": str(PARAMETERS["KEY_W"])},
        log_file=folder / "bench.log",
    )


@pytest.mark.xdist_group("engine")
def test_engine(tmp_path: Path) -> None:
    folders = [tmp_path / name for name in ("build", "waves")]
    for folder in folders:
        folder.mkdir()
    _build(folders[0], waves=False)
    try:
        _run(folders[0], waves=False)
    except (SystemExit, RuntimeError):
        tail = "\n".join((folders[0] / "bench.log").read_text().splitlines()[-LOG_TAIL:])
        _build(folders[1], waves=True)
        with contextlib.suppress(SystemExit, RuntimeError):
            _run(folders[1], waves=True)
        pytest.fail(f"seed {SEED}, waveform {folders[1] / 'dump.vcd'}\n{tail}", pytrace=False)
