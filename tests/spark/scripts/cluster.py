"""Jobs on two executor processes (`local-cluster`), with a GPU as Spark hands it out and a card that only one may have.

`cluster.py FOLDER`: the folder has been made by `tests.spark.card.install`.
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
from tests.spark import card
from tests.spark.cases import draw, found
from tests.spark.sessions import local_session

ROWS = 60_000


def where(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Which device each task would take."""
    from millrace import __version__
    from millrace.spark.cluster.task import Asked, place_of

    for _ in batches:
        pass
    place = place_of(Asked("opencl", None, __version__, (("gpu", 2),)))
    told = f"{place.device} {place.card} {place.slots}"
    yield pa.record_batch([pa.array([told])], names=["told"])


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
    asked = spark.range(0, 8, 1, 8).mapInArrow(where, "told string").collect()
    told: dict[str, object] = {"places": sorted({row.told for row in asked})}
    drawn = draw(5)
    r, s = (spark.createDataFrame(table) for table in (drawn.r, drawn.s))
    told["joins"] = {
        strategy: found(ms.join(r, s, on=drawn.on, how="left", strategy=strategy, device="cpu")) == drawn.wanted("left")
        for strategy in ("broadcast", "grid")
    }
    told["opencl"] = _counts(spark, "opencl")
    told["card"] = _counts(spark, "card")
    told["holders"] = card.holders((folder / "log").read_text())
    index = mr.OrderedIndex(pa.array(range(1000)), pa.array(range(1000)))
    told["lookup"] = ms.lookup(spark.range(0, 2000, 1, 4), index, key="id").where("value = id").count()
    spark.stop()
    print(json.dumps(told))  # noqa: T201 - what the test reads


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
