"""Stateful operators behind `ms.window_join`: an aggregation, deduplication and a second join see every pair."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as fn

import millrace as mr
from millrace import spark as ms
from tests.spark import stream_cases as sc
from tests.spark.sessions import GROUP

pytestmark = GROUP
SECOND = 1_000_000


@pytest.fixture(scope="module")
def streams() -> sc.Streams:
    return sc.draw(11, rows=60)


def times(tables: list[pa.Table]) -> dict[int, int | None]:
    every = pa.concat_tables(tables)
    return dict(zip(every["id"].to_pylist(), sc.ticks(every["ts"]), strict=True))


def pair_times(streams: sc.Streams) -> Counter[tuple[int, int, int]]:
    """The expected pairs, each with its later time."""
    r, s = times(streams.r), times(streams.s)
    return Counter({(a, b, max(r[a] or 0, s[b] or 0)): n for (a, b), n in streams.wanted().items()})


def pairs(spark: SparkSession, streams: sc.Streams, folder: Path, **more: Any) -> DataFrame:
    sc.write(streams, folder)
    r, s = (sc.read(spark, folder, side) for side in "rs")
    return ms.window_join(r, s, **{**streams.arguments(), "device": "cpu", "shards": 2, **more})


def output(spark: SparkSession, frame: DataFrame, folder: Path) -> list[dict[str, Any]]:
    sc.run(frame, folder)
    rows: list[dict[str, Any]] = spark.read.parquet(str(folder / "sink")).toArrow().to_pylist()
    return rows


def micros(value: Any) -> int:
    found: int = pa.scalar(value, pa.timestamp("us", "UTC")).value
    return found


def test_an_aggregation_counts_every_pair_once(spark: SparkSession, streams: sc.Streams, tmp_path: Path) -> None:
    joined = pairs(spark, streams, tmp_path, event_time="at")
    counted = joined.groupBy(fn.window("at", "10 seconds").alias("w")).count().select("w.end", "count")
    found = {micros(row["end"]): row["count"] for row in output(spark, counted, tmp_path)}
    wanted: Counter[int] = Counter()
    for (_, _, at), n in pair_times(streams).items():
        wanted[at // (10 * SECOND) * 10 * SECOND + 10 * SECOND] += n
    newest = max(t for t in times(streams.r).values() if t is not None)
    assert found == {end: n for end, n in wanted.items() if end <= newest - 10 * SECOND}
    assert len(found) > 3


def test_duplicates_are_dropped_behind_it(spark: SparkSession, streams: sc.Streams, tmp_path: Path) -> None:
    joined = pairs(spark, streams, tmp_path, event_time="at").select("r_id", "at")
    rows = output(spark, joined.dropDuplicates(["r_id", "at"]), tmp_path)
    found = Counter((row["r_id"], micros(row["at"])) for row in rows)
    assert found == Counter({(r, at) for r, _, at in pair_times(streams)})


def test_a_second_join_behind_the_first(spark: SparkSession, streams: sc.Streams, tmp_path: Path) -> None:
    other = sc.draw(12, rows=60).s
    sc.write(sc.Streams(other, other, streams.on, streams.window), tmp_path / "third")
    first = pairs(spark, streams, tmp_path, event_time="at").select("r_id", "s_id", "r_x", "at")
    third = sc.read(spark, tmp_path / "third", "s")
    on = "r.r_x = s.x"
    second = ms.window_join(
        first, third, on, window="5 seconds", time=("at", "ts"), lateness="10 seconds", shards=1, device="cpu"
    )
    found = Counter((row["r_r_id"], row["r_s_id"], row["s_id"]) for row in output(spark, second, tmp_path))
    keys = {row["id"]: row["x"] for table in streams.r for row in table.to_pylist()}
    first_pairs = pair_times(streams)
    late = sc.Streams(streams.r, other, streams.on, streams.window, lateness_ms=10_000)
    rows = [row for table in late._not_late()["s"] for row in table.to_pylist() if row["ts"] is not None]
    wanted = Counter(
        (a, b, row["id"])
        for a, b, at in first_pairs.elements()
        for row in rows
        if row["x"] == keys[a] and abs(micros(row["ts"]) - at) <= 5 * SECOND
    )
    assert found == wanted
    assert sum(wanted.values()) > 20


def test_what_spark_cannot_do_is_refused_at_the_call(spark: SparkSession, streams: sc.Streams, tmp_path: Path) -> None:
    plain = pairs(spark, streams, tmp_path)
    with pytest.raises(mr.ArgumentError, match=r"event_time='t'.*table"):
        plain.withWatermark("r_ts", "10 seconds")
    third = sc.read(spark, tmp_path, "s")
    call: dict[str, Any] = {"window": "5 seconds", "device": "cpu"}
    with pytest.raises(mr.ArgumentError, match=r"r comes from ms.window_join.*event_time='t'.*table"):
        ms.window_join(plain, third, "r.r_x = s.x", time=("r_ts", "ts"), **call)
    marked = pairs(spark, streams, tmp_path, event_time="at")
    with pytest.raises(mr.ArgumentError, match=r"does not carry that join's watermark"):
        ms.window_join(marked, third, "r.r_x = s.x", time=("r_ts", "ts"), **call)
    with pytest.raises(mr.ArgumentError, match=r"watermark='max' with s from ms.window_join"):
        ms.window_join(third, marked, "r.x = s.r_x", time=("ts", "at"), watermark="max", **call)
    with pytest.raises(mr.SchemaError, match="output column of that name"):
        pairs(spark, streams, tmp_path, event_time="S_TS")
    with pytest.raises(mr.ArgumentError, match="name of the new column"):
        pairs(spark, streams, tmp_path, event_time=3)
    sc.write(numbers := sc.draw(2, "long", batches=1, rows=5), tmp_path / "numbers")
    r = sc.read(spark, tmp_path / "numbers", "r")
    with pytest.raises(mr.ArgumentError, match="timestamp_millis"):
        ms.window_join(r, r, **{**numbers.arguments(), "event_time": "at"})
