"""The fault points of boards and of their link: a join falls back and loses no row; a deploy says what failed."""

from __future__ import annotations

from pathlib import Path

import pytest

from millrace.faults import injected
from millrace.host.base.errors import DeviceFault
from millrace.hw import cards, deploy
from millrace.sim.serial_board import SerialBoard
from tests.boards.cards import joined, small_image

CALLS = [f"board.{call}=5+1*raise" for call in ("alloc", "write", "read", "launch", "wait")]
LINK = [f"link.{way}=40+1*{action}" for way in ("write", "read") for action in ("raise", "corrupt", "short")]


def test_a_join_goes_on_without_losing_or_repeating_a_row(card: str, monkeypatch: pytest.MonkeyPatch) -> None:
    expected, _ = joined("cpu", 60)
    for rule in [*CALLS, *(one for one in LINK if "short" not in one)]:
        with injected(rule) as rules:
            found, stats = joined(card, 60, fallback="cpu")
        (armed,) = rules.values()
        assert armed.hits, rule
        assert found.equals(expected), rule
        assert armed.fired == bool(stats["fallback"]), rule


def test_a_load_that_fails_leaves_the_card_unloaded(ulx3s: SerialBoard, tmp_path: Path) -> None:
    path = tmp_path / "small.mri"
    path.write_bytes(small_image().pack())
    with injected("board.load=1*raise"):
        with pytest.raises(DeviceFault, match=r"injected fault at board\.load"):
            deploy.deploy("lab", path, f"serial:{ulx3s.path}")
        assert cards.card("lab").state != cards.LOADED
        deploy.deploy("lab", path, f"serial:{ulx3s.path}")
    assert cards.card("lab").state == cards.LOADED
