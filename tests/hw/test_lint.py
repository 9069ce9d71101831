"""Verilator, Icarus and Yosys read every RTL file without a warning, for all parameters; bad ones are refused.

Every module of `hw/rtl` is linted as a top module, with all values of its parameters in `VALUES`.
"""

from __future__ import annotations

import itertools
import os
import re
import subprocess
from pathlib import Path

import pytest

from millrace.hw import yosys
from tests.hw.simulate import RTL, verilator_folder

VALUES = {"KEY_W": (32, 64), "W": (1, 2, 4, 8), "INDEX_DEPTH": (16, 65536)}
# Modules that contain the others and take seconds to read: fewer values.
COMPOSITE = ("bisort_cluster", "bisort_engine", "bisort_pair", "bisort_probe_stream")
FEWER_VALUES = {"KEY_W": (32, 64), "W": (1, 4), "CLUSTERS": (1,), "PROBERS": (2,)}
MODULES = sorted(path.stem for path in RTL.glob("*.sv"))
BAD = [
    ("bisort_merger", {"W": 3}, "W must be 1, 2, 4 or 8"),
    ("bisort_merger", {"KEY_W": 48}, "KEY_W must be 32 or 64"),
    ("bisort_indexer", {"ID_W": 65}, "ID_W must be 1 to 64"),
    ("bisort_partitioner", {"INDEX_DEPTH": 100}, "INDEX_DEPTH must be a power of two"),
    ("bisort_prober", {"PART_W": 32}, "PART_W must be 1 to 31"),
    ("bisort_engine", {"INDEX_DEPTH": 100}, "INDEX_DEPTH must be a power of two, 16 to 1048576"),
    ("bisort_engine", {"INDEX_DEPTH": 8}, "INDEX_DEPTH must be a power of two, 16 to 1048576"),
    ("bisort_engine", {"AXI_ID_W": 9}, "AXI_ID_W must be 1 to 8"),
    ("bisort_engine", {"CLUSTERS": 1, "AXI_ID_W": 2}, "AXI_ID_W is too small for the pairs"),
    ("bisort_registers", {"QUEUE": 3}, "QUEUE must be a power of two, 1 to 64"),
    ("bisort_registers", {"CLUSTERS": 17}, "PARAMS must be at most 64"),
    ("bisort_registers", {"PAIRS": 40}, "COUNTER_W must be at most 8"),
    ("bisort_sequencer", {"PAIRS": 17}, "PAIRS must be 1 to 16"),
    ("stream_fifo", {"DEPTH": 6}, "DEPTH must be a power of two"),
]


def _verilator(module: str, parameters: dict[str, int]) -> subprocess.CompletedProcess[str]:
    folder = verilator_folder()
    env = {name: value for name, value in os.environ.items() if name != "VERILATOR_ROOT"}
    env["PATH"] = f"{folder}{os.pathsep}{env['PATH']}"
    values = [f"-G{name}={value}" for name, value in parameters.items()]
    command = [
        str(folder / "verilator"),
        "--lint-only",
        "-Wall",
        "--quiet",
        f"-I{RTL}",
        "--top-module",
        module,
        *values,
    ]
    return subprocess.run([*command, str(RTL / f"{module}.sv")], capture_output=True, text=True, env=env, check=False)


def _icarus(module: str, parameters: dict[str, int], target: list[str]) -> subprocess.CompletedProcess[str]:
    values = [f"-P{module}.{name}={value}" for name, value in parameters.items()]
    command = [
        "iverilog",
        "-g2012",
        "-Wall",
        "-Wno-timescale",
        f"-I{RTL}",
        "-y",
        str(RTL),
        "-Y",
        ".sv",
        "-s",
        module,
        *values,
    ]
    return subprocess.run([*command, *target, str(RTL / f"{module}.sv")], capture_output=True, text=True, check=False)


def _combinations(module: str) -> list[dict[str, int]]:
    header = (RTL / f"{module}.sv").read_text().split("\n);", 1)[0]
    choices = FEWER_VALUES if module in COMPOSITE else VALUES
    names = [name for name in re.findall(r"^\s+parameter (\w+) =", header, re.MULTILINE) if name in choices]
    return [dict(zip(names, values, strict=True)) for values in itertools.product(*(choices[name] for name in names))]


@pytest.mark.parametrize("module", MODULES)
def test_reads_without_a_warning(module: str) -> None:
    for parameters in _combinations(module):
        lint = _verilator(module, parameters)
        assert (lint.returncode, lint.stdout + lint.stderr) == (0, ""), parameters
        read = _icarus(module, parameters, ["-tnull"])
        assert (read.returncode, read.stdout + read.stderr) == (0, ""), parameters


@pytest.mark.parametrize("parameters", [{"KEY_W": 32, "W": 1}, {"KEY_W": 64, "W": 4}], ids=str)
def test_yosys_reads_without_a_warning(parameters: dict[str, int]) -> None:
    script = [f"read_verilog -sv -I{RTL} {' '.join(map(str, yosys.sources()))}", "design -save all"]
    for module in MODULES:
        header = (RTL / f"{module}.sv").read_text().split("\n);", 1)[0]
        values = " ".join(f"-chparam {name} {value}" for name, value in parameters.items() if f" {name} =" in header)
        script += ["design -load all", f"hierarchy -check -top {module} {values}"]
    said = yosys.run(script)
    assert f"Top module:  \\{MODULES[-1]}" in said
    assert [line for line in said.splitlines() if "warning" in line.lower()] == []


@pytest.mark.parametrize(("module", "parameters", "message"), BAD)
def test_refuses_bad_parameters(module: str, parameters: dict[str, int], message: str, tmp_path: Path) -> None:
    lint = _verilator(module, parameters)
    assert lint.returncode != 0
    assert message in lint.stderr
    assert f"In instance '{module}." in lint.stderr
    program = tmp_path / "program.vvp"
    if _icarus(module, parameters, ["-o", str(program)]).returncode != 0:  # it stops before the message, as it may
        return
    run = subprocess.run(["vvp", "-n", str(program)], capture_output=True, text=True, check=False)
    assert run.returncode != 0
    assert re.search(rf"error: {module}\.\w+\.stop: {message}", run.stdout)
