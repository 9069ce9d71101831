"""`DevicePointIndex`: nearest neighbours with a device that selects candidates; results equal the CPU's, bit for bit.

Runs are built on the host as in `index.py`, and copied to the device. For each run the device selects some more points
than are wanted (`device_run.py`); the host computes their exact distances and keeps the k nearest (`refine.py`). Runs
are searched one after the other, so that what is found bounds the next search. A query for which the device's rounding
leaves a doubt is searched on the host, and counted. Limit: a device holds at most 2^31 coordinates of a run.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from millrace.host.base.types import Array, Positions
from millrace.host.device.contract import Device
from millrace.host.knn.device_run import MAX_QUERY_OFFSET, DeviceRun
from millrace.host.knn.index import Neighbours, PointIndex, PointQueries
from millrace.host.knn.refine import BestCandidates
from millrace.host.knn.run import PointRun
from millrace.host.runtime.allocator import result_array
from millrace.host.runtime.team import Team

MAX_SELECTED = 1 << 10
"""Points that a device selects for a query at most; for more the host searches."""
MIN_SPARE = 16
"""A device selects so many more points than are wanted, or a quarter more."""
SLICE_POINTS = 1 << 21
"""Points that a device selects at once, about: bounds the memory."""
DOUBT, FAR, SCALE, MANY = 1, 2, 3, 4
"""Marks of queries that are searched on the host."""
REASONS = {
    DOUBT: ("host_close", "points at almost the same distance"),
    FAR: ("host_far", "far from all points"),
    SCALE: ("host_scale", "coordinates that float32 cannot hold"),
    MANY: ("host_many", f"more than {MAX_SELECTED} points to select"),
}
"""For each mark the name of the counter, and the reason."""
SELECTED = "device_queries"
"""The counter of the queries for which the device has selected all candidates."""


class DevicePointIndex(PointIndex):
    """The points of a window, on the host and on a device."""

    def __init__(
        self, device: Device, dims: int, team: Team, start: int = 0, grouped: bool = False, tied: bool = False
    ) -> None:
        """An empty index; the arguments behind `device` are those of `PointIndex`."""
        super().__init__(dims, team, start, grouped, tied)
        self._device = device
        self._copies: dict[PointRun, DeviceRun] = {}
        self._answered = dict.fromkeys([SELECTED, *(name for name, _ in REASONS.values())], 0)

    def expire(self, keep: int) -> None:
        """Drop points and runs, also those on the device."""
        super().expire(keep)
        self._drop_copies()

    def close(self) -> None:
        """Free the memory of the device."""
        self._runs = []
        self._drop_copies()

    def _drop_copies(self) -> None:
        for run in [run for run in self._copies if run not in self._runs]:
            self._copies.pop(run).close()

    def counters(self) -> dict[str, int]:
        """Runs built and their points, and how many queries the device and the host have answered."""
        return super().counters() | self._answered

    def query(self, queries: PointQueries, k: int, limit: float = np.inf) -> Neighbours:
        """Return the k nearest points of each query; see `PointIndex.query`."""
        n, (first, end) = len(queries), self._visible(queries)
        k = max(min(k, end - first), 1)
        searched = k if queries.own is None else k + 1
        want = searched + max(MIN_SPARE, searched // 4)
        if not n or end <= first or want > MAX_SELECTED:
            self._count(np.full(n, MANY if want > MAX_SELECTED else 0))
            return super().query(queries, k, limit)
        columns = np.ascontiguousarray(np.stack(queries.columns))
        runs, _ = self._parts_for(queries, first, end)
        order = self._order(queries, columns, runs)
        squares, positions = result_array(n * k, np.float64), result_array(n * k, np.int64)
        found = Neighbours(result_array(n, np.int64), positions.reshape(n, k), squares.reshape(n, k))
        marks, step = np.zeros(n, np.uint8), max(SLICE_POINTS // want, 1)
        for start in range(0, n, step):
            part = order[start : start + step]
            limits = np.full(len(part), limit) if queries.limits is None else queries.limits[part]
            best = BestCandidates(np.ascontiguousarray(columns[:, part]), searched, limits, self._team)
            for run in runs:
                self._search(best, queries, part, run, want)
            best.write(part, None if queries.own is None else queries.own[part], found)
            marks[part] = best.marks
        self._search_on_host(queries, np.flatnonzero(marks), k, limit, found)
        self._count(marks)
        return found

    def _count(self, marks: Array) -> None:
        for name, number in zip(self._answered, np.bincount(marks, minlength=len(self._answered)), strict=True):
            self._answered[name] += int(number)

    def _parts_for(self, queries: PointQueries, first: int, end: int) -> tuple[list[PointRun], int]:
        """Return the runs to search, those with most visible points first; all points are in runs."""
        if end > self._indexed:
            self._add_run(end)
            self._drop_copies()
        runs = [run for run in self._runs if run.end > first and run.first < end]
        return sorted(runs, key=lambda run: min(run.end, end) - max(run.first, first), reverse=True), end

    def _search(self, best: BestCandidates, queries: PointQueries, part: Array, run: PointRun, want: int) -> None:
        """Search a run for some queries, by their numbers; mark those that the device cannot search for."""
        if run not in self._copies:
            self._copies[run] = DeviceRun(run, self._device)
        held, columns = self._copies[run], best.columns
        if held.served:
            best.mark(held.offsets(columns) > MAX_QUERY_OFFSET, FAR)
        else:
            best.mark(np.ones(len(part), np.bool_), SCALE)
        searched = (best.marks == 0) & ~np.isnan(columns).any(axis=0)
        if searched.any():
            spans = _spans(run, queries, part)
            spans[1] = np.where(searched, spans[1], spans[0])
            best.refine(held, held.select(columns, spans, best.limits, want), DOUBT)

    def _search_on_host(self, queries: PointQueries, some: Positions, k: int, limit: float, found: Neighbours) -> None:
        """Replace what was found for some queries."""
        if not len(some):
            return
        limits = None if queries.limits is None else queries.limits[some]
        again = super().query(queries.take(some, limits), k, limit)
        found.counts[some] = again.counts
        found.positions[some, : again.k] = again.positions
        found.squares[some, : again.k] = again.squares


def describe_selection(device: str, counters: Mapping[str, int]) -> str:
    """Return where queries were answered, and why; empty before the first one."""
    if SELECTED not in counters:
        return ""
    searched = [f"{counters[name]} ({reason})" for name, reason in REASONS.values() if counters.get(name)]
    host = f"; the host searched for {', '.join(searched)}" if searched else ""
    return f"{device} selected the candidates of {counters[SELECTED]} queries{host}"


def _spans(run: PointRun, queries: PointQueries, part: Array) -> Array:
    """Return the slots and positions that some queries see: first and end of both. A group's slots are consecutive."""
    spans = np.empty((4, len(part)), np.int64)
    if queries.groups is None or run.groups is None:
        spans[0], spans[1] = 0, len(run)
    else:
        held, wanted = run.groups[: len(run)], queries.groups[part]
        spans[0], spans[1] = np.searchsorted(held, wanted, "left"), np.searchsorted(held, wanted, "right")
    spans[2] = run.first if queries.begin is None else queries.begin[part]
    spans[3] = run.end if queries.end is None else queries.end[part]
    return spans
