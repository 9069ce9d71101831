"""The nested loop in bench `live` at tiny sizes: contenders agree, comparisons are counted, threads share equally."""

from __future__ import annotations

import pytest

from millrace.bench import catalog, scalejoin
from millrace.bench.harness import Case, Effort, measure
from millrace.bench.options import Options
from millrace.bench.rows import Row, result_rows
from millrace.bench.scalejoin_shares import PERIODS, STUDIES, WARM, Study, deviations

SHORT = Effort(1, 1e-6, 1.0)


@pytest.fixture
def tiny(monkeypatch: pytest.MonkeyPatch) -> dict[str, Case]:
    for name, value in {"QUICK_WINDOWS": (64,), "TURN": 1 << 10, "STUDIES": STUDIES[:1]}.items():
        monkeypatch.setattr(scalejoin, name, value)
    return {case.name: case for case in scalejoin.cases(Options(quick=True))}


def rows_of(case: Case) -> list[Row]:
    result = measure(case, SHORT, lambda what, share: None)
    assert not result.missing
    return list(result_rows("live", result, {}))


def test_every_case_runs_and_all_contenders_agree(tiny: dict[str, Case]) -> None:
    assert {name.split("-")[1] for name in tiny} == {"keys", "bands", "latency", "share"}
    peers: dict[str, set[str | None]] = {}
    for name, case in tiny.items():
        rows = rows_of(case)
        peers[name] = {row["peer"] for row in rows}
        assert all(row["value"] > 0 for row in rows)
        assert ("per_step" in rows[0]) == name.startswith("nested-latency")
    assert peers["nested-keys-2^6-threads2"] == {"numpy", "bar", "paper", "1 thread"}
    assert peers["nested-bands-2^6-threads1"] == {"bar", "paper"}


def test_a_push_compares_each_new_tuple_with_the_window() -> None:
    pushes = scalejoin.Pushes(scalejoin.NestedWork(64, 10), threads=2)
    pushes.step()
    assert pushes.step()[0] == 10 * 64
    pushes.close()


def test_the_cases_belong_to_bench_live() -> None:
    assert any(case.name.startswith("nested-") for case in catalog.cases("live", Options(quick=True, only="nested")))


@pytest.mark.parametrize("study", STUDIES, ids=lambda study: study.name)
def test_threads_compare_equally_many_pairs_whatever_the_rates(study: Study) -> None:
    """ScaleJoin, Figure 8: the paper reports a standard deviation of 0.1%."""
    found = list(deviations(study))
    assert len(found) == PERIODS - WARM
    assert max(one.largest for one in found) < 0.02
    assert max(one.r_rate + one.s_rate for one in found) >= min(one.r_rate + one.s_rate for one in found) > 0
    assert all(one.deviation <= one.largest for one in found)
