"""The commands of docs/howto/deploy.md run against the simulated board and print the documented output.

`python -m tests.boards.test_deploy_document` writes the current output into the document. Numbers, hashes and paths may
differ, other text may not. The first command, the set-up, is not run. The bitstream build takes minutes: one test runs
it and deploys the result; another test runs all other commands with an image that has a fake bitstream.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from millrace.hw import cards, loader, records
from millrace.hw import image as images
from millrace.hw.catalog import board
from millrace.sim.serial_board import SerialBoard
from tests.boards.cards import small_image
from tests.packaging.project import ROOT
from tests.watchdog import WATCHDOG

DOCUMENT = ROOT / "docs" / "howto" / "deploy.md"
BLOCK = re.compile(r"```console\n\$ ([^\n]+)\n(.*?)```", re.DOTALL)
VARIABLE = re.compile(r"\b[0-9a-f]{12,}…?|[\d][\d,.]*|(?<= ) +")
LINE = "/dev/ttyUSB0"
NOT_RUN = ("make setup",)
BUILD = "millrace image build ulx3s"
BUILT, LOADED = 3, 6
"""The numbers of commands after which the image is built, and deployed."""


def same_shape(text: str) -> str:
    """The text without the parts that may differ."""
    return VARIABLE.sub("#", text).strip()


def start(command: str, folder: Path, path: str = "") -> subprocess.Popen[str]:
    """Start a command in a shell; `path`: a folder to search for programs first."""
    programs = os.pathsep.join([*([path] if path else []), str(Path(sys.executable).parent), os.environ["PATH"]])
    environment = {
        **os.environ,
        "PATH": programs,
        "PYTHONPATH": str(ROOT / "sdk"),
        cards.VARIABLE: str(folder / "cards"),
    }
    environment.pop(loader.VARIABLE, None)
    return subprocess.Popen(
        command, shell=True, cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def printed(command: subprocess.Popen[str]) -> str:
    """Wait for a command and return its output."""
    said, errors = command.communicate(timeout=WATCHDOG)
    assert command.returncode == 0, f"{command.args!r}: {errors}"
    return said


def run(command: str, simulated: SerialBoard, folder: Path) -> str:
    """Run a command with the simulated board instead of a real one; returns its output."""
    text = command.replace(LINE, simulated.path).replace("examples/", f"{ROOT}/examples/")
    return printed(start(text, folder, str(Path(simulated.loader).parent))).replace(simulated.path, LINE)


def follow(simulated: SerialBoard, folder: Path, commands: list[tuple[str, str]]) -> None:
    """Run commands of the document, except the build, and compare their output."""
    for command, expected in commands:
        if command not in (BUILD, *NOT_RUN):
            assert same_shape(run(command, simulated, folder)) == same_shape(expected), command


def blocks() -> list[tuple[str, str]]:
    """The document's commands and their output."""
    return BLOCK.findall(DOCUMENT.read_text(encoding="utf-8"))


# The first test of the folder, because it takes longest: another process can run the other tests at the same time.
def test_a_bitstream_built_from_scratch_meets_its_clock_and_deploys(
    tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    with start(BUILD, tmp_path) as building:
        simulated = request.getfixturevalue("ulx3s")  # the simulation may have to be built too
        assert same_shape(printed(building)) == same_shape(dict(blocks())[BUILD])
    follow(simulated, tmp_path, blocks()[BUILT:LOADED])
    said = images.read(tmp_path / "ulx3s.mri").manifest
    assert said.report["fmax_mhz"] >= said.clock_hz / 1e6 == 25
    kept = records.read(board("ulx3s"))["report"]
    for cell in ("luts", "registers", "block_rams"):  # cell names contain paths, which can change a few cells
        assert said.report[cell] == pytest.approx(kept[cell], rel=0.02), "run `millrace image build ulx3s --write`"


def test_each_command_prints_what_the_document_says(ulx3s: SerialBoard, tmp_path: Path) -> None:
    (tmp_path / "ulx3s.mri").write_bytes(small_image().pack())
    follow(ulx3s, tmp_path, blocks())


def test_the_document_has_ten_commands() -> None:
    commands = [command for command, _ in blocks()]
    assert len(commands) == 10
    assert commands[BUILT - 1] == BUILD
    assert commands[LOADED - 1].startswith("millrace board deploy")


def test_the_table_of_builds_is_what_the_record_says() -> None:
    text = records.DOCUMENT.read_text(encoding="utf-8")
    assert records.with_table(text) == text


def _write() -> None:
    text = DOCUMENT.read_text(encoding="utf-8")
    with SerialBoard() as simulated, tempfile.TemporaryDirectory() as folder:
        for command, expected in blocks():
            if command not in NOT_RUN:
                said = run(command, simulated, Path(folder))
                text = text.replace(f"$ {command}\n{expected}```", f"$ {command}\n{said}```", 1)
    DOCUMENT.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    _write()
