"""Bench `small` at tiny sizes: contenders agree, percentiles and calls are reported, and `auto` is compared."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from millrace.bench import catalog, small
from millrace.bench.harness import Case, Contender, Effort, Measured, measure
from millrace.bench.options import Options
from millrace.bench.peers.pyarrow_floor import FloorJoin, FloorLookup, FloorSession
from millrace.bench.rows import BEST_FIXED, Row, result_rows
from millrace.bench.tables import Tables
from millrace.bench.workload import Workload, answer_columns
from millrace.cli import bench as command

SHORT = Effort(2, 1e-6, 1.0)
PERCENTILES = ("p50", "p90", "p99", "p999", "max")


@pytest.fixture
def tiny(monkeypatch: pytest.MonkeyPatch) -> dict[str, Case]:
    for name, value in {
        "QUICK_WINDOW": 64,
        "QUICK_START_BATCH": 50,
        "QUICK_START_PUSHES": 3,
        "QUICK_KEYS": 500,
        "WARM_CALLS": 3,
    }.items():
        monkeypatch.setattr(small, name, value)
    return {case.name: case for case in small.cases(Options(quick=True))}


def rows_of(case: Case) -> list[Row]:
    result = measure(case, SHORT, lambda what, share: None)
    assert not result.missing
    return list(result_rows("small", result, {}))


def test_all_cases_agree_and_report_percentiles_beside_a_floor(tiny: dict[str, Case]) -> None:
    names = ["push-64-batch1", "push-64-batch16", "push-64-batch256", "calls-64-batch1", "join-3", "lookup-2"]
    assert list(tiny) == [*names, "start-64-batch50x3", "slowest-64-batch50x3"]
    for case in tiny.values():
        rows = rows_of(case)
        assert "pyarrow" in {row["peer"] for row in rows}
        for row in rows:
            unit = "calls" if case.name.startswith("calls") else "us"
            for steps in (row["per_step"], row["peer_per_step"]):
                assert steps["unit"] == unit
                values = [steps[name] for name in PERCENTILES]
                assert values == sorted(values)
                assert values[0] > 0
            json.dumps(row, allow_nan=False)


def test_every_index_takes_part_in_pushes(tiny: dict[str, Case]) -> None:
    rows = rows_of(tiny["push-64-batch1"])
    assert {row["index"] for row in rows} == {"auto", "bisort", "rap", "wib", "btree"}
    assert {row["peer"] for row in rows} == {"pyarrow", "btree on cpu", BEST_FIXED}


def test_calls_are_counted_exactly_and_compared_with_the_target(tiny: dict[str, Case]) -> None:
    rows = {(row["index"], row["peer"]): row for row in rows_of(tiny["calls-64-batch1"])}
    row = rows["wib", "500 calls"]
    assert row["peer_per_step"]["p50"] == pytest.approx(500)
    assert row["ratio"] == pytest.approx(row["value"] * 500 / 1e6)
    assert 100 < row["per_step"]["p50"] < 2000


def test_auto_starts_against_bisort(tiny: dict[str, Case]) -> None:
    for name, unit in (("start-64-batch50x3", "tuples/s"), ("slowest-64-batch50x3", "1/s")):
        rows = {(row["index"], row["peer"]): row for row in rows_of(tiny[name])}
        assert rows["auto", BEST_FIXED]["peer_index"] == "bisort"
        assert rows["auto", BEST_FIXED]["unit"] == unit
        assert rows["auto", BEST_FIXED]["pushes"] == 3


def test_the_slowest_push_counts_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    now = iter([0.0, 1.0, 10.0, 15.0, 20.0, 22.0] * 2)
    monkeypatch.setattr("time.perf_counter", lambda: next(now))
    workload = Workload(64, 50, "batches", "pairs")
    assert small.FirstPushes(FloorSession, workload, 3, slowest=True).step() == (1.0, 5.0)
    assert small.FirstPushes(FloorSession, workload, 3, slowest=False).step() == (150, 8.0)


def test_the_floor_has_the_shape_of_the_answer() -> None:
    workload = Workload(1000, 50, "batches", "pairs")
    session = FloorSession(workload)
    built = session.push(session.prepare(workload.turn(1)))
    assert built.column_names == answer_columns("pairs")
    assert built.num_rows == 100
    assert built.schema.field("s_v").type == pa.float64()
    assert FloorJoin(Tables(3)).run().num_rows == 6
    assert len(FloorLookup().query(pa.array([1, 2]))) == 2


def test_percentiles_are_over_single_timed_steps() -> None:
    steps = tuple(1e-6 * np.arange(1, 102))
    found = Measured(Contender("c", lambda: None), (1.0,), steps).percentiles  # type: ignore[arg-type,return-value]
    assert found == pytest.approx({"p50": 51, "p90": 91, "p99": 100, "p999": 100.9, "max": 101})


def test_only_cases_that_ask_have_percentiles(tiny: dict[str, Case]) -> None:
    for name in ("join", "window_join"):
        assert all(case.step_unit is None for case in catalog.cases(name, Options(quick=True)))


def test_the_command_prints_percentiles_once_per_contender(
    tiny: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Options, "effort", SHORT)
    command.run_benches(["small"], False, True, tmp_path, None, "join-3")
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[:2] for line in lines if line.endswith("us")] == [
        ["join-3", "auto"],
        ["join-3", "pyarrow"],
        ["join-3", "bisort"],
        ["join-3", "btree"],
    ]
    (kept,) = tmp_path.glob("small-*-quick-part.jsonl")
    assert all(set(json.loads(line)["per_step"]) == {*PERCENTILES, "unit"} for line in kept.read_text().splitlines())
