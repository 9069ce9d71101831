"""The engine behind `mr.KnnJoin`: s's window, the index of its points, and the search for new r tuples.

Only s is held. The index (`host/knn/index.py`) takes s's points when they are needed, follows the window, and can
always be built again from it: after a failed call, a fork or a restore.
"""

from __future__ import annotations

from collections import Counter
from contextlib import suppress

import numpy as np
import pyarrow as pa

from millrace.host.base.errors import DeviceFault
from millrace.host.base.log import log
from millrace.host.base.types import Array, Longs, Positions, Side
from millrace.host.data.sliding import is_consecutive
from millrace.host.data.window import Window
from millrace.host.device.contract import Device
from millrace.host.device.cpu import CpuDevice
from millrace.host.kernels.gathering import Gatherer
from millrace.host.knn.device import describe_selection
from millrace.host.knn.index import TAIL_ROWS, PointIndex, PointQueries
from millrace.host.knn.join_core import PointShape
from millrace.host.knn.neighbour_rows import NeighbourRows, neighbour_rows
from millrace.host.knn.partitioned import COUNTERS, PartitionedIndex, open_index
from millrace.host.runtime.fork import ProcessMark
from millrace.host.runtime.pool import cores
from millrace.host.runtime.team import Team
from millrace.host.stream.window_bounds import TakenTuples
from millrace.ingest.knn_arguments import INDEX, KnnArguments
from millrace.join_parts.batch_reader import Progress
from millrace.join_parts.held_windows import HeldWindows
from millrace.join_parts.knn_output import Columns, leading_columns
from millrace.state.join_state import Snapshot

MAX_STEP_PAIRS = 1 << 24
"""Neighbours that are searched at once, about: bounds the scratch memory."""
_LEADING = 4
"""Columns that need no gathering: r_seq, rank, s_seq and distance."""
SOURCE_SHIFT = 44
"""The key that orders equal distances has the source above this bit, and the seq below it."""


