"""The settings `spark.millrace.*`, and what Spark's pages and logs say about calls."""

from __future__ import annotations

import io
import logging
import re
import sys
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as fn

import millrace as mr
from millrace import spark as ms
from millrace.spark.cluster.jobs import described, log_in_worker
from millrace.spark.cluster.listener import BatchCounts
from millrace.spark.cluster.settings import DEFAULTS, read_settings
from millrace.spark.cluster.workers import check_workers
from tests.spark.conftest import SetSettings
from tests.spark.sessions import GROUP, jobs_of
from tests.watchdog import WATCHDOG

pytestmark = GROUP
BAND = "abs(r.id - s.id) <= 1"


def test_settings_are_read(spark: SparkSession, settings: SetSettings) -> None:
    found = read_settings(spark)
    assert found == replace(DEFAULTS, broadcast_limit=found.broadcast_limit)
    assert (1 << 30) // 10 < found.broadcast_limit <= (1 << 30) // 8, (
        "an eighth of a heap of 1 GB, as the JVM counts it"
    )
    settings(device="cpu", strategy="grid", broadcastLimit="64m", batchBytes="1m", shards="12", logLevel="info")
    found = read_settings(spark)
    assert (found.device, found.strategy, found.shards, found.log_level) == ("cpu", "grid", 12, "INFO")
    assert (found.broadcast_limit, found.batch_bytes) == (64 << 20, 1 << 20)
    frame = spark.range(100)
    plan = ms.explain("join", frame, frame, on=BAND)
    assert (plan.plan["strategy"], plan.device["name"]) == ("grid", "cpu")
    assert ms.explain("join", frame, frame, on=BAND, strategy="range").plan["strategy"] == "range"


@pytest.mark.parametrize(
    ("name", "value", "allowed"),
    [
        ("broadcastLimit", "much", "allowed are 0 to 1024g"),
        ("batchBytes", "1k", "allowed are 64k to 1g"),
        ("shards", "0", "allowed are whole numbers from 1 on"),
        ("logLevel", "loud", "allowed are DEBUG, INFO"),
        ("strategy", "fast", "spark.millrace.strategy"),
        ("device", "abacus", "abacus"),
    ],
)
def test_a_bad_setting_is_named(
    spark: SparkSession, settings: SetSettings, name: str, value: str, allowed: str
) -> None:
    settings(**{name: value})
    frame = spark.range(10)
    with pytest.raises(mr.MillraceError, match=allowed):
        ms.join(frame, frame, on=BAND)


def test_jobs_of_a_call_are_described(spark: SparkSession) -> None:
    """Spark's status store is what its pages show."""
    frame = spark.range(300)
    with described(spark, "outer"):
        ms.join(frame, frame, on=BAND)
    jobs = spark.sparkContext._jsc.sc().statusStore().jobsList(None)
    found = [jobs.apply(i).description() for i in range(jobs.size())]
    texts = [one.get() for one in found if one.isDefined()]
    assert "millrace: sample of r and s" in texts
    assert "millrace: ms.join reads s, which every worker will hold" in texts
    assert spark.sparkContext.getLocalProperty("spark.job.description") is None


def test_plans_name_the_call_and_the_held_side(spark: SparkSession, capsys: pytest.CaptureFixture[str]) -> None:
    frame = spark.range(300)
    index = mr.OrderedIndex([1, 2, 3])
    ms.join(frame, frame, on=BAND, strategy="broadcast").explain()
    ms.join(frame, frame, on=BAND, strategy="range").explain()
    ms.lookup(frame, index, key="id", into="found").explain()
    ms.lookup(frame.selectExpr("id", "id AS b", "id AS c"), index, key="id", into="wide").explain()
    points = frame.selectExpr("double(id) AS x", "double(id) AS y")
    for strategy in ("broadcast", "partition"):
        ms.knn_join(points, points, ("x", "y"), k=1, strategy=strategy).explain()
    ms.knn_join(points, on=("x", "y"), k=1, self_join=True, strategy="broadcast").explain()
    stream = spark.readStream.format("rate").load()
    ms.window_join(
        stream, stream, "r.value = s.value", window="1 minute", time="timestamp", shards=3, idle="1 minute"
    ).explain()
    text = capsys.readouterr().out
    for name in (
        "join_holding_300_rows_of_s",
        "join_shard_range_",
        "millrace_lookup_found",
        "millrace_lookup_wide",
        "millrace_knn_join_holding_300_rows_of_s",
        "millrace_knn_join_holding_300_rows_of_r",
        r"millrace_knn_join_\d+_shards",
        "millrace_window_join_packs_r_for_3_shards",
        "millrace_window_join_packs_s_for_3_shards",
        "millrace_window_join_reads_times_of_r",
        "millrace_window_join_reads_pairs",
    ):
        assert re.search(name, text), name
    assert re.search(r"Map\w+ (?!millrace_)", text) is None, "every Python node has a name"


