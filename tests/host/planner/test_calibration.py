"""The file of `millrace calibrate`: its name, what it holds, and what happens without it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from millrace.host.planner import calibration
from millrace.host.planner.calibration import Calibration, crossover
from millrace.host.planner.rule import Rule
from millrace.host.runtime import jit

MEASURED = Calibration(512, "cuda:0", {"64": {"wib": 2.0, "bisort": 1.0}}, {"cpu": 1.0, "cuda:0": 2.0})


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setattr(calibration, "cache_dir", lambda: tmp_path)
    calibration._read.cache_clear()
    yield tmp_path
    calibration._read.cache_clear()


def test_without_a_file_the_built_in_rule_and_the_cpu_hold() -> None:
    assert calibration.calibration() == Calibration()
    assert calibration.calibration().device == "cpu"
    assert calibration.rule(2) == Rule()


def test_what_was_measured_holds_at_once_and_in_later_processes_for_so_many_threads(folder: Path) -> None:
    assert calibration.rule(1) == Rule()
    assert calibration.keep(MEASURED, 1)
    assert calibration.rule(1) == Rule(small_batch=512)
    calibration._read.cache_clear()  # as in a new process
    assert calibration.calibration(1) == MEASURED
    assert calibration.calibration(2) == Calibration()
    assert [path.name for path in folder.iterdir()] == [calibration.calibration_file(1).name]


def test_the_file_is_named_by_kernels_processor_cores_and_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    names = {calibration.calibration_file(1)}
    names.add(calibration.calibration_file(2))
    monkeypatch.setattr(calibration, "cpu_model", lambda: "Another CPU @ 3.0 GHz")
    names.add(calibration.calibration_file(1))
    assert "Another-CPU-3-0-GHz" in calibration.calibration_file(1).name
    monkeypatch.setattr("os.cpu_count", lambda: 999)
    names.add(calibration.calibration_file(1))
    monkeypatch.setattr(calibration, "cache_dir", jit.cache_dir)
    names.add(calibration.calibration_file(1))
    assert len(names) == 5
    assert jit.source_hash() in str(calibration.calibration_file(1).parent)


@pytest.mark.parametrize(
    "content",
    [
        *("", "{", "[]", "3", '{"unknown": 1}'),
        *(json.dumps(asdict(Calibration()) | {"small_batch": value}) for value in (0, 1 << 20, 2.5, "many", None)),
        json.dumps(asdict(Calibration()) | {"device": 3}),
    ],
)
def test_a_damaged_file_counts_as_none(content: str) -> None:
    calibration.calibration_file(1).write_text(content)
    assert calibration.calibration(1) == Calibration()


def test_a_folder_that_cannot_be_written_is_reported(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(calibration, "cache_dir", lambda: tmp_path / "absent")
    assert not calibration.keep(MEASURED)
    assert calibration.calibration() == Calibration()


def test_a_measurement_out_of_bounds_cannot_be_made() -> None:
    with pytest.raises(ValueError, match="64 to 16384"):
        replace(MEASURED, small_batch=10)


@pytest.mark.parametrize(
    ("ratios", "wanted"),
    [
        ({64: 2.0, 128: 1.5, 256: 0.7, 512: 0.5}, 181),
        ({64: 0.9, 128: 0.8, 256: 0.7}, 64),
        ({64: 2.0, 128: 1.5, 256: 1.1}, 1 << 14),
        ({64: 2.0, 128: 0.99, 256: 1.4, 512: 0.5}, 362),
    ],
)
def test_the_crossover_loses_the_least_speed(ratios: dict[int, float], wanted: int) -> None:
    assert crossover({size: {"wib": ratio, "bisort": 1.0} for size, ratio in ratios.items()}) == wanted
