"""`ms.window_join` on real streams: pairs are those of `mr.WindowJoin` on the rows that are not late, each once."""

from __future__ import annotations

import socket
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

import millrace as mr
from millrace import spark as ms
from tests.spark import stream_cases as sc
from tests.spark.sessions import GROUP

pytestmark = GROUP
TWO = "r.y < s.y AND r.x > s.x"
EITHER = "abs(r.x - s.x) <= 1 OR r.x - s.x BETWEEN 20 AND 21"
CASES: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "band, all shards": ({}, {}),
    "band, ranges, newest side": ({"watermark": "max"}, {"splits": [50, 100, 150]}),
    "two inequalities, naive": ({"kind": "timestamp_ntz", "on": TWO, "rows": 60}, {"shards": 3}),
    "text and two inequalities": ({"on": f"r.name = s.name AND {TWO}", "rows": 100}, {"shards": 2}),
    "either band, integers": ({"kind": "long", "on": EITHER, "watermark": "max"}, {"splits": [70]}),
    "days, one shard, lopsided": ({"kind": "date", "rows": 80, "window": ("3 days", "20 days")}, {"shards": 1}),
}


def joined(spark: SparkSession, streams: sc.Streams, folder: Path, **more: Any) -> DataFrame:
    r, s = (sc.read(spark, folder, side) for side in "rs")
    return ms.window_join(r, s, **{**streams.arguments(), "device": "cpu", **more})


@pytest.mark.parametrize("name", CASES)
def test_pairs_are_those_of_the_window_join(spark: SparkSession, name: str, tmp_path: Path) -> None:
    drawn, how = CASES[name]
    streams = sc.draw(3, **drawn)
    sc.write(streams, tmp_path)
    pairs = joined(spark, streams, tmp_path, **how)
    assert pairs.columns == [f"{side}_{c}" for side in "rs" for c in ("id", "ts", "x", "y", "name")]
    query = sc.run(pairs, tmp_path)
    wanted = streams.wanted()
    sc.same(sc.found(tmp_path), wanted)
    assert len(wanted) > 50
    counts = sc.counts(query)
    assert [one["r_late"] + one["s_late"] for one in counts[: len(streams.late)]] == streams.late
    assert sum(streams.late) > 0
    assert sum(one["pairs"] for one in counts) == sum(wanted.values())
    tables = {"r": streams.r, "s": streams.s}
    for side in "rs":
        every = pa.concat_tables(tables[side])
        assert sum(one[f"{side}_rows"] for one in counts) == every.num_rows
        assert sum(one[f"{side}_null_times"] for one in counts) == every["ts"].null_count
    _payload_is_right(spark, tmp_path, tables)


def _payload_is_right(spark: SparkSession, folder: Path, tables: dict[str, list[pa.Table]]) -> None:
    """Every column came through, nulls and all."""
    rows = spark.read.parquet(str(folder / "sink")).toArrow().to_pylist()
    for side in "rs":
        known = {row["id"]: row for row in pa.concat_tables(tables[side]).to_pylist()}
        for row in rows[:200]:
            own = known[row[f"{side}_id"]]
            assert row[f"{side}_name"] == own["name"]
            assert row[f"{side}_x"] == own["x"]
            assert row[f"{side}_ts"] == own["ts"]


def state_rows(spark: SparkSession, folder: Path) -> dict[int, int]:
    """Rows in the state store, by Spark's partition."""
    stored = spark.read.format("statestore").option("stateVarName", "runs").load(str(folder / "checkpoint"))
    total: Counter[int] = Counter()
    for row in stored.select("partition_id", "user_map_value.rows").collect():
        total[row.partition_id] += row.rows
    return dict(total)


@pytest.mark.parametrize("how", [{}, {"splits": [250, 500, 750]}])
def test_four_shards_hold_even_parts(spark: SparkSession, how: dict[str, Any], tmp_path: Path) -> None:
    streams = sc.draw(5, batches=1, rows=1000)
    for side in (streams.r, streams.s):
        keys = pa.array([(row * 7919) % 1000 for row in range(1000)])
        side[0] = side[0].set_column(2, "x", keys)
    sc.write(streams, tmp_path)
    sc.run(joined(spark, streams, tmp_path, **how), tmp_path)
    stored = state_rows(spark, tmp_path)
    assert len(stored) == 4
    assert all(0.15 <= rows / sum(stored.values()) <= 0.35 for rows in stored.values()), stored