class KnnEngine(HeldWindows):
    """s's window of a `mr.KnnJoin`, and the index that finds the neighbours of new r tuples in it."""

    index = INDEX

    def __init__(self, args: KnnArguments) -> None:
        """Open the device; there is no window yet."""
        super().__init__(args, ("s",))
        self._args = args
        self._past_counters: dict[str, int] = {}
        self._fallback: str | None = None
        self._open()

    def _open(self) -> None:
        """Open the device in this process; the first search creates the index."""
        engine = self._args.search.engine
        device, mark = engine.open(), ProcessMark()
        team = engine.partitioning.team(device.team or Team(engine.threads or cores()))
        self._points: PointIndex | PartitionedIndex | None = None
        self._device, self.team, self._opened_in = device, team, mark

    @property
    def current_device(self) -> Device:
        """The device in use: after a fault, the CPU if the user allows it."""
        return self._device

    def load(self, windows: dict[Side, Window], snapshot: Snapshot) -> None:
        """Continue with a stored window and counters; after a stored fallback, on the CPU."""
        self.windows, self._past_counters = windows, snapshot.counters
        self._fallback = snapshot.fallback
        failed = (snapshot.fallback or "").partition(" -> ")[0]
        if self._args.search.engine.fallback is not None and failed == self._device.name:
            self._use_cpu()

    def close(self) -> None:
        """Close the device; the counters stay in the stats."""
        self.discard_index()
        self._device.close()
        self.team.close()

    def discard_index(self) -> None:
        """Drop the index: the next search builds it from the window."""
        points = self._points
        if points is not None:
            counters = _sum(self._past_counters, points.counters())
            self._points, self._past_counters = None, counters
            with suppress(DeviceFault):  # a device that failed may refuse to free: nothing more can be done
                points.close()

    def _use_cpu(self) -> None:
        """Continue on the CPU, with the same threads."""
        self.discard_index()
        counters, old, cpu = _sum(self._past_counters, self._device.counters()), self._device, CpuDevice(team=self.team)
        self._past_counters, self._device = counters, cpu
        old.close()

    def fallback(self) -> str | None:
        """From which device the join fell back to the CPU, and why; None if it did not."""
        return self._fallback

    def strategy(self) -> str:
        """Where queries were answered, and why; empty on the CPU."""
        return "" if self._device.shares_host_memory else describe_selection(self._device.name, self.counters())

    def counters(self) -> dict[str, int]:
        """How many runs of points were built, and of how many points; what partitions and a device have counted."""
        names = ["builds", "built_points", *(COUNTERS if self._args.search.engine.partitioning.partitions > 1 else ())]
        now = {} if self._points is None else self._points.counters()
        return _sum(dict.fromkeys(names, 0), self._past_counters, self._device.counters(), now)

    # --- matching ---

    def results(self, progress: Progress, taken: TakenTuples | None) -> tuple[pa.Table, int]:
        """The rows of the taken r tuples, and the number of neighbours."""
        schema = progress.pair_schema
        if taken is None or not len(taken.sides["r"]):
            return schema.empty_table(), 0
        r = taken.sides["r"]
        self.team.acquire(len(r))
        try:
            if "s" not in self.windows:
                found = _nothing_found(len(r), self._args.search.left)
                blocks = [self._table(schema, taken, found, None)] if len(found.queries) else []
            else:
                blocks = self._blocks_on_devices(progress, taken)
        finally:
            self.team.depth -= 1
        tables = [table for table, _ in blocks if table.num_rows]
        pairs = sum(count for _, count in blocks)
        return (pa.concat_tables(tables) if tables else schema.empty_table()), pairs

    def _blocks_on_devices(self, progress: Progress, taken: TakenTuples) -> list[tuple[pa.Table, int]]:
        """The output in blocks; after a fault of the device, from the CPU if the user allows it."""
        try:
            return self._blocks(progress, taken)
        except DeviceFault as fault:
            if self._args.search.engine.fallback is None or self._device.shares_host_memory:
                raise
            text = f"{self._device.name} -> cpu: {fault}"
            self._use_cpu()
            self._fallback = text
            log.warning("knn join: fell back %s", text)
            return self._blocks(progress, taken)

    def _blocks(self, progress: Progress, taken: TakenTuples) -> list[tuple[pa.Table, int]]:
        """The output in blocks of r tuples whose visible intervals are alike."""
        search, r, window = self._args.search, taken.sides["r"], self.windows["s"]
        begin, end = self.bounds(progress).visible("r", window, taken)
        index = self._synchronized(window)
        points = search.spec.points_of("r", r.columns, r.live)
        groups = search.spec.groups_of("r", r.columns)
        shift = _seq_shift(r.seq)
        blocks, first, most = [], 0, max(MAX_STEP_PAIRS // min(search.k, max(len(window), 1)), 1)
        while first < len(r):
            stop = min(_step_end(begin, end, first), first + most)
            part = slice(first, stop)
            queries = PointQueries(
                [one[part] for one in points],
                begin[part],
                end[part],
                groups=None if groups is None else groups[part],
            )
            found = index.query(queries, search.k, search.limit)
            rows = neighbour_rows(found, search.spec.metric, search.left, self.team, first + (shift or 0))
            blocks.append(self._table(progress.pair_schema, taken, rows, shift))
            first = stop
        return blocks

    def _synchronized(self, window: Window) -> PointIndex | PartitionedIndex:
        """The index, with exactly the points of the window."""
        if not self._opened_in.is_here:
            self.discard_index()
            counters = _sum(self._past_counters, self._device.counters())
            self._open()
            self._past_counters = counters
        spec = self._args.search.spec
        if self._points is not None and self._points.end < window.first:
            self.discard_index()  # all its points have expired, and the next ones do not follow them
        if self._points is None:
            shape = PointShape(spec.dimensions, bool(spec.by["s"]), self._args.time is not None)
            how = self._args.search.engine.partitioning
            self._points = open_index(how, shape, self.team, window.first, self._device)
        index = self._points
        index.expire(window.first)
        new = slice(index.end - window.first, None)
        if index.end < window.end:
            columns = {name: column.view()[new] for name, column in window.columns.items()}
            points = spec.points_of("s", columns, window.live.view()[new])
            index.insert(points, spec.groups_of("s", columns), self._ties(window, new))
        return index

    def _ties(self, window: Window, rows: slice) -> Longs | None:
        """The keys that order equal distances: (source, seq). Without time they are the positions."""
        if self._args.time is None:
            return None
        ties: Longs = (window.source.view()[rows].astype(np.int64) << SOURCE_SHIFT) | window.seq.view()[rows]
        return ties

    def _table(
        self, schema: pa.Schema, taken: TakenTuples, rows: NeighbourRows, shift: int | None
    ) -> tuple[pa.Table, int]:
        """A block of rows, and the number of its neighbours. Its queries are r's seqs, or numbers without a `shift`."""
        r, seqs = taken.sides["r"], rows.queries
        numbers = seqs - shift if shift and len(schema) > _LEADING else seqs
        seqs = r.seq[numbers] if shift is None else seqs
        missing = rows.missing
        found = rows.positions if missing is None else rows.positions[~missing]
        window = self.windows.get("s")
        columns = leading_columns(rows, seqs, _scattered(found if window is None else window.seq_at(found), missing))
        if self._args.several:
            source = np.zeros(0, np.int32) if window is None else window.source.take(found)
            columns += [pa.array(r.source[numbers]), pa.array(_scattered(source, missing), mask=missing)]
        if len(schema) > len(columns):
            columns += Gatherer(r.payload, self.team).gather(pa.array(numbers))
            columns += self._payload(schema, len(columns), found, missing)
        return pa.Table.from_arrays(columns, schema=schema), rows.pairs

    def _payload(self, schema: pa.Schema, done: int, found: Positions, missing: Array | None) -> Columns:
        """s's columns, null where there is no neighbour."""
        window = self.windows.get("s")
        if missing is None and window is not None and len(found):
            return window.payload_at(found, self.team)
        total = 0 if missing is None else len(missing)
        if window is None or not len(found):
            return [pa.nulls(total, field.type) for field in list(schema)[done:]]
        numbers = pa.array(_scattered(np.arange(len(found)), missing), mask=missing)
        table = pa.Table.from_arrays(
            window.payload_at(found, self.team), names=[f"{i}" for i in range(len(schema) - done)]
        )
        return list(Gatherer(table, self.team).gather(numbers))


def _sum(*counters: dict[str, int]) -> dict[str, int]:
    """Add counters by name."""
    total: Counter[str] = Counter()
    for one in counters:
        total.update(one)
    return dict(total)


def _seq_shift(seq: Longs) -> int | None:
    """What a tuple's seq is more than its number; None if that differs, because rows were dropped or waited."""
    first = int(seq[0])
    return first if is_consecutive(seq, first) else None


def _scattered(values: Array, missing: Array | None) -> Array:
    """Values of the rows with a neighbour, spread over all rows."""
    if missing is None:
        return values
    spread = np.zeros(len(missing), values.dtype)
    spread[~missing] = values
    return spread


def _step_end(begin: Positions, end: Positions, first: int) -> int:
    """The end of a step of r tuples from `first` on: together they see about twice what the first of them sees."""
    visible = max(int(end[first] - begin[first]), TAIL_ROWS)
    return max(int(end.searchsorted(int(end[first]) + visible, "right")), first + 1)


def _nothing_found(queries: int, left: bool) -> NeighbourRows:
    """The rows while nothing of s is known."""
    count = queries if left else 0
    zeros = np.zeros(count, np.int64)
    return NeighbourRows(np.arange(count), zeros.astype(np.int32), zeros - 1, zeros.astype(np.float64), 0)
