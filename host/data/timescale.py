"""One time scale per join: exact integers for all units of the columns, the window and the lateness.

The unit of the scale is the greatest common divisor of all units, so no time is rounded. The unit gets finer when a
column or an instant with a finer unit is added. Integer time columns use plain ticks instead of nanoseconds.
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
    """`unit`: nanoseconds per tick of the scale (0: not known yet). `tick`: the unit of the finest column, in ns.

    `domain` and `zoned` come from the first column or instant; all later ones must agree.
    """

    unit: int = 0
    tick: int = 0
    domain: Literal["int", "time"] | None = None
    zoned: bool | None = None

    def with_length(self, ns: int) -> TimeScale:
        """Return a scale that represents this duration exactly."""
        return replace(self, unit=gcd(self.unit, ns))

    def with_column(self, kind: KeyType, label: str) -> TimeScale:
        """Return a scale that represents this time column exactly; its kind must match the other columns."""
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
        """Return a scale that represents this instant exactly (`value` in nanoseconds, or an integer)."""
        scale = self._agree(domain, zoned, label)
        return replace(scale, unit=gcd(scale.unit, value) if domain == "time" else 1)

    def ticks(self, ns: int) -> int:
        """Convert a duration (for integer time columns: a number of ticks) to this scale."""
        return ns // self.unit if self.unit else 0

    def step(self) -> int:
        """Return the smallest step of the time columns in this scale."""
        return self.tick // self.unit if self.tick else 1

    def factor_from(self, earlier: TimeScale) -> int:
        """Return the factor that converts times of an earlier, coarser scale to this one."""
        return earlier.unit // self.unit if earlier.unit else 1

    def times(self, values: Array, kind: KeyType, label: str) -> Array:
        """Convert a column's values to this scale; raise a `SchemaError` if one does not fit into 64 bits."""
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


NO_TIME = TimeScale(unit=1)
"""The scale of rows without a time column."""


def rescaled(times: Array, factor: int) -> Array:
    """Multiply times by `factor`; raise a `SchemaError` if one does not fit into 64 bits."""
    if factor == 1 or len(times) == 0:
        return times
    if int(times.min()) * factor < INT64_MIN or int(times.max()) * factor > INT64_MAX:
        raise SchemaError("times held by the join do not fit into 64 bits in the finer unit of this column or instant")
    return times * np.int64(factor)
