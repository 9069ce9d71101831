"""`ms.join` gives the oracle's pairs, for drawn tables and conditions, by every strategy and every `how`."""

from __future__ import annotations

import datetime as dt
import os
from collections import Counter
from random import Random
from typing import Any, get_args

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as fn

import millrace as mr
from millrace import spark as ms
from millrace.spark.api.join import join_request
from millrace.spark.exec import shuffle
from millrace.spark.exec.broadcast import sorted_by_key
from millrace.spark.plan.hows import How, read_how
from millrace.spark.plan.routing import Cells
from millrace.spark.plan.strategy import StrategyName, choose
from tests.spark.cases import Drawn, draw, found, frames
from tests.spark.conftest import SetSettings
from tests.spark.sessions import GROUP

pytestmark = GROUP
SEED = int(os.environ.get("MILLRACE_SPARK_SEED", "0"))
CASES = int(os.environ.get("MILLRACE_SPARK_CASES", "12"))
HOWS: tuple[How, ...] = ("inner", "left", "semi", "anti")


def check(spark: SparkSession, drawn: Drawn, how: How, strategy: StrategyName, **more: Any) -> None:
    r, s = frames(spark, drawn)
    result = ms.join(r, s, on=drawn.on, how=how, strategy=strategy, device="cpu", **more)
    names = [f"r_{name}" for name in drawn.r.column_names]
    if how in ("inner", "left"):
        names += [f"s_{name}" for name in drawn.s.column_names]
    assert result.columns == names
    assert found(result) == drawn.wanted(how), f"{how} by {strategy}: {drawn.name}"


@pytest.mark.parametrize("seed", [SEED * 1000 + i for i in range(CASES)])
def test_a_drawn_join_equals_the_oracle(spark: SparkSession, seed: int) -> None:
    drawn, rng = draw(seed), Random(seed)
    check(spark, drawn, rng.choice(HOWS), "broadcast")
    check(spark, drawn, rng.choice(HOWS), "grid")


BANDS = {
    "band": "abs(r.x - s.x) <= 3",
    "equality": "r.x = s.x",
    "shifted": "2 * r.x - s.x BETWEEN -4 AND 5 AND r.y < s.y",
    "between": "r.x BETWEEN s.x AND s.y",
    "several": "abs(r.x - s.x) <= 1 OR r.x - s.x BETWEEN 20 AND 22",
}


def tables(kind: pa.DataType, seed: int, rows: int = 400) -> tuple[pa.Table, pa.Table]:
    """Two tables over a few hundred values, with nulls and a heavy hitter."""
    rng = np.random.default_rng(seed)

    def one(heavy: bool) -> pa.Table:
        x = rng.integers(-200, 200, rows)
        if heavy:
            x[rng.random(rows) < 0.4] = 17
        columns = {"x": pa.array(x, mask=rng.random(rows) < 0.05), "y": pa.array(x + rng.integers(-3, 9, rows))}
        cast = {name: column.cast(kind) for name, column in columns.items()}
        return pa.table({**cast, "row number": pa.array(range(rows)), "text": [f"row {i}" for i in range(rows)]})

    return one(True), one(False)


def drawn_of(on: str, kind: pa.DataType, seed: int) -> Drawn:
    r, s = tables(kind, seed)
    inner = mr.join(r, s, on=on, output="seqs")  # held to the oracle by tests/conformance
    partners: list[list[int]] = [[] for _ in range(r.num_rows)]
    for a, b in zip(inner["r_seq"].to_pylist(), inner["s_seq"].to_pylist(), strict=True):
        partners[a].append(b)
    return Drawn(f"{on} over {kind}", on, r, s, partners)


@pytest.mark.parametrize("name", BANDS)
@pytest.mark.parametrize("kind", [pa.int64(), pa.float64()], ids=str)
def test_ranges_give_every_pair_once(spark: SparkSession, kind: pa.DataType, name: str) -> None:
    drawn = drawn_of(BANDS[name], kind, len(name))
    for how in HOWS[kind == pa.int64() :: 2]:
        check(spark, drawn, how, "range")


