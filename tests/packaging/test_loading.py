"""Importing Millrace loads no heavy module, starts no thread, and loads no file under two names."""

from __future__ import annotations

import json
import os
import sys
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path

from tools.imports import PACKAGES

from tests.packaging.project import ROOT, run

HEAVY = {
    "numba",
    "llvmlite",
    "pyspark",
    "pyopencl",
    "cupy",
    "sqlglot",
    "pandas",
    "polars",
    "duckdb",
    "cocotb",
    "typer",
}

IMPORT_MILLRACE = """
import json, os, sys, threading
import numpy, pyarrow  # their libraries may start threads
before = len(os.listdir("/proc/self/task"))
import millrace
print(json.dumps({
    "modules": sorted({name.split(".")[0] for name in sys.modules}),
    "new_tasks": len(os.listdir("/proc/self/task")) - before,
    "threads": threading.active_count(),
    "children": open(f"/proc/self/task/{os.getpid()}/children").read().split(),
}))
"""

IMPORT_ALL = """
import importlib, json, pkgutil, sys
import millrace
def refuse(name):
    raise
names = [m.name for m in pkgutil.walk_packages(millrace.__path__, "millrace.", onerror=refuse)]
excluded = {"millrace.sim.pynq_server"}  # runs in pynq's own environment
assert excluded <= set(names)
for name in names:
    if not name.endswith("__main__") and name not in excluded:
        importlib.import_module(name)
print(json.dumps({name: m.__file__ for name, m in sys.modules.items() if getattr(m, "__file__", None)}))
"""


def python(code: str, cwd: Path) -> dict[str, object]:
    out: dict[str, object] = json.loads(run([sys.executable, "-c", code], cwd).stdout.splitlines()[-1])
    return out


def loaded_twice(files: Mapping[str, str], root: Path) -> dict[str, list[str]]:
    """Our files below root (without its environment) that are loaded under several module names."""
    names = defaultdict(list)
    for name, file in files.items():
        real = os.path.realpath(file)
        if real.startswith(f"{root}{os.sep}") and "site-packages" not in Path(real).parts:
            names[real].append(name)
    return {real: sorted(found) for real, found in names.items() if len(found) > 1}


def test_import_is_light_and_starts_nothing(tmp_path: Path) -> None:
    seen = python(IMPORT_MILLRACE, tmp_path)
    modules = seen["modules"]
    assert isinstance(modules, list)
    assert HEAVY.isdisjoint(modules)
    assert seen["threads"] == 1
    assert seen["new_tasks"] == 0
    assert seen["children"] == []


def test_no_file_has_two_module_names(tmp_path: Path) -> None:
    files = {name: str(file) for name, file in python(IMPORT_ALL, tmp_path).items()}
    assert {f"millrace.{package}" for package in PACKAGES} <= set(files)
    assert loaded_twice(files, ROOT) == {}


def test_a_file_with_two_module_names_is_detected(tmp_path: Path) -> None:
    (tmp_path / "host").mkdir()
    (tmp_path / "host/words.py").touch()
    (tmp_path / "link").symlink_to("host")
    files = {"millrace.host.words": f"{tmp_path}/link/words.py", "host.words": f"{tmp_path}/host/words.py"}
    assert loaded_twice(files, tmp_path.resolve()) == {
        str(tmp_path.resolve() / "host/words.py"): ["host.words", "millrace.host.words"]
    }
