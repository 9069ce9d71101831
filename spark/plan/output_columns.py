"""`columns=` of `ms.join`: which columns of the output are wanted, so that no other column travels."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pyspark.sql import DataFrame

from millrace.errors import ArgumentError, SchemaError
from millrace.join_parts.routes import BoundCondition
from millrace.spark.plan.columns import column, is_exact, name_among


@dataclass(frozen=True)
class OutputColumns:
    """The wanted columns by their names in the output, in their order; None: all."""

    names: tuple[str, ...] | None = None

    def of(self, side: str, columns: Sequence[str]) -> list[str]:
        """Of a side's columns those that tasks return; at least one, so that rows can be counted."""
        if self.names is None:
            return list(columns)
        return [name for name in columns if f"{side}_{name}" in self.names] or list(columns[:1])

    def narrowed(self, frame: DataFrame, condition: BoundCondition, side: str) -> DataFrame:
        """A side's frame with the columns of the condition and of the output only."""
        if self.names is None:
            return frame
        needed = {*self.of(side, frame.columns), *condition.columns[side]}  # type: ignore[index]
        return frame.select(*(column(name) for name in frame.columns if name in needed))


ALL_COLUMNS = OutputColumns()


def read_columns(given: Any, frames: dict[str, DataFrame], sides: Sequence[str]) -> OutputColumns:
    """Check the argument: names of the output, by Spark's case rules, each once. `sides`: those that the output has."""
    if given is None:
        return ALL_COLUMNS
    if isinstance(given, str) or not isinstance(given, Sequence) or not given:
        raise ArgumentError(f"columns={given!r}: allowed is a list of output columns, such as ['r_id', 's_id']")
    known = [f"{side}_{name}" for side in sides for name in frames[side].columns]
    names = [str(name_among(known, one, lambda: is_exact(frames["r"]))) for one in given]
    for name, count in Counter(names).items():
        if name not in known:
            raise SchemaError(f"columns: there is no output column {name!r}; this join has {', '.join(known)}")
        if count > 1:
            raise ArgumentError(f"columns: {name!r} is there {count} times; name each column once")
    return OutputColumns(tuple(names))
