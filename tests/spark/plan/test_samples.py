"""Samples of cached frames are drawn once and are fair; what the choice of a strategy makes of them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as fn

import millrace as mr
from millrace import spark as ms
from millrace.spark.api import join as join_module
from millrace.spark.api.join import join_request
from millrace.spark.cluster.files import SharedFile, given_up_on_error, map_table, save_table
from millrace.spark.cluster.workers import check_workers
from millrace.spark.plan import sampling
from millrace.spark.plan.buckets import Band, guest_buckets, home_bucket
from millrace.spark.plan.cached_frames import MAX_KEPT, KeptResults
from millrace.spark.plan.strategy import choose
from tests.spark.conftest import SetSettings
from tests.spark.sessions import GROUP, jobs_of

pytestmark = GROUP
ROWS = 40_000
BAND = "abs(r.id - s.id) <= 1"


@pytest.fixture
def cached(spark: SparkSession) -> Iterator[DataFrame]:
    """A cached frame of `ROWS` rows; its samples are forgotten before and after."""
    sampling.forget_samples()
    frame = spark.range(0, ROWS, 1, 4).selectExpr("id", "id * 3 AS x").cache()
    frame.count()
    check_workers(spark)
    yield frame
    frame.unpersist()
    sampling.forget_samples()


def test_cached_frames_are_sampled_once(spark: SparkSession, settings: SetSettings, cached: DataFrame) -> None:
    settings(broadcastLimit="0", strategy="range")  # a broadcast join would read the held side, in a job of its own
    first, plan = jobs_of(spark, lambda: ms.explain("join", cached, cached, on=BAND))
    assert first == 1
    for call in (
        lambda: ms.explain("join", cached, cached, on=BAND),
        lambda: ms.join(cached, cached, on=BAND),
        lambda: ms.join(cached.select("id", "x"), cached, on=BAND, how="left"),
    ):
        assert jobs_of(spark, call)[0] == 0
    assert ms.explain("join", cached, cached, on=BAND).to_dict() == plan.to_dict()
    assert ms.join(cached, cached, on=BAND).count() == 3 * ROWS - 2


def test_a_join_uses_the_sample_of_explain_though_text_was_measured(
    spark: SparkSession, settings: SetSettings, cached: DataFrame
) -> None:
    settings(broadcastLimit="0", strategy="range")
    texts = cached.selectExpr("id", "repeat('a', int(id % 50)) AS t").cache()
    texts.count()
    try:
        joined, _ = jobs_of(spark, lambda: ms.join(texts, texts, on=BAND))
        explained, plan = jobs_of(spark, lambda: ms.explain("join", texts, texts, on=BAND))
        again, _ = jobs_of(spark, lambda: ms.join(texts, texts, on=BAND))
        assert (joined, explained, again) == (1, 1, 0), "explain wants the texts' lengths too"
        assert plan.plan["estimates"]["r_bytes"] / ROWS == pytest.approx(8 + 8 + 24.5, abs=1)
    finally:
        texts.unpersist()


def test_large_samples_are_not_kept(spark: SparkSession, settings: SetSettings) -> None:
    settings(broadcastLimit="0", strategy="grid")
    wide = spark.range(0, 1000, 1, 2).selectExpr("id", "concat(id, repeat('a', 5000)) AS t").cache()
    wide.count()
    try:
        for _ in range(2):
            assert jobs_of(spark, lambda: ms.join(wide, wide, on="r.t = s.t AND r.id < s.id", strategy="grid"))[0] == 1
    finally:
        wide.unpersist()


def test_other_columns_and_other_rows_are_sampled_again(
    spark: SparkSession, settings: SetSettings, cached: DataFrame
) -> None:
    settings(broadcastLimit="0", strategy="range")
    swapped = cached.selectExpr("x AS id", "id AS x")
    for frame in (cached, swapped, cached.where("id > 5")):
        assert jobs_of(spark, lambda frame=frame: ms.explain("join", frame, frame, on=BAND))[0] == 1  # type: ignore[misc]
    assert jobs_of(spark, lambda: ms.explain("join", cached, cached, on="abs(r.x - s.x) <= 1"))[0] == 1
    assert jobs_of(spark, lambda: ms.explain("join", swapped, cached, on=BAND))[0] == 1
    cached.unpersist()
    assert jobs_of(spark, lambda: ms.explain("join", cached, cached, on=BAND))[0] == 1, "not cached any more"
    cached.cache().count()
    assert jobs_of(spark, lambda: ms.explain("join", cached, cached, on=BAND))[0] == 1, "cached anew"


def test_samples_of_cached_frames_are_fair(cached: DataFrame) -> None:
    found = sampling.sample({"r": cached, "s": cached}, {"r": ["double(id)"], "s": ["double(id)"]}, rows=4000)
    for one in found.values():
        assert one.rows == ROWS
        assert 3700 < len(one.values[0]) < 4300
        in_tenths = np.histogram(one.values[0], 10, (0, ROWS))[0]
        assert in_tenths.min() > 300
    both = np.intersect1d(found["r"].values[0], found["s"].values[0])
    assert 250 < len(both) < 550, "the sides are drawn independently: a tenth of a tenth"


def test_the_last_used_results_are_kept() -> None:
    kept = KeptResults(2)
    for key in "ab":
        kept.keep(key, key)
    assert kept.get("a") == "a"
    kept.keep("c", "c")
    assert (kept.get("a"), kept.get("b"), kept.get("c")) == ("a", None, "c")
    assert MAX_KEPT > 2


@pytest.mark.parametrize(("low", "high", "width"), [(-5, 5, 15.0), (-5, 5, 10.0), (0, 3, 2.0), (-7, 100, 64.0)])
def test_integers_have_no_needless_copies(spark: SparkSession, low: int, high: int, width: float) -> None:
    """Ends of a band at a bucket's border are in that bucket alone."""
    values = np.arange(-300, 300)
    frame = spark.createDataFrame(pa.table({"x": values}))
    band = Band("x", "x", 1.0, float(low), float(high))
    row = frame.select(
        fn.expr(f"{home_bucket(band, width, frame.schema)} = floor((x + 0.5D) / {width!r}D)").alias("home"),
        fn.expr(f"size({guest_buckets(band, width, frame.schema)})").alias("copies"),
    ).toArrow()
    assert all(row["home"].to_pylist())
    exact = np.floor_divide(values + high, int(width)) - np.floor_divide(values + low, int(width)) + 1
    assert row["copies"].to_pylist() == exact.tolist()


