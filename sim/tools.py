"""What all builds of simulations share: the cache's folder, one builder at a time, and running a tool.

The folder is `MILLRACE_CACHE_DIR`, or the user's cache; where neither can be written, a temporary one.
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
NO_CXX = "there is no C++ compiler g++: apt install g++"

Report = Callable[[str], None]
"""Told how far a build is."""
_log = logging.getLogger(__name__)


def cache_dir() -> Path:
    """The folder for libraries; a temporary one where the user's cache cannot be written."""
    base = os.environ.get("MILLRACE_CACHE_DIR")
    home = os.environ.get("XDG_CACHE_HOME") or str(Path("~/.cache").expanduser())
    folder = Path(base) if base else Path(home) / "millrace"
    return folder if _writable(folder) else _scratch()


@cache
def _scratch() -> Path:
    """One for the process, so that what it built is found again."""
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
    """One process at a time; the lock goes with the process, however it ends."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def made_once(home: Path, make: Callable[[Path, Path], None]) -> None:
    """The folder `home`, made by one process: `make` is given a scratch folder, and one that takes `home`'s place."""
    with locked(home.with_suffix(".lock")):
        if home.exists():
            return
        with tempfile.TemporaryDirectory(dir=home.parent, prefix=f"{home.name}-") as scratch:
            made = Path(scratch) / "made"
            made.mkdir()
            make(Path(scratch), made)
            made.rename(home)


def run(what: str, command: Sequence[str], folder: Path, more: Mapping[str, str] | None = None) -> str:
    """A tool's output, or a `DeviceUnavailable` with the first lines of what it said; `more`: of the environment."""
    environment = {**os.environ, **(more or {})}
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        said = "\n".join((done.stderr or done.stdout).strip().splitlines()[:12])
        raise DeviceUnavailable(f"the {what} model cannot be built: {Path(command[0]).name} failed:\n{said}")
    return done.stdout


def reporter(what: str) -> Report:
    """To the log, and to whoever sits before the terminal: the first use takes a while."""

    def show(text: str) -> None:
        _log.info(text)
        if sys.stderr.isatty():
            sys.stderr.write(f"millrace: building the {what} model: {text}\n")

    return show
