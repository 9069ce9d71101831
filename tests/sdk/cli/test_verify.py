"""`millrace verify`: passes on devices that are right, fails on ones that are not; its files tell nothing private."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from millrace.cli import verify_checks
from millrace.cli.app import app
from millrace.cli.verify import as_page, as_record, without_private
from millrace.cli.verify_checks import Check, Verification, brute_force
from millrace.errors import ArgumentError
from millrace.host.device.cpu import CpuDevice
from millrace.hw import cards

GROUPS = {"results", "transfers", "speeds", "recovery"}


def run(device: str, out: Path) -> tuple[int, dict[str, Any], str]:
    """Exit code, JSON and HTML of a run."""
    done = CliRunner().invoke(app, ["verify", device, "--out", str(out)])
    (record,), (page,) = out.glob("*.json"), out.glob("*.html")
    return done.exit_code, json.loads(record.read_text()), page.read_text()


@pytest.mark.parametrize("device", ["cpu", "opencl", "hls", "rtl"])
def test_a_device_passes(device: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if device != "cpu":
        monkeypatch.setattr(verify_checks, "KEYS", ("int64",))
    code, record, page = run(device, tmp_path)
    assert code == 0, [check for check in record["checks"] if not check["passed"]]
    assert {check["group"] for check in record["checks"]} == GROUPS
    assert record["speeds"]
    assert f"{record['device']['name']}: passed" in page
    assert str(tmp_path) not in json.dumps(record) + page


def test_a_wrong_result_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    right = CpuDevice.read

    def wrong(self: CpuDevice, buffer: Any, offset: int, size: int) -> Any:
        data = right(self, buffer, offset, size)
        return data ^ data.dtype.type(1) if len(data) == 7 else data

    monkeypatch.setattr(CpuDevice, "read", wrong)
    monkeypatch.setattr(verify_checks, "KEYS", ())
    code, record, page = run("cpu", tmp_path)
    assert code == 1
    assert not record["passed"]
    assert [check["name"] for check in record["checks"] if not check["passed"]] == ["arrays sent and read back"]
    assert "FAILED" in page


def test_an_error_of_a_driver_is_part_of_the_report(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A plugin or a vendor's driver raises what it likes; the other checks run, and the owner gets both files."""

    def broken(self: CpuDevice, buffer: Any, offset: int, size: int) -> Any:
        raise SystemError("driver /opt/vendor/lib.so lost its context")

    monkeypatch.setattr(CpuDevice, "read", broken)
    monkeypatch.setattr(verify_checks, "KEYS", ())
    code, record, page = run("cpu", tmp_path)
    assert code == 1
    failed = {check["name"]: check["detail"] for check in record["checks"] if not check["passed"]}
    assert failed["arrays sent and read back"] == "SystemError: driver … lost its context"
    assert any(check["passed"] for check in record["checks"])
    assert "FAILED" in page


def test_an_error_of_a_driver_sends_nothing_to_the_terminal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(self: CpuDevice, buffer: Any, offset: int, size: int) -> Any:
        raise SystemError("\x1b]0;title\x07gone")

    monkeypatch.setattr(CpuDevice, "read", broken)
    monkeypatch.setattr(verify_checks, "KEYS", ())
    done = CliRunner().invoke(app, ["verify", "cpu", "--out", str(tmp_path)])
    assert done.exit_code == 1
    assert "title gone" in done.stdout
    assert done.stdout.replace("\n", "").isprintable()


def test_a_folder_that_cannot_be_made_is_found_before_the_checks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(verify_checks, "verify", None)
    file = tmp_path / "file"
    file.write_text("")
    done = CliRunner().invoke(app, ["verify", "cpu", "--out", str(file / "reports")])
    assert isinstance(done.exception, ArgumentError)
    assert "another one" in str(done.exception)


def test_a_card_is_called_by_its_board(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(cards.VARIABLE, str(tmp_path))
    cards.new_card("annas-board", "kv260", "pynq:kria.example.org", "0" * 64).marked(cards.LOADED)
    detail = "DeviceFault: device 'fpga:annas-board': the board at kria.example.org did not respond"
    found = Verification("fpga:annas-board", "fpga", ("x",), [Check("results", "joins", False, detail, 0.1)])
    record = as_record(found)
    assert record["device"]["name"] == "fpga:kv260"
    written = json.dumps(record) + as_page(record)
    assert "annas" not in written
    assert "kria.example" not in written


def test_a_device_that_is_unknown_is_an_error(tmp_path: Path) -> None:
    done = CliRunner().invoke(app, ["verify", "nonsense", "--out", str(tmp_path)])
    assert done.exit_code != 0
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("ulx3s behind serial:/dev/ttyUSB0, loaded", "ulx3s behind … loaded"),
        ("kv260 behind pynq:192.168.2.99, image 3046", "kv260 behind … image 3046"),
        ("no file /home/owner/x.mri: gone", "no file …: gone"),
        ("at 10.0.0.7 now", "at … now"),
        ("\x1b[31m4 rows/s", " [31m4 rows/s"),
    ],
)
def test_nothing_private_is_written(text: str, expected: str) -> None:
    assert without_private(text) == expected


def test_the_page_shows_text_as_text() -> None:
    found = Verification("toy:<b>", "toy", ("x",), [Check("results", "<script>", False, "a & b", 0.1)])
    page = as_page(as_record(found))
    assert "<script>" not in page
    assert "&lt;script&gt;" in page


def test_brute_force_follows_the_windows() -> None:
    batches = [("r", np.array([1, 2])), ("s", np.array([1, 2])), ("r", np.array([2]))]
    assert brute_force(batches, 1, lambda r, s: r == s).tolist() == [[1, 1], [2, 1]]
    assert brute_force(batches, 5, lambda r, s: r == s).tolist() == [[0, 0], [1, 1], [2, 1]]
