"""The simulated ULX3S behind a pseudo-terminal: the driver unchanged, the conformance suite, and what faults do."""

from __future__ import annotations

import os
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import millrace as mr
from millrace.host.errors import BitstreamError, DeviceFault, DeviceUnavailable
from millrace.hw import cards, catalog, deploy, exercise
from millrace.hw import registers as reg
from millrace.hw.board_device import BoardDevice
from millrace.hw.serial_link import SerialLink
from millrace.sim.serial_board import SerialBoard
from tests.boards.cards import joined, small_image
from tests.sim.mutants import run_cases

CASES = 30
TIMEOUT = "0.6"


def opened(name: str) -> BoardDevice:
    device = mr.device(name)
    assert isinstance(device, BoardDevice)
    return device


def test_bisort_conforms(card: str) -> None:
    assert run_cases(card, CASES) > CASES // 3


def test_every_row_goes_through_the_engine(card: str) -> None:
    found, stats = joined(card)
    expected, _ = joined("cpu")
    assert found.equals(expected)
    assert stats["device"] == card
    assert stats["fpga_merger_rows"] == stats["bisort_merger_rows"] > 500
    assert stats["fpga_low_rows"] == stats["bisort_band_prober_rows"] + stats.get("bisort_prober_rows", 0) > 500


def test_merge_index_and_probe_agree_with_numpy(card: str) -> None:
    device = opened(card)
    assert all(exercise.verify(device).values())
    assert [row.stage for row in exercise.measure(device, 200)] == ["send and index", "merge", "probe", "fetch ids"]
    device.close()


def test_the_line_at_the_boards_own_speed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    chosen = catalog.board("ulx3s")
    with SerialBoard(chosen.line["DIVISOR"]) as board:
        monkeypatch.setenv(deploy.LOADER, board.loader)
        path = tmp_path / "x.mri"
        path.write_bytes(small_image().pack())
        shape = deploy.deploy("slow", path, f"serial:{board.path}")
        assert f"{shape.build:016x}" == chosen.build_hash()
        device = opened("fpga:slow")
        data = np.arange(600, dtype=np.uint64) * 7919
        buffer = device.adopt(data)
        index = device.alloc(75, np.dtype(np.uint64))
        device.wait(device.launch("bisort_indexer", [buffer, index], (600, 8)))
        assert (device.read(index, 0, 75) == data[::8]).all()
        assert (device.read(buffer, 0, 600) == data).all()
        device.close()


def test_a_window_beyond_the_chips_memory_is_refused(card: str) -> None:
    with pytest.raises(DeviceUnavailable, match="rows of both sides together"):
        mr.WindowJoin(on="r.x = s.x", window="100000 rows", index="bisort", device=card)
    join = mr.WindowJoin(on="r.x = s.x", window="1000 days", time="t", index="bisort", device=card)
    times = pa.array(range(9000), pa.timestamp("s"))
    join.push("r", pa.table({"x": pa.array(range(9000), pa.int64()), "t": times}))
    with pytest.raises(DeviceFault, match="do not fit into the board's memory"):
        join.push("s", pa.table({"x": pa.array(range(0, 90000, 10), pa.int64()), "t": times}))
    join.close()


def test_one_process_at_a_time(card: str) -> None:
    device = opened(card)
    with pytest.raises(DeviceUnavailable, match=f"in use by process {os.getpid()}"):
        mr.device(card)
    device.close()
    opened(card).close()


# Faults.