def test_given_splits_are_taken(spark: SparkSession) -> None:
    drawn = drawn_of(BANDS["band"], pa.int32(), 3)
    check(spark, drawn, "left", "range", splits=[-100, 0, 17, 18, 150])
    r, s = frames(spark, drawn)
    plan = ms.explain("join", r, s, on=drawn.on, splits=[-100, 0.5]).to_dict()["plan"]
    assert (plan["strategy"], plan["why"]) == ("range", "splits of r.x were given")
    assert (plan["cells"], plan["shards"], plan["splits"]) == ("3 by r.x", 3, [-100.0, 0.5])


def test_splits_of_times(spark: SparkSession) -> None:
    start = dt.datetime(2024, 3, 31, tzinfo=dt.UTC)
    times = [start + dt.timedelta(minutes=7 * i) for i in range(60)]
    table = pa.table({"ts": pa.array(times, pa.timestamp("us", "UTC")), "row number": range(60)})
    on = "abs(r.ts - s.ts) <= INTERVAL '10' MINUTE"
    partners = [[j for j in range(60) if abs(i - j) <= 1] for i in range(60)]
    drawn = Drawn("times", on, table, table, partners)
    check(spark, drawn, "inner", "range", splits=[times[20], times[40]])
    check(spark, drawn, "anti", "range")


@pytest.mark.parametrize("strategy", ["broadcast", "range"])
def test_times_without_a_zone(spark: SparkSession, strategy: StrategyName) -> None:
    """Through the hour that the session's zone leaves out, every seven minutes and some microseconds."""
    assert spark.conf.get("spark.sql.session.timeZone") == "Europe/Berlin"
    start = dt.datetime(2024, 3, 31)
    times = [start + dt.timedelta(minutes=7 * i, microseconds=i) for i in range(60)]
    seconds = spark.createDataFrame([(i, time.isoformat()) for i, time in enumerate(times)], "n long, text string")
    frame = seconds.selectExpr("n", "to_timestamp_ntz(text) AS ts")
    assert frame.schema["ts"].dataType.simpleString() == "timestamp_ntz"
    on = "abs(r.ts - s.ts) <= INTERVAL '14' MINUTE"
    rows = ms.join(frame, frame, on=on, strategy=strategy, device="cpu").toArrow()
    wanted = {(i, j) for i in range(60) for j in range(60) if abs(times[i] - times[j]) <= dt.timedelta(minutes=14)}
    assert Counter(zip(rows["r_n"].to_pylist(), rows["s_n"].to_pylist(), strict=True)) == Counter(wanted)
    assert rows["r_ts"].to_pylist() == [times[n] for n in rows["r_n"].to_pylist()]


def test_a_heavy_hitter_is_split(spark: SparkSession) -> None:
    drawn = drawn_of(BANDS["equality"], pa.int64(), 5)
    r, s = frames(spark, drawn)
    plan = ms.explain("join", r, s, on=drawn.on, how="left", strategy="range").plan
    assert plan["heavy hitters"].startswith("1, split in")
    chosen = choose(join_request(r, s, drawn.on, "inner", None, "range"))
    assert chosen.home == "r"
    turned = choose(join_request(s, r, drawn.on, "inner", None, "range"))
    assert turned.home == "s", "the side with the heavy hitter is cut"
    rows = ms.join(s, r, on=drawn.on, strategy="range", device="cpu")
    wanted = Counter((b, a) for a, b in drawn.wanted("inner").elements())
    assert found(rows) == wanted


