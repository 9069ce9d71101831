"""Bench `live` at tiny sizes: every case runs, contenders agree, and streams have the shapes of their names."""

from __future__ import annotations

import numpy as np
import pytest

from millrace.bench import live
from millrace.bench.harness import Case, Effort, measure
from millrace.bench.live_workload import SIGMA, LiveWorkload
from millrace.bench.options import Options
from millrace.bench.rows import Row, result_rows
from millrace.bench.workload import DOMAIN

SHORT = Effort(1, 1e-6, 1.0)


@pytest.fixture
def tiny(monkeypatch: pytest.MonkeyPatch) -> dict[str, Case]:
    monkeypatch.setattr(live, "QUICK_WINDOWS", (64,))
    monkeypatch.setattr(live, "QUICK_MIDDLE", 256)
    monkeypatch.setattr(live, "QUICK_BATCH", 64)
    return {case.name: case for case in live.cases(Options(quick=True))}


def rows_of(case: Case) -> list[Row]:
    result = measure(case, SHORT, lambda what, share: None)
    assert not result.missing
    return list(result_rows("live", result, {}))


def test_every_case_runs_and_all_contenders_agree(tiny: dict[str, Case]) -> None:
    assert len(tiny) > 25
    for name, case in tiny.items():
        rows = rows_of(case)
        assert {row["index"] for row in rows} >= {"pim"} or name.startswith(("chain", "costs")), name
        assert all(row["value"] > 0 for row in rows)


def test_the_sides_have_their_share_of_the_tuples() -> None:
    for share in (0.5, 0.9):
        turn = LiveWorkload(64, 10_000, "tuples", r_share=share).turn(0)
        assert len(turn.r) == pytest.approx(share * 10_000, rel=0.05)
    bursts = LiveWorkload(64, 100, "tuples", burst=10).turn(3).order
    assert bursts.reshape(10, 10).std(axis=1).max() == 0


def test_the_mean_of_the_keys_drifts() -> None:
    work = LiveWorkload(1000, 20_000, "tuples", shape="gaussian", drift=0.5)
    first, later = (work.turn(number).r.x / DOMAIN for number in (0, 1))
    assert later.mean() - first.mean() == pytest.approx(0.5, abs=0.05), "ten windows later"
    assert np.std(LiveWorkload(1000, 20_000, "tuples", shape="gaussian").turn(0).r.x / DOMAIN) == pytest.approx(
        SIGMA, rel=0.05
    )
