"""A Spark session on this machine, for the examples; `ms` works with any session you have."""

from __future__ import annotations

from pyspark.sql import SparkSession

from millrace.spark.cluster.session import local_session


def session() -> SparkSession:
    """Two cores, little logging; an existing session is taken as it is."""
    return local_session("local[2]")
