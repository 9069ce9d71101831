"""`millrace calibrate` at tiny sizes: what is measured, what is stored, which devices take part."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

import millrace as mr
from millrace.cli import calibrate
from millrace.host.device.contract import DeviceInfo
from millrace.host.planner import calibration
from millrace.host.planner.calibration import Calibration
from millrace.registry import device


@pytest.fixture(autouse=True)
def tiny(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for name, value in {
        "WINDOW": 256,
        "SIZES": (64, 128),
        "DEVICE_BATCH": 32,
        "TURNS": 1,
        "SLICE_SECONDS": 1e-4,
        "COMPILE_ROWS": (3, 20),
    }.items():
        monkeypatch.setattr(calibrate, name, value)
    monkeypatch.setattr(calibration, "cache_dir", lambda: tmp_path)
    monkeypatch.setattr(calibrate, "real_devices", list)
    calibration._read.cache_clear()
    yield
    calibration._read.cache_clear()


def quiet(what: str, share: float) -> None:
    assert what
    assert 0 <= share <= 1


def test_what_is_measured_is_stored_and_printed(capsys: pytest.CaptureFixture[str]) -> None:
    calibrate.run_calibration(as_json=True)
    printed = json.loads(capsys.readouterr().out)
    assert set(printed["batches"]) == {"64", "128"}
    assert all(set(speeds) == {"wib", "bisort"} for speeds in printed["batches"].values())
    assert set(printed["devices"]) == {"cpu"}
    assert 64 <= printed["small_batch"] <= 1 << 14
    assert calibration.calibration() == Calibration(**printed)
    assert mr.device("auto").name == "cpu"


def test_a_table_for_people(capsys: pytest.CaptureFixture[str]) -> None:
    calibrate.run_calibration(as_json=False)
    printed = capsys.readouterr().out
    assert 'index="auto": wib for batches below' in printed
    assert 'device="auto": cpu' in printed


def test_a_folder_that_cannot_be_written_is_reported(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(calibration, "cache_dir", lambda: tmp_path / "absent")
    calibrate.run_calibration(as_json=True)
    assert "MILLRACE_CACHE_DIR" in capsys.readouterr().err


def test_every_real_device_is_measured_and_one_that_fails_is_left_out(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(calibrate, "real_devices", lambda: ["cuda:7"])
    speeds = calibrate.measure_devices(quiet)
    assert set(speeds) == {"cpu"}
    assert "cuda:7 is left out: " in capsys.readouterr().err


def test_the_fastest_device_wins(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calibrate, "compile_kernels", lambda report: None)
    monkeypatch.setattr(calibrate, "measure_devices", lambda report: {"cpu": 1.0, "cuda:0": 2.0, "opencl:1": 1.5})
    monkeypatch.setattr(calibrate, "device_info", lambda name: DeviceInfo(name, "cuda", True, "a card"))
    measured = calibrate.measure(quiet)
    assert (measured.device, measured.described) == ("cuda:0", "a card")


def test_a_join_is_closed_however_its_measurement_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    closed = []
    monkeypatch.setattr(mr.WindowJoin, "close", lambda join: closed.append(join.stats["index"]))
    monkeypatch.setattr(calibrate._Runner, "slice", lambda runner: pytest.fail("stop"))
    with pytest.raises(pytest.fail.Exception):
        calibrate._race({name: (name, device("cpu").name) for name in ("wib", "bisort")}, 64)
    assert sorted(closed) == ["bisort", "wib"]
