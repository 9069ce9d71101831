"""The HLS sources: tests of the shim, the vendor's way to run processes, loop pragmas and build scripts."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import numpy as np
import pytest

from millrace.hw.driver import BoundsBatch, Engine
from millrace.hw.transfers import IndexAt, RunAt
from millrace.sim import hls_build
from millrace.sim.hls_build import FLAGS, HLS, UNITS, Shape
from millrace.sim.memory import Memory
from millrace.sim.model import Model, timing

HERE = Path(__file__).resolve().parent
NESTED = {"transfers", "partitions"}
"""Loops around a pipelined one."""


def test_the_shim_keeps_its_word(tmp_path: Path) -> None:
    program = tmp_path / "shim_test"
    sources = [HERE / "shim_test.cpp", HLS / hls_build.SHIM]
    subprocess.run(["g++", *FLAGS, f"-I{HLS / 'shim'}", *map(str, sources), "-o", str(program)], check=True)
    done = subprocess.run([str(program)], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "")


def test_processes_may_run_one_after_the_other(tmp_path: Path) -> None:
    """As in the vendor's C simulation: the calls in a region are in the order of the data."""
    library = tmp_path / "sequential.so"
    units = [*(HLS / f"{unit}.cpp" for unit in UNITS), hls_build.SIM / "hls_model.cpp", HLS / hls_build.SHIM]
    folders = [HERE / "sequential", HLS, HLS / "shim", hls_build.SIM]
    options = [*FLAGS, "-O1", *Shape(64, 2).defines, "-DBUILD_HASH=1", "-shared", *(f"-I{path}" for path in folders)]
    subprocess.run(["g++", *options, *map(str, units), "-o", str(library)], check=True)
    memory = Memory(1 << 20)
    model = Model(library, memory, timing("ideal"))
    engine = Engine(model)
    rng = np.random.default_rng(7)
    runs = [np.sort(rng.integers(0, 999, size).astype(np.uint64)) for size in (300, 401)]
    ids = np.arange(401, dtype=np.uint32)
    at = [memory.alloc(8192) for _ in range(12)]
    for address, words in zip(at[:2], runs, strict=True):
        model.write_mem(address, words)
    for address in at[2:4]:
        model.write_mem(address, ids)
    index = IndexAt(at[6], 8)
    engine.merge(RunAt(at[0], at[2], 300), RunAt(at[1], at[3], 401), RunAt(at[4], at[5], 701), index)
    merged = np.sort(np.concatenate(runs))
    np.testing.assert_array_equal(model.read_mem(at[4], 701, merged.dtype), merged)
    engine.index(at[4], 701, IndexAt(at[7], 16))
    np.testing.assert_array_equal(model.read_mem(at[7], 44, merged.dtype), merged[::16])
    engine.probe(at[4], 701, index, BoundsBatch(300, at[0], at[0], at[8], at[9]))
    starts, ends = (model.read_mem(address, 300, ids.dtype) for address in at[8:10])
    np.testing.assert_array_equal(starts, np.searchsorted(merged, runs[0], "left"))
    np.testing.assert_array_equal(ends, np.searchsorted(merged, runs[0], "right"))
    model.close()


@pytest.mark.parametrize("unit", UNITS)
def test_a_unit_is_a_top_function_with_ports(unit: str) -> None:
    text = (HLS / f"{unit}.cpp").read_text(encoding="utf-8")
    heads = re.findall(rf"^void {unit}\(\n?(.*?)\) \{{\n(.*?)^}}", text, re.DOTALL | re.MULTILINE)
    assert len(heads) == 1
    arguments, body = heads[0]
    names = {re.sub(r"\[.*", "", argument).split()[-1].strip("&*") for argument in re.split(r",\s+", arguments)}
    ports = set(re.findall(r"#pragma HLS INTERFACE \w+ port=(\w+)", body))
    assert ports == names | {"return"}


@pytest.mark.parametrize("path", [*sorted(HLS.glob("*.cpp")), HLS / "bisort_memory.h"], ids=lambda path: path.name)
def test_every_loop_says_how_it_is_built(path: Path) -> None:
    lines = path.read_text(encoding="utf-8").splitlines()
    loops = [number for number, line in enumerate(lines) if re.match(r"\s+(for|while) \(", line)]
    for number in loops:
        label = re.fullmatch(r"\s*(\w+):", lines[number - 1])
        if label and label[1] in NESTED:
            continue
        wanted = "#pragma HLS PIPELINE II=1" if label else "#pragma HLS UNROLL"
        assert lines[number + 1].strip() == wanted, f"{path.name}:{number + 1}"


STAND_INS = """
foreach name {
    open_project set_top add_files open_solution set_part create_clock csynth_design export_design close_project
} {
    proc $name {args} [list apply {{name} {uplevel 1 [list puts "$name [uplevel 1 {set args}]"]}} $name]
}
"""


def test_the_scripts_build_every_unit(tmp_path: Path) -> None:
    """Run in plain Tcl, with stubs that print how the vendor's commands were called."""
    driver = tmp_path / "driver.tcl"
    driver.write_text(f"{STAND_INS}\nsource {HLS / 'scripts' / 'all.tcl'}\n", encoding="utf-8")
    done = subprocess.run(["tclsh", str(driver)], cwd=tmp_path, capture_output=True, text=True, check=True)
    calls = [line.split(" ", 1) for line in done.stdout.splitlines()]
    assert [rest for name, rest in calls if name == "set_top"] == list(UNITS)
    files = [rest.split()[0] for name, rest in calls if name == "add_files"]
    assert len(files) == 5 + 6
    assert all(Path(file).is_file() for file in files)
    assert sum(name == "csynth_design" for name, _ in calls) == len(UNITS)
    refused = subprocess.run(
        ["tclsh", str(HLS / "scripts" / "build.tcl")], env={"UNIT": "x"}, capture_output=True, text=True, check=False
    )
    assert "UNIT=x: allowed are bisort_merger" in refused.stderr
