"""On the driver: checks the `device` and `fallback` arguments early, and reads Spark's resource settings."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

import millrace as mr
from millrace.ingest.checks import choice
from millrace.ingest.choices import FALLBACKS
from millrace.registry import check_name
from millrace.spark.cluster.settings import read_settings
from millrace.spark.cluster.task import RESOURCES, DeviceRequest


def read_device_request(spark: SparkSession, device: Any, fallback: Any) -> DeviceRequest:
    """The device request for all tasks; an unknown device is an `ArgumentError` here.

    `"auto"` is the setting `spark.millrace.device`, if there is one.
    """
    choice("fallback", fallback, FALLBACKS)
    settings = read_settings(spark)
    if device == "auto":
        device = settings.device
    if device != "auto":
        check_name(device)
    slots = tuple((name, _slots(spark, name)) for name in dict.fromkeys(RESOURCES.values()))
    return DeviceRequest(device, fallback, mr.__version__, slots, settings.log_level)


def _slots(spark: SparkSession, resource: str) -> int:
    """How many tasks may share one card: with `spark.task.resource.gpu.amount=0.25` it is four."""
    amount = float(spark.conf.get(f"spark.task.resource.{resource}.amount", "1") or 1)
    return max(1, int(1 / amount)) if amount > 0 else 1


def discovery_script(resource: str) -> str:
    """The path of the script for `spark.executor.resource.<resource>.discoveryScript`.

    Args:
        resource: Spark's name of the resource: `"gpu"` or `"fpga"`.

    Raises:
        ArgumentError: There is no script for it.
    """
    choice("resource", resource, tuple(dict.fromkeys(RESOURCES.values())))
    return str(Path(__file__).with_name(f"discover_{resource}.sh").resolve())
