"""What the first owner of a board meets: boards that answer as real ones do, wrong links, lines that come and go."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner

import millrace as mr
from millrace.cli.app import app
from millrace.host.base.errors import ArgumentError, BitstreamError, DeviceFault, DeviceUnavailable
from millrace.hw import cards, catalog, deploy, loader, pynq_board, pynq_link, usb
from millrace.hw import image as images
from millrace.hw.board_device import BoardDevice
from millrace.hw.link import CLOCK_VARIABLE
from millrace.hw.pynq_link import PYTHON
from millrace.hw.serial_link import SerialLink
from millrace.sim.loopback import LoopbackBoard, device_tree, image
from millrace.sim.serial_board import SerialBoard
from tests.boards.cards import HEAD, own_address, small_image

KV260 = catalog.board("kv260")
TREE = device_tree("kv260")


@pytest.fixture
def small(tmp_path: Path) -> Path:
    """A file with an image for the ULX3S."""
    path = tmp_path / "small.mri"
    path.write_bytes(small_image().pack())
    return path


# PYNQ.


@pytest.mark.parametrize(
    ("report", "expected"),
    [
        ({"variable": "KV260"}, ("KV260", True)),
        ({"variable": "KR260", "name": "KV260"}, ("KR260", False)),
        ({"variable": "Unknown", "name": "KV260"}, ("KV260", True)),
        ({"name": "Unknown", "compatible": ["xlnx,zynqmp-sk-kv260"]}, ("KV260", True)),
        ({"compatible": ["xlnx,zynqmp-zcu104"]}, ("ZCU104", False)),
        ({"compatible": ["xlnx,zynqmp-smk-k26-rev1", "xlnx,zynqmp"]}, (None, False)),
        ({}, (None, False)),
    ],
    ids=str,
)
def test_a_board_is_what_its_environment_or_its_device_tree_says(report: dict, expected: tuple) -> None:
    assert pynq_board.identity(KV260, report) == expected


def test_a_board_that_does_not_say_what_it_is_gets_a_warning_or_the_users_word() -> None:
    with pytest.warns(RuntimeWarning, match="--board kv260"):
        pynq_board.check(KV260, {}, None)
    pynq_board.check(KV260, {}, "kv260")


def test_a_deploy_on_the_board_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """There, pynq's device has XRT's name `edge`."""
    path = tmp_path / "kv260.mri"
    path.write_bytes(image("kv260").pack())
    with (
        LoopbackBoard("kv260", own_address(), {"compatible": TREE["compatible"]}) as board,
        monkeypatch.context() as on,
    ):
        on.setenv(CLOCK_VARIABLE, board.clock)
        on.setenv(PYTHON, board.python)
        on.setattr(os, "geteuid", lambda: 0)
        on.setenv("BOARD", "ZCU104")
        with pytest.raises(BitstreamError, match="'ZCU104'"):
            deploy.deploy("kria", path, "pynq")
        assert cards.cards() == []
        on.setenv("BOARD", "Unknown")
        deploy.deploy("kria", path, "pynq")
        mr.device("fpga:kria").close()
    with LoopbackBoard("kv260", own_address(), {}) as board:  # says nothing, over the network
        monkeypatch.setenv(CLOCK_VARIABLE, board.clock)
        with pytest.warns(RuntimeWarning, match="does not say what it is"):
            deploy.deploy("other", path, board.link)


def test_pynq_on_the_board_needs_root(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(DeviceUnavailable, match="sudo -E"):
        pynq_link.PynqLink("", 1.0)


def test_what_the_child_prints_reaches_the_message(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    python = tmp_path / "python"
    python.write_text("#!/bin/sh\nprintf '\\033[31m[XRT] ERROR: no such device\\n' >&2\nexit 3\n")
    python.chmod(0o755)
    monkeypatch.setenv(PYTHON, str(python))
    with pytest.raises(DeviceFault, match=r"printed: \[31m\[XRT\] ERROR: no such device"):
        pynq_link.PynqLink("127.0.0.1", 5.0)


@pytest.mark.parametrize(("error", "expected"), [("\x1b[31mno device\ud800", "no device"), ("", "without a message")])
def test_an_error_of_the_child_is_shown_without_control_characters(
    error: str, expected: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Exceptions of pynq may quote the board at the other end."""
    python, answer = tmp_path / "python", json.dumps({"error": error}) + "\n"
    python.write_text(f"#!{sys.executable}\nimport os, sys\nos.write(int(sys.argv[2]), {answer.encode()!r})\n")
    python.chmod(0o755)
    monkeypatch.setenv(PYTHON, str(python))
    with pytest.raises(DeviceFault) as refusal:
        pynq_link.PynqLink("127.0.0.1", 5.0)
    assert expected in str(refusal.value)
    assert str(refusal.value).isprintable()


