"""`ms.explain`: the strategy that a call would take, and why, as text; the arguments are the call's own."""

from __future__ import annotations

from typing import Any

from pyspark.sql import DataFrame

from millrace.spark.batch_join import ask
from millrace.spark.index_lookup import plan_lookup
from millrace.spark.strategy import choose


def explain(*arguments: Any, **named: Any) -> str:
    """What `ms.join` or `ms.lookup` would do with these arguments; two frames mean a join."""
    second = arguments[1] if len(arguments) > 1 else named.get("s")
    return _join(*arguments, **named) if isinstance(second, DataFrame) else plan_lookup(*arguments, **named)


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