def test_equal_rows_of_a_heavy_hitter_are_distributed(spark: SparkSession) -> None:
    r = spark.range(0, 4000, 1, 8).selectExpr("IF(id % 10 = 0, id, 5L) AS x")
    s = spark.range(10).selectExpr("id AS x")
    request = join_request(r, s, "r.x = s.x", "inner", None, "range")
    chosen = choose(request)
    assert chosen.home == "r"
    assert isinstance(chosen.cells, Cells)
    ways = max(chosen.cells.ways)
    assert ways > 2
    rows, _ = shuffle.shuffle_sides(request.frames, request.condition, chosen.route, chosen.cells, chosen.home, False)
    heavy = rows.where(f"NOT {shuffle.SIDE} AND c0 = 5").groupBy(fn.spark_partition_id()).count().collect()
    assert len(heavy) == ways
    assert max(row["count"] for row in heavy) <= 2 * 3600 / ways
    assert ms.join(r, s, on="r.x = s.x", strategy="range", device="cpu").count() == 3600 + 1


def test_points_in_intervals_go_by_range(spark: SparkSession) -> None:
    rng = np.random.default_rng(11)
    low = rng.integers(0, 900, 300)
    intervals = pa.table({"lo": low, "hi": low + rng.integers(-1, 20, 300), "row number": range(300)})
    points = pa.table({"x": rng.integers(0, 900, 400), "row number": range(400)})
    inside = [[j for j, x in enumerate(points["x"].to_pylist()) if lo <= x <= hi] for lo, hi in _pairs(intervals)]
    drawn = Drawn("points in intervals", "s.x BETWEEN r.lo AND r.hi", intervals, points, inside)
    chosen = choose(join_request(*frames(spark, drawn), drawn.on, "inner", None, "range"))
    assert (chosen.name, chosen.home) == ("range", "s")
    assert chosen.describe()["why"] == "the condition bounds s.x on both ends"
    check(spark, drawn, "inner", "range")
    left = join_request(*frames(spark, drawn), drawn.on, "left", None, "range")
    with pytest.raises(mr.ArgumentError, match="bounds a column of r on both ends"):
        choose(left)
    check(spark, drawn, "left", "grid")


def _pairs(intervals: pa.Table) -> list[tuple[int, int]]:
    return list(zip(intervals["lo"].to_pylist(), intervals["hi"].to_pylist(), strict=True))


def in_tasks(r: DataFrame, s: DataFrame, on: str, how: How = "inner") -> mr.Explanation:
    """How tasks of ours would join: they count, which Spark's own join cannot."""
    return ms.explain("join", r, s, on=on, how=how, metrics=ms.Metrics())


def test_the_strategy_follows_size_and_condition(spark: SparkSession, settings: SetSettings) -> None:
    many, few = spark.range(100_000).selectExpr("id AS x"), spark.range(100).selectExpr("id AS x")
    band, open_ended, none = "abs(r.x - s.x) <= 1", "r.x < s.x", "r.x * s.x > 5"
    assert "s has about 100 rows" in str(in_tasks(many, few, band))
    assert "r has about 100 rows" in str(in_tasks(few, many, band))
    assert ms.explain("join", many, few, on=band).plan["strategy"] == "buckets", "no row goes through Python"
    settings(broadcastLimit="10000")
    assert "s has about 100 rows" in str(in_tasks(many, few, band, "left"))
    cases: dict[tuple[DataFrame, How, str], tuple[str, str]] = {
        (few, "left", band): ("range", "the condition bounds r.x on both ends"),
        (many, "inner", open_ended): ("grid", "the condition bounds r.x on one end"),
        (many, "inner", none): ("grid", "no comparison bounds a plain column"),
    }
    for (left, how, on), strategy in cases.items():
        plan = in_tasks(left, many, on, how).plan
        assert (plan["strategy"], plan["why"]) == strategy
    sampled = choose(join_request(many, many, band, "inner", None, "range"))
    assert isinstance(sampled.cells, Cells)
    assert sampled.cells.shards >= 4
    bounds = np.array(sampled.cells.bounds)
    assert np.all(np.abs(bounds - np.linspace(0, 100_000, len(bounds) + 2)[1:-1]) < 6_000), "cells are even"


