"""`ms.explain`: the strategy that a call would use, and why, as text; it takes the arguments of that call."""

from __future__ import annotations

from typing import Any

from pyspark.sql import DataFrame

from millrace.spark.api.join import join_request
from millrace.spark.api.lookup import plan_lookup
from millrace.spark.api.window_join import read_call
from millrace.spark.plan.strategy import choose


def explain(*arguments: Any, **named: Any) -> str:
    """What a call would do: two frames mean `ms.join`, or `ms.window_join` with `window=`; one means `ms.lookup`."""
    second = arguments[1] if len(arguments) > 1 else named.get("s")
    if not isinstance(second, DataFrame):
        return plan_lookup(*arguments, **named)
    return read_call(*arguments, **named).describe() if "window" in named else _join(*arguments, **named)


def _join(
    r: DataFrame,
    s: DataFrame,
    on: str,
    how: str = "inner",
    splits: Any = None,
    device: str = "auto",
    fallback: str | None = None,
    strategy: str = "auto",
    metrics: Any = None,
) -> str:
    request = join_request(r, s, on, how, splits, strategy)
    about = f"{how} join on {request.condition.text} ({request.condition.kind})"
    return f"{about}\n{choose(request).describe()}\n  device: {device}"
