"""`WindowJoin.tune`: which index is fastest for what a join's windows hold now, measured by replaying it.

The tuples held are loaded into copies of the windows, and then arrive once more, in batches of the recent size, pass
after pass. Each index runs for a bounded time through the ordinary matcher. Only matching is timed; payload costs the
same for all indexes. Limits: keys that drift jump back at the beginning of a pass; building an index of a large window
takes longer than the time given; the order of r and s in a count window is not stored, so batches of r and s alternate.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, count, repeat
from typing import Literal

import numpy as np
import pyarrow as pa

from millrace.host.base.types import SIDES, Order, Side
from millrace.host.data.tuples import Tuples
from millrace.host.data.window import Window
from millrace.host.device.contract import Device
from millrace.host.expr.exact import INT64_MAX
from millrace.host.expr.plan import SearchShape
from millrace.host.join.matcher import Matcher
from millrace.host.join.registry import runs_on, serving
from millrace.host.stream.window_bounds import TakenTuples, WindowBounds, arrival_order, time_order

TRIAL_TUPLES = 256
"""The first steps of an index are small: they show whether a full batch would take too long."""
WARM_UP_STEPS = 4
"""Steps that are not timed: two trials and two full batches, which may compile kernels and touch new memory."""
MAX_SCAN_ROWS = 1 << 16
"""A larger window is not scanned, unless the join does so already."""
Arrival = Literal["alternating", "interleaved", "by time", "self-join"]


@dataclass(frozen=True)
class TuneResult:
    """What `tune()` measured: tuples per second of each index, fastest first, in batches of `batch` tuples.

    `index` is the fastest; the join goes on with it.
    """

    index: str
    tuples_per_second: dict[str, int]
    batch: int

    @property
    def reason(self) -> str:
        """One sentence for `stats["strategy"]`."""
        speeds = ", ".join(f"{name} {speed:,}" for name, speed in self.tuples_per_second.items())
        return f"{self.index} for batches of {self.batch:,} tuples: fastest in tune() (tuples per second: {speeds})"


@dataclass(frozen=True)
class HeldStream:
    """The tuples of full windows as a stream without end; `batch` counts the tuples of both sides of one step."""

    windows: Mapping[Side, Window]
    bounds: WindowBounds
    arrival: Arrival
    timed: bool
    """Whether tuples have times, so that those of a later pass are later."""
    batch: int

    @property
    def held(self) -> dict[Side, Tuples]:
        """The tuples of each window, without payload."""
        return {side: _held_tuples(window) for side, window in self.windows.items()}

    def copies(self) -> dict[Side, Window]:
        """Windows with the same tuples, from position 0 on."""
        copies: dict[Side, Window] = {}
        for side, tuples in self.held.items():
            copies[side] = Window({name: column.dtype for name, column in tuples.columns.items()})
            copies[side].append(tuples)
        return copies

    def batches(self) -> Iterator[TakenTuples]:
        """The tuples held arrive again, pass after pass, later by the time that they span. Two batches are trials."""
        held = self.held
        ends = [int(tuples.time[at]) for tuples in held.values() for at in (0, -1)]
        span = max(ends) - min(ends) + 1 if self.timed else 0
        trial = min(TRIAL_TUPLES, self.batch)
        sizes = chain((trial, trial), repeat(self.batch))
        for number in count(1):
            if max(ends) + number * span > INT64_MAX:
                return
            for parts, order in self._cuts(held, sizes):
                sides = {side: held[side].slice(part.start, part.stop) for side, part in parts.items()}
                if span:
                    sides = {side: replace(tuples, time=tuples.time + number * span) for side, tuples in sides.items()}
                yield TakenTuples(sides, order, self.arrival == "self-join")

    def _cuts(self, held: dict[Side, Tuples], sizes: Iterator[int]) -> Iterator[tuple[dict[Side, slice], Order]]:
        """Cut one pass into batches of the given sizes: each side's part, and how they interleave."""
        if self.arrival == "alternating":
            yield from _alternating({side: len(tuples) for side, tuples in held.items()}, sizes)
            return
        order, start = self._order(held), 0
        done: dict[Side, int] = {"r": 0, "s": 0}
        while start < len(order):
            part = order[start : start + next(sizes)]
            s_rows = int(np.count_nonzero(part))
            rows: dict[Side, int] = {"r": len(part) - s_rows, "s": s_rows}
            yield {side: slice(done[side], done[side] + rows[side]) for side in SIDES}, part
            done = {side: done[side] + rows[side] for side in SIDES}
            start += len(part)

    def _order(self, held: dict[Side, Tuples]) -> Order:
        """How the tuples of both sides interleave in a pass."""
        r, s = (len(held[side]) for side in SIDES)
        if self.arrival == "self-join":
            return np.tile(np.array([0, 1], np.uint8), r)
        if self.arrival == "by time":
            return time_order(held["r"].time, held["s"].time)
        return time_order(np.arange(r) * s, np.arange(s) * r)


