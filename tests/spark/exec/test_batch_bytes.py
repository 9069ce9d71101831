"""Batches bounded by bytes: sizes of rows, cuts, merged input batches, and the session's settings."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyspark import cloudpickle
from pyspark.sql import SparkSession
from pyspark.sql.pandas.types import from_arrow_type

import millrace as mr
from millrace import spark as ms
from millrace.spark.api import lookup
from millrace.spark.cluster.files import save_shared, save_table
from millrace.spark.cluster.task import DeviceRequest
from millrace.spark.exec import broadcast
from millrace.spark.exec.batch_bytes import RECORDS, SETTING, BatchLimits, read_limits
from millrace.spark.exec.join_rows import JoinJob, merge_batches
from millrace.spark.exec.row_bytes import RowBytes, cut_gathered, cut_rows
from tests.spark.sessions import GROUP

pytestmark = GROUP
TEXT = pa.array([None if i % 7 == 3 else "x" * (i * i) for i in range(60)])
COLUMNS: dict[str, pa.Array] = {
    "numbers": pa.array(range(60)),
    "text": TEXT,
    "binary": TEXT.cast(pa.large_binary()),
    "lists": pa.array([["ab" * i] * i for i in range(60)]),
    "maps": pa.array([[("k" * i, i)] * (i // 2) for i in range(60)], pa.map_(pa.string(), pa.int64())),
    "structs": pa.array([{"a": "y" * i, "b": [i] * i} for i in range(60)]),
    "nothing": pa.nulls(60),
}


@pytest.mark.parametrize("name", COLUMNS)
@pytest.mark.parametrize("part", [slice(0, 60), slice(13, 41)])
def test_bytes_of_rows_are_those_of_arrow(name: str, part: slice) -> None:
    table = pa.table({"n": pa.array(range(60), pa.int32()), "c": COLUMNS[name]}).slice(
        part.start, part.stop - part.start
    )
    sizes = RowBytes.of(table)
    total = table.num_rows * sizes.fixed + (0 if sizes.varying is None else int(sizes.varying.sum()))
    real = pa.concat_tables([table]).combine_chunks().nbytes
    assert 0.9 * real <= total <= 1.7 * real + 8 * table.num_rows


def test_cuts_hold_both_limits() -> None:
    table = pa.table({"n": range(60), "c": TEXT})
    for limits in (BatchLimits(4_000, 1000), BatchLimits(10**9, 7), BatchLimits(50, 7)):
        cuts = list(cut_rows(table, limits))
        assert [row for start, count in cuts for row in range(start, start + count)] == list(range(60))
        for start, count in cuts:
            assert count <= limits.rows
            assert count == 1 or table.slice(start, count).nbytes <= limits.bytes


def test_cuts_of_gathered_rows_skip_nulls() -> None:
    wide, narrow = RowBytes.of(pa.table({"c": ["x" * 1000] * 4})), RowBytes.of(pa.table({"n": range(4)}))
    rows, partners = pa.array([0, 1, 2, 3] * 5), pa.array([None, 0, None, 3] * 5)
    cuts = list(cut_gathered([(narrow, rows), (wide, partners)], BatchLimits(2_500, 100)))
    assert sum(count for _, count in cuts) == 20
    assert all(partners.slice(*cut).drop_null().__len__() <= 2 for cut in cuts)
    assert len(cuts) == 5


def test_merged_batches_are_bounded_and_complete() -> None:
    batches = pa.table({"n": range(3000), "c": ["x" * (i % 500) for i in range(3000)]}).to_batches(max_chunksize=700)
    merged = list(merge_batches(batches, 10**6, 50_000))
    assert pa.concat_tables(merged)["n"].to_pylist() == list(range(3000))
    assert len(merged) > 10
    assert all(one.nbytes < 60_000 for one in merged)
    assert [one.num_rows for one in merge_batches(batches, 1000, 10**9)] == [1400, 1400, 200]


@pytest.mark.parametrize("given", ["none", "0", "12", "2g", "-1"])
def test_a_setting_that_cannot_be_is_refused(spark: SparkSession, given: str) -> None:
    spark.conf.set(SETTING, given)
    try:
        with pytest.raises(mr.ArgumentError, match=r"batchBytes.*allowed are 64k to 1g"):
            read_limits(spark)
    finally:
        spark.conf.unset(SETTING)


def test_output_batches_follow_the_settings(spark: SparkSession) -> None:
    rng = np.random.default_rng(2)
    table = pa.table({"x": rng.integers(0, 300, 2000), "c": ["t" * 400] * 2000})
    r = s = spark.createDataFrame(table)

    def widest(**settings: Any) -> tuple[int, int, int]:
        """The most rows and bytes of a batch, and all rows."""
        for name, value in settings.items():
            spark.conf.set(name, value)
        try:
            pairs = ms.join(r, s, on="abs(r.x - s.x) <= 1", strategy="range", splits=[150], device="cpu")
            counted = pairs.mapInArrow(
                lambda batches: (pa.record_batch({"n": [b.num_rows], "size": [b.nbytes]}) for b in batches),
                "n long, size long",
            )
            found = counted.toArrow()
        finally:
            for name in settings:
                spark.conf.unset(name)
        rows, sizes = (found[name].to_numpy() for name in ("n", "size"))
        return int(rows.max()), int(sizes.max()), int(rows.sum())

    assert widest()[2] == widest(**{SETTING: "64k", RECORDS: "64"})[2]
    assert widest(**{RECORDS: "64"})[0] == 64


LIMITS = BatchLimits(64 << 10, 64)
CPU = DeviceRequest("cpu", None, mr.__version__)


def check_batches(made: list[pa.RecordBatch], rows: int) -> None:
    """As tasks return them: Spark itself makes other batches of their rows."""
    assert sum(batch.num_rows for batch in made) == rows
    assert max(batch.num_rows for batch in made) <= LIMITS.rows
    assert max(batch.nbytes for batch in made if batch.num_rows > 1) <= LIMITS.bytes + 1000
    assert len(made) < rows / 4, "no batches of single rows"


def test_batches_that_a_join_returns(spark: SparkSession) -> None:
    held = pa.table({"x": range(300), "c": ["t" * (10 * (i % 300)) for i in range(300)]})
    names = (("r", ("x",)), ("s", ("x",)))
    job = JoinJob("abs(r.x - s.x) <= 1", "left", names, CPU, False, limits=LIMITS)
    join = broadcast.joiner(job, save_table(held), "s")
    check_batches(list(join(held.select(["x"]).to_batches(max_chunksize=120))), 898)


def test_tasks_use_the_probe_that_their_process_keeps(monkeypatch: pytest.MonkeyPatch) -> None:
    """Spark sends the task's function by value: the cache of probes must not travel with it."""
    held = pa.table({"x": range(50)})
    job = JoinJob("abs(r.x - s.x) <= 1", "inner", (("r", ("x",)), ("s", ("x",))), CPU, False)
    join = broadcast.joiner(job, save_table(held), "s")
    sent = cloudpickle.dumps(join)  # type: ignore[no-untyped-call]
    assert sum(batch.num_rows for batch in cloudpickle.loads(sent)(held.to_batches())) == 148
    monkeypatch.setattr(broadcast, "open_probe", lambda *_: pytest.fail("the probe was opened again"))
    later = cloudpickle.dumps(join)  # type: ignore[no-untyped-call]
    for one in (sent, later):  # before and after the cache was used
        assert sum(batch.num_rows for batch in cloudpickle.loads(one)(held.to_batches())) == 148


