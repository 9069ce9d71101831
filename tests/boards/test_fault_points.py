"""The fault points of boards and of their link: a call that fails can be made again, damaged data are a fault."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import millrace as mr
from millrace.faults import injected
from millrace.host.base.errors import DeviceFault
from millrace.host.device.contract import Device
from millrace.hw import cards, deploy
from millrace.hw.link import TIMEOUT_VARIABLE
from millrace.sim.serial_board import SerialBoard
from tests.boards.cards import small_image

CALLS = ("alloc", "write", "launch", "wait", "read")
LINK = [f"link.{way}=3+1*{action}" for way in ("write", "read") for action in ("raise", "corrupt", "short")]


def index_of(device: Device) -> list[int]:
    """Every eighth of 64 words, found by the engine."""
    words = device.alloc(64, np.dtype(np.uint64))
    device.write(words, 0, np.arange(64, dtype=np.uint64) * 7)
    index = device.alloc(8, np.dtype(np.uint64))
    device.wait(device.launch("bisort_indexer", [words, index], (64, 8)))
    return [int(word) for word in device.read(index, 0, 8)]


def test_a_call_that_fails_can_be_made_again(card: str) -> None:
    device = mr.device(card)
    for call in CALLS:
        with injected(f"board.{call}=1*raise"):
            with pytest.raises(DeviceFault, match=f"injected fault at board.{call}"):
                index_of(device)
            assert index_of(device) == [56 * i for i in range(8)]
    device.close()


def test_whatever_the_link_does_to_data_is_a_device_fault(card: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(TIMEOUT_VARIABLE, "0.6")  # half a message is noticed after this time
    for rule in LINK:
        device = mr.device(card)
        with injected(rule) as rules, pytest.raises(DeviceFault):
            index_of(device)
        assert [one.fired for one in rules.values()] == [1], rule
        device.close()
    monkeypatch.setenv(TIMEOUT_VARIABLE, "60")
    device = mr.device(card)
    assert index_of(device) == [56 * i for i in range(8)]
    device.close()


def test_a_load_that_fails_leaves_the_card_unloaded(ulx3s: SerialBoard, tmp_path: Path) -> None:
    path = tmp_path / "small.mri"
    path.write_bytes(small_image().pack())
    with injected("board.load=1*raise"):
        with pytest.raises(DeviceFault, match=r"injected fault at board\.load"):
            deploy.deploy("lab", path, f"serial:{ulx3s.path}")
        assert cards.card("lab").state != cards.LOADED
        deploy.deploy("lab", path, f"serial:{ulx3s.path}")
    assert cards.card("lab").state == cards.LOADED
