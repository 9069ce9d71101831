"""Joins readings with limits within half a degree: prints the strategy, some rows, and the counters."""

from __future__ import annotations

import sys

from pyspark.sql import SparkSession

from millrace import spark as ms

ON = "abs(r.temperature - s.limit) <= 0.5 AND r.site = s.site"


def main() -> None:
    spark = SparkSession.builder.master("local[2]").getOrCreate()
    readings = spark.range(20_000).selectExpr("id", "id % 50 AS site", "id * 37 % 4001 / 100.0D AS temperature")
    limits = spark.range(2_000).selectExpr("id % 50 AS site", "id * 11 % 4001 / 100.0D AS limit")

    sys.stdout.write(f"{ms.explain('join', readings, limits, on=ON, metrics=ms.Metrics())}\n")
    metrics = ms.Metrics()
    pairs = ms.join(readings, limits, on=ON, metrics=metrics)
    pairs.orderBy("r_id").show(5)
    sys.stdout.write(f"{metrics.get}\n")

    unmatched = ms.join(readings, limits, on=ON, how="anti", strategy="range")
    sys.stdout.write(f"{unmatched.count()} readings are near no limit\n")


if __name__ == "__main__":
    main()
