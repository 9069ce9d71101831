"""The bench `spark_stream`: its cases run small, contenders agree, and those without rows keep the same state."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession

from millrace.bench.harness import Effort, measure
from millrace.bench.options import Options
from millrace.bench.rows import result_rows
from millrace.spark.tools import stream_bench
from tests.spark.sessions import GROUP

pytestmark = GROUP
SHORT = Effort(repeats=1, slice_seconds=0.01, max_seconds=1.0)


def test_cases_run_and_agree(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream_bench, "session", lambda: spark)
    monkeypatch.setattr(stream_bench, "_allowance_share", lambda ranges, window, batches: 2.0)
    setting = spark.conf.get(stream_bench.NO_DATA, "true")
    kept = [case for case in stream_bench.cases(Options(quick=True)) if case.name != "window-4M"]
    rows = []
    try:
        for case in kept:
            rows += list(result_rows("spark_stream", measure(case, SHORT, lambda what, share: None), {}))
    finally:
        spark.conf.set(stream_bench.NO_DATA, str(setting))
    assert {row["case"] for row in rows} == {"window-1M", "written-2^16", "written-2^20"}
    assert {(row["index"], row["peer"]) for row in rows if row["case"] == "window-1M"} == {
        (ours, peer) for ours in ("range", "store-one") for peer in ("spark-buckets", "empty range", "empty store-one")
    }
    assert all(row["ratio"] > 0 for row in rows)
