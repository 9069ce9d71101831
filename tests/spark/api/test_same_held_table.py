"""Calls that hold the same rows share a file and workers; none may get the open probe of another call."""

from __future__ import annotations

from collections import Counter

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from millrace import spark as ms
from tests.spark.sessions import GROUP

pytestmark = GROUP


def _pairs(rows: DataFrame) -> Counter[tuple[float, float]]:
    return Counter((row[0], row[1]) for row in rows.select("r_x", "s_x").collect())


def test_joins_that_hold_it_as_r_and_as_s(spark: SparkSession) -> None:
    few, many = ([10, 20, 30], list(range(40)))
    small, large = (spark.createDataFrame(pa.table({"x": values})) for values in (few, many))
    on = "r.x < s.x"
    assert "broadcast" in str(ms.explain("join", small, large, on=on))
    assert _pairs(ms.join(small, large, on=on)) == Counter((a, b) for a in few for b in many if a < b)
    assert _pairs(ms.join(large, small, on=on)) == Counter((a, b) for a in many for b in few if a < b)


def test_joins_with_rows_of_another_type(spark: SparkSession) -> None:
    held = spark.createDataFrame(pa.table({"x": [1, 2, 3]}))
    for values in ([1, 3], [1.0, 2.5]):
        rows = spark.createDataFrame(pa.table({"x": values}))
        found = ms.join(rows, held, on="r.x >= s.x", strategy="broadcast")
        assert _pairs(found) == Counter((a, b) for a in values for b in (1, 2, 3) if a >= b)


def test_nearest_neighbours_with_other_arguments(spark: SparkSession) -> None:
    points = spark.createDataFrame(pa.table({"x": [0.0, 1.0, 5.0], "y": [0.0, 0.0, 0.0]}))
    query = spark.createDataFrame(pa.table({"x": [0.0], "y": [0.0]}))

    def distances(frame: DataFrame, **arguments: object) -> list[float]:
        found = ms.knn_join(frame, points, ("x", "y"), strategy="broadcast", **arguments)  # type: ignore[arg-type]
        return sorted(found.toArrow()["distance"].to_pylist())

    assert distances(query, k=1) == [0.0]
    assert distances(query, k=3) == [0.0, 1.0, 5.0]
    assert distances(query, k=3, within=2) == [0.0, 1.0]
    integers = spark.createDataFrame(pa.table({"x": [4], "y": [0]}))
    assert distances(integers, k=1) == [1.0]
