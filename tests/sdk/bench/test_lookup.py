"""The bench of the ordered index at tiny sizes: contenders agree, rows report the measurement. No timing asserted."""

from __future__ import annotations

import numpy as np
import pytest

from millrace.bench import lookup
from millrace.bench.harness import Case, Effort, measure
from millrace.bench.options import Options
from millrace.bench.rows import Row, result_rows

SHORT = Effort(1, 1e-6, 1.0)


@pytest.fixture
def tiny(monkeypatch: pytest.MonkeyPatch) -> list[Case]:
    monkeypatch.setattr(lookup, "QUICK_SIZES", (1 << 10,))
    monkeypatch.setattr(lookup, "QUICK_QUERIES", 1 << 8)
    return list(lookup.cases(Options(quick=True)))


def rows_of(case: Case) -> list[Row]:
    result = measure(case, SHORT, lambda what, share: None)
    assert not result.missing
    return list(result_rows("lookup", result, {}))


def test_cases_agree_and_say_what_they_are(tiny: list[Case]) -> None:
    assert [case.name for case in tiny] == [
        "lookup-2^10-uniform",
        "lookup-2^10-zipf",
        "range-2^10-match8",
        "build-2^10-sorted",
        "memory-2^10",
    ]
    rows = {case.name: rows_of(case) for case in tiny}
    assert all(row["keys"] == 1 << 10 for some in rows.values() for row in some)
    compared = {(row["contender"], row["peer"]) for some in rows.values() for row in some}
    assert {
        ("implicit on cpu", peer) for peer in ("numpy", "numpy-sorted", "random-reads", "implicit at uniform")
    } <= compared
    assert {("regular on cpu", "implicit on cpu"), ("implicit on cpu", "copy")} <= compared
    assert any("opencl" in ours for ours, _ in compared)
    (memory,) = {row["value"] for row in rows["memory-2^10"] if row["index"] == "implicit"}
    assert 1 / 1.2 <= memory < 1


def test_keys_are_distinct_and_zipf_is_skewed() -> None:
    keys, _ = lookup.data(1 << 12)
    assert (np.diff(keys) > 0).all()
    drawn = lookup._zipfian(1 << 12, 1 << 12, np.random.default_rng(0))
    counts = np.unique(drawn, return_counts=True)[1]
    assert 0.5 < counts.max() / len(drawn) < 0.7  # 6 / pi^2
    assert np.isin(drawn, keys).all()
