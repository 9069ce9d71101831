"""`ms.knn_join` finds what the oracle finds, rank, ties and distance bit for bit, by every strategy and in streams."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.errors import PythonException
from pyspark.sql import DataFrame, SparkSession

import millrace as mr
from millrace import spark as ms
from millrace.spark.plan.nearest import KnnStrategyName
from tests.knn_oracle import Search, knn_join
from tests.sdk.knn_cases import NAMES, Rows, as_arrow, random_rows
from tests.spark.conftest import SetSettings
from tests.spark.sessions import GROUP

pytestmark = GROUP
STRATEGIES: tuple[KnnStrategyName, ...] = ("broadcast", "partition")
Found = Counter[tuple[int, int | None, int | None, float | None]]
"""Row numbers of r, ranks, row numbers of s, distances."""
PLANE = (NAMES[:2], NAMES[:2])
SPACE = (NAMES[:3], NAMES[:3])
TEAM, BOTH = (("team",), ("team",)), (("team", "level"), ("team", "level"))
CASES: dict[str, tuple[str, Search]] = {
    "left": ("uniform", Search(PLANE, 4, how="left")),
    "ties": ("grid", Search(PLANE, 7)),
    "within": ("clusters", Search(SPACE, 5, within=2e-3, how="left")),
    "sphere": ("sphere", Search(PLANE, 3, "haversine", how="left")),
    "equal points": ("equal", Search(PLANE, 6)),
    "overflow": ("huge", Search(PLANE, 4)),
    "one group": ("uniform", Search(PLANE, 3, by=TEAM, how="left")),
    "two groups": ("grid", Search(PLANE, 2, by=BOTH, within=1.0)),
    "more than all": ("uniform", Search(PLANE, 400)),
}


def _arguments(search: Search, self_join: bool = False) -> dict[str, Any]:
    by = list(zip(*search.by, strict=True)) or None
    return {
        "on": search.on,
        "k": search.k,
        "metric": search.metric,
        "within": search.within,
        "by": by,
        "how": search.how,
        "self_join": self_join,
    }


def _wanted(r: Rows, s: Rows | None, search: Search) -> Found:
    return Counter((r_seq, rank, s_seq, distance) for _, r_seq, rank, _, s_seq, distance in knn_join(r, s, search))


def _found(rows: DataFrame) -> Found:
    columns = [column.to_pylist() for column in rows.select("r_n", "rank", "s_n", "distance").toArrow().columns]
    return Counter(zip(*columns, strict=True))


def _dims(search: Search) -> int:
    return len(search.on[0])


@pytest.mark.parametrize("name", CASES)
def test_it_finds_what_the_oracle_finds(spark: SparkSession, name: str) -> None:
    shape, search = CASES[name]
    rng = Random(name)
    r, s = (random_rows(rng, count, _dims(search), shape, bad=0.05) for count in (170, 150))
    frames = [spark.createDataFrame(as_arrow(rows, _dims(search))) for rows in (r, s)]
    wanted = _wanted(r, s, search)
    for strategy in STRATEGIES:
        rows = ms.knn_join(*frames, **_arguments(search), strategy=strategy)
        assert rows.columns[:3] == ["rank", "distance", "r_a"]
        assert _found(rows) == wanted, strategy


@pytest.mark.parametrize("name", ["left", "ties", "equal points", "sphere", "two groups"])
def test_a_self_join_finds_no_row_itself(spark: SparkSession, name: str) -> None:
    shape, search = CASES[name]
    rows = random_rows(Random(name), 160, _dims(search), shape, bad=0.05)
    frame = spark.createDataFrame(as_arrow(rows, _dims(search)))
    wanted = _wanted(rows, None, search)
    for strategy in STRATEGIES:
        assert _found(ms.knn_join(frame, **_arguments(search, self_join=True), strategy=strategy)) == wanted, strategy


def test_a_self_join_of_different_columns(spark: SparkSession) -> None:
    search = Search((("a", "b"), ("b", "c")), 3, how="left")
    rows = random_rows(Random(5), 150, 3, "uniform", bad=0.1)
    frame = spark.createDataFrame(as_arrow(rows, 3))
    wanted = _wanted(rows, None, search)
    for strategy in STRATEGIES:
        assert _found(ms.knn_join(frame, **_arguments(search, self_join=True), strategy=strategy)) == wanted, strategy


def test_integers_float32_and_other_names(spark: SparkSession) -> None:
    rng = Random(6)
    r = [{"a": rng.randrange(20), "b": rng.randrange(20), "n": i} for i in range(90)]
    s = [{"p": rng.randrange(40) / 2, "q": rng.randrange(40) / 2, "n": i} for i in range(80)]
    kinds = [("a", pa.int64()), ("b", pa.int8()), ("n", pa.int64())], [("p", pa.float32()), ("q", pa.float64())]
    tables = pa.Table.from_pylist(r, pa.schema(kinds[0])), pa.Table.from_pylist(s, pa.schema([*kinds[1], kinds[0][2]]))
    search = Search((("a", "b"), ("p", "q")), 5)
    frames = [spark.createDataFrame(table) for table in tables]
    for strategy in STRATEGIES:
        assert _found(ms.knn_join(*frames, **_arguments(search), strategy=strategy)) == _wanted(r, s, search)


def test_many_rows_go_to_few_shards(spark: SparkSession, settings: SetSettings) -> None:
    """Enough rows for cells with tight bounds; half of r at one location; payload comes along."""
    r = spark.range(6000).selectExpr("id", "if(id % 2 = 0, 0.5D, rand(1)) AS x", "if(id % 2 = 0, 0.5D, rand(2)) AS y")
    s = spark.range(5000).selectExpr("id AS n", "rand(3) AS x", "rand(4) AS y", "concat('s', id) AS name")
    r, s = (frame.repartition(3).localCheckpoint() for frame in (r, s))
    settings(broadcastLimit="1000")
    plan = ms.explain("knn_join", r, s, on=("x", "y"), k=3).plan
    assert (plan["strategy"], plan["shards"]) == ("partition", 4)
    assert 1 < float(plan["copies of an s row"].split()[0]) < 3
    rows = ms.knn_join(r, s, on=("x", "y"), k=3).select("r_id", "rank", "s_n", "s_name", "distance").toArrow()
    wanted = mr.knn_join(r.toArrow(), s.toArrow(), on=("x", "y"), k=3).select(rows.column_names)
    order = [("r_id", "ascending"), ("rank", "ascending")]
    assert rows.sort_by(order) == wanted.sort_by(order).cast(rows.schema)


def test_s_that_changes_is_an_error_and_not_a_wrong_row(spark: SparkSession, tmp_path: Path) -> None:
    points = [{"x": float(i % 40), "y": float(i // 40)} for i in range(1600)]
    pq.write_table(pa.Table.from_pylist(points), tmp_path / "s.parquet")
    s = spark.read.schema("x double, y double").parquet(str(tmp_path))
    r = spark.createDataFrame(pa.Table.from_pylist(points))
    rows = ms.knn_join(r, s, on=("x", "y"), k=4, strategy="partition")
    pq.write_table(pa.Table.from_pylist(points[:60]), tmp_path / "s.parquet")
    spark.catalog.refreshByPath(str(tmp_path))
    with pytest.raises(PythonException, match="r or s has changed since the call"):
        rows.count()


def test_a_stream_searches_a_table(spark: SparkSession, tmp_path: Path) -> None:
    search = Search(PLANE, 3, "haversine", within=6e6, by=TEAM, how="left")
    rng = Random(8)
    r, s = (random_rows(rng, count, 2, "sphere", bad=0.1) for count in (120, 60))
    source = tmp_path / "source"
    source.mkdir()
    for part in range(3):
        pq.write_table(as_arrow(r[part * 40 : part * 40 + 40], 2), source / f"{part}.parquet")
    held = spark.createDataFrame(as_arrow(s, 2))
    files = spark.readStream.schema(held.schema).option("maxFilesPerTrigger", 1).parquet(str(source))
    joined = ms.knn_join(files, held, **_arguments(search))
    assert ms.explain("knn_join", files, held, **_arguments(search)).plan["input"] == "a stream r against a table s"
    query = (
        joined.writeStream.format("parquet")
        .option("path", str(tmp_path / "sink"))
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    assert _found(spark.read.parquet(str(tmp_path / "sink"))) == _wanted(r, s, search)
    observed = [m for p in query.recentProgress for name, m in p.observedMetrics.items() if "knn_join_r" in name]
    assert sum(m["r_rows"] for m in observed) == len(r)
    assert sum(m["r_null_keys"] for m in observed) == sum(not search.usable(row, "r") for row in r)
    tasks = [m for p in query.recentProgress for name, m in p.observedMetrics.items() if "knn_join_tasks" in name]
    assert (sum(m["asked"] for m in tasks), max(m["held"] for m in tasks)) == (len(r), len(s))


@pytest.mark.parametrize("self_join", [False, True])
def test_rows_that_match_nothing_are_counted(spark: SparkSession, self_join: bool) -> None:
    search = Search(PLANE, 2, "haversine")
    r = random_rows(Random(9), 80, 2, "sphere", bad=0.2)
    frame = spark.createDataFrame(as_arrow(r, 2))
    bad = sum(not search.usable(row, "r") for row in r)
    assert 0 < bad < len(r)
    sides = [frame] if self_join else [frame, frame]
    for strategy in STRATEGIES:
        metrics = ms.Metrics()
        rows = ms.knn_join(*sides, **_arguments(search, self_join), strategy=strategy, metrics=metrics)
        assert "__millrace_task" not in rows.columns
        found, counts = rows.count(), metrics.get
        assert (counts["r_rows"], counts["r_null_keys"], counts["pairs"]) == (len(r), bad, found)
        assert self_join or counts["s_null_keys"] == bad
        assert counts["tasks"] >= 1


def test_empty_frames(spark: SparkSession) -> None:
    none = spark.createDataFrame(as_arrow([], 2))
    some = random_rows(Random(10), 20, 2, "uniform")
    frame, search = spark.createDataFrame(as_arrow(some, 2)), Search(PLANE, 2, how="left")
    for strategy in STRATEGIES:
        for pair, rows in (((none, frame), []), ((frame, none), some)):
            found = _found(ms.knn_join(*pair, **_arguments(search), strategy=strategy))
            assert found == Counter((row["n"], None, None, None) for row in rows), strategy
        assert ms.knn_join(none, **_arguments(replace(search, how="inner"), True), strategy=strategy).count() == 0


def test_explain(spark: SparkSession, settings: SetSettings) -> None:
    frame = spark.range(3000).selectExpr("id % 97 / 7 AS x", "id % 83 / 5 AS y", "id % 5 AS team")
    small = ms.explain("knn_join", frame, frame, on=("x", "y"), k=3, within=2, device="cpu")
    assert (small.operator, small.plan["strategy"], small.index["name"]) == ("knn_join", "broadcast", "hilbert")
    assert "s has about 3,000 rows" in small.plan["why"]
    assert small.device["name"] == "cpu"
    settings(broadcastLimit="1000")
    grouped = ms.explain("knn_join", frame, on=("x", "y"), k=3, by="team", self_join=True, how="left_outer")
    assert (grouped.plan["strategy"], grouped.plan["how"]) == ("partition", "left")
    assert grouped.plan["cells"].endswith("by a hash of the groups")
    assert "strategy" in str(grouped)
    wide = ms.explain("knn_join", frame, frame, on=("x", "y"), k=3000)
    assert "most s rows go to most shards" in wide.plan["warning"]


BAD: dict[str, tuple[type[mr.MillraceError], str, dict[str, Any]]] = {
    "k": (mr.ArgumentError, "k=0: must be", {"k": 0}),
    "radius": (mr.ArgumentError, "within=-1", {"within": -1}),
    "how": (mr.ArgumentError, "how='anti': ms.knn_join has 'inner' and 'left'", {"how": "anti"}),
    "unknown how": (mr.ArgumentError, "how='cross' is unknown", {"how": "cross"}),
    "strategy": (mr.ArgumentError, "strategy='range' is unknown", {"strategy": "range"}),
    "dimensions": (mr.ArgumentError, "r has 2 dimensions and s has 3", {"on": (("x", "y"), ("x", "y", "id"))}),
    "column": (mr.SchemaError, "on names r.q, but r has no such column", {"on": ("q", "y")}),
    "coordinate": (mr.KeyTypeError, "column r.name has type string", {"on": ("x", "name")}),
    "groups": (mr.SchemaError, "by pairs r.name (string) with s.id (int64)", {"by": ("name", "id")}),
    "device": (mr.DeviceUnavailable, "device='rtl': the tasks of ms.knn_join search on cpu", {"device": "rtl"}),
    "unknown device": (mr.ArgumentError, "device='abacus' is unknown", {"device": "abacus"}),
    "two tables": (mr.ArgumentError, "leave s out, or pass r again", {"self_join": True}),
    "no table": (mr.ArgumentError, "pass the frame that is searched", {"s": None}),
    "no frame": (mr.ArgumentError, "s is a list", {"s": [1]}),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_input_is_reported_early(spark: SparkSession, name: str) -> None:
    kind, words, changed = BAD[name]
    frame = spark.sql("SELECT 1L AS id, 0.5D AS x, 1.5D AS y, 'a' AS name")
    given: dict[str, Any] = {"s": frame.limit(1), "on": ("x", "y"), "k": 1, **changed}
    calls: tuple[Callable[..., Any], ...] = (ms.knn_join, partial(ms.explain, "knn_join"))
    for call in calls:
        with pytest.raises(kind) as error:
            call(frame, **given)
        assert words in str(error.value)


def test_which_side_may_be_a_stream(spark: SparkSession) -> None:
    stream = spark.readStream.format("rate").load().selectExpr("value AS x", "value AS y")
    table = spark.range(3).selectExpr("id AS x", "id AS y")
    call: Callable[..., Any] = partial(ms.knn_join, on=("x", "y"), k=1)
    for frames, more, words in (
        ((table, stream), {}, "s is a streaming frame"),
        ((stream,), {"self_join": True}, "self_join=True is for batch frames"),
        ((stream, table), {"strategy": "partition"}, "is for batch frames"),
    ):
        with pytest.raises(mr.ArgumentError, match=words):
            call(*frames, **more)
