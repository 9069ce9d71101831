"""Builds the C simulation: g++ compiles the HLS engine of `hls/` and its registers into a shared library per shape.

Libraries are stored in the same cache as those of `build.py`, under a hash of sources, parameters, flags and compiler
version. Needs only g++: `hls/shim` replaces the vendor's headers.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from millrace.host.base.errors import ArgumentError, DeviceUnavailable
from millrace.sim import hls_lint, tools
from millrace.sim.tools import Report, cache_dir

SIM = Path(__file__).resolve().parent
HLS = SIM.parent / "hls"
UNITS = ("bisort_merger", "bisort_indexer", "bisort_boundary", "bisort_partitioner", "bisort_prober", "bisort_engine")
SHIM = Path("shim") / "csim.cpp"
FLAGS = (
    *("-std=c++17", "-O3", "-fPIC", "-fvisibility=hidden", "-fno-gnu-unique"),
    # `longjmp` switches stacks, which the fortified version reports as an error.
    "-U_FORTIFY_SOURCE",
    # The pragmas are for the vendor's compiler.
    *("-Wall", "-Wextra", "-Werror", "-Wno-unknown-pragmas", "-Wno-unused-label"),
)


@dataclass(frozen=True)
class Shape:
    """The parameters of a build; limits are those of `hls/bisort_types.h`."""

    key_bits: int = 64
    lanes: int = 4
    index_log2: int = 16

    def __post_init__(self) -> None:
        """Refuse parameters that would not compile."""
        allowed = {"key_bits": (32, 64), "lanes": (1, 2, 4, 8), "index_log2": range(4, 21)}
        for name, values in allowed.items():
            if getattr(self, name) not in values:
                listed = ", ".join(map(str, values))
                raise ArgumentError(f"hls: {name}={getattr(self, name)}, allowed are {listed}")

    @property
    def defines(self) -> list[str]:
        """The parameters as compiler options."""
        values = {"KEY_W": self.key_bits, "W": self.lanes, "INDEX_LOG2": self.index_log2}
        return [f"-DBISORT_{name}={value}" for name, value in values.items()]


def missing() -> str | None:
    """What is missing for a build, and how to install it; None if nothing is missing."""
    return None if shutil.which(tools.CXX) else tools.NO_CXX


def library(shape: Shape, report: Report | None = None) -> Path:
    """The shared library of a shape, with the C ABI of `sim/model.h`; built on first use."""
    hls = HLS
    return built("engine", shape, hls, [*(hls / f"{unit}.cpp" for unit in UNITS), SIM / "hls_model.cpp"], report)


def built(name: str, shape: Shape, hls: Path, units: Sequence[Path], report: Report | None = None) -> Path:
    """A library of C++ files and the HLS sources in `hls`; include folders are `hls`, `sim` and those of the files."""
    why = missing()
    if why is not None:
        raise DeviceUnavailable(f"the hls model cannot be built: {why}")
    digest = _digest(shape, hls, units)
    home = cache_dir() / "hls" / f"{name}-{digest}"
    show, file = report or tools.reporter("hls"), "model.so"
    if not home.exists():
        broken = hls_lint.findings(hls)
        if broken:
            raise DeviceUnavailable("hls breaks rules of HLS that g++ cannot check: " + "; ".join(broken))
        tools.build_once(home, lambda work, made: _build(name, shape, hls, units, work, made / file, digest, show))
    return home / file


def _digest(shape: Shape, hls: Path, units: Sequence[Path]) -> str:
    """A hash of all inputs of a library."""
    made = hashlib.sha256(repr((shape.defines, FLAGS, _version())).encode())
    headers = [
        *hls.glob("*.h"),
        *hls.glob("shim/*"),
        *SIM.glob("*.h"),
        *(h for u in units for h in u.parent.glob("*.h")),
    ]
    for path in [*sorted(set(headers)), *units]:
        made.update(path.name.encode() + b"\0" + path.read_bytes())
    return made.hexdigest()[:24]


@cache
def _version() -> str:
    return tools.run("hls", [tools.CXX, "-dumpfullversion", "-dumpmachine"], SIM).strip()


def _build(
    name: str, shape: Shape, hls: Path, units: Sequence[Path], work: Path, into: Path, digest: str, report: Report
) -> None:
    """Compile each file, one per core at a time, and link them."""
    start = time.monotonic()
    title = f"{name} KEY_W={shape.key_bits} W={shape.lanes}"
    report(f"{title}: g++")
    options = [
        *FLAGS,
        *shape.defines,
        f"-DBUILD_HASH=0x{digest[:16]}ull",
        *(f"-I{hls / part}" for part in ("", "shim")),
    ]

    def compiled(unit: Path) -> str:
        made = work / f"{unit.stem}.o"
        tools.run("hls", [tools.CXX, *options, f"-I{SIM}", "-c", str(unit), "-o", str(made)], work)
        return str(made)

    with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        objects = list(pool.map(compiled, [*units, hls / SHIM]))
    tools.run("hls", [tools.CXX, "-shared", "-Wl,-Bsymbolic", "-o", str(into), *objects], work)
    report(f"{title}: built in {time.monotonic() - start:.0f} s")
