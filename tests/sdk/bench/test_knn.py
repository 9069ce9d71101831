"""Bench `knn` at tiny sizes: ours and the peers that are installed find the same neighbours."""

from __future__ import annotations

import pytest

from millrace.bench import knn
from millrace.bench.harness import Effort, measure
from millrace.bench.options import Options
from millrace.bench.rows import result_rows

NAMES = [
    *("query-2K-k1", "query-2K-k10", "query-2K-k25", "build-2K", "stream-2K-k25", "upkeep-2K-k25"),
    *("shape-clustered", "shape-duplicated", "shape-collinear", "shape-haversine"),
    *("neighbours-8", "balance-8", "partitioned-2K-k25", *(f"shift-{shift}" for shift in (0.2, 0.4, 0.6, 0.8, 1.0))),
]


def test_all_cases_agree(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(knn, "QUICK", 500)
    found = list(knn.cases(Options(quick=True)))
    assert [case.name for case in found] == NAMES
    for case in found:
        result = measure(case, Effort(1, 1e-6, 1.0), lambda what, share: None)
        assert all("is not installed" in reason for reason in result.missing.values())
        rows = list(result_rows("knn", result, {}))
        assert all(row["value"] > 0 for row in rows)
        assert len(result.measured) + len(result.missing) == len(case.contenders)
