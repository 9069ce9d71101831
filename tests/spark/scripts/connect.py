"""Lookups and joins through Spark Connect, where there is no `sparkContext`; prints what came out."""

from __future__ import annotations

import json
import sys
import threading
from pathlib import Path

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql import functions as fn

import millrace as mr
from millrace import spark as ms
from millrace.spark.cluster.listener import BatchCounts
from millrace.spark.plan.hows import How
from millrace.spark.plan.strategy import StrategyName
from tests.spark import stream_cases as sc
from tests.spark.cases import draw, found
from tests.spark.sessions import connect_session
from tests.watchdog import WATCHDOG

SEEDS = (3, 11)
CALLS: list[tuple[How, StrategyName]] = [("inner", "broadcast"), ("left", "grid"), ("anti", "auto")]


def window_join(spark: SparkSession, folder: Path) -> tuple[bool, bool]:
    """Whether a stream gives what it must, and whether a listener hears of it."""
    pairs, all_heard = [0], threading.Event()

    def hear(one: BatchCounts) -> None:
        pairs[0] += one.counts["pairs"]
        if pairs[0] == sum(wanted.values()):
            all_heard.set()

    streams = sc.draw(1, batches=2, rows=60)
    sc.write(streams, folder)
    r, s = (sc.read(spark, folder, side) for side in "rs")
    wanted = streams.wanted()
    heard = ms.listener(hear)
    spark.streams.addListener(heard)
    sc.run(ms.window_join(r, s, **streams.arguments(), shards=2, device="cpu"), folder)
    reported = all_heard.wait(WATCHDOG)
    spark.streams.removeListener(heard)
    return sc.found(folder) == wanted, reported


def behind(spark: SparkSession, folder: Path) -> bool:
    """Whether an aggregation behind a join counts every pair."""
    streams = sc.draw(2, batches=2, rows=60)
    sc.write(streams, folder)
    r, s = (sc.read(spark, folder, side) for side in "rs")
    pairs = ms.window_join(r, s, **streams.arguments(), shards=2, device="cpu", event_time="at")
    counts = pairs.groupBy(fn.window("at", "10 seconds")).count()
    query = counts.writeStream.outputMode("complete").format("memory").queryName("behind").trigger(availableNow=True)
    query.start().awaitTermination()
    found = spark.table("behind").agg(fn.sum("count")).collect()[0][0]
    return bool(found == sum(streams.wanted().values()))


def main() -> None:
    folder = Path(sys.argv[1])
    spark = connect_session()
    index = mr.OrderedIndex(pa.array(range(0, 100, 2)), pa.array([f"v{i}" for i in range(50)]))
    index.save(folder / "saved.index")
    frame = spark.range(10)
    metrics = ms.Metrics()
    looked = ms.lookup(frame, {"a": (index, "id"), "b": (str(folder / "saved.index"), "id")}, metrics=metrics)
    report: dict[str, object] = {
        "kind": type(spark).__module__,
        "lookup": [[row.a, row.b] for row in looked.orderBy("id").collect()],
        "lookup_metrics": metrics.get,
    }
    joins = {}
    for seed in SEEDS:
        drawn = draw(seed)
        r, s = spark.createDataFrame(drawn.r), spark.createDataFrame(drawn.s)
        for how, strategy in CALLS:
            rows = ms.join(r, s, on=drawn.on, how=how, strategy=strategy, device="cpu")
            joins[f"{seed} {how} {strategy}"] = found(rows) == drawn.wanted(how)
    report["joins"] = joins
    counted = ms.Metrics()
    band = ms.join(frame, frame, on="abs(r.id - s.id) <= 1", strategy="range", device="cpu", metrics=counted)
    report["pairs"], report["counted"] = band.count(), counted.get
    waiting = ms.Metrics()
    later = ms.lookup(frame, index, key="id", metrics=waiting)
    timer = threading.Timer(1.0, lambda: later.write.format("noop").mode("overwrite").save())
    timer.start()
    report["waited"] = waiting.get
    timer.join()
    stream = spark.readStream.format("rate").option("rowsPerSecond", 100).load()
    report["stream"] = ms.lookup(stream, index, key="value", into="found").isStreaming
    report["window_join"], report["heard"] = window_join(spark, folder / "streams")
    report["behind"] = behind(spark, folder / "behind")
    spark.stop()
    print(json.dumps(report))  # noqa: T201 - what the test reads


if __name__ == "__main__":
    main()
