"""Starts a Spark session on this machine for the examples; `ms` works with any session."""

from __future__ import annotations

from pyspark.sql import SparkSession

from millrace.spark.cluster.session import local_session


def session() -> SparkSession:
    """A session with two cores and little logging; an existing session is returned unchanged."""
    return local_session("local[2]")
