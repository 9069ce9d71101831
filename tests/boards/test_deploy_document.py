"""docs/deploy.md tells the truth: its commands run against the simulated board and print what it says.

`python -m tests.boards.test_deploy_document` writes what they print now into the document. Numbers, hashes and paths
may differ; the lines around them may not. The first command, the set-up, is not run. The one that builds the bitstream
takes minutes: one test runs it, the other gets an image whose bitstream is none.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from millrace.hw import cards, deploy, records
from millrace.hw import image as images
from millrace.hw.catalog import board
from millrace.sim.serial_board import SerialBoard
from tests.boards.cards import small_image
from tests.packaging.project import ROOT

DOCUMENT = ROOT / "docs" / "deploy.md"
BLOCK = re.compile(r"```console\n\$ ([^\n]+)\n(.*?)```", re.DOTALL)
VARIABLE = re.compile(r"\b[0-9a-f]{12,}…?|[\d][\d,.]*|(?<= ) +")
LINE = "/dev/ttyUSB0"
NOT_RUN = ("make setup",)
BUILD = "millrace image build ulx3s"


def same_shape(text: str) -> str:
    """Without what may differ."""
    return VARIABLE.sub("#", text).strip()


def run(command: str, simulated: SerialBoard, folder: Path) -> str:
    """What a command prints, errors included."""
    text = command.replace(LINE, simulated.path).replace("examples/", f"{ROOT}/examples/")
    path = os.pathsep.join([str(Path(simulated.loader).parent), str(Path(sys.executable).parent), os.environ["PATH"]])
    environment = {**os.environ, "PATH": path, "PYTHONPATH": str(ROOT / "sdk"), cards.VARIABLE: str(folder / "cards")}
    environment.pop(deploy.LOADER, None)
    done = subprocess.run(
        text, shell=True, cwd=folder, env=environment, capture_output=True, text=True, timeout=2000, check=False
    )
    assert done.returncode == 0, f"{command}: {done.stderr}"
    return done.stdout.replace(simulated.path, LINE)


def test_the_document_has_ten_commands() -> None:
    assert len(BLOCK.findall(DOCUMENT.read_text(encoding="utf-8"))) == 10


def follow(simulated: SerialBoard, folder: Path, builds: bool) -> None:
    """All commands of the document, each compared with what it should print."""
    for command, expected in BLOCK.findall(DOCUMENT.read_text(encoding="utf-8")):
        if command == BUILD and not builds:
            (folder / "ulx3s.mri").write_bytes(small_image().pack())
        elif command not in NOT_RUN:
            assert same_shape(run(command, simulated, folder)) == same_shape(expected), command


def test_each_command_prints_what_the_document_says(ulx3s: SerialBoard, tmp_path: Path) -> None:
    follow(ulx3s, tmp_path, builds=False)
    assert (tmp_path / "ulx3s.mri").exists(), f"the document does not say `{BUILD}`"


def test_a_bitstream_built_from_scratch_meets_its_clock_and_deploys(ulx3s: SerialBoard, tmp_path: Path) -> None:
    follow(ulx3s, tmp_path, builds=True)
    said = images.read(tmp_path / "ulx3s.mri").manifest
    assert said.report["fmax_mhz"] >= said.clock_hz / 1e6 == 25
    kept = records.read(board("ulx3s"))["report"]
    for cell in ("luts", "registers", "block_rams"):  # names, which hold paths, may move a few cells
        assert said.report[cell] == pytest.approx(kept[cell], rel=0.02), "run `millrace image build ulx3s --write`"


def test_the_table_of_builds_is_what_the_record_says() -> None:
    text = records.DOCUMENT.read_text(encoding="utf-8")
    assert records.spliced(text) == text


def _write() -> None:
    text = DOCUMENT.read_text(encoding="utf-8")
    with SerialBoard() as simulated, tempfile.TemporaryDirectory() as folder:
        for command, expected in BLOCK.findall(text):
            if command not in NOT_RUN:
                said = run(command, simulated, Path(folder))
                text = text.replace(f"$ {command}\n{expected}```", f"$ {command}\n{said}```", 1)
    DOCUMENT.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    _write()