@pytest.mark.parametrize(("band", "sort"), [(1, False), (30, True)])
def test_held_rows_with_many_partners_are_sorted(cached: DataFrame, band: int, sort: bool) -> None:
    request = join_request(cached, cached, f"abs(r.id - s.id) <= {band}", "inner", None, "auto", device="rtl")
    chosen = choose(request)
    assert (chosen.name, chosen.sort_held) == ("broadcast", sort)


@pytest.mark.parametrize(("band", "sort"), [(1, False), (30, True)])
def test_the_held_rows_are_saved_in_that_order(
    monkeypatch: pytest.MonkeyPatch, spark: SparkSession, band: int, sort: bool
) -> None:
    saved: list[pa.Table] = []

    def save(table: pa.Table) -> SharedFile:
        saved.append(table)
        return save_table(table)

    monkeypatch.setattr(join_module, "save_table", save)
    mixed = spark.range(0, 5000, 1, 2).selectExpr("id * 1231 % 5003 AS id")
    pairs = ms.join(mixed, mixed, on=f"abs(r.id - s.id) <= {band}", metrics=ms.Metrics())
    keys = saved[0]["id"].to_numpy()
    assert (np.diff(keys) > 0).all() == sort
    assert pairs.count() == sum(int((np.abs(np.sort(keys) - key) <= band).sum()) for key in keys)


def test_a_frame_of_a_stopped_session_is_refused(monkeypatch: pytest.MonkeyPatch, spark: SparkSession) -> None:
    frame = spark.range(3)
    monkeypatch.setattr(spark.sparkContext, "_jsc", None)
    with pytest.raises(mr.StateError, match="r belongs to a Spark session that was stopped"):
        ms.join(frame, frame, on=BAND)


def test_equal_tables_are_one_file_and_a_failed_call_gives_it_up(monkeypatch: pytest.MonkeyPatch) -> None:
    table = pa.table({"x": np.arange(1000)})
    first, second = save_table(table), save_table(table.slice(0, 600))
    assert save_table(pa.concat_tables([table.slice(0, 7), table.slice(7)])) == first
    assert map_table(first).equals(table)
    for file in (first, first, second):
        with pytest.raises(ZeroDivisionError), given_up_on_error(file):
            raise ZeroDivisionError
    assert not Path(first.path).exists()
    assert not Path(second.path).exists()
    monkeypatch.setattr(pa, "OSFile", None)  # as a full disk: the file cannot be written
    with pytest.raises(TypeError):
        save_table(table)
    monkeypatch.undo()
    with pytest.raises(ZeroDivisionError), given_up_on_error(save_table(table)):
        raise ZeroDivisionError
    assert not Path(first.path).exists(), "the call that failed is not counted"
