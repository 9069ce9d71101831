"""`ms.explain`: the strategy that a call would take, and why, as text; the arguments are the call's own."""

from __future__ import annotations

from typing import Any

from pyspark.sql import DataFrame

from millrace.spark.api.join import ask
from millrace.spark.api.lookup import plan_lookup
from millrace.spark.api.window_join import read_call
from millrace.spark.plan.strategy import choose


def explain(*arguments: Any, **named: Any) -> str:
    """What a call would do: two frames mean `ms.join`, with `window=` too `ms.window_join`, one means `ms.lookup`."""
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
    question = ask(r, s, on, how, splits, strategy)
    about = f"{how} join on {question.outline.text} ({question.outline.kind})"
    return f"{about}\n{choose(question).describe()}\n  device: {device}"
