"""`columns=`, `output="count"` and `shards=` of `ms.join`, and a stream r with a table s."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame, SparkSession

import millrace as mr
from millrace import spark as ms
from millrace.spark.plan.strategy import StrategyName
from tests.spark.api.test_join import BANDS, drawn_of
from tests.spark.cases import Drawn, found, frames
from tests.spark.conftest import SetSettings
from tests.spark.sessions import GROUP

pytestmark = GROUP
STRATEGIES: tuple[StrategyName, ...] = ("broadcast", "buckets", "range", "grid")


@pytest.fixture(scope="module")
def drawn() -> Drawn:
    return drawn_of(BANDS["band"], pa.int64(), 11)


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_only_wanted_columns_come_back(spark: SparkSession, drawn: Drawn, strategy: StrategyName) -> None:
    r, s = frames(spark, drawn)
    wanted = ["s_row number", "r_row number"]
    rows = ms.join(r, s, on=drawn.on, how="full", columns=wanted, strategy=strategy)
    assert rows.columns == wanted
    assert found(rows) == drawn.wanted("full")
    of_s = ms.join(r, s, on=drawn.on, columns=["s_text"], strategy=strategy)
    texts = [drawn.s["text"][s].as_py() for partners in drawn.partners for s in partners]
    assert Counter(of_s.toArrow()["s_text"].to_pylist()) == Counter(texts)
    semi = ms.join(r, s, on=drawn.on, how="semi", columns=["r_row number"], strategy=strategy)
    assert found(semi) == drawn.wanted("semi")


def test_other_columns_do_not_travel(
    spark: SparkSession, settings: SetSettings, capsys: pytest.CaptureFixture[str]
) -> None:
    settings(broadcastLimit="0")
    wide = spark.range(500).selectExpr("id", "id AS x", *(f"id + {i} AS more{i}" for i in range(20)))
    for strategy in STRATEGIES[1:]:
        ms.join(wide, wide, on="abs(r.x - s.x) <= 1", columns=["r_id", "s_id"], strategy=strategy).explain()
        plan = capsys.readouterr().out
        assert "Exchange" in plan
        assert "more" not in plan, strategy


@pytest.mark.parametrize("strategy", ["broadcast", "range", "grid"])
def test_counts_of_partners(spark: SparkSession, drawn: Drawn, strategy: StrategyName) -> None:
    r, s = frames(spark, drawn)
    counts = Counter({(i, len(partners)): 1 for i, partners in enumerate(drawn.partners)})
    for how, kept in (("inner", lambda n: True), ("semi", bool), ("anti", lambda n: not n)):
        rows = ms.join(r, s, on=drawn.on, how=how, output="count", strategy=strategy, columns=["r_row number"])  # type: ignore[arg-type]
        assert rows.columns == ["r_row number", "count"]
        table = rows.toArrow()
        pairs = Counter(zip(table["r_row number"].to_pylist(), table["count"].to_pylist(), strict=True))
        assert pairs == Counter({pair: 1 for pair in counts if kept(pair[1])})
    assert ms.join(r, s, on=drawn.on, output="count", strategy=strategy).columns == [
        *(f"r_{name}" for name in drawn.r.column_names),
        "count",
    ]


def test_a_number_of_shards(spark: SparkSession, drawn: Drawn, settings: SetSettings) -> None:
    r, s = frames(spark, drawn)
    settings(broadcastLimit="0")
    even = spark.range(1000)
    assert ms.explain("join", even, even, on="r.id < s.id", shards=7).plan["shards"] == 7
    rows = ms.join(r, s, on=drawn.on, strategy="range", shards=5)
    assert found(rows) == drawn.wanted("inner")
    assert ms.explain("join", r, s, on=drawn.on, strategy="range", shards=5).plan["shards"] >= 5
    settings(shards="6")
    assert ms.explain("join", even, even, on="r.id < s.id").plan["shards"] == 6


@pytest.mark.parametrize(
    ("more", "error", "message"),
    [
        ({"columns": ["r_id"]}, mr.SchemaError, "there is no output column 'r_id'"),
        ({"columns": []}, mr.ArgumentError, "allowed is a list of output columns"),
        ({"columns": "r_x"}, mr.ArgumentError, "allowed is a list of output columns"),
        ({"columns": ["r_x", "r_x"]}, mr.ArgumentError, "'r_x' is there 2 times"),
        ({"columns": ["s_x"], "how": "semi"}, mr.SchemaError, "there is no output column 's_x'"),
        ({"output": "seqs"}, mr.ArgumentError, "output='seqs'"),
        ({"output": "count", "how": "full"}, mr.ArgumentError, "counts the partners of r's rows"),
        ({"output": "count", "strategy": "buckets"}, mr.ArgumentError, "strategy='buckets' needs"),
        ({"shards": 0}, mr.ArgumentError, "shards"),
    ],
)
def test_bad_arguments(
    spark: SparkSession, drawn: Drawn, more: dict[str, Any], error: type[Exception], message: str
) -> None:
    r, s = frames(spark, drawn)
    with pytest.raises(error, match=message):
        ms.join(r, s, on=drawn.on, **more)


# A stream and a table.


def stream_of(spark: SparkSession, drawn: Drawn, folder: Path) -> DataFrame:
    """The rows of r as a stream of three micro-batches."""
    folder.mkdir()
    size = -(-drawn.r.num_rows // 3)
    for i in range(3):
        pq.write_table(drawn.r.slice(i * size, size), folder / f"{i}.parquet")
    schema = spark.createDataFrame(drawn.r).schema
    return spark.readStream.schema(schema).option("maxFilesPerTrigger", 1).parquet(str(folder))


def test_a_stream_searches_a_table(spark: SparkSession, drawn: Drawn, tmp_path: Path) -> None:
    """Every micro-batch finds the partners of its rows; the progress has the counts."""
    stream, (_, s) = stream_of(spark, drawn, tmp_path / "r"), frames(spark, drawn)
    hows: tuple[Any, ...] = ("inner", "left", "semi", "anti")
    for how in hows:
        rows = ms.join(stream, s, on=drawn.on, how=how)
        query = rows.writeStream.format("memory").queryName(f"joined_{how}").trigger(availableNow=True).start()
        query.awaitTermination()
        assert len(query.recentProgress) >= 3
        assert found(spark.table(f"joined_{how}")) == drawn.wanted(how), how
        observed = [
            row for p in query.recentProgress for name, row in p.observedMetrics.items() if "join_tasks" in name
        ]
        assert sum(row["asked"] or 0 for row in observed) == drawn.r.num_rows
        assert sum(row["pairs"] or 0 for row in observed) == sum(map(len, drawn.partners))
    plan = ms.explain("join", stream, s, on=drawn.on).plan
    assert (plan["strategy"], plan["why"][:14]) == ("broadcast", "r is a stream;")


def test_what_a_stream_cannot_do(spark: SparkSession, drawn: Drawn) -> None:
    stream = spark.readStream.format("rate").load().selectExpr("value AS x", "value AS y")
    table = frames(spark, drawn)[1]
    cases: list[tuple[tuple[DataFrame, DataFrame], dict[str, Any], str]] = [
        ((table, stream), {}, "s is a streaming frame"),
        ((stream, table), {"how": "full"}, "how='full': r is a stream"),
        ((stream, table), {"strategy": "range"}, "strategy='range': r is a stream"),
        ((stream, table), {"splits": [1]}, "splits: r is a stream"),
    ]
    for (r, s), more, message in cases:
        with pytest.raises(mr.ArgumentError, match=message):
            ms.join(r, s, on=drawn.on, **more)


@pytest.mark.parametrize("call", ["join", "knn_join"])
def test_a_watermark_before_it_serves_what_follows(spark: SparkSession, call: str, tmp_path: Path) -> None:
    """Counts by minute behind the join: a minute is complete once the stream's watermark has passed it."""
    table = spark.range(60).selectExpr("id AS x", "id AS y")
    times = table.selectExpr("*", "timestamp_seconds(60 * x + 6000) AS ts")
    for part in range(3):
        times.where(f"x DIV 20 = {part}").coalesce(1).write.mode("append").parquet(str(tmp_path / "in"))
    files = spark.readStream.schema(times.schema).option("maxFilesPerTrigger", 1).parquet(str(tmp_path / "in"))
    stream = files.withWatermark("ts", "5 minutes")
    if call == "join":
        found = ms.join(stream, table, on="abs(r.x - s.x) <= 1", how="left", device="cpu")
    else:
        found = ms.knn_join(stream, table, on=("x", "y"), k=2)
    counts = found.groupBy("r_ts").count()
    query = (
        counts.writeStream.format("parquet")
        .option("path", str(tmp_path / "out"))
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    written = spark.read.parquet(str(tmp_path / "out"))
    rows = written.selectExpr("unix_seconds(r_ts) DIV 60 - 100 AS x", "count").collect()
    partners = {x: 2 if call == "knn_join" or x == 0 else 3 for x in range(55)}
    assert sorted((row.x, row["count"]) for row in rows) == sorted(partners.items())
