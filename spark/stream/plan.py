"""The definition of a streaming window join for its tasks: made once on the driver, sent to every task.

Times are counted in *ticks*: microseconds for timestamps and dates, or the values of an integer time column. A pair is
within the window if `-after <= r.ts - s.ts <= before`. Spark's watermark is in milliseconds; a row is late if its time
is below it, and a watermark of 0 means that there is none. An integer up to 2**52 is that many milliseconds there.
Spark's timestamps end near 2**53 milliseconds, so beyond it 2048 ticks are one millisecond: nanoseconds since 1970
work, and their watermark moves in steps of 2 microseconds. Lateness is subtracted in ticks (`packed_batches.py`).
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from millrace.ingest.columns import usable
from millrace.spark.cluster.task import DeviceRequest
from millrace.spark.exec.batch_bytes import DEFAULT_LIMITS, BatchLimits

Longs = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]
SIDES = ("r", "s")
US_PER_MS, US_PER_DAY = 1000, 86_400_000_000
MIN_TICK, MAX_TICK = -(2**63), 2**63 - 1


_EXACT_MS, _STEP = 1 << 52, 1 << 11


def watermark_ms(tick: int) -> int:
    """An integer time as Spark's watermark has it."""
    return tick if tick <= _EXACT_MS else _EXACT_MS + (tick - _EXACT_MS) // _STEP


def first_tick(watermark: int) -> int:
    """The first integer time that a watermark does not make late."""
    return watermark if watermark <= _EXACT_MS else _EXACT_MS + (watermark - _EXACT_MS) * _STEP


@dataclass(frozen=True)
class Side:
    """One stream: its columns, its time column, the columns of the condition, and those that must not be null."""

    schema: pa.Schema
    time: str
    used: tuple[str, ...]
    keys: tuple[str, ...]
    never_late: bool = False
    """Whether the rows come from another join, which has left out the late ones. An aggregation in between holds rows
    back until the watermark has passed them: they are below it, but not late."""

    def times(self, table: pa.Table) -> tuple[Longs, Flags]:
        """Each row's time in ticks, and whether it is not null."""
        column = table.column(self.time).combine_chunks()
        known = column.is_valid().to_numpy(zero_copy_only=False)
        if pa.types.is_date32(column.type):
            days = column.cast(pa.int32()).cast(pa.int64()).fill_null(0).to_numpy()
            return days * US_PER_DAY, known
        return column.cast(pa.int64()).fill_null(0).to_numpy(), known

    def usable(self, table: pa.Table) -> Flags:
        """Which rows have all keys, without null or NaN."""
        able = np.ones(table.num_rows, np.bool_)
        for name in self.keys:
            able &= usable(table.column(name))
        return able


@dataclass(frozen=True)
class StreamPlan:
    """The join. `arguments`: must equal those of a stored state; `integer`: time is an integer column."""

    on: str
    r: Side
    s: Side
    after: int
    before: int
    integer: bool
    device_request: DeviceRequest
    arguments: tuple[tuple[str, str], ...]
    limits: BatchLimits = DEFAULT_LIMITS
    event_time: str | None = None
    """The output column for the later time of a pair, and whether it has a time zone."""
    zoned: bool = True
    empty: bool = False
    """Keep state as usual but match nothing: the baseline of the bench."""

    def side(self, name: str) -> Side:
        """The side of this name, r or s."""
        return self.r if name == "r" else self.s

    @property
    def token(self) -> str:
        """A key that separates the caches of different joins."""
        return hashlib.sha256(repr((self.on, self.arguments)).encode()).hexdigest()[:16]

    def ticks(self, watermark: int) -> int | None:
        """Spark's watermark, in milliseconds, in ticks; None if there is none yet."""
        if watermark <= 0:
            return None
        return first_tick(watermark) if self.integer else watermark * US_PER_MS

    def retention(self, side: str) -> int:
        """How much later than a row of this side its partners may be."""
        return self.after if side == "r" else self.before

    def dead(self, side: str, newest: int, watermark: int | None) -> bool:
        """Whether rows of a side up to time `newest` can no longer match any row that is not late."""
        return watermark is not None and newest + self.retention(side) < watermark

    def expiry(self, side: str, newest: int) -> int:
        """The first watermark, in milliseconds, at which these rows are dead."""
        last = newest + self.retention(side)
        return (watermark_ms(last) if self.integer else last // US_PER_MS) + 1

    def pair_times(self, own: Longs, partners: Longs) -> pa.Array:
        """The later time of each pair, as a column for Spark."""
        later = pa.array(np.maximum(own, partners))
        return later.cast(pa.timestamp("us", "UTC" if self.zoned else None))

    def within_window(self, r: Longs, s: Longs) -> Flags:
        """Which pairs of times are within the window; ends beyond 64 bits are clamped."""
        least = np.maximum(r, MIN_TICK + min(self.before, MAX_TICK)) - min(self.before, MAX_TICK)
        most = np.minimum(r, MAX_TICK - min(self.after, MAX_TICK)) + min(self.after, MAX_TICK)
        inside: Flags = (s >= least) & (s <= most)
        return inside

    def may_match(self, r: tuple[int, int], s: tuple[int, int]) -> bool:
        """Whether any rows of two time spans are within the window."""
        return s[1] >= r[0] - self.before and s[0] <= r[1] + self.after

    def all_within(self, r: tuple[int, int], s: tuple[int, int]) -> bool:
        """Whether all rows of two time spans are within the window."""
        return s[0] >= r[1] - self.before and s[1] <= r[0] + self.after