@pytest.mark.parametrize("wide", ["repeat('x', 5000)", "array_repeat(7L, 3000)", "CAST(repeat('x', 5000) AS BINARY)"])
def test_a_side_of_few_wide_rows_is_not_held(spark: SparkSession, wide: str, settings: SetSettings) -> None:
    """Columns of variable length are measured before a side is collected; other small sides are still broadcast."""
    settings(broadcastLimit="100000")
    few, many = spark.range(100).selectExpr("id AS x", f"{wide} AS y"), spark.range(1000).selectExpr("id AS x")
    band = "abs(r.x - s.x) <= 1"
    assert ms.explain("join", many, few, on=band, how="left").plan["strategy"] == "buckets"
    assert in_tasks(many, few, band, "left").plan["strategy"] == "range"
    assert "r has about 1,000 rows" in str(in_tasks(many, few, band))
    assert "s has about 100 rows" in str(in_tasks(many, few.drop("y"), band, "left"))


SPARKS = {
    "band": ("abs(r.x - s.x) <= 3", "abs(r_x - s_x) <= 3"),
    "two terms": ("r.x BETWEEN s.x AND s.y AND r.y <> s.y", "r_x BETWEEN s_x AND s_y AND r_y <> s_y"),
    "one end": ("r.x > 150 + s.y", "r_x > 150 + s_y"),
}
"""Conditions, and the same for Spark's own join."""


@pytest.mark.parametrize("strategy", ["broadcast", "grid", "range"])
@pytest.mark.parametrize("name", SPARKS)
def test_every_how_gives_the_rows_of_sparks_own_join(spark: SparkSession, name: str, strategy: StrategyName) -> None:
    on, sparks = SPARKS[name]
    drawn = tables(pa.int64(), 6)
    r, s = spark.createDataFrame(drawn[0].slice(0, 90)), spark.createDataFrame(drawn[1].slice(0, 70))
    if strategy == "range" and name != "band":
        with pytest.raises(mr.ArgumentError, match="bounds a column of s on both ends"):
            ms.join(r, s, on=on, how="right", strategy=strategy)
        return
    left, right = (frame.toDF(*(f"{side}_{c}" for c in frame.columns)) for side, frame in (("r", r), ("s", s)))
    names: tuple[How, ...] = ("inner", "left_outer", "rightouter", "outer", "left_semi", "leftanti")
    for how in names:
        own = left.join(right, fn.expr(sparks), how)
        rows = ms.join(r, s, on=on, how=how, strategy=strategy, device="cpu")
        assert rows.columns == own.columns
        assert Counter(rows.collect()) == Counter(own.collect()), how


def test_how_has_sparks_names() -> None:
    for name in get_args(How):
        assert read_how(name) == read_how(name.upper()) == read_how(name.replace("_", ""))
    assert {read_how(name) for name in get_args(How)} == {"inner", "left", "right", "full", "semi", "anti"}


def test_a_full_join_is_counted_once(spark: SparkSession) -> None:
    r, s = spark.range(0, 100, 1, 2).selectExpr("id AS x"), spark.range(50, 130, 1, 2).selectExpr("id AS x")
    metrics = ms.Metrics()
    rows = ms.join(r, s, on="r.x = s.x", how="full", strategy="range", device="cpu", metrics=metrics).collect()
    assert Counter((row.r_x, row.s_x) for row in rows) == Counter(
        (x if x < 100 else None, x if x >= 50 else None) for x in range(130)
    )
    counts = metrics.get
    assert (counts["r_rows"], counts["s_rows"], counts["pairs"]) == (100, 80, 50)
    assert counts["asked"] == 180, "both sides searched the other"


