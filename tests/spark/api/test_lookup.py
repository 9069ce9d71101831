"""`ms.lookup` gives what a dictionary gives, on batch and streaming frames, for one index and for several."""

from __future__ import annotations

import datetime as dt
import os
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

import millrace as mr
from millrace import spark as ms
from millrace.spark.api import lookup
from millrace.spark.cluster.files import shared_file
from millrace.spark.cluster.task import TaskDevice
from tests.spark.sessions import GROUP

pytestmark = GROUP
DAY = dt.date(2024, 2, 28)
KEYS: dict[str, tuple[pa.DataType, list[Any]]] = {
    "int64": (pa.int64(), [*range(0, 4000, 2), -(2**63), 2**63 - 1]),
    "int32": (pa.int32(), list(range(-500, 500, 3))),
    "float64": (pa.float64(), [i / 4 for i in range(300)]),
    "date32": (pa.date32(), [DAY + dt.timedelta(i) for i in range(0, 90, 2)]),
    "timestamp": (pa.timestamp("us", "UTC"), [dt.datetime(2024, 1, 1, h, tzinfo=dt.UTC) for h in range(24)]),
}


@pytest.mark.parametrize("name", KEYS)
def test_values_are_those_of_a_dictionary(spark: SparkSession, name: str) -> None:
    kind, keys = KEYS[name]
    rng = Random(7)
    values = [f"v{rng.randrange(1000)}" for _ in keys]
    known = dict(zip(keys, values, strict=True))
    keys_wanted = [rng.choice(keys) if rng.random() < 0.7 else None for _ in range(2000)]
    if name in ("int64", "int32"):
        keys_wanted[::5] = [rng.randrange(-600, 5000) for _ in keys_wanted[::5]]
    table = pa.table({"n": range(len(keys_wanted)), "k": pa.array(keys_wanted, kind)})
    index = mr.OrderedIndex(pa.array(keys, kind), pa.array(values))
    rows = ms.lookup(spark.createDataFrame(table).repartition(3), index, key="k").toArrow().sort_by("n")
    assert rows.column_names == ["n", "k", "value"]
    assert rows["value"].to_pylist() == [None if k is None else known.get(k) for k in keys_wanted]


def test_several_indexes_in_one_pass(spark: SparkSession, tmp_path: Path) -> None:
    doubled = mr.OrderedIndex(pa.array(range(100)), pa.array([2 * i for i in range(100)]))
    named = mr.OrderedIndex(pa.array(range(0, 100, 3), pa.int32()), pa.array([f"n{i}" for i in range(0, 100, 3)]))
    named.save(tmp_path / "named.index")
    frame = spark.range(120).selectExpr("id AS a", "CAST(id * 2 AS INT) AS b")
    both = ms.lookup(frame, {"twice": (doubled, "a"), "name": (tmp_path / "named.index", "b")})
    plan = both._jdf.queryExecution().executedPlan().toString()
    assert plan.count("MapInArrow") == 1, "one pass through Python"
    wide = ms.lookup(frame.selectExpr("a", "b", "a AS c"), {"twice": (doubled, "a"), "again": (doubled, "c")})
    plan = wide._jdf.queryExecution().executedPlan().toString()
    assert plan.count("ArrowEvalPython") == 1, "a wider frame leaves its rows in the JVM"
    assert {(row.a, row.twice, row.again) for row in wide.where("a < 3").collect()} == {
        (i, 2 * i, 2 * i) for i in range(3)
    }
    for row in both.collect():
        assert row.twice == (2 * row.a if row.a < 100 else None)
        assert row.name == (f"n{row.b}" if row.b < 100 and row.b % 3 == 0 else None)


def test_an_index_saved_again_under_its_path_is_read_again(spark: SparkSession, tmp_path: Path) -> None:
    path, keys = tmp_path / "again.index", pa.array(range(100))
    sizes = set()
    for step in (1, 2, 3):
        mr.OrderedIndex(keys, pa.array([step * i for i in range(100)])).save(path)
        sizes.add(path.stat().st_size)
        os.utime(path, ns=(0, 0))  # a coarse clock may not show a difference
        rows = ms.lookup(spark.range(0, 100, 1, 2), path, key="id", device="cpu").collect()
        assert {row.id: row.value for row in rows} == {i: step * i for i in range(100)}
    assert len(sizes) == 1, "the files differ only in their content"


def test_a_file_is_identified_by_its_content(tmp_path: Path) -> None:
    path = tmp_path / "one.index"
    mr.OrderedIndex(pa.array([1, 2]), pa.array([3, 4])).save(path)
    before = shared_file(path)
    assert before == shared_file(path)
    assert before.visible() == str(path)
    mr.OrderedIndex(pa.array([1, 2]), pa.array([3, 5])).save(path)
    after = shared_file(path)
    assert (after.path, after.size) == (before.path, before.size)
    assert after != before
    assert before.visible() is None
    with pytest.raises(mr.StateError, match="as it was when the call was made"):
        before.locate()


