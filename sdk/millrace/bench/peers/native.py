"""Compiles and loads a C++ peer; the library is cached per source, flags, compiler and processor."""

from __future__ import annotations

import ctypes
import hashlib
import os
import subprocess
import tempfile
from functools import cache
from pathlib import Path

from millrace.bench.harness import PeerMissing
from millrace.bench.machine import find_compiler
from millrace.host.runtime.jit import cache_dir
from millrace.host.runtime.processor import cpu_model

FLAGS = ("-O3", "-march=native", "-std=c++17", "-pthread", "-fPIC", "-shared", "-Wall", "-Wextra")


@cache
def load(name: str) -> ctypes.CDLL:
    """The library built from `<name>.cpp` in this folder."""
    compiler = find_compiler()
    if compiler is None:
        raise PeerMissing("no C++ compiler was found: apt-get install g++ (or set CXX)")
    source = Path(__file__).with_name(f"{name}.cpp")
    parts = (source.read_text(), *FLAGS, compiler.path, compiler.version, cpu_model())
    digest = hashlib.sha256("\0".join(parts).encode()).hexdigest()[:16]
    library = cache_dir() / f"{name}-{digest}.so"
    if not library.exists():
        _compile(compiler.path, source, library)
    return ctypes.CDLL(str(library))


def _compile(compiler: str, source: Path, library: Path) -> None:
    """Compile into a temporary folder, then rename: two processes may compile at the same time."""
    with tempfile.TemporaryDirectory(dir=library.parent) as folder:
        made = Path(folder) / library.name
        done = subprocess.run(
            [compiler, *FLAGS, str(source), "-o", str(made)], capture_output=True, text=True, check=False
        )
        if done.returncode:
            raise PeerMissing(f"{compiler} cannot compile {source.name}: {done.stderr.strip() or done.stdout.strip()}")
        os.replace(made, library)
