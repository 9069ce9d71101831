"""`@kernel`: Numba compilation with a disk cache that notices every change.

Numba's cache looks only at the file a function stands in; a kernel that calls one in another file would keep the old
machine code. The cache folder is therefore named by a hash of all files with kernels and of the versions in use, and
kernels take constants and helpers from such files only.
`MILLRACE_CACHE_DIR` moves it (default: `millrace` in the user's cache folder).
"""

from __future__ import annotations

import hashlib
import os
import tempfile
import threading
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, TypeVar, cast

import llvmlite
import numba
from numba.core import config as numba_config

F = TypeVar("F", bound=Callable[..., Any])
config: Any = numba_config  # its settings are made at run time, so no type checker knows them
_lock = threading.Lock()


def kernel(function: F) -> F:
    """Compile on first call, without the GIL, and keep the machine code on disk."""
    with _lock:
        before = config.CACHE_DIR
        # Numba picks a function's cache folder when it is decorated; the setting is put back at once for others.
        config.CACHE_DIR = str(cache_dir())
        try:
            compiled: Any = numba.njit(nogil=True, cache=True, boundscheck=False)(function)
            return cast(F, compiled)
        finally:
            config.CACHE_DIR = before


def inline(function: F) -> F:
    """A helper compiled into the kernels that call it."""
    compiled: Any = numba.njit(nogil=True, inline="never", boundscheck=False)(function)
    return cast(F, compiled)


@cache
def cache_dir() -> Path:
    """The folder for this version of the kernels, made if needed; a temporary one where the home is read-only."""
    base = os.environ.get("MILLRACE_CACHE_DIR")
    home = os.environ.get("XDG_CACHE_HOME") or str(Path("~/.cache").expanduser())
    path = (Path(base) if base else Path(home) / "millrace") / f"numba-{source_hash()}"
    try:
        path.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=path):
            return path
    except OSError:
        return Path(tempfile.mkdtemp(prefix="millrace-numba-"))


@cache
def source_hash() -> str:
    """A hash of every file of this room that holds kernels, and of the compiler's versions."""
    digest = hashlib.sha256(f"{numba.__version__} {llvmlite.__version__}".encode())
    for path in sorted(Path(__file__).parent.glob("*.py")):
        text = path.read_bytes()
        if path.samefile(__file__) or b"from millrace.host.jit import" in text:
            digest.update(path.name.encode())
            digest.update(text)
    return digest.hexdigest()[:16]
