"""Jobs on two executor processes (`local-cluster`), with a GPU that Spark assigns and a card for one task at a time.

`cluster.py FOLDER`: the folder in which `tests.spark.card.install` installs the card.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa

import millrace as mr
from millrace import spark as ms
from millrace.spark.cluster import owned_folders
from tests.spark import card
from tests.spark.cases import draw, found
from tests.spark.sessions import local_session

ROWS = 60_000


def where(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The device of each task."""
    from millrace import __version__
    from millrace.spark.cluster.task import DeviceRequest, task_device

    for _ in batches:
        pass
    device = task_device(DeviceRequest("opencl", None, __version__, (("gpu", 2),)))
    report = f"{device.name} {device.card} {device.slots}"
    yield pa.record_batch([pa.array([report])], names=["report"])


def main() -> None:
    folder = Path(sys.argv[1])
    os.environ |= {**card.install(folder), "MILLRACE_TEST_CARD_SLOW": "0.05"}
    sys.path.insert(0, str(folder))
    script = folder / "discover.sh"
    script.write_text('#!/bin/sh\necho \'{"name": "gpu", "addresses": ["0"]}\'\n')
    script.chmod(0o755)
    spark = local_session(
        "local-cluster[2,1,1024]",
        spark__executor__memory="1g",
        spark__worker__resource__gpu__amount="1",
        spark__worker__resource__gpu__discoveryScript=str(script),
        spark__executor__resource__gpu__amount="1",
        spark__executor__resource__gpu__discoveryScript=str(script),
        spark__task__resource__gpu__amount="0.5",
    )
    reports = spark.range(0, 8, 1, 8).mapInArrow(where, "report string").collect()
    report: dict[str, object] = {"devices": sorted({row.report for row in reports})}
    drawn = draw(5)
    r, s = (spark.createDataFrame(table) for table in (drawn.r, drawn.s))
    report["joins"] = {
        strategy: found(ms.join(r, s, on=drawn.on, how="left", strategy=strategy, device="cpu")) == drawn.wanted("left")
        for strategy in ("broadcast", "grid")
    }
    report["opencl"] = _counts(spark, "opencl")
    report["card"] = _counts(spark, "card")
    report["holders"] = card.holders((folder / "log").read_text())
    index = mr.OrderedIndex(pa.array(range(1000)), pa.array(range(1000)))
    report["lookup"] = ms.lookup(spark.range(0, 2000, 1, 4), index, key="id").where("value = id").count()
    made = owned_folders.folder()
    report["files"] = len(list(made.iterdir()))
    spark.stop()
    report["left"] = made.exists()
    print(json.dumps(report))  # noqa: T201 - what the test reads


def _counts(spark: object, device: str) -> dict[str, int]:
    """A band join of two ranges: each row but the last meets itself and its successor."""
    from pyspark.sql import SparkSession

    assert isinstance(spark, SparkSession)
    frame = spark.range(0, ROWS, 1, 6).selectExpr("id AS x")
    metrics = ms.Metrics()
    joined = ms.join(frame, frame, on="s.x - r.x BETWEEN 0 AND 1", strategy="range", device=device, metrics=metrics)
    return {"rows": joined.count(), **metrics.get}


if __name__ == "__main__":
    main()
