"""A Spark job whose processes are killed while it runs: `kills.py VICTIM SEED FOLDER`, on two executors.

VICTIM is `worker` (a Python worker), `executor` (an executor's JVM) or `fault` (no kill: the device of one executor
fails, and its tasks continue on the CPU). The job looks keys up and band-joins the rows by one of two strategies. Its
input is slow, so that tasks are running when the signal arrives. Prints the result and what was killed.
"""

from __future__ import annotations

import json
import os
import random
import signal
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

import millrace as mr
from millrace import spark as ms
from millrace.ingest.choices import Fallback
from millrace.spark.plan.strategy import StrategyName
from tests.spark import card
from tests.spark.sessions import local_session

ROWS, PARTS = 20_000, 8
ON = "abs(r.x - s.x) <= 2"


def slowly(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The same rows, a few at a time."""
    import time as clock

    for batch in batches:
        for start in range(0, batch.num_rows, 500):
            clock.sleep(0.25)
            yield batch.slice(start, 500)


def processes() -> dict[int, tuple[int, str]]:
    """Every process: its parent and its command line."""
    found = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
                line = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            except OSError:  # it has ended meanwhile
                continue
            found[int(entry.name)] = parent, line
    return found


def descendants(everyone: dict[int, tuple[int, str]]) -> set[int]:
    """This process and all its descendants."""
    ours, grown = {os.getpid()}, True
    while grown:
        more = {pid for pid, (parent, _) in everyone.items() if parent in ours} - ours
        ours, grown = ours | more, bool(more)
    return ours


def victims(kind: str) -> list[int]:
    """Our descendants of a kind: executors, or the workers that their daemons forked."""
    everyone = processes()
    ours = descendants(everyone)
    executors = {pid for pid in ours if "CoarseGrainedExecutorBackend" in everyone.get(pid, (0, ""))[1]}
    if kind == "executor":
        return sorted(pid for pid in executors if "java" in everyone[pid][1])
    daemons = {pid for pid in ours if everyone.get(pid, (0, ""))[0] in executors and "pyspark" in everyone[pid][1]}
    return sorted(pid for pid in ours if everyone.get(pid, (0, ""))[0] in daemons)


def kill_one(spark: SparkSession, kind: str, rng: random.Random, report: dict[str, object]) -> None:
    """Wait until tasks run in Python, wait a random time more, and kill one process."""
    tracker = spark.sparkContext.statusTracker()
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        active = sum(
            info.numActiveTasks
            for stage in tracker.getActiveStageIds()
            if (info := tracker.getStageInfo(stage)) is not None
        )
        if active >= 2 and len(victims("worker")) >= 2:
            break
        time.sleep(0.05)
    time.sleep(rng.uniform(0.2, 1.5))
    candidates = victims(kind)
    if candidates:
        pid = rng.choice(candidates)
        os.kill(pid, signal.SIGKILL)
        report["killed"] = pid


def job(
    spark: SparkSession, strategy: StrategyName, device: str, fallback: Fallback | None, metrics: ms.Metrics
) -> DataFrame:
    """Readings that arrive slowly, with a looked-up column, joined with limits."""
    index = mr.OrderedIndex(pa.array(range(0, ROWS, 2)), pa.array([i * 10 for i in range(0, ROWS, 2)]))
    readings = (
        spark.range(0, ROWS, 1, PARTS).selectExpr("id", "id * 7919 % 20011 AS x").mapInArrow(slowly, "id long, x long")
    )
    looked = ms.lookup(readings, index, key="id", into="tenfold", device="cpu")
    limits = spark.range(0, ROWS // 4, 1, 2).selectExpr("id", "id * 4 AS x")
    splits = [4000, 8000, 12000, 16000] if strategy == "range" else None
    return ms.join(
        looked, limits, on=ON, strategy=strategy, splits=splits, device=device, fallback=fallback, metrics=metrics
    )


def expected() -> Counter[tuple[int, int]]:
    """The expected pairs of ids: limits are multiples of four."""
    pairs: Counter[tuple[int, int]] = Counter()
    for i in range(ROWS):
        x = i * 7919 % 20011
        pairs.update(
            (i, j) for j in range(max(0, (x - 2) // 4), (x + 2) // 4 + 1) if abs(4 * j - x) <= 2 and j < ROWS // 4
        )
    return pairs


def main() -> None:
    victim, seed, folder = sys.argv[1], int(sys.argv[2]), Path(sys.argv[3])
    rng = random.Random(f"{victim} {seed}")
    os.environ |= card.install(folder)
    sys.path.insert(0, str(folder))
    if victim == "fault":
        (folder / "faulty").touch()
    spark = local_session("local-cluster[2,1,1024]", spark__executor__memory="1g", spark__task__maxFailures="8")
    strategy: StrategyName = "broadcast" if rng.random() < 0.5 else "range"
    metrics = ms.Metrics()
    faulty = victim == "fault"
    rows = job(spark, strategy, "card" if faulty else "cpu", "cpu" if faulty else None, metrics)
    report: dict[str, object] = {"strategy": strategy, "killed": None}
    killer = threading.Thread(target=kill_one, args=(spark, victim, rng, report))
    if victim != "fault":
        killer.start()
    table = rows.select("r_id", "s_id", "r_tenfold").toArrow()
    if victim != "fault":
        killer.join()
    found = Counter(zip(table["r_id"].to_pylist(), table["s_id"].to_pylist(), strict=True))
    wanted = expected()
    report["missing"], report["extra"] = sum((wanted - found).values()), sum((found - wanted).values())
    report["rows"] = table.num_rows
    report["tenfold"] = all(
        v == (10 * i if i % 2 == 0 else None)
        for i, v in zip(table["r_id"].to_pylist(), table["r_tenfold"].to_pylist(), strict=True)
    )
    report["fallbacks"] = metrics.get["fallbacks"]
    spark.stop()
    print(json.dumps(report))  # noqa: T201 - what the test reads


if __name__ == "__main__":
    main()
