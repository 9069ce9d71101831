"""`millrace verify` passes on both simulated boards, and its report names no link, path or address."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from millrace.cli import verify_checks
from millrace.cli.app import app
from millrace.cli.verify_checks import Verification
from millrace.errors import DeviceFault
from millrace.hw import cards
from millrace.sim.serial_board import SerialBoard


@pytest.mark.parametrize("board", ["card", "kria"])
def test_a_board_passes(
    board: str, tmp_path: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(verify_checks, "KEYS", ("int64",))
    device = request.getfixturevalue(board)
    done = CliRunner().invoke(app, ["verify", device, "--out", str(tmp_path / "out")])
    (file,) = (tmp_path / "out").glob("*.json")
    record = json.loads(file.read_text())
    assert done.exit_code == 0, [check for check in record["checks"] if not check["passed"]]
    assert record["device"]["kind"] == "loopback"  # nobody takes the report for that of a board
    assert record["device"]["simulated"]
    assert "attach" not in done.stdout
    assert {check["group"] for check in record["checks"]} == {"results", "transfers", "speeds", "recovery"}
    _, endpoint = cards.parse_link(cards.card(device.removeprefix("fpga:")).link)
    assert endpoint not in json.dumps(record)
    assert str(tmp_path) not in json.dumps(record)
    assert record["device"]["name"] == f"fpga:{cards.card(device.removeprefix('fpga:')).board}"
    for file in (tmp_path / "out").iterdir():  # the owner chose the name of the card
        assert device not in file.read_text()
        assert "lab" not in file.name


def test_transfers_go_over_the_link(card: str, ulx3s: SerialBoard) -> None:
    """A board's buffer stays on the host until a unit uses it: without that, no byte would be transferred."""
    found = Verification(card, "fpga", ("bisort_indexer",))
    assert "come back unchanged" in verify_checks._round_trips(card, found)
    assert [speed.stage for speed in found.speeds] == ["write and read uint32", "write and read uint64"]
    ulx3s.break_with("bit")
    with pytest.raises(DeviceFault, match="changed in transfer"):
        verify_checks._round_trips(card, Verification(card, "fpga", ()))