@pytest.mark.parametrize(
    ("watermark", "more"), [("min", {}), ("max", {}), ("min", {"idle": "10 seconds", "idle_ms": 10_000})]
)
def test_an_idle_side_holds_state_or_does_not(
    spark: SparkSession, watermark: str, more: dict[str, Any], tmp_path: Path
) -> None:
    streams = sc.draw(6, batches=6, rows=40, watermark=watermark, **more)
    for number in range(2, 6):  # s falls silent
        streams.s[number] = streams.s[number].slice(0, 0)
    streams.s[1] = streams.s[1].slice(0, 1)
    sc.write(streams, tmp_path)
    query = sc.run(joined(spark, streams, tmp_path, shards=2), tmp_path)
    sc.same(sc.found(tmp_path), streams.wanted())
    held = sum(state_rows(spark, tmp_path).values())
    every = sum(table.num_rows for table in (*streams.r, *streams.s))
    counts = sc.counts(query)
    if watermark == "min" and not more:
        assert held > every / 2
    else:
        assert held < every / 3
        assert sum(one["r_expired"] + one["s_expired"] for one in counts) > every / 3


def test_expired_runs_are_removed_without_new_rows(spark: SparkSession, tmp_path: Path) -> None:
    streams = sc.draw(7, batches=3, rows=30, window="1 second", lateness=0, lateness_ms=0)
    sc.write(streams, tmp_path)
    sc.run(joined(spark, streams, tmp_path), tmp_path)
    sc.same(sc.found(tmp_path), streams.wanted())
    assert 0 < sum(state_rows(spark, tmp_path).values()) <= 60, "those of the last batch alone"


def test_a_checkpoint_of_other_arguments_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    streams = sc.draw(8, batches=2, rows=20)
    sc.write(sc.Streams(streams.r[:1], streams.s[:1], streams.on, streams.window), tmp_path)
    sc.run(joined(spark, streams, tmp_path, shards=2), tmp_path)
    before = sc.found(tmp_path)
    sc.write(streams, tmp_path, first=1)
    for change, words in (({"on": "abs(r.x - s.x) <= 4"}, "on was"), ({"shards": 3}, "shards was")):
        with pytest.raises(StreamingQueryException) as refused:
            sc.run(joined(spark, streams, tmp_path, **{"shards": 2, **change}), tmp_path)
        assert "cannot continue from this checkpoint: the state was made with other arguments" in str(refused.value)
        assert words in str(refused.value)
    assert sc.found(tmp_path) == before
    same = {
        "on": "3 >= ABS( S.x - r.`X` )",
        "window": ("15000 milliseconds", "15 s"),
        "lateness": "10000 ms",
        "time": "TS",
    }
    sc.run(joined(spark, streams, tmp_path, shards=2, **same), tmp_path)
    sc.same(sc.found(tmp_path), streams.wanted())


