"""The files that how-to pages show: a newcomer pastes them, and they work."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
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


@pytest.fixture
def job(tmp_path: Path) -> tuple[str, str]:
    """Installs the page's device in the test's folder; returns the page's job and what it prints."""
    page = (PAGES / "write-a-device.md").read_text()
    (module, _), job = blocks_of(page)
    (tmp_path / "my_device.py").write_text(module)
    (entry,) = re.findall(r'^\[project\.entry-points\."(millrace\.devices)"\]\nmine = "my_device"$', page, re.MULTILINE)
    about = tmp_path / "my_device-0.1.dist-info"  # what pip writes for the page's pyproject.toml
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: my-device\nVersion: 0.1\n")
    (about / "entry_points.txt").write_text(f"[{entry}]\nmine = my_device\n")
    return job


def test_the_device_of_the_page_runs_a_join(job: tuple[str, str], tmp_path: Path) -> None:
    program, wanted = job
    assert run([sys.executable, "-c", program], tmp_path) == wanted
    assert "my accelerator" in run([sys.executable, "-m", "millrace.cli", "devices"], tmp_path)


@pytest.mark.usefixtures("job")
def test_the_device_of_the_page_is_verified(tmp_path: Path) -> None:
    page = (PAGES / "write-a-device.md").read_text()
    assert page.count("$ millrace verify mine\n") == 2
    shown = run([sys.executable, "-m", "millrace.cli", "verify", "mine"], tmp_path)
    assert "mine: all passed" in shown
    record = json.loads((tmp_path / "millrace-verify-mine.json").read_text())
    assert record["device"]["units"] == ["bisort_indexer", "bisort_merger", "bisort_prober"]
    assert {check["group"] for check in record["checks"]} == {"results", "transfers", "speeds", "recovery"}


@pytest.mark.usefixtures("job")
def test_the_conformance_suite_finds_the_device_of_the_page(tmp_path: Path) -> None:
    """The suite's cases run on all of these pairs (`tests/conformance/pairs.py`)."""
    page = (PAGES / "write-a-device.md").read_text()
    (suite,) = re.findall(r'^\$ make pytest ARGS="(\S+) \S+"$', page, re.MULTILINE)
    assert (ROOT / suite).is_file()
    found = run([sys.executable, "-c", "from millrace.registry import join_pairs; print(join_pairs())"], tmp_path)
    assert "('bisort', 'mine')" in found


def test_the_test_of_the_page_passes(tmp_path: Path) -> None:
    ((code, _),) = blocks_of((PAGES / "simulate-in-ci.md").read_text())
    (tmp_path / "test_on_hardware.py").write_text(code)
    shown = run([sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_on_hardware.py"], tmp_path)
    assert "1 passed" in shown
