"""Shared by the packaging tests: paths of the tree, its packages, its lock files, and running a command."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tools.imports import PACKAGES

from tests.watchdog import WATCHDOG

ROOT = Path(__file__).resolve().parents[2]
PARTS = ("pyproject.toml", "LICENSE", "README.md", "MANIFEST.in", "sdk", *PACKAGES)
LITTER = ("__pycache__", "*.egg-info", "*.pyc", "*.nbi", "*.nbc", ".*")


@dataclass(frozen=True)
class Pin:
    """One requirement of a constraints file: `name==version ; marker`, and its hashes."""

    name: str
    version: str
    marker: str
    hashes: tuple[str, ...]


_PIN = re.compile(r"(?P<name>[a-z0-9-]+)==(?P<version>[^\s;]+)(?: ; (?P<marker>.+?))?$")
_HASH = re.compile(r"--hash=(sha256:[0-9a-f]{64})$")


def read_pins(text: str) -> list[Pin]:
    """Read a constraints file; raises ValueError for a line that is not a pin with hashes."""
    pins = []
    logical = re.sub(r"\\\n\s*", "\n ", text)
    for block in re.split(r"\n(?=\S)", logical.strip()):
        if block.startswith("#"):
            continue
        head, *tail = (line.strip() for line in block.splitlines())
        pin, hashes = _PIN.match(head), [_HASH.match(line) for line in tail if line]
        if pin is None or not hashes or None in hashes:
            raise ValueError(f"not a pin with sha256 hashes: {block!r}")
        pins.append(Pin(pin["name"], pin["version"], pin["marker"] or "", tuple(h[1] for h in hashes if h)))
    return pins


def locked(name: str) -> list[Pin]:
    """The pins of constraints/NAME.txt."""
    return read_pins((ROOT / "constraints" / f"{name}.txt").read_text())


def copy_tree(target: Path) -> Path:
    """Copy what a build needs, symlinks kept, so that the tree itself stays clean."""
    target.mkdir(parents=True)
    for part in PARTS:
        source = ROOT / part
        if source.is_dir():
            shutil.copytree(source, target / part, symlinks=True, ignore=shutil.ignore_patterns(*LITTER))
        elif source.exists():
            shutil.copy2(source, target / part)
    return target


def run(
    command: Sequence[str | Path], cwd: Path, env: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Run a command without this tree on Python's path; fails with the command's output."""
    clean = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHONPATH", "PYTEST_", "COV_"))}
    done = subprocess.run(
        [str(part) for part in command],
        cwd=cwd,
        env={**clean, **(env or {})},
        capture_output=True,
        text=True,
        timeout=WATCHDOG,
        check=False,
    )
    assert done.returncode == 0, f"{command} exited {done.returncode}\n{done.stdout}\n{done.stderr}"
    return done
