"""A Spark join on the CPU and on the FPGA design, simulated cycle by cycle: for tests, not for speed."""

from __future__ import annotations

import sys

from pyspark.sql import SparkSession

from millrace import spark as ms


def main() -> None:
    spark = SparkSession.builder.master("local[2]").getOrCreate()
    r = spark.range(0, 20_000, 1, 2).selectExpr("CAST(id * 7919 % 100003 AS INT) AS x")
    s = spark.range(0, 20_000, 1, 2).selectExpr("CAST(id * 104729 % 100003 AS INT) AS x")
    rows = {}
    for device in ("cpu", "rtl"):
        metrics = ms.Metrics()
        pairs = ms.join(r, s, on="abs(r.x - s.x) <= 3", device=device, metrics=metrics)
        rows[device] = sorted(map(tuple, pairs.collect()))
        counts = metrics.get
        sys.stdout.write(
            f"{device}: {counts['pairs']} pairs, {counts['device_rows']} rows probed, "
            f"{counts['device_cycles']} cycles\n"
        )
    if rows["cpu"] != rows["rtl"]:
        raise SystemExit("the devices differ")


if __name__ == "__main__":
    main()
