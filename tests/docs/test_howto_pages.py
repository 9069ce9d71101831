"""The files that how-to pages show: a newcomer pastes them, and they work."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

from tools.walk import blocks_of

from tests.packaging.project import ROOT

PAGES = ROOT / "docs" / "howto"


def run(program: list[str], folder: Path) -> str:
    """What a program prints, with the folder and this checkout on Python's path."""
    paths = os.pathsep.join([str(folder), *sys.path])
    found = {**os.environ, "PYTHONPATH": paths}
    done = subprocess.run(program, cwd=folder, env=found, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_device_of_the_page_runs_a_join(tmp_path: Path) -> None:
    page = (PAGES / "write-a-device.md").read_text()
    (module, _), (job, wanted) = blocks_of(page)
    (tmp_path / "my_device.py").write_text(module)
    (entry,) = re.findall(r'^\[project\.entry-points\."(millrace\.devices)"\]\nmine = "my_device"$', page, re.MULTILINE)
    about = tmp_path / "my_device-0.1.dist-info"  # what pip writes for the page's pyproject.toml
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: my-device\nVersion: 0.1\n")
    (about / "entry_points.txt").write_text(f"[{entry}]\nmine = my_device\n")
    assert run([sys.executable, "-c", job], tmp_path) == wanted
    assert "my accelerator" in run([sys.executable, "-m", "millrace.cli", "devices"], tmp_path)


def test_the_test_of_the_page_passes(tmp_path: Path) -> None:
    ((code, _),) = blocks_of((PAGES / "simulate-in-ci.md").read_text())
    (tmp_path / "test_on_hardware.py").write_text(code)
    shown = run([sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_on_hardware.py"], tmp_path)
    assert "1 passed" in shown
