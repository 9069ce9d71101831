"""Column names as Spark has them: letters' case, backticks, and names like millrace's own."""

from __future__ import annotations

from functools import partial

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as fn

import millrace as mr
from millrace import spark as ms
from millrace.spark.plan.columns import spark_condition
from millrace.spark.plan.nearest import KnnStrategyName
from millrace.spark.plan.strategy import StrategyName
from tests.spark.sessions import GROUP

pytestmark = GROUP
EXACT = "spark.sql.caseSensitive"


def test_case_and_backticks_in_conditions(spark: SparkSession) -> None:
    frame = spark.createDataFrame(pa.table({"Id": [1, 2, 3], "my col": [1, 5, 9], "b`t.u": [1, 2, 3]}))
    for on in ("r.id = s.ID", "r.`my col` = s.`MY COL`", 'r."my col" = s.`my col` AND r.`b``t.u` = s.iD'):
        pairs = ms.join(frame, frame, on=on, strategy="broadcast", device="cpu")
        assert pairs.columns == ["r_Id", "r_my col", "r_b`t.u", "s_Id", "s_my col", "s_b`t.u"]
        assert pairs.count() == 3
    text = spark_condition({"r": frame, "s": frame}, "r.id = s.id AND r.name = 'a `quoted` \"text\"'")
    assert text == 'r."Id" = s."Id" AND r.name = \'a `quoted` "text"\''


def test_case_and_backticks_in_other_arguments(spark: SparkSession) -> None:
    index = mr.OrderedIndex([1, 2], [10, 20])
    frame = spark.createDataFrame(pa.table({"Key": [1, 3]}))
    assert sorted(ms.lookup(frame, index, key="`kEY`").toArrow()["value"].to_pylist(), key=str) == [10, None]
    stream = spark.readStream.format("rate").load()
    call = ms.explain("window_join", stream, stream, "r.VALUE = s.`value`", window="1 second", time="TimeStamp")
    assert "timestamp, timestamp" in str(call)


@pytest.mark.parametrize("strategy", ["broadcast", "partition"])
def test_case_and_backticks_in_knn_join(spark: SparkSession, strategy: KnnStrategyName) -> None:
    queries = spark.createDataFrame(pa.table({"Lon": [0.0, 5.0], "my lat": [0.0, 5.0], "Team": [1, 2]}))
    points = spark.createDataFrame(pa.table({"X": [1.0, 5.0, 5.5], "Y": [0.0, 5.0, 5.0], "team": [1, 2, 1]}))
    near = partial(ms.knn_join, queries, points, (("LON", "`My Lat`"), ("`x`", "y")), k=1, strategy=strategy)
    found = near()
    assert found.columns == ["rank", "distance", "r_Lon", "r_my lat", "r_Team", "s_X", "s_Y", "s_team"]
    assert sorted(found.toArrow()["distance"].to_pylist()) == [0.0, 1.0]
    for by in ("TEAM", ("`team`", "TEAM")):
        assert sorted(near(by=by).toArrow()["s_X"].to_pylist()) == [1.0, 5.0]
    alone = ms.knn_join(points, on=("x", "`Y`"), k=1, self_join=True, by="TEAM", strategy=strategy)
    assert sorted(alone.toArrow()["s_X"].to_pylist()) == [1.0, 5.5]


def test_knn_join_in_case_sensitive_sessions(spark: SparkSession) -> None:
    frame = spark.createDataFrame(pa.table({"x": [1.0], "y": [2.0]}))
    spark.conf.set(EXACT, "true")
    try:
        two = frame.withColumn("X", fn.lit(7.0))
        assert ms.knn_join(two, frame, (("X", "y"), ("x", "y")), k=1).toArrow()["distance"].to_pylist() == [6.0]
        with pytest.raises(mr.SchemaError, match=r"s\.X, but s has no such column"):
            ms.knn_join(two, frame, ("X", "y"), k=1)
    finally:
        spark.conf.unset(EXACT)
    with pytest.raises(mr.SchemaError, match="several columns named x"):
        ms.knn_join(two, frame, ("x", "y"), k=1)


def test_case_sensitive_sessions(spark: SparkSession) -> None:
    frame = spark.createDataFrame(pa.table({"a": [1], "b": [2]}))
    spark.conf.set(EXACT, "true")
    try:
        two = frame.withColumnRenamed("b", "A")
        assert ms.join(two, two, on="r.a = s.a", strategy="broadcast", device="cpu").count() == 1
        with pytest.raises(mr.SchemaError, match="s has no such column"):
            ms.join(two, frame, on="r.a = s.A", device="cpu")
    finally:
        spark.conf.unset(EXACT)
    with pytest.raises(mr.SchemaError, match="several columns named a"):
        ms.join(two, frame, on="r.a = s.a", device="cpu")


def test_a_column_named_like_our_own_is_refused(spark: SparkSession) -> None:
    frame = spark.range(3).withColumn("__Millrace_shard", fn.lit(1))
    with pytest.raises(mr.SchemaError, match=r"r has a column named __Millrace_shard.*rename it"):
        ms.join(frame, spark.range(3), on="r.id = s.id", device="cpu")
    with pytest.raises(mr.SchemaError, match=r"into='__millrace_x': names that begin with __millrace"):
        ms.lookup(spark.range(3), mr.OrderedIndex([1], [2]), key="id", into="__millrace_x")


@pytest.mark.parametrize("strategy", ["broadcast", "buckets", "range"])
def test_columns_named_like_those_of_outputs_and_plans(spark: SparkSession, strategy: StrategyName) -> None:
    names = ["seq", "source", "side", "count", "rank", "distance", "frame", "u", "f0c0", "c0", "shard", "key", "r_seq"]
    frame = spark.createDataFrame(pa.table({name: [1.0, 2.0, 3.0] for name in names}))
    pairs = ms.join(frame, frame, on="abs(r.seq - s.count) <= 1.0 AND r.u = s.c0", how="full", strategy=strategy)
    assert pairs.columns == [f"{side}_{name}" for side in "rs" for name in names]
    assert {tuple(row) for row in pairs.collect()} == {(value,) * 26 for value in (1.0, 2.0, 3.0)}
    near = ms.knn_join(frame, frame, on=("rank", "distance"), k=1, by="count")
    assert near.columns == ["rank", "distance", *pairs.columns]
    assert [row[0] for row in near.collect()] == [0, 0, 0]


def test_case_and_backticks_in_output_columns(spark: SparkSession) -> None:
    frame = spark.createDataFrame(pa.table({"Id": [1, 2], "my.col": [1, 5]}))
    near = partial(ms.join, frame, frame, on="r.id = s.id", strategy="broadcast", device="cpu")
    assert near(columns=["S_ID", "`r_My.Col`"]).columns == ["s_Id", "r_my.col"]
    with pytest.raises(mr.ArgumentError, match="2 times"):
        near(columns=["r_id", "R_Id"])
    spark.conf.set(EXACT, "true")
    try:
        with pytest.raises(mr.SchemaError, match="'S_ID'"):
            near(columns=["S_ID"], on="r.Id = s.Id")
    finally:
        spark.conf.unset(EXACT)
