"""Bench `scalegate` at tiny sizes: the compiled gate, `mr.ScaleGate` and NumPy give the same order."""

from __future__ import annotations

import pytest

from millrace.bench import scalegate
from millrace.bench.harness import Effort, measure
from millrace.bench.options import Options
from millrace.bench.rows import result_rows


def test_all_cases_agree(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scalegate, "QUICK_ROWS", 700)
    found = list(scalegate.cases(Options(quick=True)))
    assert [case.name for case in found] == ["batches-4x2", "single-4x2", "arrow-4x2-batch1024", "arrow-4x2-batch65536"]
    for case in found:
        result = measure(case, Effort(1, 1e-6, 1.0), lambda what, share: None)
        assert not result.missing
        rows = list(result_rows("scalegate", result, {}))
        assert {row["peer"] for row in rows} >= {"numpy", "bar", "paper"}
        assert all(row["value"] > 0 for row in rows)
