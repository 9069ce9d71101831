"""One scale for all times of a join: exact integers, whatever units the columns, the window and the lateness have.

The scale's unit is the greatest length that divides all of them, so nothing is ever rounded; it gets finer when a
column or an instant of a finer unit turns up. Integer time columns have a scale of their own, with ticks instead of
lengths.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import gcd
from typing import Literal

import numpy as np

from millrace.host.base.errors import SchemaError
from millrace.host.base.types import Array
from millrace.host.base.words import KeyType
from millrace.host.expr.exact import INT64_MAX, INT64_MIN


@dataclass(frozen=True)
class TimeScale:
    """`unit`: nanoseconds per tick of the scale (0: nothing known yet). `tick`: the finest column's unit, in ns.

    `domain` and `zoned` are those of the first column or instant seen; all others must agree.
    """

    unit: int = 0
    tick: int = 0
    domain: Literal["int", "time"] | None = None
    zoned: bool | None = None

    def with_length(self, ns: int) -> TimeScale:
        """Fine enough for a length of time."""
        return replace(self, unit=gcd(self.unit, ns))

    def with_column(self, kind: KeyType, label: str) -> TimeScale:
        """Fine enough for a time column, which must be of the kind of the others."""
        domain: Literal["int", "time"] = "int" if kind.domain == "int" else "time"
        scale = self._agree(domain, kind.zoned, label)
        return replace(scale, unit=gcd(scale.unit, kind.ns), tick=gcd(scale.tick, kind.ns))

    def _agree(self, domain: Literal["int", "time"], zoned: bool, label: str) -> TimeScale:
        if self.domain is not None and self.domain != domain:
            raise SchemaError(f"{label} and the other time column differ: both must be integers, or both times")
        if self.domain is not None and self.zoned != zoned:
            raise SchemaError(f"{label} and the other time column differ: both must have a time zone, or neither")
        return replace(self, domain=domain, zoned=zoned)

    def with_instant(self, value: int, domain: Literal["int", "time"], zoned: bool, label: str) -> TimeScale:
        """Fine enough for an instant (`value` in nanoseconds, or an integer)."""
        scale = self._agree(domain, zoned, label)
        return replace(scale, unit=gcd(scale.unit, value) if domain == "time" else 1)

    def ticks(self, ns: int) -> int:
        """A length of time (or, of integers, ticks) in this scale."""
        return ns // self.unit if self.unit else 0

    def step(self) -> int:
        """The smallest step of the time columns, in this scale."""
        return self.tick // self.unit if self.tick else 1

    def factor_from(self, earlier: TimeScale) -> int:
        """What times of an earlier, coarser scale are multiplied by."""
        return earlier.unit // self.unit if earlier.unit else 1

    def times(self, values: Array, kind: KeyType, label: str) -> Array:
        """A column's values in this scale, or a `SchemaError` if one does not fit into 64 bits."""
        factor = kind.ns // self.unit
        if len(values) == 0:
            return np.zeros(0, np.int64)
        low, high = int(values.min()), int(values.max())
        if low * factor < INT64_MIN or high * factor > INT64_MAX:
            hint = f"in the finest unit in use, {self.unit} ns: cast the time columns to a coarser unit"
            if self.domain == "int":
                hint = "with a sign: integer times go from -2**63 to 2**63 - 1"
            raise SchemaError(f"{label} holds a time that does not fit into 64 bits {hint}, or drop such rows")
        return values.astype(np.int64) * np.int64(factor)


def rescaled(times: Array, factor: int) -> Array:
    """Times in a finer scale; a `SchemaError` if one no longer fits."""
    if factor == 1 or len(times) == 0:
        return times
    if int(times.min()) * factor < INT64_MIN or int(times.max()) * factor > INT64_MAX:
        raise SchemaError("times held by the join do not fit into 64 bits in the finer unit of this column or instant")
    return times * np.int64(factor)