def candidates(shape: SearchShape, device: Device, present: str, rows: int) -> list[str]:
    """The indexes to measure: all that serve a condition on a device, `scan` only in windows of few rows."""
    able = [name for name in serving(shape) if name != "auto" and runs_on(name, device)]
    quick = [name for name in able if name != "scan" or name == present or rows <= MAX_SCAN_ROWS]
    return quick or able


def measure(
    stream: HeldStream, names: Sequence[str], matcher_for: Callable[[str], Matcher], counting: bool, seconds: float
) -> TuneResult:
    """Replay the stream with each index for about `seconds`."""
    speeds: dict[str, int] = {}
    for name in names:
        matcher = matcher_for(name)
        try:
            speeds[name] = max(1, round(_speed(stream, matcher, counting, seconds)))
        finally:
            matcher.discard_index()
    ranked = dict(sorted(speeds.items(), key=lambda item: -item[1]))
    return TuneResult(next(iter(ranked)), ranked, stream.batch)


def _speed(stream: HeldStream, matcher: Matcher, counting: bool, seconds: float) -> float:
    """Tuples per second of one index; if a full batch would take longer than `seconds`, those of a trial."""
    windows = stream.copies()
    tuples, spent, trial = 0, 0.0, 0.0
    for number, taken in enumerate(stream.batches()):
        took = _step(windows, stream.bounds, taken, matcher, counting)
        if number == 1:
            trial = len(taken.order) / took
            if stream.batch / trial > seconds:
                return trial
        elif number >= WARM_UP_STEPS:
            tuples, spent = tuples + len(taken.order), spent + took
            if spent >= seconds:
                break
    return tuples / spent if spent else trial


def _step(
    windows: dict[Side, Window], bounds: WindowBounds, taken: TakenTuples, matcher: Matcher, counting: bool
) -> float:
    """Match one batch and evict what expired; returns the seconds that matching took."""
    for side, tuples in taken.sides.items():
        windows[side].append(tuples)
    new = bounds.new_tuples(windows, taken)
    keep = bounds.oldest_needed_after(windows, taken)
    matcher.team.acquire(len(taken.order))
    try:
        start = time.perf_counter()
        for _ in matcher.match(windows, new, taken.order, keep, want_pairs=not counting):
            pass
        took = time.perf_counter() - start
    finally:
        matcher.team.depth -= 1
    for side, oldest in zip(SIDES, keep(len(taken.order)), strict=True):
        windows[side].evict(oldest)
    return max(took, 1e-9)


def _alternating(rows: dict[Side, int], sizes: Iterator[int]) -> Iterator[tuple[dict[Side, slice], Order]]:
    """Batches of r and s in turn, until both sides are used up."""
    done: dict[Side, int] = {"r": 0, "s": 0}
    while done != rows:
        for side in SIDES:
            if done[side] < rows[side]:
                stop = min(done[side] + next(sizes), rows[side])
                parts = {one: slice(done[one], stop if one == side else done[one]) for one in SIDES}
                yield parts, arrival_order(*(parts[one].stop - parts[one].start for one in SIDES))
                done[side] = stop


def _held_tuples(window: Window) -> Tuples:
    """All tuples of a window, without payload."""
    return Tuples(
        window.seq.view(),
        window.source.view(),
        window.time.view(),
        window.live.view(),
        window.held_columns(),
        pa.table({}),
    )
