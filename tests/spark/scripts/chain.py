"""A lookup and a join on one card in one stage: two Python workers of one task that must not deadlock.

`chain.py FOLDER`: where the card (`tests.spark.card`) keeps its log and its locks.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pyarrow as pa

import millrace as mr
from millrace import spark as ms
from tests.spark import card
from tests.spark.sessions import local_session

ROWS = 5000


def main() -> None:
    folder = Path(sys.argv[1])
    os.environ |= card.install(folder)
    sys.path.insert(0, str(folder))
    spark = local_session()
    index = mr.OrderedIndex(pa.array(range(ROWS)), pa.array(range(ROWS)))
    frame = spark.range(0, ROWS, 1, 2).selectExpr("id AS x")
    looked = ms.lookup(frame, index, key="x", device="card")
    on = "abs(r.x - s.x) <= 1"
    report: dict[str, object] = {}
    for strategy in ("broadcast", "range"):
        metrics = ms.Metrics()
        pairs = ms.join(looked, frame, on=on, strategy=strategy, device="card", metrics=metrics)
        report[f"lookup, {strategy}"] = pairs.where("r_value = r_x").count()
        report[f"lookup, {strategy} counts"] = metrics.get
        after = ms.lookup(
            ms.join(frame, frame, on=on, strategy=strategy, device="card"), index, key="r_x", device="card"
        )
        report[f"{strategy}, lookup"] = after.where("value = r_x").count()
    report["holders"] = card.holders((folder / "log").read_text())
    report["left open"] = card.left_open((folder / "log").read_text())
    spark.stop()
    print(json.dumps(report))  # noqa: T201 - what the test reads


if __name__ == "__main__":
    main()