@pytest.mark.parametrize("width", [0, 3_000])
def test_batches_that_a_lookup_returns(spark: SparkSession, width: int) -> None:
    """The values may be wide: how wide they are is known only once they are looked up."""
    values = pa.array(range(100) if not width else ["x" * (i * width // 100) for i in range(100)])
    file = save_shared(mr.OrderedIndex(list(range(100)), values, device="cpu").save, ".index")
    step = lookup.Step("value", "k", file, values.type, from_arrow_type(values.type))
    keys = pa.record_batch({"k": [i * i % 100 for i in range(3_000)]})
    made = list(lookup._row_mapper([step], CPU, LIMITS)([keys]))
    check_batches(made, 3_000)
    found = pa.Table.from_batches(made)
    assert found["value"].equals(pa.chunked_array([values]).take(found["k"]))
    assert found["k"].to_pylist() == keys["k"].to_pylist()


def test_lookups_go_part_by_part() -> None:
    """A worker does not hold the values of all keys that it looks up at once."""
    rows, sizes = pa.record_batch({"k": range(60_000)}), []
    for made in lookup.map_parts(
        rows, lambda part: part.append_column("v", pa.array(["x" * 999] * len(part))), 1 << 20
    ):
        sizes.append(made.nbytes)
    assert max(sizes) < 1.1 * (1 << 20)
    assert len(sizes) < 100
