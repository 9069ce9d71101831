"""First contact: a plain session, as a user writes it. `plain_session.py before | after PYTHON`.

`before`: millrace.spark is imported before the session exists. `after`: the session is there first; then a second one;
then one for which the user has set PYTHON, which lacks what workers need.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any

from pyspark.sql import SparkSession


def session() -> SparkSession:
    return SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()


def pairs(spark: SparkSession) -> int:
    from millrace import spark as ms

    r, s = spark.range(100).withColumnRenamed("id", "x"), spark.range(50).withColumnRenamed("id", "x")
    return ms.join(r, s, on="abs(r.x - s.x) <= 1").count()


def before() -> dict[str, Any]:
    from millrace import spark as ms

    return {"pairs": pairs(session()), "names": len(dir(ms))}


def after(python: str) -> dict[str, Any]:
    spark = session()
    found: dict[str, Any] = {"pairs": pairs(spark)}
    spark.stop()
    spark = session()
    found["again"] = pairs(spark)
    spark.stop()
    os.environ["PYSPARK_PYTHON"] = python
    try:
        pairs(session())
    except Exception as error:
        found |= {"kind": type(error).__name__, "text": str(error), "cause": str(error.__cause__)}
    return found


if __name__ == "__main__":
    print(json.dumps(before() if sys.argv[1] == "before" else after(sys.argv[2])))  # noqa: T201 - what the test reads
