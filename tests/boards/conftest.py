"""Fixtures for board tests: a card folder per test, a simulated ULX3S and a loopback PYNQ board."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from millrace.hw import deploy, loader
from millrace.hw.link import CLOCK_VARIABLE, TIMEOUT_VARIABLE
from millrace.hw.pynq_link import PYTHON
from millrace.sim.loopback import LoopbackBoard, image
from millrace.sim.serial_board import SerialBoard
from tests.boards.cards import PYNQ_PYTHON, own_address, own_folder, small_image


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The card folder of this test."""
    own_folder(monkeypatch, tmp_path / "cards")
    monkeypatch.setenv(TIMEOUT_VARIABLE, "60")  # deploys are checked on the machine's clock in part
    if PYTHON not in os.environ:
        monkeypatch.setenv(PYTHON, str(PYNQ_PYTHON))
    return tmp_path / "cards"


@pytest.fixture
def ulx3s(monkeypatch: pytest.MonkeyPatch) -> Iterator[SerialBoard]:
    """A simulated ULX3S without a loaded image."""
    with SerialBoard() as board:
        monkeypatch.setenv(loader.VARIABLE, board.loader)
        monkeypatch.setenv(CLOCK_VARIABLE, board.clock)
        yield board


@pytest.fixture
def card(ulx3s: SerialBoard, tmp_path: Path) -> str:
    """Its card, deployed; the device's name."""
    path = tmp_path / "small.mri"
    path.write_bytes(small_image().pack())
    deploy.deploy("lab", path, f"serial:{ulx3s.path}")
    return "fpga:lab"


@pytest.fixture
def kv260(monkeypatch: pytest.MonkeyPatch) -> Iterator[LoopbackBoard]:
    """A loopback board at an address that only this process uses."""
    with LoopbackBoard("kv260", own_address()) as board:
        monkeypatch.setenv(CLOCK_VARIABLE, board.clock)
        yield board


@pytest.fixture
def kria(kv260: LoopbackBoard, tmp_path: Path) -> str:
    """Its card, deployed; the device's name."""
    path = tmp_path / "kv260.mri"
    path.write_bytes(image("kv260").pack())
    deploy.deploy("kria", path, kv260.link)
    return "fpga:kria"
