"""What calls leave behind: files for workers, settings of the session, and errors of executors."""

from __future__ import annotations

import gc
import logging
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

import millrace as mr
from millrace import spark as ms
from millrace.spark.api.stream_query import CHANGELOG, PROVIDER
from millrace.spark.cluster import lifetimes
from millrace.spark.cluster.lifetimes import sweep
from millrace.spark.cluster.owned_folders import folder, lists_folder, remove_abandoned
from tests.spark.sessions import GROUP

pytestmark = GROUP


def files() -> set[Path]:
    return set(folder().iterdir())


def let_go(spark: SparkSession, until: Callable[[], bool] = lambda: True) -> None:
    """Collect what nobody refers to, in both processes, and release it.

    Py4J's own thread tells the JVM which objects are gone, some time later: try again until `until` holds.
    """
    for _ in range(300):
        for _ in range(2):
            gc.collect()
            spark.sparkContext._jvm.System.gc()  # type: ignore[union-attr]
        sweep()
        if until():
            return
        time.sleep(0.1)


def test_equal_content_is_one_file_until_no_frame_needs_it(spark: SparkSession) -> None:
    let_go(spark)
    before = files()
    index = mr.OrderedIndex([1, 2, 3], [10, 20, 30], device="cpu")
    frames = [ms.lookup(spark.range(4), index, key="id", device="cpu") for _ in range(4)]
    table = spark.createDataFrame(pa.table({"x": [1, 2, 3]}))
    frames += [ms.join(table, table, on="r.x = s.x", strategy="broadcast", device="cpu") for _ in range(2)]
    assert len(files() - before) == 2
    derived = frames[0].where("value > 10").select("value")
    frames.clear()
    let_go(spark, lambda: len(files() - before) == 1)
    (left,) = files() - before
    assert left.suffix == ".index"
    assert sorted(derived.toArrow()["value"].to_pylist()) == [20, 30]
    derived.createOrReplaceTempView("looked_up")
    del derived
    let_go(spark)
    assert spark.table("looked_up").count() == 2
    spark.catalog.dropTempView("looked_up")
    let_go(spark, lambda: files() <= before)
    assert files() <= before


def test_files_of_a_killed_process_are_removed_by_the_next(spark: SparkSession) -> None:
    script = (
        "import os, signal; from millrace.spark.cluster.owned_folders import folder; made = folder();"
        "(made / 'left').write_text('x'); print(made, flush=True); os.kill(os.getpid(), signal.SIGKILL)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.returncode == -signal.SIGKILL
    left = Path(done.stdout.strip())
    assert (left / "left").exists()
    mine = folder()
    lists = set(lists_folder().iterdir())
    remove_abandoned()
    assert not left.exists()
    assert mine.exists()
    assert len(set(lists_folder().iterdir())) < len(lists)


def test_a_process_that_ends_removes_its_own(tmp_path: Path) -> None:
    script = "from millrace.spark.cluster.owned_folders import folder; print(folder())"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip()
    assert not Path(done.stdout.strip()).exists()


def test_settings_are_logged_and_put_back(spark: SparkSession, caplog: pytest.LogCaptureFixture) -> None:
    spark = spark.newSession()  # frames of other tests may need settings of theirs
    for name in (PROVIDER, CHANGELOG):
        spark.conf.unset(name)
    before = {name: spark.conf.get(name, None) for name in (PROVIDER, CHANGELOG)}
    stream = spark.readStream.format("rate").load()
    caplog.set_level(logging.INFO, "millrace")
    pairs = ms.window_join(stream, stream, "r.value = s.value", window="1 second", time="timestamp", shards=1)
    lines = [record.getMessage() for record in caplog.records]
    assert any(line.startswith(f"ms.window_join sets {PROVIDER} to ") for line in lines), lines
    assert any(line.startswith(f"ms.window_join sets {CHANGELOG} to true") for line in lines), lines
    let_go(spark)
    assert "RocksDB" in str(spark.conf.get(PROVIDER)), pairs.columns
    del pairs

    def put_back() -> bool:
        return {name: spark.conf.get(name, None) for name in (PROVIDER, CHANGELOG)} == before

    let_go(spark, put_back)
    assert put_back()
    assert any(record.getMessage() == f"{CHANGELOG} is None again" for record in caplog.records)


def test_a_setting_stays_as_long_as_any_frame_needs_it(spark: SparkSession) -> None:
    spark = spark.newSession()
    for name in (PROVIDER, CHANGELOG):
        spark.conf.unset(name)
    stream = spark.readStream.format("rate").load()

    def joined() -> DataFrame:
        return ms.window_join(stream, stream, "r.value = s.value", window="1 second", time="timestamp", shards=1)

    def calls() -> int:
        return len(lifetimes._watched)

    let_go(spark)
    known = calls()
    first, second = joined(), joined()  # the second call finds both settings as it needs them
    assert calls() == known + 2, first.columns
    del first
    let_go(spark, lambda: calls() == known + 1)
    assert "RocksDB" in str(spark.conf.get(PROVIDER)), second.columns
    assert spark.conf.get(CHANGELOG) == "true"
    del second
    let_go(spark, lambda: calls() == known)
    assert spark.conf.get(PROVIDER, None) is None


def test_a_refused_call_leaves_no_file(spark: SparkSession) -> None:
    """All lookups are checked before the first index is saved."""
    frame = spark.range(4)
    before, index = files(), mr.OrderedIndex([4711], [5], device="cpu")
    words = frame.selectExpr("id", "'a' AS word")
    seconds: list[Any] = [(index, "absent"), (index, "word"), ("no index", "id"), (3, "id")]
    for second in seconds:
        with pytest.raises(mr.MillraceError):
            ms.lookup(words, {"one": (index, "id"), "two": second}, device="cpu")
        assert files() == before, second


def test_errors_of_executors_begin_with_our_sentence(spark: SparkSession) -> None:
    table = spark.createDataFrame(pa.table({"x": [7, 8]}))
    points = spark.createDataFrame(pa.table({"x": [1, 2], "y": [3, 4]}))
    before = files()
    near = ms.knn_join(points, points, on=("x", "y"), k=1, strategy="broadcast")
    alone = ms.knn_join(points.limit(1), on=("x", "y"), k=1, self_join=True, strategy="broadcast")
    pairs = ms.join(table, table, on="abs(r.x - s.x) <= 9", strategy="broadcast", device="cpu")
    looked = ms.lookup(spark.range(4), mr.OrderedIndex([77], [5], device="cpu"), key="id", device="cpu")
    for path in files() - before:
        os.unlink(path)
    for frame in (pairs, looked, near, alone):
        with pytest.raises(PySparkException) as failed:
            frame.toArrow()
        text = str(failed.value)
        assert "StateError: this worker cannot see" in text
        assert "Traceback" not in text.partition("this worker cannot see")[0]
