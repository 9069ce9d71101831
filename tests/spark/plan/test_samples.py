"""Samples of cached frames are drawn once and are fair; what the choice of a strategy makes of them."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as fn

from millrace import spark as ms
from millrace.spark.api.join import join_request
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
