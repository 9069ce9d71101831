"""Bench `inequality_join` at tiny sizes: contenders agree, match rates are the wanted ones, plans are in the rows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from millrace.bench import inequality_join, inequality_stream
from millrace.bench.harness import Case, DifferentWork, Effort, PeerMissing, measure
from millrace.bench.inequality_join import InequalityRun, OurInequality
from millrace.bench.inequality_stream import Bar, HeldBytes, Pushes, SlowestPush, StreamWork
from millrace.bench.inequality_workload import Readings, readings
from millrace.bench.options import Options
from millrace.bench.peers.duckdb_inequality import DuckdbInequality
from millrace.bench.peers.polars_inequality import PolarsInequality
from millrace.bench.rows import BEST_FIXED, Row, result_rows

SHORT = Effort(1, 1e-6, 1.0)


def rows_of(case: Case) -> list[Row]:
    result = measure(case, SHORT, lambda what, share: None)
    assert not result.missing
    return list(result_rows("b", result, {}))


@pytest.fixture(scope="module")
def cases() -> dict[str, Case]:
    with pytest.MonkeyPatch.context() as patch:
        for name, value in {
            "QUICK_SMALL": ("300", 300),
            "QUICK_LARGE": ("600", 600),
            "QUICK_MATCHES": {"90": 90, "900": 900, "22K": 22_500},
            "QUICK_LARGE_MATCHES": ("300", 300),
            "QUICK_GROUPS": 5,
            "QUICK_BANDS": (4,),
        }.items():
            patch.setattr(inequality_join, name, value)
        for name, value in {"QUICK_WINDOW": 1024, "QUICK_BATCH": 64, "QUICK_MERGE_ROWS": 1024}.items():
            patch.setattr(inequality_stream, name, value)
        patch.setattr(inequality_stream, "QUICK_RATES", (10,))
        return {case.name: case for case in inequality_join.cases(Options(quick=True))}


def test_what_is_measured(cases: dict[str, Case]) -> None:
    assert list(cases) == [
        *("count-300-90", "count-300-900", "count-300-22K", "seqs-300-90", "seqs-300-900"),
        *("count-300-90-groups5", "seqs-300-90-groups5", "count-600-300", "seqs-600-300"),
        *("crossover-300-band4-count", "crossover-300-band4-seqs"),
        *("stream-1Ki-sel10", "slowest-1Ki-sel10", "memory-1Ki"),
    ]


def test_tables_agree_and_rows_show_the_plans(cases: dict[str, Case]) -> None:
    for name, case in cases.items():
        if name.startswith(("count-", "seqs-")):
            rows = rows_of(case)
            assert {"duckdb", "polars"} <= {row["peer"] for row in rows}
            assert ("spo at 90 matches" in {row["peer"] for row in rows}) == (
                name in ("count-300-900", "count-300-22K")
            )
            assert all("Scan" in row["duckdb_plan"] or "SCAN" in row["duckdb_plan"] for row in rows)
            assert all("JOIN" in row["polars_plan"].upper() for row in rows)


def test_crossover_compares_with_bisort(cases: dict[str, Case]) -> None:
    found = {(row["index"], row["peer"]) for row in rows_of(cases["crossover-300-band4-seqs"])}
    assert {("spo", "bisort on cpu"), ("auto", BEST_FIXED)} <= found


def test_streams_agree_with_the_nested_loop(cases: dict[str, Case], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inequality_stream, "PUSHES", 4)
    rows = rows_of(cases["stream-1Ki-sel10"])
    assert {row["peer"] for row in rows if row["index"] == "spo"} == {"scan on cpu", "btree on cpu", "200,000 tuples/s"}
    assert {row["per_step"]["unit"] for row in rows} == {"us"}
    (slowest,) = rows_of(cases["slowest-1Ki-sel10"])
    assert slowest["peer"] == "3 medians"
    (memory,) = rows_of(cases["memory-1Ki"])
    assert memory["peer"] == "80 bytes"
    # Two words of 8 bytes, six ranks and ids of 2 bytes, and at this size whole pages.
    assert 28 < 1 / memory["value"] < 400


@pytest.mark.parametrize("share", [0.0001, 0.01, 0.1, 0.125, 0.2, 0.25])
def test_readings_have_the_wanted_share_of_matches(share: float) -> None:
    rng = np.random.default_rng(5)
    r, s = (readings(rng, 4000, share) for _ in range(2))
    matches = (r["power"][:, None] < s["power"]) & (r["cool"][:, None] > s["cool"])
    assert 0.85 < matches.mean() / share < 1.15


@pytest.mark.parametrize("share", [0.0, -0.1, 0.26])
def test_a_share_that_correlated_columns_cannot_have_is_refused(share: float) -> None:
    with pytest.raises(ValueError, match=r"more than 0 and at most 0\.25"):
        readings(np.random.default_rng(1), 10, share)


@pytest.mark.parametrize("make", [lambda given: OurInequality(given, "scan"), DuckdbInequality, PolarsInequality])
@pytest.mark.parametrize("groups", [1, 7])
def test_every_contender_finds_what_the_definition_says(make: Callable[[Readings], Any], groups: int) -> None:
    for output in ("count", "seqs"):
        given = Readings(200, 900, output, groups)
        r, s = given.sides
        pairs = (r["power"][:, None] < s["power"]) & (r["cool"][:, None] > s["cool"])
        if groups > 1:
            pairs &= r["site"][:, None] == s["site"]
        run = InequalityRun(make(given), given)
        assert run.step()[0] == 400
        answer = run.answer()
        assert answer["total" if output == "count" else "pairs"].tolist() == [pairs.sum()]
        run.close()


def test_a_band_has_the_wanted_partners() -> None:
    given = Readings(2000, 8000, "count", band=8)
    run = InequalityRun(OurInequality(given, "bisort"), given)
    run.step()
    assert 0.8 < run.answer()["total"][0] / given.matches < 1.2


def test_a_peer_that_would_take_too_long_is_not_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inequality_join, "MAX_SECONDS", 0.0)
    fewer, facts = Readings(100, 50, "count"), {"rows": 100}
    with pytest.raises(PeerMissing, match=r"^50 matches took .* s: 500 would take about .* s, more than 0 s$"):
        inequality_join._start_peer("polars", Readings(100, 500, "count"), fewer, facts)
    assert facts == {"rows": 100}
    inequality_join._start_peer("polars", Readings(100, 500, "count"), None, facts).close()
    assert "polars_plan" in facts


def test_a_wrong_count_is_noticed(monkeypatch: pytest.MonkeyPatch, cases: dict[str, Case]) -> None:
    monkeypatch.setattr(PolarsInequality, "answer", lambda self, result: {"total": np.array([-1])})
    with pytest.raises(DifferentWork, match="polars and "):
        rows_of(cases["count-300-90"])


def test_runners_of_streams(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inequality_stream, "PUSHES", 3)
    work = StreamWork(256, 32, 1024, 5)
    one, slow = Pushes(work, "spo", 32), Pushes(work, "scan", 16)
    assert (one.step()[0], slow.step()[0]) == (32, 16)
    assert one.answer()["count"].tolist() == slow.answer()["count"].tolist()
    slowest, held = SlowestPush(work), HeldBytes(work)
    amount, seconds = slowest.step()
    assert amount == 1
    assert 0 < slowest.median <= seconds
    assert held.step()[1] > 28
    assert Bar(lambda: 0.5).step() == (1.0, 0.5)
    for runner in (one, slow, slowest, held):
        runner.close()