# ULX3S.


def test_the_loader_of_debian_is_understood(small: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Version 0.10 calls the chip LFE5UM-85."""
    with SerialBoard(loader_version="0.10.0") as board:
        monkeypatch.setenv(loader.VARIABLE, board.loader)
        monkeypatch.setenv(CLOCK_VARIABLE, board.clock)
        deploy.deploy("lab", small, f"serial:{board.path}")
        assert len(board.loads) == 1


@pytest.mark.parametrize("code", [0x41111043, 0x81113043, 0x01111043], ids=hex)
def test_another_part_is_refused_by_its_id_code(code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wrong = tmp_path / "loader"
    wrong.write_text(f"#!/bin/sh\nprintf 'index 0:\\n\\tidcode {code:#x}\\n\\tmodel  LFE5U-85\\n'\n")
    wrong.chmod(0o755)
    monkeypatch.setenv(loader.VARIABLE, str(wrong))
    with pytest.raises(BitstreamError, match=f"{code:#010x}"):
        loader.detect(catalog.board("ulx3s"), "/dev/null")


def test_an_image_can_be_written_to_flash(ulx3s: SerialBoard, small: Path) -> None:
    deploy.deploy("lab", small, f"serial:{ulx3s.path}", flash=True)
    assert ulx3s.flashed == ulx3s.loads
    path = small.with_name("kv260.mri")
    path.write_bytes(image("kv260").pack())
    with pytest.raises(ArgumentError, match="flash"):
        deploy.deploy("kria", path, "pynq:127.0.0.1", flash=True)


def test_loader_and_link_use_the_same_usb_device(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    device = tmp_path / "devices" / "1-1"
    (device / "1-1:1.0" / "ttyUSB7").mkdir(parents=True)
    (device / "idVendor").write_text("0403\n")
    (device / "serial").write_text("D00123\n")
    (tmp_path / "tty" / "ttyUSB7").mkdir(parents=True)
    (tmp_path / "tty" / "ttyUSB7" / "device").symlink_to(device / "1-1:1.0" / "ttyUSB7")
    line = tmp_path / "ttyUSB7"
    line.write_text("")
    (tmp_path / "by-id").mkdir()
    (tmp_path / "by-id" / "usb-ulx3s").symlink_to(line)
    monkeypatch.setattr(usb, "TTYS", tmp_path / "tty")
    monkeypatch.setattr(usb, "BY_ID", tmp_path / "by-id")
    assert usb.serial_number(str(line)) == "D00123"
    assert cards.lasting(f"serial:{line}") == f"serial:{tmp_path / 'by-id' / 'usb-ulx3s'}"
    asked = tmp_path / "loader"
    asked.write_text(f'#!/bin/sh\necho "$@" > {tmp_path}/asked\necho idcode 0x41113043\n')
    asked.chmod(0o755)
    monkeypatch.setenv(loader.VARIABLE, str(asked))
    loader.detect(catalog.board("ulx3s"), str(line))
    assert (tmp_path / "asked").read_text().split() == ["--board", "ulx3s", "--ftdi-serial", "D00123", "--detect"]
    assert usb.serial_number("/dev/null") is None
    monkeypatch.chdir(tmp_path)
    assert cards.lasting("serial:ttyUSB7") == cards.lasting(f"serial:{line}")
    assert cards.lasting("serial:ttyUSB8") == f"serial:{tmp_path}/ttyUSB8"


# Cards.


def to_no_line(board: SerialBoard, small: Path) -> str:
    return "serial:/dev/no-such-line"


def to_no_terminal(board: SerialBoard, small: Path) -> str:
    return f"serial:{small}"


def to_a_folder(board: SerialBoard, small: Path) -> str:
    return f"serial:{small.parent}"


@pytest.mark.parametrize("link", [to_no_line, to_no_terminal, to_a_folder])
def test_a_wrong_link_is_found_before_the_first_byte(
    link: Callable[[SerialBoard, Path], str], card: str, ulx3s: SerialBoard, small: Path
) -> None:
    before = cards.card("lab")
    with pytest.raises(DeviceUnavailable, match="serial line") as refusal:
        deploy.deploy("lab", small, link(ulx3s, small))
    assert "dialout" not in str(refusal.value)  # that would not help
    assert cards.card("lab") == before
    assert len(ulx3s.loads) == 1
    mr.device(card).close()


def test_a_wrong_link_is_described_without_control_characters(small: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "millrace.cli", "board", "deploy", "lab", str(small), "--link", "serial:/dev/\x1b[31mx"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    assert "there is no serial line" in done.stderr
    assert all(line.isprintable() for line in done.stderr.splitlines())


def test_a_deploy_that_fails_over_another_link_leaves_the_card_as_it_was(
    card: str, small: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = cards.card("lab")
    with SerialBoard() as second:
        with monkeypatch.context() as patch:
            patch.setenv(loader.VARIABLE, second.loader)
            patch.setenv(CLOCK_VARIABLE, second.clock)
            second.break_with("identity")
            with pytest.raises(BitstreamError, match="runs build"):
                deploy.deploy("lab", small, f"serial:{second.path}")
        assert len(second.loads) == 1
    assert cards.card("lab") == before
    mr.device(card).close()


def test_a_deploy_that_the_loader_rejects_is_refused_not_loading(
    card: str, ulx3s: SerialBoard, small: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    failing = tmp_path / "failing"
    failing.write_text('#!/bin/sh\ncase "$*" in *--detect) echo idcode 0x41113043;; *) echo Fail >&2; exit 1;; esac\n')
    failing.chmod(0o755)
    with monkeypatch.context() as patch:
        patch.setenv(loader.VARIABLE, str(failing))
        with pytest.raises(DeviceFault, match="exit code 1: Fail"):
            deploy.deploy("lab", small)
    assert cards.card("lab").state == cards.REFUSED
    deploy.reset("lab")  # loads the last image again
    assert cards.card("lab").state == cards.LOADED


def test_a_card_whose_line_is_gone_is_not_available(card: str, ulx3s: SerialBoard) -> None:
    def info() -> mr.DeviceInfo:
        return next(one for one in mr.devices() if one.name == card)

    assert info().available
    Path(ulx3s.path).unlink()
    assert not info().available
    assert "is gone" in info().detail
    listed = CliRunner().invoke(app, ["board", "list"])
    assert "is gone" in listed.stdout
    (said,) = json.loads(CliRunner().invoke(app, ["board", "list", "--json"]).stdout)["cards"]
    assert "is gone" in said["unreachable"]


def test_a_card_can_be_removed(card: str, folder: Path) -> None:
    assert list((folder / "images").iterdir())
    done = CliRunner().invoke(app, ["board", "remove", "lab"])
    assert done.exit_code == 0, done.output
    assert cards.cards() == []
    assert not list((folder / "images").iterdir())
    assert not list((folder / "firmware").iterdir())
    with pytest.raises(DeviceUnavailable):
        cards.remove("lab")


def test_another_image_on_the_same_board_ends_the_cards_of_the_first(
    card: str, ulx3s: SerialBoard, small: Path, tmp_path: Path
) -> None:
    """Two names for one board: the one whose image is gone must not be called loaded. The line has two paths."""
    second_path = tmp_path / "second-name-of-the-line"
    second_path.symlink_to(ulx3s.path)
    other = tmp_path / "other.mri"
    other.write_bytes(images.make(catalog.board("ulx3s"), {"ulx3s_top.bit": HEAD}, {"test": "2"}, {}).pack())
    deploy.deploy("twin", small, f"serial:{second_path}")
    assert [one.state for one in cards.cards()] == [cards.LOADED, cards.LOADED]  # the same image, so both are right
    deploy.deploy("twin", other)
    assert {one.name: one.state for one in cards.cards()} == {"lab": cards.REFUSED, "twin": cards.LOADED}
    assert not next(one for one in mr.devices() if one.name == card).available
    deploy.reset("lab")
    assert {one.name: one.state for one in cards.cards()} == {"lab": cards.LOADED, "twin": cards.REFUSED}


@pytest.mark.parametrize(
    "text",
    ["", "[]", "{}", "[" * 100_000, "\ud800", *(f"CHANGED {field}" for field in ("name", "link", "state", "image"))],
    ids=lambda text: text[:13],
)
def test_a_damaged_file_of_a_card_hides_no_other_card(text: str, card: str, folder: Path) -> None:
    fields = json.loads((folder / "lab.json").read_text())
    if text.startswith("CHANGED"):
        field = text.split()[1]
        wrong = {"name": "../lab", "link": "telnet:board", "state": 7, "image": None}[field]
        text = json.dumps({**fields, "name": "zoo", field: wrong})
    (folder / "zoo.json").write_text(text, encoding="utf-8", errors="surrogatepass")
    assert [one.name for one in cards.cards()] == ["lab"]
    listed = CliRunner().invoke(app, ["board", "list"])
    assert listed.exit_code == 0
    assert "zoo" not in listed.stdout
    assert card in {one.name for one in mr.devices()}


def test_the_board_of_a_shell_says_what_to_export(tmp_path: Path) -> None:
    """The printed line makes `openFPGALoader` and the clock those of the board, also for commands typed by hand."""
    command = [sys.executable, "-m", "millrace.sim.serial_board"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as board:
        assert board.stdout is not None
        link, export = board.stdout.readline().split(), board.stdout.readline()
        typed = f"{export}openFPGALoader --board ulx3s --detect; ls -L ${CLOCK_VARIABLE} {link[1].partition(':')[2]}"
        said = subprocess.run(["bash", "-ec", typed], capture_output=True, text=True, check=False)
        board.send_signal(signal.SIGINT)
    assert said.returncode == 0, said.stderr
    assert "idcode 0x41113043" in said.stdout


def test_the_loopback_board_of_a_shell_says_what_to_export_and_leaves_nothing(tmp_path: Path) -> None:
    """The image that it writes is deployed by commands typed by hand; SIGTERM ends the board and its server."""
    command = [sys.executable, "-m", "millrace.sim.loopback", "kv260", own_address()]
    with subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as board:
        assert board.stdout is not None
        link, image_file, export = (board.stdout.readline().strip() for _ in range(3))
        deploying = (
            f"{sys.executable} -m millrace.cli board deploy kria {image_file.split()[1]} --link {link.split()[1]}"
        )
        clock = f"${CLOCK_VARIABLE}"
        said = subprocess.run(
            ["bash", "-ec", f"{export}; {deploying}; echo {clock}; ls {clock} >/dev/null"],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=False,
        )
        board.terminate()
    assert said.returncode == 0, said.stderr
    assert "kria: loaded" in said.stdout
    assert not Path(said.stdout.splitlines()[-1]).parent.exists()


def test_time_outs_of_a_simulated_board_count_its_own_time(card: str, tmp_path: Path) -> None:
    """A clock that stands still, as that of a stopped board: the link waits on, and the answer counts when it comes."""
    device = mr.device(card)
    assert isinstance(device, BoardDevice)
    link = device._link
    assert isinstance(link, SerialLink)
    times = iter([0.0] * 50 + [1e9] * 1000)
    link.clock = lambda: next(times)
    assert link._ready(1.0) is False  # nothing was asked: after 50 looks the clock says that it is late
    assert next(times) == 1e9
    device.close()