@pytest.mark.parametrize("fault", ["drop", "hang", "bit", "noise", "short"])
def test_a_fault_is_a_device_fault_within_the_time_out(
    fault: str, card: str, ulx3s: SerialBoard, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MILLRACE_BOARD_TIMEOUT", TIMEOUT)
    with pytest.raises(DeviceFault):
        joined(card, breaks=lambda: ulx3s.break_with(fault))


@pytest.mark.parametrize("fault", ["drop", "hang", "bit", "noise", "short"])
def test_a_join_goes_on_without_losing_or_repeating_a_row(
    fault: str, card: str, ulx3s: SerialBoard, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MILLRACE_BOARD_TIMEOUT", TIMEOUT)
    found, stats = joined(card, fallback="cpu", breaks=lambda: ulx3s.break_with(fault))
    expected, _ = joined("cpu")
    assert found.equals(expected)
    assert stats["fallback"]
    assert stats["device"] == "cpu"


def test_another_identity_is_refused(card: str, ulx3s: SerialBoard) -> None:
    ulx3s.break_with("identity")
    with pytest.raises(BitstreamError, match="runs build"):
        mr.device(card)
    ulx3s.break_with("")
    opened(card).close()


def test_a_damaged_request_does_nothing(card: str, ulx3s: SerialBoard) -> None:
    link = SerialLink(ulx3s.path, catalog.board("ulx3s"), 0.6)
    link.write_mem(1024, np.array([7, 8], np.uint32))
    assert link._line is not None
    os.write(link._line, b"\x03\x01\x01\x00" + (1024).to_bytes(4, "little") + b"\xff\xff\xff\xff" + bytes(4))
    time.sleep(0.2)
    answer = os.read(link._line, 64)
    assert answer[:2] == b"\x01\x01"
    assert link.read_mem(1024, 2, np.dtype(np.uint32)).tolist() == [7, 8]
    link.close()


def test_half_a_request_is_forgotten(card: str, ulx3s: SerialBoard) -> None:
    link = SerialLink(ulx3s.path, catalog.board("ulx3s"), 0.6)
    assert link._line is not None
    os.write(link._line, b"\x03\x01\x01")
    time.sleep(0.2)
    assert link.read_regs([reg.REG_MAGIC]) == [reg.MAGIC_VALUE]
    link.close()


# Deploys.


def test_nothing_is_loaded_that_was_not_read_back(
    ulx3s: SerialBoard, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "x.mri"
    path.write_bytes(small_image().pack())
    ulx3s.break_with("identity")
    with pytest.raises(BitstreamError):
        deploy.deploy("lab", path, f"serial:{ulx3s.path}")
    assert cards.card("lab").state == cards.REFUSED
    assert not next(info for info in mr.devices() if info.name == "fpga:lab").available
    with pytest.raises(DeviceUnavailable, match="board deploy"):
        mr.device("fpga:lab")
    ulx3s.break_with("")
    deploy.deploy("lab", path)
    assert cards.card("lab").state == cards.LOADED


def test_an_interrupted_deploy_is_repeated(ulx3s: SerialBoard, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "x.mri"
    path.write_bytes(small_image().pack())

    def interrupted(*given: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(deploy, "identify", interrupted)
        with pytest.raises(KeyboardInterrupt):
            deploy.deploy("lab", path, f"serial:{ulx3s.path}")
    assert cards.card("lab").state == cards.LOADING
    assert len(ulx3s.loads) == 1
    opened("fpga:lab").close()
    assert cards.card("lab").state == cards.LOADED
    assert len(ulx3s.loads) == 2


def test_another_part_is_not_loaded(ulx3s: SerialBoard, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wrong = tmp_path / "loader"
    wrong.write_text("#!/bin/sh\necho model LFE5U-25\n")
    wrong.chmod(0o755)
    monkeypatch.setenv(deploy.LOADER, str(wrong))
    path = tmp_path / "x.mri"
    path.write_bytes(small_image().pack())
    with pytest.raises(BitstreamError, match="LFE5U-25"):
        deploy.deploy("lab", path, f"serial:{ulx3s.path}")
    assert cards.cards() == []


def test_reset_gives_a_fresh_engine(card: str) -> None:
    device = opened(card)
    exercise.verify(device)
    assert device.counters()["fpga_commands"] > 0
    device.close()
    deploy.reset("lab")
    device = opened(card)
    assert device.counters()["fpga_commands"] == 0
    device.close()
