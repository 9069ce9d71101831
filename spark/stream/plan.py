"""What a streaming window join means, as its tasks must know it: made once on the driver, sent to every task.

Times are counted in *ticks*: microseconds of timestamps and dates, or the steps of an integer time column, which
Spark's watermark sees as milliseconds. A pair is within the window if `-after <= r.ts - s.ts <= before`. Spark's
watermark comes in milliseconds; a row is late if its time is below it, and a watermark of 0 is none at all.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from millrace.spark.cluster.task import Asked

Longs = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]
SIDES = ("r", "s")
US_PER_MS, US_PER_DAY = 1000, 86_400_000_000
LEAST, MOST = -(2**63), 2**63 - 1


@dataclass(frozen=True)
class Side:
    """One stream: its columns, the one that tells the time, and those without which a row matches nothing."""

    schema: pa.Schema
    time: str
    used: tuple[str, ...]
    keys: tuple[str, ...]

    def times(self, table: pa.Table) -> tuple[Longs, Flags]:
        """Each row's time in ticks, and whether it has one."""
        column = table.column(self.time).combine_chunks()
        known = column.is_valid().to_numpy(zero_copy_only=False)
        if pa.types.is_date32(column.type):
            days = column.cast(pa.int32()).cast(pa.int64()).fill_null(0).to_numpy()
            return days * US_PER_DAY, known
        return column.cast(pa.int64()).fill_null(0).to_numpy(), known

    def usable(self, table: pa.Table) -> Flags:
        """Which rows have all keys: no null and no NaN."""
        able = np.ones(table.num_rows, np.bool_)
        for name in self.keys:
            column = table.column(name)
            whole = pc.is_valid(column)
            if pa.types.is_floating(column.type):
                whole = pc.and_(whole, pc.invert(pc.is_nan(pc.fill_null(column, 0.0))))
            able &= whole.to_numpy()
        return able


@dataclass(frozen=True)
class StreamPlan:
    """The join. `arguments` are what a stored state must have been made with; `integer`: time is an integer column."""

    on: str
    r: Side
    s: Side
    after: int
    before: int
    integer: bool
    asked: Asked
    arguments: tuple[tuple[str, str], ...]
    empty: bool = False
    """Keep state as ever, and match nothing: the bench's yardstick."""

    def side(self, name: str) -> Side:
        """r or s."""
        return self.r if name == "r" else self.s

    @property
    def token(self) -> str:
        """What tells caches of different joins apart."""
        return hashlib.sha256(repr((self.on, self.arguments)).encode()).hexdigest()[:16]

    def ticks(self, watermark_ms: int) -> int | None:
        """Spark's watermark in ticks; nothing while there is none."""
        if watermark_ms <= 0:
            return None
        return watermark_ms if self.integer else watermark_ms * US_PER_MS

    def reach(self, side: str) -> int:
        """How much later than a row of a side its partners may be."""
        return self.after if side == "r" else self.before

    def dead(self, side: str, newest: int, watermark: int | None) -> bool:
        """Whether rows of a side up to `newest` can meet nothing any more."""
        return watermark is not None and newest + self.reach(side) < watermark

    def expiry(self, side: str, newest: int) -> int:
        """The first watermark, in milliseconds, at which they are dead."""
        last = newest + self.reach(side)
        return (last if self.integer else last // US_PER_MS) + 1

    def near(self, r: Longs, s: Longs) -> Flags:
        """Which pairs of times lie within the window; ends beyond 64 bits are no ends."""
        least = np.maximum(r, LEAST + min(self.before, MOST)) - min(self.before, MOST)
        most = np.minimum(r, MOST - min(self.after, MOST)) + min(self.after, MOST)
        inside: Flags = (s >= least) & (s <= most)
        return inside

    def touches(self, r: tuple[int, int], s: tuple[int, int]) -> bool:
        """Whether rows of two spans of time can meet at all."""
        return s[1] >= r[0] - self.before and s[0] <= r[1] + self.after

    def covers(self, r: tuple[int, int], s: tuple[int, int]) -> bool:
        """Whether all of them do."""
        return s[0] >= r[1] - self.before and s[1] <= r[0] + self.after
