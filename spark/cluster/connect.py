"""Tells frames and sessions of Spark Connect from classic ones: its clients see no plans, no JVM and no context."""

from __future__ import annotations

from typing import Any


def is_connect(given: Any) -> bool:
    """Whether a frame or session is of Spark Connect."""
    return type(given).__module__.startswith("pyspark.sql.connect")
