"""Turns the match ranges of subwindows into the partners of each new tuple, in order: the last part of every probe.

Subwindows return `MatchRanges` for sorted probes. All threads first process the probes in sorted order and collect the
partners of each probe side by side, oldest subwindow first. Then they process the tuples in arrival order and copy each
tuple's partners to their final position. If only counts are wanted, nothing is copied, and match ranges that need no
check are not read. The kernels are in `match_collector_kernel.py`, `short_matches.py` and `match_delivery.py`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from millrace.host.base.types import Array, Positions
from millrace.host.join.contract import Matches
from millrace.host.join.pair_memory import FEWER_ROWS, check_fits
from millrace.host.join.panjoin import match_collector_kernel as ck
from millrace.host.join.panjoin.bisort_prober import BLOCK
from millrace.host.join.panjoin.match_delivery import deliver
from millrace.host.join.panjoin.short_matches import CELL_BYTES, MAX_HELD, SOURCE_SIZE, Source, short_size
from millrace.host.join.panjoin.subwindow import (
    ID_PADDING,
    MAX_ROWS,
    SMALL_BATCH,
    MatchRanges,
    RangeProbes,
    VisibleIntervals,
)
from millrace.host.runtime.allocator import allocate, free, result_array
from millrace.host.runtime.intrinsics import LANES, address
from millrace.host.runtime.jit import Share
from millrace.host.runtime.team import Team

SLICE = 1 << 12
"""About how many probes or tuples one thread works on at a time, at least."""
PARTS = 8
"""The maximum number of parts in which probes are collected: each part needs its own memory."""
_NO_POSITIONS = np.zeros(0, np.int64)
_LINE = 8
"""64-bit words of a cache line."""
EXPECTED_PARTNERS = 4
"""Space for partners per probe at first. If it is too small, everything is collected again with enough space."""


def count_partners(
    n: int, probes: RangeProbes, match_ranges: Sequence[MatchRanges], visible: VisibleIntervals, team: Team
) -> Matches:
    """The number of partners of each of `n` tuples."""
    if len(probes.low) <= SMALL_BATCH:
        return Matches(_few_counts(n, probes, match_ranges, visible), None)
    slots = n * probes.ranges
    counts = np.empty(slots, np.int64) if len(probes) == slots else np.zeros(slots, np.int64)
    collector = _Collector(n, probes, match_ranges, visible, team, counts)
    collector.run(ck.count_matches, _slices(len(probes)))
    return Matches(counts if probes.ranges == 1 else counts.reshape(probes.ranges, n).sum(axis=0), None)


def find_partners(
    n: int, probes: RangeProbes, match_ranges: Sequence[MatchRanges], visible: VisibleIntervals, own: int, team: Team
) -> Matches:
    """The partners of each of `n` tuples, whose own positions begin at `own`."""
    if len(probes.low) <= SMALL_BATCH:
        found = _few_partners(n, probes, match_ranges, visible)
        counts = _counts(found)
        partners = np.concatenate(found)
        return Matches(counts, partners, np.arange(own, own + n).repeat(counts))
    counts = result_array(n, np.int64)
    collector = _Collector(n, probes, match_ranges, visible, team, counts, want=True)
    collector.set_array(ck.Args.SEGMENTS, 2 * n * probes.ranges)
    if collector.are_short():
        collector.set_array(ck.Args.CELLS, CELL_BYTES // 8 * n * probes.ranges)
    if len(probes) < n * probes.ranges:
        collector.clear()
    ends = collector.collect()
    total = int(ends[-1])
    check_fits(total, FEWER_ROWS)
    out, own_positions = result_array(total, np.int64), result_array(total, np.int64)
    collector.given[[ck.Args.OUT, ck.Args.OWN_POSITIONS, ck.Args.FIRST_OWN]] = address(out), address(own_positions), own
    collector.run(deliver, len(ends) - 1)
    collector.close()
    return Matches(counts, out, own_positions)


def _few_partners(
    n: int, probes: RangeProbes, match_ranges: Sequence[MatchRanges], visible: VisibleIntervals
) -> list[Positions]:
    """The partners of each tuple of a small batch, ascending."""
    parts: list[list[Positions]] = [[_NO_POSITIONS] for _ in range(n)]
    for one in match_ranges:
        ids, first = one.ids(), np.int64(one.first)
        for t, start, end in _ranges_of(one, probes):
            if start < end:
                found = ids[start:end] + first
                if one.check:
                    v = t * visible.stride
                    found = found[(found >= visible.begin[v]) & (found < visible.end[v])]
                parts[t].append(found)
    partners = [np.concatenate(part) for part in parts]
    for part in partners:
        part.sort()
    return partners


def _few_counts(
    n: int, probes: RangeProbes, match_ranges: Sequence[MatchRanges], visible: VisibleIntervals
) -> Positions:
    """The number of partners of each tuple of a small batch. Ids are read only where they must be checked."""
    counts = np.zeros(n, np.int64)
    for one in match_ranges:
        ids = one.ids() if one.check else _NO_POSITIONS  # a structure that only counts may have none
        for t, start, end in _ranges_of(one, probes):
            if one.check and start < end:
                v, found = t * visible.stride, ids[start:end]
                begin, stop = int(visible.begin[v]) - one.first, int(visible.end[v]) - one.first
                counts[t] += np.count_nonzero((found >= begin) & (found < stop))
            else:
                counts[t] += max(end - start, 0)
    return counts


def _ranges_of(one: MatchRanges, probes: RangeProbes) -> Iterator[tuple[int, int, int]]:
    """The probing tuple, start and end of each range; searched in the run if the prober left that to the collector."""
    starts: Array = one.starts
    ends: Array = one.ends
    if one.run is not None:
        words = one.run.words[: one.run.size]
        starts, ends = words.searchsorted(probes.low), words.searchsorted(probes.high, "right")
    # Arrays of starts and ends may be longer than the probes.
    return zip(probes.probe_tuple.tolist(), starts.tolist(), ends.tolist(), strict=False)


def _counts(found: list[Positions]) -> Positions:
    return np.array([len(part) for part in found], np.int64)


def _slices(size: int) -> int:
    return max(-(-size // SLICE), 1)


class _Collector:
    """The arguments of the kernels, and the arrays whose addresses they contain."""

    def __init__(
        self,
        n: int,
        probes: RangeProbes,
        match_ranges: Sequence[MatchRanges],
        visible: VisibleIntervals,
        team: Team,
        counts: Array,
        want: bool = False,
    ) -> None:
        self._team, self._probes = team, probes
        self.arrays: dict[int, Array] = {}
        self._kept: list[Array] = []
        self._table = np.zeros((len(match_ranges), SOURCE_SIZE), np.int64)
        for line, one in zip(self._table, match_ranges, strict=True):
            self._fill(line, one, want)
        self.given = ck.Args.partly(
            PROBES=len(probes),
            SOURCES=len(match_ranges),
            TABLE=self._table,
            PROBE_TUPLE=probes.probe_tuple,
            SLOT=probes.slot,
            BEGIN=visible.begin,
            END=visible.end,
            STRIDE=visible.stride,
            COUNTS=counts,
            TUPLES=n,
            RANGES=probes.ranges,
        )
        self._ranges, self._visible, self._tuples = match_ranges, visible, n

    def _fill(self, line: Array, one: MatchRanges, want: bool) -> None:
        """Fill the table line of one `MatchRanges`."""
        line[Source.FIRST], line[Source.CHECK] = one.first, one.check
        if want or one.check:
            array = one.ids()
            self._kept.append(array)
            line[Source.IDS] = address(array)
        if one.run is None:
            line[Source.STARTS], line[Source.ENDS] = address(one.starts), address(one.ends)
            return
        line[Source.WORDS], line[Source.INDEX] = address(one.run.words), address(one.run.index)
        line[Source.SIZE], line[Source.STEP] = one.run.size, one.run.step

    def set_array(self, argument: int, size: int) -> None:
        """Pass a new int64 array as an argument, in place of an earlier one."""
        if argument in self.arrays:
            free(self.arrays[argument])
        self.arrays[argument] = allocate(size, np.int64)
        self.given[argument] = address(self.arrays[argument])

    def are_short(self) -> bool:
        """Whether the partners of a tuple may fit into a cell: all are in runs, and the same positions are visible."""
        if self._visible.stride or not all(one.run is not None and one.run.step <= LANES for one in self._ranges):
            return False
        begin, end = int(self._visible.begin[0]), int(self._visible.end[0])
        return 0 <= end - begin < MAX_ROWS and all(abs(one.first - begin) < MAX_ROWS for one in self._ranges)

    def clear(self) -> None:
        """Tuples without a probe have no partners."""
        self.arrays[ck.Args.SEGMENTS][:] = 0
        if ck.Args.CELLS in self.arrays:
            self.arrays[ck.Args.CELLS][:] = -1

    def collect(self) -> Array:
        """Collect the partners, and again with more space if it was too small. Returns the ends of the slices."""
        probes, given, sources = self._probes, self.given, len(self._table)
        parts = min(_slices(len(probes)), PARTS)
        local = sources * (2 + ck.SPAN) + 2 * BLOCK + 1 + _LINE + short_size(sources) // 8
        local += -local % _LINE
        self.set_array(ck.Args.LOCAL, parts * local)
        slices = (self._tuples >> ck.SLICE) + 1
        self.set_array(ck.Args.SLICE_TOTALS, parts * slices)
        given[ck.Args.LOCAL_SIZE], given[ck.Args.LOW], given[ck.Args.HIGH] = (
            8 * local,
            address(probes.low),
            address(probes.high),
        )
        kernel = ck.collect_64 if probes.low.dtype == np.uint64 else ck.collect_32
        areas = np.arange(parts + 1) * (EXPECTED_PARTNERS * (len(probes) // parts + 1) + ID_PADDING)
        while True:
            self.set_array(ck.Args.SCRATCH, int(areas[-1]) + ID_PADDING)
            given[ck.Args.AREAS] = address(areas)
            needed = self.run(kernel, parts, ck.Args.TOTALS)
            if (np.diff(needed) <= np.diff(areas)).all():
                break
            # No area shrinks: with less space a part may collect in another way, which needs more.
            sizes = np.maximum(np.diff(needed) + MAX_HELD * (BLOCK + 1), np.diff(areas))
            np.cumsum(sizes, out=areas[1:])
            check_fits(int(needed[-1]), FEWER_ROWS)
        ends = np.zeros(slices + 1, np.int64)
        np.cumsum(self.arrays[ck.Args.SLICE_TOTALS].reshape(parts, slices).sum(axis=0), out=ends[1:])
        self._kept.append(ends)
        given[ck.Args.TUPLE_TOTALS] = address(ends)
        return ends

    def run(self, kernel: Share, parts: int, totals: int | None = None) -> Array:
        """Run a kernel in parts. With `totals`, returns the prefix sums of what the parts stored there."""
        sums = np.zeros(parts + 1, np.int64)
        if totals is not None:
            self._kept.append(sums)
            self.given[totals] = address(sums)
        self._team.run(kernel, self.given, parts)
        return np.cumsum(sums, out=sums)

    def close(self) -> None:
        """Return the arrays to the allocator."""
        for array in self.arrays.values():
            free(array)
