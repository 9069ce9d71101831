"""The windows of a join of streams: appends taken tuples, drops those that no later tuple can match, undoes a call.

`undo` removes what a failed call appended. The engines of the joins (`window_engine.py`, `knn_engine.py`) derive from
it; a join may hold the window of one side only.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping

import numpy as np
import pyarrow as pa

from millrace.host.base.codes import CodeTable
from millrace.host.base.faults import ARMED, fault_point
from millrace.host.base.types import SIDES, Longs, Order, Side
from millrace.host.data.sliding import LazySlidingArray, SlidingArray
from millrace.host.data.timescale import TimeScale
from millrace.host.data.tuples import NO_TUPLES, Tuples
from millrace.host.data.window import Window
from millrace.host.device.contract import Device
from millrace.host.runtime.team import Team
from millrace.host.stream.window_bounds import TakenTuples, WindowBounds, arrival_order
from millrace.ingest.arguments import StreamArguments
from millrace.join_parts.batch_reader import Extents, Progress
from millrace.state.join_state import Snapshot

WindowMarks = dict[Side, tuple[Window, int, SlidingArray | LazySlidingArray]]
"""For each side the window, its end and its time column, as `HeldWindows.undo` restores them."""


class HeldWindows(ABC):
    """The windows of the sides `held`, and what a join's engine does with them."""

    index: str
    team: Team

    def __init__(self, args: StreamArguments, held: tuple[Side, ...]) -> None:
        """There are no windows yet: a side's is created once its columns are known."""
        self._stream_args, self.held = args, held
        self.windows: dict[Side, Window] = {}
        self._cached_bounds: tuple[TimeScale, WindowBounds] | None = None

    @property
    @abstractmethod
    def current_device(self) -> Device:
        """The device in use."""

    @abstractmethod
    def results(self, progress: Progress, taken: TakenTuples | None) -> tuple[pa.Table, int]:
        """The output for the taken tuples, and the number of pairs."""

    @abstractmethod
    def discard_index(self) -> None:
        """Drop the index: the windows are not as it knows them."""

    @abstractmethod
    def load(self, windows: dict[Side, Window], snapshot: Snapshot) -> None:
        """Continue with stored windows and counters."""

    @abstractmethod
    def close(self) -> None:
        """Close the devices; their counters stay in the stats."""

    @abstractmethod
    def counters(self) -> dict[str, int]:
        """Counters of device and index."""

    @abstractmethod
    def fallback(self) -> str | None:
        """From which device the join fell back to which, and why; None if it did not."""

    @abstractmethod
    def strategy(self) -> str:
        """Which structure or index was chosen, and why; empty if the user named it."""

    def evict(self, progress: Progress, always: bool = True) -> None:
        """Drop tuples that no later tuple can match. Runs before a change: a failure must not damage a finished one.

        Unless `always`, a window is left alone until enough was appended that the work pays.
        """
        due = [side for side, window in self.windows.items() if always or window.eviction_due]
        if due:
            frontier = progress.clocks.frontier()
            bounds = self.bounds(progress)
            for side in due:
                window = self.windows[side]
                window.finish_eviction()
                window.evict(bounds.oldest_needed_position(side, window, None if frontier is None else frontier[0]))

    def sweep(self, codes: CodeTable, progress: Progress, fresh: Mapping[Side, Tuples]) -> None:
        """Drop codes of values that no row has any more: neither in a window, nor waiting, nor `fresh` from a batch."""
        held: list[Longs] = []
        for side, intake in progress.intakes.items():
            rows = [run.rows for run in progress.waiting.runs[side]]
            rows += [fresh[side]] if side in fresh else []
            held += [one.columns[name] for one in rows for name in intake.code_columns]
            if side in self.windows:
                columns = self.windows[side].columns
                held += [column.view() for name, column in columns.items() if name in intake.code_columns]
        codes.sweep(held)

    def marks(self) -> WindowMarks:
        """What `undo` needs to remove everything appended after this call."""
        return {side: (w, w.end, w.time) for side, w in self.windows.items()}

    def extents(self) -> Extents:
        """The first position of each window, its end and its times now; later changes do not alter them."""
        return {side: (w.first, w.end, w.time.view()) for side, w in self.windows.items()}

    def extend(
        self, progress: Progress, old_scale: TimeScale, fresh: dict[Side, Tuples], order: Order | None
    ) -> TakenTuples | None:
        """Append taken tuples to the windows; create a side's window once its columns are known."""
        factor = progress.scale.factor_from(old_scale)
        for side, intake in progress.intakes.items():
            if side in self.windows and factor != 1:
                self.windows[side].rescale(factor)
            elif side in self.held and side not in self.windows:
                self.windows[side] = Window({name: t.dtype for (_, name), t in intake.types.items()})
        if self._stream_args.self_join and "r" in fresh:
            r = fresh["r"]
            fresh, order = {"r": r, "s": r.as_s()}, np.tile(np.array([0, 1], np.uint8), len(r))
        for side in self.held:
            if side in fresh:
                self.windows[side].append(fresh[side])
                after_extension()
        r, s = fresh.get("r", NO_TUPLES), fresh.get("s", NO_TUPLES)
        if not len(r.seq) and not len(s.seq):
            return None
        if order is None:
            order = arrival_order(len(r.seq), len(s.seq))
        return TakenTuples({"r": r, "s": s}, order, self._stream_args.self_join)

    def undo(self, marks: WindowMarks) -> None:
        """Restore the windows as they were at `marks`."""
        self.windows = {side: window for side, (window, _, _) in marks.items()}
        for window, end, time in marks.values():
            window.time = time
            window.truncate(end)
        self.discard_index()

    def bounds(self, progress: Progress) -> WindowBounds:
        """The window lengths, in rows or in ticks of the current time scale."""
        if self._cached_bounds is not None and self._cached_bounds[0] is progress.scale:
            return self._cached_bounds[1]
        spans = {"r": self._stream_args.window.r, "s": self._stream_args.window.s}
        lengths: dict[Side, int] = {}
        for side in SIDES:
            span = spans[side]
            lengths[side] = progress.scale.ticks(span.length) if span.measure == "ns" else span.length
        bounds = WindowBounds(self._stream_args.window.counts, lengths)
        self._cached_bounds = progress.scale, bounds
        return bounds


def after_extension() -> None:
    """What every way calls once it has appended tuples to a window: a place that can fail."""
    if ARMED:
        fault_point("window.extend")