def test_explain_shows_both_parts_of_a_full_join(spark: SparkSession) -> None:
    r, s = spark.range(100).selectExpr("id AS x"), spark.range(50).selectExpr("id AS x")
    found = ms.explain("join", r, s, on="abs(r.x - s.x) <= 1", how="outer", device="cpu", metrics=ms.Metrics())
    assert isinstance(found, mr.Explanation)
    text, plan = str(found), found.to_dict()["plan"]
    assert (found.operator, plan["how"], plan["kind"], plan["keys"]) == (
        "join",
        "full",
        "band",
        {"r": ["r.x"], "s": ["s.x"]},
    )
    assert "s has about 50 rows" in plan["why"]
    assert "r has about 100 rows" in plan["s rows without a partner"]["why"]
    assert "s has about 50 rows" in text
    assert found.index["name"] == "auto"
    assert (found.device["name"], found.device["why"]) == ("cpu", "the device was named")
    right = ms.explain("join", r, s, on="abs(r.x - s.x) <= 1", how="right", strategy="range")
    assert right.plan["cells"].endswith("by s.x")
    with pytest.raises(mr.ArgumentError, match="leave splits out, or swap r and s"):
        ms.join(r, s, on="abs(r.x - s.x) <= 1", how="right", splits=[5])


def test_a_join_is_lazy_and_composes(spark: SparkSession) -> None:
    r = spark.range(1000).selectExpr("id AS x", "id % 7 AS g")
    s = spark.range(500).selectExpr("2 * id AS x")
    pairs = ms.join(r, s, on="abs(r.x - s.x) <= 1", strategy="range", device="cpu")
    by_group = pairs.where("r_x > 10").groupBy("r_g").agg(fn.count("*").alias("n")).toArrow().to_pylist()
    wanted = Counter(x % 7 for x in range(11, 1000) for y in range(0, 1000, 2) if abs(x - y) <= 1)
    assert {row["r_g"]: row["n"] for row in by_group} == wanted


@pytest.mark.parametrize("strategy", ["broadcast", "range"])
def test_empty_sides(spark: SparkSession, strategy: StrategyName) -> None:
    some, none = spark.range(5).selectExpr("id AS x"), spark.range(0).selectExpr("id AS x")
    on = "abs(r.x - s.x) <= 1"
    wanted: dict[How, int] = {"inner": 0, "left": 5, "semi": 0, "anti": 5, "right": 0, "full": 5}
    for how, rows in wanted.items():
        assert ms.join(some, none, on=on, how=how, strategy=strategy, device="cpu").count() == rows
        turned = 5 if how in ("right", "full") else 0
        assert ms.join(none, some, on=on, how=how, strategy=strategy, device="cpu").count() == turned


def test_a_key_of_any_name_is_routed(spark: SparkSession) -> None:
    """Names with special characters are quoted in Spark's SQL."""
    table = pa.table({"x.y `z` 'q'": range(0, 400, 2), "row number": range(200)})
    on = """abs(r."x.y `z` 'q'" - s."x.y `z` 'q'") <= 3"""
    partners = [[j for j in range(200) if abs(i - j) <= 1] for i in range(200)]
    check(spark, Drawn("names", on, table, table, partners), "left", "range")


@pytest.mark.parametrize("kind", [pa.int32(), pa.float64(), pa.timestamp("us", "UTC")], ids=str)
@pytest.mark.parametrize("nulls", [False, True])
def test_a_held_side_is_sorted_by_key(kind: pa.DataType, nulls: bool) -> None:
    keys = pa.array([5, -3, None if nulls else 9, 0, 5, -7]).cast(kind)
    table = pa.table({"x": pa.chunked_array([keys[:2], keys[2:]]), "n": range(6)})
    ordered = sorted_by_key(table, "x")
    assert ordered["n"].to_pylist()[:3] == [5, 1, 3]
    known = ordered["x"].cast(pa.int64()).drop_null().to_pylist()
    assert known == ([-7, -3, 0, 5, 5] if nulls else [-7, -3, 0, 5, 5, 9])
    assert sorted_by_key(table, None) is table
