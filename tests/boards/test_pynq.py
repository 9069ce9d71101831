"""The loopback PYNQ board: deploy and join with the unmodified pynq client, faults end in time, no row is lost."""

from __future__ import annotations

import subprocess
import time
from pathlib import Path

import pytest

import millrace as mr
from millrace.host.base.errors import BitstreamError, DeviceFault, DeviceUnavailable
from millrace.hw import cards, deploy, exercise
from millrace.hw import image as images
from millrace.hw.board_device import BoardDevice
from millrace.hw.catalog import board
from millrace.hw.pynq_link import PYTHON, interpreter
from millrace.sim.loopback import SERVER, LoopbackBoard, bitstream, image
from tests.boards.cards import conforming, joined

CASES = 16


def opened(name: str) -> BoardDevice:
    device = mr.device(name)
    assert isinstance(device, BoardDevice)
    return device


def test_bisort_conforms(kria: str) -> None:
    assert conforming(kria, CASES) > CASES // 3


def test_every_row_goes_through_the_engine(kria: str) -> None:
    found, stats = joined(kria)
    expected, _ = joined("cpu")
    assert found.equals(expected)
    assert stats["fpga_merger_rows"] == stats["bisort_merger_rows"] > 500


def test_merge_index_and_probe_agree_with_numpy(kria: str) -> None:
    device = opened(kria)
    assert all(exercise.verify(device).values())
    device.close()


@pytest.mark.parametrize("fault", ["drop", "hang", "bit", "short"])
def test_a_join_goes_on_without_losing_or_repeating_a_row(
    fault: str, kria: str, kv260: LoopbackBoard, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MILLRACE_BOARD_TIMEOUT", "1.5")
    found, stats = joined(kria, fallback="cpu", breaks=lambda: kv260.break_with(fault))
    expected, _ = joined("cpu")
    assert found.equals(expected)
    assert stats["fallback"]
    assert stats["device"] == "cpu"


def test_a_hung_board_is_a_fault_within_the_time_out(
    kria: str, kv260: LoopbackBoard, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MILLRACE_BOARD_TIMEOUT", "1.5")
    began: list[float] = []

    def hang() -> None:
        kv260.break_with("hang")
        began.append(time.monotonic())

    with pytest.raises(DeviceFault, match=r"did not respond in|gave no result in"):
        joined(kria, breaks=hang)
    assert time.monotonic() - began[0] < 1800  # the server sleeps for an hour


def test_another_identity_is_refused(kria: str, kv260: LoopbackBoard) -> None:
    kv260.break_with("identity")
    with pytest.raises(BitstreamError, match="runs build"):
        mr.device(kria)
    kv260.break_with("")
    opened(kria).close()


def test_a_stale_file_on_the_board_is_not_taken_for_a_new_image(
    kria: str, kv260: LoopbackBoard, tmp_path: Path
) -> None:
    first = image("kv260")
    # The same engine in a changed bitstream, with the same name in the image.
    files = {name: data + b"\n\n\n\n" if name.endswith(".bin") else data for name, data in first.members.items()}
    second = images.make(board("kv260"), files, first.manifest.tools, {}, build=first.manifest.build)
    path = tmp_path / "second.mri"
    path.write_bytes(second.pack())
    deploy.deploy("kria", path)
    assert len(set(kv260.uploads())) == 2
    assert len(set(kv260.loads())) == 2
    assert second.manifest.build == first.manifest.build


def test_another_board_is_not_loaded(kv260: LoopbackBoard, tmp_path: Path) -> None:
    ours, theirs = image("kv260"), board("zcu104")
    files = {**ours.members, "millrace.bin": bitstream(theirs, "0" * 24)}
    other = images.make(theirs, files, {}, {}, build=ours.manifest.build)
    path = tmp_path / "zcu104.mri"
    path.write_bytes(other.pack())
    with pytest.raises(BitstreamError, match="KV260"):
        deploy.deploy("kria", path, kv260.link)
    assert kv260.uploads() == []
    assert cards.cards() == []


def test_the_card_is_a_loopback_board(kria: str) -> None:
    assert [info.kind for info in mr.devices() if info.name == kria] == ["loopback"]


@pytest.mark.parametrize("address", ["0.0.0.0", "192.168.2.99", "::"])
def test_the_server_binds_to_loopback_alone(address: str, tmp_path: Path) -> None:
    python = interpreter()
    assert python is not None
    command = [python, str(SERVER), address, str(tmp_path), "0xA0000000", "."]
    sdk = str(SERVER.parent.parent / "sdk")
    done = subprocess.run(command, capture_output=True, text=True, env={"PYTHONPATH": sdk}, check=False)
    assert done.returncode != 0
    assert "loopback network" in done.stderr


def test_without_pynq_the_reason_is_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "kv260.mri"
    path.write_bytes(image("kv260").pack())
    monkeypatch.setenv(PYTHON, str(tmp_path / "no-python"))
    with pytest.raises(DeviceUnavailable, match=PYTHON):
        deploy.deploy("kria", path, "pynq:127.0.0.1")
    monkeypatch.delenv(PYTHON)
    with pytest.raises(DeviceUnavailable, match="make pynq"):
        deploy.deploy("kria", path, "pynq:127.0.0.1")
