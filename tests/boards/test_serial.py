"""The simulated ULX3S behind a pseudo-terminal: the unchanged driver, the conformance suite, and faults."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
import warnings
from pathlib import Path
from unittest.mock import patch

import numpy as np
import pyarrow as pa
import pytest

import millrace as mr
from millrace.host.base.errors import BitstreamError, DeviceFault, DeviceUnavailable
from millrace.host.join.panjoin import bisort
from millrace.hw import cards, catalog, deploy, exercise, loader
from millrace.hw import registers as reg
from millrace.hw.board_device import BoardDevice
from millrace.hw.link import CLOCK_VARIABLE
from millrace.hw.serial_link import SerialLink
from millrace.sim.serial_board import SerialBoard
from tests.boards.cards import conforming, joined, small_image

CASES = 16
TIMEOUT = "0.6"


def opened(name: str) -> BoardDevice:
    device = mr.device(name)
    assert isinstance(device, BoardDevice)
    return device


def test_bisort_conforms(card: str) -> None:
    assert conforming(card, CASES) > CASES // 3


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
        monkeypatch.setenv(loader.VARIABLE, board.loader)
        monkeypatch.setenv(CLOCK_VARIABLE, board.clock)
        path = tmp_path / "x.mri"
        path.write_bytes(small_image().pack())
        shape = deploy.deploy("slow", path, f"serial:{board.path}")
        assert f"{shape.build:016x}" == chosen.build_hash()
        device = opened("fpga:slow")
        data = np.arange(64, dtype=np.uint64) * 7919
        buffer = device.adopt(data)
        index = device.alloc(8, np.dtype(np.uint64))
        device.wait(device.launch("bisort_indexer", [buffer, index], (64, 8)))
        assert (device.read(index, 0, 8) == data[::8]).all()
        assert (device.read(buffer, 0, 64) == data).all()
        device.close()


def test_a_window_beyond_the_chips_memory_is_refused(card: str) -> None:
    with pytest.raises(DeviceUnavailable, match="rows of both sides together"):
        mr.WindowJoin(on="r.x = s.x", window="100000 rows", index="bisort", device=card)
    device = opened(card)
    device._link.alloc((device._link.free_bytes or 0) - 2000)  # leave little memory, so that a short push fills it
    join = mr.WindowJoin(on="r.x = s.x", window="1000 days", time="t", index="bisort", device=card)
    table = pa.table({"x": pa.array(range(400), pa.int64()), "t": pa.array(range(400), pa.timestamp("s"))})
    with patch.object(bisort, "BUFFER", 3), pytest.raises(DeviceFault, match="do not fit into the board's memory"):
        _push_both(join, table)
    join.close()
    device.close()


def _push_both(join: mr.WindowJoin, table: pa.Table) -> None:
    join.push("r", table)
    join.push("s", table)


def test_one_process_at_a_time(card: str) -> None:
    device = opened(card)
    code = f"import millrace as mr; mr.device({card!r}).close()"
    other = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert f"in use by process {os.getpid()}" in other.stderr
    device.close()
    subprocess.run([sys.executable, "-c", code], check=True)


def test_two_devices_of_one_process_share_the_engine(card: str) -> None:
    first, second = opened(card), opened(card)
    left = first._link.free_bytes
    data = np.arange(64, dtype=np.uint64)
    for device in (first, second):
        index = device.alloc(8, np.dtype(np.uint64))
        device.wait(device.launch("bisort_indexer", [device.adopt(data), index], (64, 8)))
        assert (device.read(index, 0, 8) == data[::8]).all()
    assert first.counters()["fpga_indexer_rows"] == 128
    first.close()
    second.close()
    again = opened(card)
    assert again._link.free_bytes == left
    again.close()


def test_a_forked_child_holds_no_card(card: str) -> None:
    device = opened(card)
    reading, writing = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # newer Pythons warn about threads
        child = os.fork()
    if child == 0:
        os.write(writing, b"!")
        time.sleep(600)
        os._exit(0)
    os.read(reading, 1)
    device.close()
    opened(card).close()
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    os.close(reading)
    os.close(writing)


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
    response = os.read(link._line, 64)
    assert response[:2] == b"\x01\x01"
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


def test_reset_gives_a_fresh_engine(card: str) -> None:
    device = opened(card)
    data = np.arange(16, dtype=np.uint64)
    device.wait(device.launch("bisort_indexer", [device.adopt(data), device.alloc(2, data.dtype)], (16, 8)))
    assert device._engine.counters()["commands"] == 1
    device.close()
    deploy.reset("lab")
    device = opened(card)
    assert device._engine.counters()["commands"] == 0
    device.close()


def test_a_loader_that_is_killed_leaves_the_simulated_board_at_work(card: str, ulx3s: SerialBoard) -> None:
    """A board whose thread has ended stops its clock, and with it all time-outs."""
    for said in (b"", b'{"sha256'):
        with socket.socket(socket.AF_UNIX) as loading:
            loading.connect(str(Path(ulx3s.clock).with_name("jtag")))
            loading.sendall(said)
    device = mr.device(card)
    assert device.counters()["fpga_commands"] == 0
    device.close()
    assert ulx3s._thread.is_alive()