def test_explain_estimates(spark: SparkSession, settings: SetSettings) -> None:
    settings(broadcastLimit="0")
    frame = spark.range(300_000).selectExpr("id", "id % 1000 AS x", "concat('a', id) AS name")
    band = ms.explain("join", frame, frame, on=BAND).plan
    numbers = band["estimates"]
    assert abs(numbers["r_rows"] - 300_000) < 30_000
    assert numbers["r_bytes"] > 40 * 200_000
    assert "warning" not in band
    pairs = ms.explain("join", frame, frame, on="r.x = s.x").plan
    assert 50_000_000 < pairs["estimates"]["pairs"] < 160_000_000
    width = 2 * (8 + 8 + 8 + 1 + 5.63)  # the average id has 5.63 digits
    assert abs(pairs["estimates"]["pair_bytes"] / pairs["estimates"]["pairs"] - width) < 0.1
    for on, text in (("r.x * s.x > 5", "no comparison bounds"), ("r.id < s.id", "the result itself has about")):
        assert text in ms.explain("join", frame, frame, on=on).plan["warning"]


def test_explain_runs_one_job_whatever_the_rows(spark: SparkSession) -> None:
    """The call itself measures small frames with text, and the ends of all points, in jobs of their own."""
    texts = spark.range(20_000).selectExpr("id", "double(id) AS x", "double(id % 77) AS y", "repeat('abcd', 100) AS t")
    check_workers(spark)
    for how in ("inner", "full"):
        jobs, found = jobs_of(spark, lambda how=how: ms.explain("join", texts, texts, on=BAND, how=how))  # type: ignore[misc]
        assert jobs == 1
        assert found.plan["strategy"] == "broadcast"
        numbers = found.plan["estimates"]
        assert 400 <= numbers["r_bytes"] / numbers["r_rows"] <= 500, "by the sampled lengths"
    for strategy in ("auto", "partition"):
        jobs, found = jobs_of(
            spark,
            lambda chosen=strategy: ms.explain("knn_join", texts, texts, ("x", "y"), k=3, strategy=chosen),  # type: ignore[misc]
        )
        assert jobs == 1
        assert found.plan["strategy"] == ("broadcast" if strategy == "auto" else "partition")


def test_explain_runs_one_job_and_samples_the_sides_independently(spark: SparkSession) -> None:
    """Rows of both sides at the same positions would be 20 million pairs of this frame with itself."""
    frame = spark.range(300_000).withColumn("x", fn.col("id") * 3)
    check_workers(spark)  # as the first call in a session does
    jobs, found = jobs_of(spark, lambda: ms.explain("join", frame, frame, on="r.x = s.x"))
    assert jobs == 1
    assert 100_000 < found.plan["estimates"]["pairs"] < 900_000


def test_the_listener_reports_counts(spark: SparkSession, tmp_path: Path) -> None:
    source = tmp_path / "source"
    spark.range(50).write.parquet(str(source))
    stream = spark.readStream.schema("id long").parquet(str(source))
    seen: list[BatchCounts] = []
    done = threading.Event()

    def report(counts: BatchCounts) -> None:
        seen.append(counts)
        if counts.call == "join_tasks":
            done.set()

    heard = ms.listener(report)
    spark.streams.addListener(heard)
    try:
        rows = ms.join(stream, spark.range(20), on=BAND)
        query = rows.writeStream.format("noop").queryName("heard").trigger(availableNow=True).start()
        query.awaitTermination()
        done.wait(WATCHDOG)
    finally:
        spark.streams.removeListener(heard)
    counts = {one.call: one.counts for one in seen if one.query == "heard" and one.batch == 0}
    assert counts["join_r"]["r_rows"] == 50
    assert (counts["join_tasks"]["asked"], counts["join_tasks"]["pairs"]) == (50, 20 + 19 + 20)
    with pytest.raises(mr.ArgumentError, match="a function of one BatchCounts"):
        ms.listener(3)  # type: ignore[arg-type]


def test_without_a_function_the_listener_logs(caplog: pytest.LogCaptureFixture) -> None:
    from types import SimpleNamespace as Some

    row = Some(asDict=lambda: {"pairs": 3, "asked": None})
    progress: Any = Some(name="q", id="1", batchId=7, observedMetrics={"millrace_join_tasks_2": row, "other": row})
    with caplog.at_level(logging.INFO, logger="millrace"):
        ms.listener().onQueryProgress(Some(progress=progress))  # type: ignore[arg-type]
    assert [record.getMessage() for record in caplog.records] == ["q, batch 7, join_tasks: {'pairs': 3, 'asked': 0}"]


def test_the_logger_in_a_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    logger = logging.getLogger("millrace")
    before, level, text = list(logger.handlers), logger.level, io.StringIO()
    monkeypatch.setattr(sys, "stderr", text)
    try:
        log_in_worker(None)
        assert logger.handlers == before
        log_in_worker("INFO")
        log_in_worker("INFO")
        logger.info("seven rows")
        logger.debug("not this")
    finally:
        for handler in [one for one in logger.handlers if one not in before]:
            logger.removeHandler(handler)
        logger.setLevel(level)
    lines = text.getvalue().splitlines()
    assert len(lines) == 1
    assert lines[0].endswith("INFO millrace: seven rows")
