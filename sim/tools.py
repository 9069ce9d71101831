"""Helpers for the builds of simulations: the cache folder, the build lock, and running a tool.

The cache folder is `MILLRACE_CACHE_DIR`, or the user's cache, or a temporary folder if that is not writable.
"""

from __future__ import annotations

import fcntl
import logging
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path

from millrace.host.base.errors import DeviceUnavailable

CXX = "g++"
NO_CXX = "the C++ compiler g++ is not installed: apt install g++"

Report = Callable[[str], None]
"""Called with the progress of a build."""
_log = logging.getLogger(__name__)


def cache_dir() -> Path:
    """The folder for libraries; a temporary one if the cache is not writable."""
    base = os.environ.get("MILLRACE_CACHE_DIR")
    home = os.environ.get("XDG_CACHE_HOME") or str(Path("~/.cache").expanduser())
    folder = Path(base) if base else Path(home) / "millrace"
    return folder if _writable(folder) else _scratch()


@cache
def _scratch() -> Path:
    """One temporary folder per process, so that the process finds its builds again."""
    return Path(tempfile.mkdtemp(prefix="millrace-sim-"))


def _writable(folder: Path) -> bool:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            return True
    except OSError:
        return False


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold a file lock; the system releases it when the process ends."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def build_once(home: Path, make: Callable[[Path, Path], None]) -> None:
    """Create the folder `home` in one process; `make` gets a scratch folder and the folder to be renamed to `home`."""
    with locked(home.with_suffix(".lock")):
        if home.exists():
            return
        with tempfile.TemporaryDirectory(dir=home.parent, prefix=f"{home.name}-") as scratch:
            made = Path(scratch) / "made"
            made.mkdir()
            make(Path(scratch), made)
            made.rename(home)


def run(what: str, command: Sequence[str], folder: Path, more: Mapping[str, str] | None = None) -> str:
    """Run a tool and return its output, or raise `DeviceUnavailable` with the first lines of its errors.

    `more`: additional environment variables.
    """
    environment = {**os.environ, **(more or {})}
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        errors = "\n".join((done.stderr or done.stdout).strip().splitlines()[:12])
        raise DeviceUnavailable(f"the {what} model cannot be built: {Path(command[0]).name} failed:\n{errors}")
    return done.stdout


def reporter(what: str) -> Report:
    """A function that writes progress to the log and, on a terminal, to stderr: the first build takes a while."""

    def show(text: str) -> None:
        _log.info(text)
        if sys.stderr.isatty():
            sys.stderr.write(f"millrace: building the {what} model: {text}\n")

    return show
