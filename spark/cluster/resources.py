"""The driver's side of devices: the `device` and `fallback` arguments, checked early, and Spark's resources."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

import millrace as mr
from millrace.ingest.arguments import FALLBACKS
from millrace.ingest.checks import choice
from millrace.registry import check_name
from millrace.spark.cluster.task import RESOURCES, Asked


def asked_of(spark: SparkSession, device: Any, fallback: Any) -> Asked:
    """What every task will be asked; an unknown device is an `ArgumentError` here."""
    choice("fallback", fallback, FALLBACKS)
    if device != "auto":
        check_name(device)
    slots = tuple((name, _slots(spark, name)) for name in dict.fromkeys(RESOURCES.values()))
    return Asked(device, fallback, mr.__version__, slots)


def _slots(spark: SparkSession, resource: str) -> int:
    """How many tasks Spark lets share one card: `spark.task.resource.gpu.amount=0.25` is four."""
    amount = float(spark.conf.get(f"spark.task.resource.{resource}.amount", "1") or 1)
    return max(1, int(1 / amount)) if amount > 0 else 1


def discovery_script(resource: str) -> str:
    """The script for `spark.executor.resource.<resource>.discoveryScript`: `"gpu"` or `"fpga"`."""
    choice("resource", resource, tuple(dict.fromkeys(RESOURCES.values())))
    return str(Path(__file__).with_name(f"discover_{resource}.sh").resolve())