def test_a_worker_keeps_an_index_for_each_fallback(tmp_path: Path) -> None:
    path = tmp_path / "one.index"
    mr.OrderedIndex(pa.array([1, 2])).save(path)
    device = TaskDevice("cpu", False, 1, 1)
    file = shared_file(path)
    with lookup.use_index(file, device, None) as strict, lookup.use_index(file, device, "cpu") as lenient:
        assert strict is not lenient
        with lookup.use_index(file, device, None) as again:
            assert strict is again


def test_a_worker_closes_the_indexes_that_it_evicts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "one.index"
    mr.OrderedIndex(pa.array([1, 2]), pa.array([3, 4])).save(path)
    file, closed = shared_file(path), list[mr.OrderedIndex]()
    monkeypatch.setattr(mr.OrderedIndex, "close", lambda index: closed.append(index))
    devices = [
        TaskDevice("cpu", False, 1, 1),
        *(TaskDevice(f"opencl:{i}", False, 1, 1) for i in range(lookup.MAX_OPEN)),
    ]
    monkeypatch.setattr(lookup, "_open", lambda *_: mr.OrderedIndex.open(path, device="cpu"))
    lookup._indexes.close()
    closed.clear()
    with lookup.use_index(file, devices[0], None) as oldest:
        for device in devices[1:]:
            with lookup.use_index(file, device, None):
                assert not closed, "the index in use is evicted, but not closed yet"
        assert oldest.lookup([1]).to_pylist() == [3]
    assert closed == [oldest]
    lookup._indexes.close()
    assert len(closed) == len(devices)


def test_values_of_any_type_and_row_numbers(spark: SparkSession) -> None:
    keys = pa.array([5, 1, 3])
    values = pa.array([{"a": 1, "b": [1.5]}, None, {"a": 3, "b": []}])
    frame = spark.createDataFrame(pa.table({"k": pa.array([1, 3, 5, 7, None])}))
    index = mr.OrderedIndex(keys, values)
    found = {row.k: row.value for row in ms.lookup(frame, index, key="k").collect()}
    assert found[5].asDict() == {"a": 1, "b": [1.5]}
    assert found[1] is found[7] is found[None] is None
    numbers = ms.lookup(frame, mr.OrderedIndex(keys), key="k", into="at").collect()
    assert {row.k: row.at for row in numbers} == {5: 0, 1: 1, 3: 2, 7: None, None: None}


def test_a_stream_is_looked_up(spark: SparkSession, tmp_path: Path) -> None:
    index = mr.OrderedIndex(pa.array(range(0, 1000, 2)), pa.array([i / 8 for i in range(500)]))
    source = tmp_path / "source"
    source.mkdir()
    for part in range(3):
        keys = pa.array([part * 300 + i if i % 7 else None for i in range(300)], pa.int64())
        pq.write_table(pa.table({"k": keys}), source / f"{part}.parquet")
    stream = spark.readStream.schema("k long").option("maxFilesPerTrigger", 1).parquet(str(source))
    looked = ms.lookup(stream, index, key="k")
    assert looked.isStreaming
    query = (
        looked.writeStream.format("parquet")
        .option("path", str(tmp_path / "sink"))
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    rows = spark.read.parquet(str(tmp_path / "sink")).collect()
    assert len(rows) == 900
    for row in rows:
        assert row.value == (row.k / 16 if row.k is not None and row.k % 2 == 0 else None)
    observed = [
        m for p in query.recentProgress for name, m in p.observedMetrics.items() if name.startswith("millrace_lookup")
    ]
    assert sum(m["value_null_keys"] for m in observed) == sum(row.k is None for row in rows)


def test_null_keys_are_counted(spark: SparkSession) -> None:
    keys = pa.array([1.0, None, float("nan"), 2.0, None])
    metrics = ms.Metrics()
    index = mr.OrderedIndex(pa.array([1.0, 2.0]))
    looked = ms.lookup(spark.createDataFrame(pa.table({"k": keys})), index, key="k", metrics=metrics)
    assert looked.where("value IS NOT NULL").count() == 2
    assert metrics.get == {"rows": 5, "value_null_keys": 3}


def test_devices_agree(spark: SparkSession) -> None:
    index = mr.OrderedIndex(pa.array(range(0, 60_000, 3)), pa.array(range(20_000)))
    frame = spark.range(0, 30_000, 1, 2).selectExpr("id * 7 % 61000 AS k")
    rows = [ms.lookup(frame, index, key="k", device=name).toArrow().sort_by("k") for name in ("cpu", "opencl")]
    assert rows[0].equals(rows[1])
    assert rows[0]["value"].null_count < 30_000


def test_explain_describes_the_index(spark: SparkSession) -> None:
    found = ms.explain("lookup", spark.range(3), mr.OrderedIndex(pa.array([1, 2])), key="id")
    assert (found.operator, found.plan["value"]) == ("lookup", "by id (bigint)")
    assert "<OrderedIndex: 2 int64 keys" in found.index["value"]
    assert "mapped by every worker" in str(found)
