"""The bench `spark`: every case runs small, and its contenders agree."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession

from millrace.bench.harness import Effort, measure
from millrace.bench.options import Options
from millrace.bench.rows import result_rows
from millrace.spark.tools import bench, bench_parts
from tests.spark.sessions import GROUP

pytestmark = GROUP
SHORT = Effort(repeats=1, slice_seconds=0.01, max_seconds=1.0)


def test_cases_run_and_agree(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench_parts, "session", lambda: spark)
    monkeypatch.setattr(bench, "_allowance_share", lambda keys: 2.0)
    rows = []
    for case in bench.cases(Options(quick=True)):
        rows += list(result_rows("spark", measure(case, SHORT, lambda what, share: None), {}))
    names = {"lookup-2^14", "join-10K-band", "join-10K-heavy", "knn-200x1K", "memory-4MB", "cached-10K", "cached-100K"}
    names |= {"cached-100K-no-byte-limit"}
    names |= {"matches-2-5K", "matches-20-5K", "equal-20-5K", "inequalities-2K", "strategies-2-5K", "strategies-20-5K"}
    assert {row["case"] for row in rows} == names
    assert {(row["index"], row["peer"]) for row in rows if row["case"] == "join-10K-heavy"} == {
        ("auto", "best fixed index"),
        *((ours, peer) for ours in ("auto", "broadcast", "range") for peer in ("spark-buckets", "identity-shuffle")),
    }
    assert all(row["ratio"] > 0 for row in rows if row["peer"] is not None)
