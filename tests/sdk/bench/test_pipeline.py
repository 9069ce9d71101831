"""The bench of the host pipeline at tiny sizes: strategies agree, rows report the measurement. No timing asserted."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from millrace.bench import catalog, pipeline
from millrace.bench.harness import Effort, measure
from millrace.bench.options import Options
from millrace.bench.rows import Row, result_rows
from millrace.bench.targets import judged
from millrace.cli.bench import run_benches
from millrace.errors import ArgumentError
from millrace.host.hybrid.pipeline import STRATEGIES


@pytest.fixture
def _tiny(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pipeline, "QUICK_BUCKETS", 10)
    monkeypatch.setattr(pipeline, "QUICK_MILLISECONDS", 0.05)


def rows_of(options: Options) -> list[Row]:
    rows: list[Row] = []
    for case in catalog.cases("pipeline", options):
        result = measure(case, Effort(1, 1e-6, 1.0), lambda what, share: None)
        rows += result_rows("pipeline", result, {})
    return rows


@pytest.mark.usefixtures("_tiny")
def test_strategies_are_compared_with_the_yardstick() -> None:
    rows = rows_of(Options(quick=True, only="bound"))
    assert {row["case"] for row in rows} == {"device-bound", "host-bound"}
    for row in rows:
        assert row["index"] in STRATEGIES
        assert row["device"] == row["device_kind"] == "paced"
        assert row["peer"] in ("sequential", "max(T2, T4)")
        assert row["T3_ms"] == row["T1_ms"] / 2
        assert row["predicted"]["double-buffered"] == pytest.approx(
            row["bucket"] / max(row["T2_ms"], row["T4_ms"]) * 1e3
        )
    bound = next(row for row in rows if row["peer"] == "max(T2, T4)")
    assert bound["peer_value"] == pytest.approx(bound["bucket"] / max(bound["T2_ms"], bound["T4_ms"]) * 1e3)
    (verdict,) = judged(rows)
    assert verdict.worst["index"] == "double-buffered"


def test_transfers_are_shorter_than_search_or_leaves_in_every_case() -> None:
    """Only then is max(T2, T4) the limit of double buffering."""
    for case in catalog.cases("pipeline", Options()):
        facts = case.facts
        assert facts["T1_ms"] + facts["T3_ms"] < max(facts["T2_ms"], facts["T4_ms"])


@pytest.mark.usefixtures("_tiny")
def test_a_trace_shows_all_strategies(tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    run_benches(["pipeline"], True, True, tmp_path / "out", 1, "equal", path)
    trace = json.loads(path.read_text())
    assert list(trace["otherData"]) == list(STRATEGIES)
    processes = [event["args"]["name"] for event in trace["traceEvents"] if event["name"] == "process_name"]
    assert processes[:2] == ["sequential: host", "sequential: device paced"]
    assert len(processes) == 2 * len(STRATEGIES)


def test_a_trace_is_refused_where_there_is_none(tmp_path: Path) -> None:
    with pytest.raises(ArgumentError, match="--trace is for pipeline alone; given join, pipeline"):
        run_benches(["join", "pipeline"], True, True, tmp_path, 1, "", tmp_path / "trace.json")
    assert list(tmp_path.iterdir()) == []
