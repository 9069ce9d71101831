"""Streaming joins survive SIGKILL, lost commits and stale caches: no pair is lost or duplicated; memory is bounded."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from millrace import spark as ms
from tests.recovery.kills import descendants, processes
from tests.spark import stream_cases as sc
from tests.spark.conftest import spark  # noqa: F401 - the session is a fixture
from tests.spark.sessions import GROUP, run_script

pytestmark = GROUP
SCRIPT = Path(__file__).parent / "stream_kills.py"
RecordProperty = Callable[[str, Any], None]


def kills(seed: int, folder: Path, record: RecordProperty) -> None:
    report = run_script(SCRIPT, str(seed), str(folder))
    for one in report["kills"]:
        record("kill", {**one, **{name: report[name] for name in ("pairs", "missing", "extra")}})
    assert report["code"] == 0, report["log"]
    assert [one["killed"] for one in report["kills"]] == [True] * 3, report["kills"]
    assert report["pairs"] > 1000
    assert (report["missing"], report["extra"]) == (0, 0)


def test_a_worker_an_executor_and_the_driver_are_killed(tmp_path: Path, record_property: RecordProperty) -> None:
    kills(0, tmp_path, record_property)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(1, 8))
def test_many_kills(seed: int, tmp_path: Path, record_property: RecordProperty) -> None:
    kills(seed, tmp_path, record_property)


def joined(session: SparkSession, streams: sc.Streams, folder: Path) -> DataFrame:
    r, s = (sc.read(session, folder, side) for side in "rs")
    return ms.window_join(r, s, **streams.arguments(), shards=2, device="cpu")


def test_a_lost_commit_is_repeated_by_workers_with_newer_caches(spark: SparkSession, tmp_path: Path) -> None:  # noqa: F811
    streams = sc.draw(21, batches=4, rows=100)
    sc.write(sc.Streams(streams.r[:3], streams.s[:3], streams.on, streams.window), tmp_path)
    sc.run(joined(spark, streams, tmp_path), tmp_path)
    commits = sorted(
        (int(path.name), path) for path in (tmp_path / "checkpoint/commits").iterdir() if path.name.isdigit()
    )
    last = commits[-1][1]
    last.unlink()
    (last.parent / f".{last.name}.crc").unlink(missing_ok=True)
    sc.write(streams, tmp_path, first=3)
    sc.run(joined(spark, streams, tmp_path), tmp_path)  # the same Python workers: their caches contain the lost batch
    sc.same(sc.found(tmp_path), streams.wanted())


def steady(session: SparkSession, batches: int, folder: Path) -> list[dict[str, int]]:
    """The state held after each batch of a stream whose window is five batches."""
    session.conf.set("spark.sql.streaming.numRecentProgressUpdates", str(batches + 50))
    memory: list[int] = []

    def source(name: str) -> DataFrame:
        options = {"rowsPerBatch": 2000, "numPartitions": 1, "startTimestamp": 1_700_000_000_000}
        stream = session.readStream.format("rate-micro-batch").options(**options).load()
        return stream.selectExpr(
            f"value AS {name}",
            "value * 2654435761 % 20000 AS x",
            "timestamp_millis(1700000000000 + value * 10) AS ts",
        )

    pairs = ms.window_join(
        source("a"), source("b"), on="abs(r.x - s.x) <= 5", window="100 seconds", time="ts", shards=2
    )
    query = (
        pairs.writeStream.foreachBatch(lambda rows, number: memory.append(worker_memory() if rows.count() else 0))
        .option("checkpointLocation", str(folder / "checkpoint"))
        .start()
    )
    while len(sc.counts(query)) < batches and query.isActive:  # Spark reports a batch after the call of its sink
        query.awaitTermination(1)
    query.stop()
    assert query.exception() is None
    report = sc.counts(query)[:batches]
    assert len(report) == batches
    return [{**one, "memory": used} for one, used in zip(report, memory, strict=False)]


def worker_memory() -> int:
    """The largest private memory of the Python workers of this process, in bytes."""
    everyone = processes()
    workers = [pid for pid in descendants(everyone) if "pyspark.daemon" in everyone.get(pid, (0, ""))[1]]
    sizes = [0]
    for pid in workers:
        try:
            lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
        except OSError:  # it has ended meanwhile
            continue
        sizes += [int(line.split()[1]) << 10 for line in lines if line.startswith("Private_Dirty")]
    return max(sizes)


def check_flat(report: list[dict[str, int]]) -> None:
    third = len(report) // 3
    early, late = report[third : 2 * third], report[2 * third :]
    assert min(one["memory"] for one in report if one["memory"]) > 1 << 20, "no worker was seen"
    for name in ("r_held", "s_held", "runs"):
        assert max(one[name] for one in late) <= 1.5 * max(one[name] for one in early), name
    assert max(one["r_held"] for one in late) <= 2.5 * 5 * 2000
    assert max(one["memory"] for one in late) <= 1.3 * max(one["memory"] for one in early) + (16 << 20)


def test_state_stays_flat(spark: SparkSession, tmp_path: Path) -> None:  # noqa: F811
    check_flat(steady(spark, 24, tmp_path))


@pytest.mark.long
def test_state_and_memory_stay_flat_over_200_batches(spark: SparkSession, tmp_path: Path) -> None:  # noqa: F811
    check_flat(steady(spark, 200, tmp_path))
