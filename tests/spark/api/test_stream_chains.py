"""Stateful operators behind `ms.window_join`: an aggregation, deduplication and a second join see every pair."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
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
    """The first join, of the files in `first`."""
    r, s = (sc.read(spark, folder / "first", side) for side in "rs")
    return ms.window_join(r, s, **{**streams.arguments(), "device": "cpu", "shards": 2, **more})


def in_two_runs(
    folder: Path, build: Callable[[], DataFrame], inputs: dict[str, sc.Streams], run: Callable[[DataFrame], object]
) -> None:
    """Two batches, then the rest by new frames from the checkpoint. `inputs`: streams by the folder they are in."""
    for first, last in ((0, 2), (2, None)):
        for name, one in inputs.items():
            sc.write(sc.Streams(one.r[:last], one.s[:last], one.on, one.window), folder / name, first=first)
        run(build())


def output(
    spark: SparkSession, folder: Path, build: Callable[[], DataFrame], **inputs: sc.Streams
) -> list[dict[str, Any]]:
    """The rows of a query that is stopped and started again; `first` are the streams of the first join."""
    in_two_runs(folder, build, inputs, lambda frame: sc.run(frame, folder))
    rows: list[dict[str, Any]] = spark.read.parquet(str(folder / "sink")).toArrow().to_pylist()
    return rows


def micros(value: Any) -> int:
    found: int = pa.scalar(value, pa.timestamp("us", "UTC")).value
    return found


def by_window(streams: sc.Streams) -> Counter[int]:
    """The number of pairs in every ten seconds, by their end."""
    wanted: Counter[int] = Counter()
    for (_, _, at), n in pair_times(streams).items():
        wanted[at // (10 * SECOND) * 10 * SECOND + 10 * SECOND] += n
    return wanted


def newest(streams: sc.Streams) -> int:
    return max(t for t in times(streams.r).values() if t is not None)


@pytest.mark.parametrize("mode", ["append", "update", "complete"])
def test_an_aggregation_counts_every_pair_once(
    spark: SparkSession, streams: sc.Streams, tmp_path: Path, mode: str
) -> None:
    found: dict[int, int] = {}

    def keep(rows: DataFrame, number: int) -> None:
        counted = {micros(row["end"]): row["count"] for row in rows.toArrow().to_pylist()}
        assert mode != "append" or not found.keys() & counted.keys()
        found.update(counted)

    def build() -> DataFrame:
        joined = pairs(spark, streams, tmp_path, event_time="at")
        return joined.groupBy(fn.window("at", "10 seconds").alias("w")).count().select("w.end", "count")

    def run(counted: DataFrame) -> None:
        query = counted.writeStream.outputMode(mode).foreachBatch(keep).trigger(availableNow=True)
        query.option("checkpointLocation", str(tmp_path / "checkpoint")).start().awaitTermination()

    in_two_runs(tmp_path, build, {"first": streams}, run)
    closed = newest(streams) - 10 * SECOND
    assert found == {end: n for end, n in by_window(streams).items() if end <= closed or mode != "append"}
    assert len(found) > 3


def test_duplicates_are_dropped_behind_it(spark: SparkSession, streams: sc.Streams, tmp_path: Path) -> None:
    def build() -> DataFrame:
        return pairs(spark, streams, tmp_path, event_time="at").select("r_id", "at").dropDuplicates(["r_id", "at"])

    found = Counter((row["r_id"], micros(row["at"])) for row in output(spark, tmp_path, build, first=streams))
    assert found == Counter({(r, at) for r, _, at in pair_times(streams)})


def third_rows(streams: sc.Streams, third: sc.Streams) -> list[tuple[int, int | None, int]]:
    """Id, key and time of the rows of a third stream that are not late in a second join."""
    late = sc.Streams(streams.r, third.s, streams.on, streams.window, lateness_ms=10_000)
    rows = [row for table in late._not_late()["s"] for row in table.to_pylist()]
    return [(row["id"], row["x"], micros(row["ts"])) for row in rows if row["ts"] is not None]


def keys(streams: sc.Streams) -> dict[int, int | None]:
    return {row["id"]: row["x"] for table in streams.r for row in table.to_pylist()}


def test_a_second_join_behind_the_first(spark: SparkSession, streams: sc.Streams, tmp_path: Path) -> None:
    third = sc.draw(12, rows=60)

    def build() -> DataFrame:
        first = pairs(spark, streams, tmp_path, event_time="at").select("r_id", "s_id", "r_x", "at")
        other = sc.read(spark, tmp_path / "third", "s")
        more: dict[str, Any] = {"window": "5 seconds", "lateness": "10 seconds", "shards": 1, "device": "cpu"}
        return ms.window_join(first, other, "r.r_x = s.x", time=("at", "ts"), **more)

    rows = output(spark, tmp_path, build, first=streams, third=third)
    found = Counter((row["r_r_id"], row["r_s_id"], row["s_id"]) for row in rows)
    x = keys(streams)
    wanted = Counter(
        (a, b, number)
        for a, b, at in pair_times(streams).elements()
        for number, key, ts in third_rows(streams, third)
        if key == x[a] and abs(ts - at) <= 5 * SECOND
    )
    assert found == wanted
    assert sum(wanted.values()) > 20


def test_a_second_join_behind_an_aggregation(spark: SparkSession, streams: sc.Streams, tmp_path: Path) -> None:
    """An aggregation emits a window once the watermark has passed it: its rows are old, but not late."""
    third = sc.draw(12, rows=60)

    def build() -> DataFrame:
        joined = pairs(spark, streams, tmp_path, event_time="at")
        counted = joined.groupBy(fn.window("at", "10 seconds").alias("w"), "r_x").count()
        first = counted.select(fn.window_time("w").alias("at"), "r_x", "count")
        other = sc.read(spark, tmp_path / "third", "s")
        more: dict[str, Any] = {"window": "20 seconds", "lateness": "10 seconds", "shards": 2, "device": "cpu"}
        return ms.window_join(other, first, "r.x = s.r_x", time=("ts", "at"), **more)

    rows = output(spark, tmp_path, build, first=streams, third=third)
    found = Counter((micros(row["s_at"]), row["s_r_x"], row["s_count"], row["r_id"]) for row in rows)
    x, counted = keys(streams), Counter[tuple[int, int | None]]()
    for (a, _, at), n in pair_times(streams).items():
        counted[at // (10 * SECOND) * 10 * SECOND + 10 * SECOND, x[a]] += n
    wanted = Counter(
        (end - 1, key, n, number)
        for (end, key), n in counted.items()
        for number, other, ts in third_rows(streams, third)
        if end <= newest(streams) - 10 * SECOND and key == other and abs(ts - end + 1) <= 20 * SECOND
    )
    assert found == wanted
    assert sum(wanted.values()) > 20


def test_a_frame_of_pairs_is_used_twice(spark: SparkSession, streams: sc.Streams, tmp_path: Path) -> None:
    """Spark plans it twice; both copies must drop late rows, and leave each other's files alone."""

    def build() -> DataFrame:
        first = pairs(spark, streams, tmp_path, event_time="at").select("r_id", "s_id", "r_x", "at")
        return ms.window_join(first, first, "r.r_x = s.r_x", window="1 second", time="at", shards=2, device="cpu")

    rows = output(spark, tmp_path, build, first=streams)
    found = Counter((row["r_r_id"], row["r_s_id"], row["s_r_id"], row["s_s_id"]) for row in rows)
    x, known = keys(streams), list(pair_times(streams).elements())
    assert found == Counter(
        (a, b, c, d) for a, b, at in known for c, d, ts in known if x[a] == x[c] and abs(at - ts) <= SECOND
    )
    assert sum(streams.late) > 0


def test_what_spark_cannot_do_is_refused_at_the_call(spark: SparkSession, streams: sc.Streams, tmp_path: Path) -> None:
    sc.write(streams, tmp_path / "first")
    plain = pairs(spark, streams, tmp_path)
    with pytest.raises(mr.ArgumentError, match=r"event_time='t'.*table"):
        plain.withWatermark("r_ts", "10 seconds")
    third = sc.read(spark, tmp_path / "first", "s")
    counted = third.withWatermark("ts", "1 second").groupBy(fn.window("ts", "1 second").alias("ts")).count()
    ended = counted.select(fn.window_time("ts").alias("ts"), fn.lit(1).alias("x"))
    with pytest.raises(mr.ArgumentError, match=r"remove withWatermark.*or write .* to a table"):
        ms.window_join(third, ended, **streams.arguments())
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