def test_files_of_a_task_that_died_between_the_steps_are_removed(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def die(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import os as _os
        import signal as _signal

        for batch in batches:  # the stateful operator has written its files
            _os.kill(_os.getpid(), _signal.SIGKILL)
            yield batch

    def left() -> set[Path]:
        return set(spill.glob("millrace-pairs*")) - of_other_tests

    spill = Path(spark.range(1).mapInArrow(spill_folder, "path string").collect()[0].path)
    of_other_tests = set(spill.glob("millrace-pairs*"))
    streams = sc.draw(10, batches=2, rows=60)
    sc.write(streams, tmp_path)
    with monkeypatch.context() as patched:
        patched.setattr("millrace.spark.api.stream_query.unpacker", lambda limits: die)
        with pytest.raises(StreamingQueryException):
            sc.run(joined(spark, streams, tmp_path, shards=2), tmp_path)
    assert left()
    sc.run(joined(spark, streams, tmp_path, shards=2), tmp_path)
    sc.same(sc.found(tmp_path), streams.wanted())
    assert not left()


def spill_folder(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The folder that Spark gave the executor for spills."""
    import os as _os

    for _ in batches:
        pass
    yield pa.record_batch([pa.array([_os.environ["SPARK_LOCAL_DIRS"].split(",")[0]])], names=["path"])


def test_lookups_before_and_after_and_another_device(spark: SparkSession, tmp_path: Path) -> None:
    streams = sc.draw(9, batches=2, rows=100)
    sc.write(streams, tmp_path)
    r, s = (sc.read(spark, tmp_path, side) for side in "rs")
    index = mr.OrderedIndex(pa.array(range(200)), pa.array([i * 10 for i in range(200)]))
    named = mr.OrderedIndex(pa.array(range(1000)), pa.array([f"id {i}" for i in range(1000)]))
    looked = ms.lookup(r, index, key="x", into="tenfold", device="cpu")
    pairs = ms.window_join(
        looked, s, **{**streams.arguments(), "on": "abs(r.tenfold - 10 * s.x) <= 30"}, device="opencl"
    )
    query = sc.run(ms.lookup(pairs, named, key="s_id", into="what", device="cpu"), tmp_path)
    sc.same(sc.found(tmp_path), streams.wanted())
    rows = spark.read.parquet(str(tmp_path / "sink")).collect()
    assert all(row.r_tenfold == 10 * row.r_x and row.what == f"id {row.s_id}" for row in rows)
    counts = sc.counts(query)
    assert sum(one["device_rows"] for one in counts) > 0


def test_rate_memory_and_foreach_batch(spark: SparkSession, tmp_path: Path) -> None:
    def ticking(name: str) -> DataFrame:
        rate = spark.readStream.format("rate").option("rowsPerSecond", 50).load()
        return rate.selectExpr(f"value AS {name}", "timestamp AS ts")

    pairs = ms.window_join(ticking("a"), ticking("b"), on="r.a = s.b", window="1 minute", time="ts", shards=2)
    batches: list[int] = []
    query = pairs.writeStream.foreachBatch(lambda rows, number: batches.append(rows.count())).start()
    seen = ms.window_join(ticking("a"), ticking("b"), on="r.a = s.b", window="1 minute", time="ts", shards=2)
    table = seen.writeStream.format("memory").queryName("millrace_pairs").start()
    try:
        while sum(batches) < 20 or spark.table("millrace_pairs").count() < 20:
            query.awaitTermination(1)
            assert query.isActive
            assert table.isActive
    finally:
        query.stop()
        table.stop()
    assert sum(batches) >= 20
    rows = spark.table("millrace_pairs").collect()
    assert len(rows) >= 20
    assert len({row.r_a for row in rows}) == len(rows)
    assert all(row.r_a == row.s_b for row in rows)


def test_a_socket(spark: SparkSession, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        lines = b"".join(b"%d\n" % i for i in range(40))

        def serve() -> None:
            for _ in range(2):
                client, _ = server.accept()
                client.sendall(lines)
                held.append(client)

        held: list[socket.socket] = []
        threading.Thread(target=serve, daemon=True).start()

        def side() -> DataFrame:
            text = spark.readStream.format("socket").option("host", "127.0.0.1").option("port", port).load()
            return text.selectExpr("CAST(value AS INT) AS x", "timestamp_seconds(1000 + CAST(value AS INT)) AS ts")

        pairs = ms.window_join(side(), side(), on="abs(r.x - s.x) <= 1", window="5 seconds", time="ts", shards=1)
        rows: list[Any] = []
        query = pairs.writeStream.foreachBatch(lambda frame, number: rows.extend(frame.collect())).start()
        while len(rows) < 118:
            query.awaitTermination(1)
            assert query.isActive
        query.stop()
        for client in held:
            client.close()
    assert Counter((row.r_x, row.s_x) for row in rows) == Counter(
        (a, b) for a in range(40) for b in range(40) if abs(a - b) <= 1
    )


def test_splits_are_chosen_once(spark: SparkSession, tmp_path: Path) -> None:
    like = spark.range(4000).selectExpr("id % 1000 AS x")
    path = tmp_path / "checkpoint" / "splits.json"
    first = ms.splits(like, like, on="abs(r.x - s.x) <= 3", shards=4, keep=path)
    assert len(first) == 3
    assert all(abs(a - b) < 100 for a, b in zip(first, (250, 500, 750), strict=True))
    other = spark.range(4000).selectExpr("id AS x")
    assert ms.splits(other, other, on="abs(r.x - s.x) <= 3", shards=4, keep=path) == first
    with pytest.raises(mr.StateError, match="name another file"):
        ms.splits(like, like, on="abs(r.x - s.x) <= 3", shards=5, keep=path)
    with pytest.raises(mr.ArgumentError, match="bounds no plain column"):
        ms.splits(like, like, on="r.x + s.x <> 3")


def ticking(spark: SparkSession) -> DataFrame:
    rate = spark.readStream.format("rate").load()
    return rate.selectExpr("value AS x", "timestamp AS ts", "value AS n", "CAST(timestamp AS STRING) AS text")


@pytest.mark.parametrize(
    ("change", "kind", "words"),
    [
        ({"window": "100 rows"}, mr.ArgumentError, "no order of arrival"),
        ({"time": None}, mr.ArgumentError, "name the time column"),
        ({"time": "tss"}, mr.SchemaError, "tss"),
        ({"time": "text"}, mr.MillraceError, "text"),
        ({"time": ("ts", "n")}, mr.MillraceError, "timestamp|integer"),
        ({"window": "100"}, mr.MillraceError, "seconds"),
        ({"watermark": "mean"}, mr.ArgumentError, "'min', 'max'"),
        ({"on": "r.x = s.missing"}, mr.MillraceError, "missing"),
        ({"shards": 0}, mr.ArgumentError, "shards=0"),
        ({"shards": 5000}, mr.ArgumentError, "at most 1000"),
        ({"splits": ["a"]}, mr.ArgumentError, "splits"),
        ({"device": "abacus"}, mr.ArgumentError, "abacus"),
    ],
)
def test_bad_arguments(spark: SparkSession, change: dict[str, Any], kind: type[Exception], words: str) -> None:
    given = {"on": "abs(r.x - s.x) <= 1", "window": "1 minute", "time": "ts", **change}
    with pytest.raises(kind, match=words):
        ms.window_join(ticking(spark), ticking(spark), **given)


def test_bad_frames_and_settings(spark: SparkSession) -> None:
    stream = ticking(spark)
    given: dict[str, Any] = {"on": "r.x = s.x", "window": "1 minute", "time": "ts"}
    with pytest.raises(mr.ArgumentError, match=r"use ms\.join for two tables"):
        ms.window_join(stream, spark.range(3), **given)
    with pytest.raises(mr.ArgumentError, match="already has a watermark on ts"):
        ms.window_join(stream.withWatermark("ts", "1 minute"), stream, **given)
    policy = "spark.sql.streaming.multipleWatermarkPolicy"
    spark.conf.set(policy, "max")
    try:
        with pytest.raises(mr.ArgumentError, match="unset it"):
            ms.window_join(stream, stream, **given)
    finally:
        spark.conf.unset(policy)


def test_explain_describes_shards(spark: SparkSession) -> None:
    given: dict[str, Any] = {"on": "abs(r.x - s.x) <= 1", "window": "1 minute", "time": "ts", "lateness": "2 seconds"}
    plan = ms.explain("window_join", ticking(spark), ticking(spark), **given).plan
    assert (plan["strategy"], plan["shards"]) == ("store-one", 4)
    assert "every shard sees all rows" in plan["why"]
    assert "2,000 ms below the newest row" in plan["late"]
    assert "splits of r.x were given" in str(
        ms.explain("window_join", ticking(spark), ticking(spark), splits=[5], **given)
    )


def test_integer_nanoseconds_are_late_and_expire(spark: SparkSession, tmp_path: Path) -> None:
    streams = sc.draw(8, "long", batches=4, rows=60)
    wanted, start, unit = streams.wanted(), 1_731_900_000_000_000_000, 1_000_000
    for side in (streams.r, streams.s):
        for number, table in enumerate(side):
            times = [None if t is None else start + t * unit for t in table["ts"].to_pylist()]
            side[number] = table.set_column(1, "ts", pa.array(times, pa.int64()))
    sc.write(streams, tmp_path)
    more = {"window": str(15_000 * unit), "lateness": str(10_000 * unit), "shards": 2}
    query = sc.run(joined(spark, streams, tmp_path, **more), tmp_path)
    sc.same(sc.found(tmp_path), wanted)
    counts = sc.counts(query)
    assert sum(one["r_late"] + one["s_late"] for one in counts) == sum(streams.late) > 0
    assert sum(one["r_expired"] + one["s_expired"] for one in counts) > 0
