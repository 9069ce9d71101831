"""Looks up the sites of serial numbers in one ordered index, from a batch frame and from a stream."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

import millrace as mr
from millrace import spark as ms


def main() -> None:
    spark = SparkSession.builder.master("local[2]").getOrCreate()
    serials = pa.array(range(1000, 9000, 8))
    sites = pa.array([f"site {i % 7}" for i in range(len(serials))])
    index = mr.OrderedIndex(serials, sites)

    readings = spark.range(1000, 1100).selectExpr("id AS serial", "id * 0.1 AS temperature")
    ms.lookup(readings, index, key="serial", into="site").where("site IS NOT NULL").show(5)

    with tempfile.TemporaryDirectory() as folder:
        index.save(Path(folder) / "sites.index")  # on a shared file system, workers map this file
        stream = spark.readStream.format("rate").option("rowsPerSecond", 1000).load()
        looked = ms.lookup(stream.selectExpr("value * 8 + 1000 AS serial"), f"{folder}/sites.index", key="serial")
        query = looked.writeStream.foreachBatch(show).trigger(availableNow=True).start()
        query.awaitTermination(60)


def show(rows: DataFrame, number: int) -> None:
    """Print the size of one micro-batch."""
    sys.stdout.write(f"batch {number}: {rows.count()} rows\n")


if __name__ == "__main__":
    main()
