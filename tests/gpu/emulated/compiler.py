"""Compiles a CUDA kernel with g++ and `fibres.h` and runs it on the CPU instead of a card, in tests only.

A library is built once: its name is a hash of all its inputs, and it is stored in the kernel cache.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import subprocess
import tempfile
import threading
from functools import cache
from pathlib import Path

from millrace.gpu.runtime import cache_folder

HEADER = Path(__file__).with_name("fibres.h")
FLAGS = ("-std=c++17", "-O2", "-fPIC", "-shared", "-Wall", "-Wextra", "-Wno-unused-function")


class NotCompiled(Exception):
    """g++ rejects a source; holds its messages."""


class Library:
    """A compiled kernel; one launch at a time."""

    def __init__(self, path: Path) -> None:
        self._library = ctypes.CDLL(str(path))
        self._library.emulated_launch.restype = ctypes.c_char_p
        self._lock = threading.Lock()
        sizes = (ctypes.c_uint * 64)()
        count = self._library.emulated_sizes(sizes)
        self.sizes = tuple(sizes[:count])

    def run(self, blocks: int, threads: int, arguments: list[int]) -> str | None:
        """Run all blocks; returns the error, if any."""
        packed = (ctypes.c_uint64 * len(arguments))(*arguments)
        with self._lock:
            said = self._library.emulated_launch(blocks, threads, packed)
        return said.decode() if said else None


@cache
def _version() -> str:
    return subprocess.run(["g++", "--version"], capture_output=True, text=True, check=True).stdout


@cache
def _folder() -> Path:
    return cache_folder("emulated")


@cache
def library(text: str, name: str, options: tuple[str, ...]) -> Library:
    """The kernel with this name, compiled from a source."""
    source = f'#include "{HEADER}"\n{text}\nEMULATED_ENTRY({name})\n'
    hashed = "\0".join([_version(), HEADER.read_text(encoding="utf-8"), source, *FLAGS, *options])
    path = _folder() / f"{name}-{hashlib.sha256(hashed.encode()).hexdigest()[:24]}.so"
    if not path.exists():
        _compile(source, options, path)
    return Library(path)


def _compile(text: str, options: tuple[str, ...], path: Path) -> None:
    with tempfile.TemporaryDirectory(dir=path.parent) as folder:
        made = Path(folder) / path.name
        command = ["g++", *FLAGS, *options, "-x", "c++", "-", "-o", str(made)]
        done = subprocess.run(command, input=text, capture_output=True, text=True, check=False)
        if done.returncode:
            raise NotCompiled(done.stderr)
        os.replace(made, path)  # atomic: other processes use the same file
