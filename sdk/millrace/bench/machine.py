"""Describes the machine of a measurement: processor, cores, memory, versions. No host name, path or user."""

from __future__ import annotations

import os
import platform
import re
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from millrace.host.runtime import pool
from millrace.host.runtime.processor import cpu_model

PACKAGES = ("numpy", "pyarrow", "numba", "duckdb", "polars", "scipy", "pykdtree", "scikit-learn")


@dataclass(frozen=True)
class Compiler:
    """A C++ compiler: path, name and version."""

    path: str
    name: str
    version: str


def memory_gib() -> float | None:
    """The machine's memory; None if unknown."""
    try:
        return round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1)
    except (ValueError, OSError, AttributeError):
        return None


def load() -> float | None:
    """The load average over the last minute; None if unknown."""
    try:
        return round(os.getloadavg()[0], 2)
    except (OSError, AttributeError):
        return None


@cache
def find_compiler() -> Compiler | None:
    """The compiler in `CXX`, or the first of g++, c++ and clang++ that runs."""
    for name in (os.environ.get("CXX"), "g++", "c++", "clang++"):
        path = shutil.which(name) if name else None
        if path is None:
            continue
        text = output_of([path, "--version"])
        if text:
            first = text.splitlines()[0]
            found = re.findall(r"\d+\.\d+(?:\.\d+)?", first)
            family = "clang++" if "clang" in first else "g++"
            return Compiler(path, family, found[-1] if found else first)
    return None


def output_of(command: Sequence[str]) -> str | None:
    """The output of a command (stdout and stderr); None if it cannot be run or fails."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return None if done.returncode else (done.stdout + done.stderr).strip()


def package_version(name: str) -> str | None:
    """The installed version of a distribution."""
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def versions() -> dict[str, str | None]:
    """Versions of the packages used, by name; None if not installed."""
    from millrace._version import __version__

    found: dict[str, str | None] = {"millrace": __version__, **{name: package_version(name) for name in PACKAGES}}
    compiler = find_compiler()
    if compiler is not None:
        found[compiler.name] = compiler.version
    return found


def machine() -> dict[str, Any]:
    """The facts about the machine that a result line needs."""
    return {
        "cpu": cpu_model(),
        "cores": pool.cores(),
        "memory_gib": memory_gib(),
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.machine()}",
        # Well above 0: other programs were running when the bench started.
        "load_before": load(),
    }
