"""One side's window as a chain of subwindows (PanJoin, III-A): insert into the newest, drop the oldest in one piece.

A new subwindow begins when the newest has its share of the window. Matches that have expired inside the oldest one are
filtered out. A subwindow has half a window: fewer, larger ones are probed faster (each costs about the same), smaller
ones are merged and dropped sooner. The chain spans at most the window, one subwindow and one batch.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from operator import is_not

import numpy as np

from millrace.host.base.types import Array, Ids
from millrace.host.join.panjoin.insertion_buffer import InsertionBuffer
from millrace.host.join.panjoin.subwindow import (
    ID_PADDING,
    MAX_ROWS,
    InsertBatch,
    MatchRanges,
    RangeProbes,
    Structure,
    VisibleIntervals,
)
from millrace.host.runtime.allocator import allocate
from millrace.host.runtime.intrinsics import address

SUBWINDOWS = 2
"""Subwindows per window."""
FEW = 256
"""Ids of fewer tuples are a plain array: they are copied at once, and the allocator serves whole pages."""
MIN_ROWS = 1 << 12
"""The minimum capacity of a subwindow: below that its overhead dominates."""


@dataclass
class Subwindow:
    """Positions from `first`, which is the structure's own, to `end`."""

    structure: Structure
    first: int
    end: int
    capacity: int

    def __len__(self) -> int:
        """The number of positions."""
        return self.end - self.first


class SourceTable:
    """The sources of a chain, for small steps."""

    def __init__(self, lines: Array) -> None:
        """Lines as `small_step_kernel.HostSource` names them."""
        self.lines, self.where, self.sources = lines, address(lines), len(lines)


class Chain:
    """The subwindows of one side, oldest first. `begin(before, first, rows)` makes the next one's structure."""

    def __init__(
        self,
        begin: Callable[[Structure | None, int, int], Structure],
        rows: int | None,
        per_window: int = SUBWINDOWS,
    ) -> None:
        """Empty. `rows`: how many positions the window spans, if known."""
        self._begin = begin
        self._per_window = per_window
        self._rows = rows
        self._oldest = 0
        self._trims = False
        self.subwindows: list[Subwindow] = []
        self.boundaries = 0
        self._tables: list[Array | None] = []
        """The tables of the subwindows' sources that make up `_table`."""
        self._table: SourceTable | None = None
        self._past: Counter[str] = Counter()

    def append(self, first: int, span: int, words: Array, numbers: Ids) -> None:
        """Insert the tuples of `span` positions from `first` on: sorted words, and each tuple's number among them."""
        newest = self._newest(first, span)
        tuples = len(words)
        if tuples:
            # A copy: the structure owns the arrays of a batch, and the caller still needs the numbers.
            some = np.empty if tuples < FEW else allocate
            ids = some(tuples + ID_PADDING, np.uint32)[:tuples]
            np.add(numbers, np.uint32(first - newest.first), out=ids)
            newest.structure.insert(InsertBatch(words, ids))
        newest.end = first + span

    def sources(self) -> SourceTable | None:
        """Return the sources of all subwindows, oldest first, as one table; None if a structure has none."""
        tables = [sub.structure.sources() for sub in self.subwindows]
        if tables and (len(tables) != len(self._tables) or any(map(is_not, tables, self._tables))):
            if any(table is None for table in tables):
                return None
            self._table = SourceTable(np.concatenate([one for one in tables if one is not None]))
            self._tables = tables
        return self._table if tables else None

    def count_probes(self, probes: int) -> None:
        """Count probes that a small step has made in the runs of all subwindows."""
        table, subwindows = self._table, self.subwindows
        if table is not None and subwindows:
            # Every structure has its insertion buffer as one source; the others are runs.
            subwindows[0].structure.count_probes(probes * (table.sources - len(subwindows)))

    def has_room_for(self, tuples: int) -> bool:
        """Whether the next tuples belong to the newest subwindow, and its structure has an insertion buffer."""
        newest = self.subwindows[-1] if self.subwindows else None
        return newest is not None and len(newest) < newest.capacity and newest.structure.room_for(tuples) is not None

    def room_for(self, first: int, tuples: int) -> InsertionBuffer | None:
        """Return the insertion buffer of the next tuples, or None if their structure has none."""
        return self._newest(first, tuples).structure.room_for(tuples)

    def filled(self, end: int, tuples: int) -> None:
        """A small step has merged tuples, up to position `end`, into the buffer that `room_for` returned."""
        newest = self.subwindows[-1]
        newest.structure.filled(tuples)
        newest.end = end

    @property
    def newest_first(self) -> int:
        """The first position of the newest subwindow."""
        return self.subwindows[-1].first

    def _newest(self, first: int, span: int) -> Subwindow:
        """The subwindow for the next tuples."""
        newest = self.subwindows[-1] if self.subwindows else None
        if newest is not None and len(newest) < newest.capacity:
            return newest
        before = None
        if newest is not None:
            newest.structure.seal()
            before = newest.structure
            self.boundaries += 1
        rows = self._rows if self._rows is not None else first + span - self._oldest
        capacity = min(max(-(-rows // self._per_window), MIN_ROWS), MAX_ROWS // 2)
        self.subwindows.append(Subwindow(self._begin(before, first, capacity), first, first, capacity))
        return self.subwindows[-1]

    def restart_newest(self) -> None:
        """Begin the newest subwindow again, empty, with the structure that `begin` gives now."""
        old = self.subwindows.pop()
        self._past.update(old.structure.counters())
        old.structure.release()
        before = self.subwindows[-1].structure if self.subwindows else None
        structure = self._begin(before, old.first, old.capacity)
        self.subwindows.append(Subwindow(structure, old.first, old.first, old.capacity))

    def maintain(self) -> None:
        """Do the maintenance deferred to the end of a step. Helper threads may continue it in the background."""
        if self.subwindows:
            newest = self.subwindows[-1]
            if len(newest) < newest.capacity:
                newest.structure.maintain()
            else:
                newest.structure.seal()

    def seal(self) -> None:
        """Finish the newest subwindow: no more tuples will follow."""
        if self.subwindows:
            self.subwindows[-1].structure.seal()

    def skip(self, end: int) -> None:
        """Skip the positions below `end`: no tuple will probe them."""
        if self.subwindows:
            self.subwindows[-1].end = max(self.subwindows[-1].end, end)

    def expire(self, oldest: int) -> None:
        """Drop subwindows that are entirely below a position."""
        self._oldest = max(self._oldest, oldest)
        while self.subwindows and self.subwindows[0].end <= oldest and len(self.subwindows) > 1:
            structure = self.subwindows.pop(0).structure
            self._past.update(structure.counters())
            structure.release()
            self.boundaries += 1

    def close(self) -> None:
        """Drop all subwindows."""
        for sub in self.subwindows:
            self._past.update(sub.structure.counters())
            sub.structure.release()
        self.subwindows = []

    def probe(self, probes: RangeProbes, visible: VisibleIntervals, want: bool) -> list[MatchRanges]:
        """The match ranges of each subwindow, oldest first."""
        found: list[MatchRanges] = []
        for sub in self.subwindows:
            if visible.misses(sub.first, sub.end) or not len(sub.structure):
                continue
            begin = int(visible.begin[0])
            expiring = not want and begin > sub.first
            if expiring and self._trims:
                self._trims = sub.structure.trim(begin)
            match_ranges = self._probe_subwindow(
                sub, probes, visible, want, begin if expiring and self._trims else sub.first
            )
            if (
                expiring
                and not self._trims
                and _total_ids(match_ranges) > len(sub.structure)
                and sub.structure.trim(begin)
            ):
                # Checking every match costs more than trimming the expired tuples once for all probes.
                self._trims = True
                for one in match_ranges:
                    one.release()
                match_ranges = self._probe_subwindow(sub, probes, visible, want, begin)
            elif expiring and self._trims:
                self._trims = _total_ids(match_ranges) > len(sub.structure)
            found += match_ranges
        return found

    def _probe_subwindow(
        self, sub: Subwindow, probes: RangeProbes, visible: VisibleIntervals, want: bool, first: int
    ) -> list[MatchRanges]:
        """The match ranges of one subwindow, whose tuples begin at position `first`."""
        covered = visible.covers(first, sub.end)
        return sub.structure.probe(probes, None if covered else visible, want)

    def counters(self) -> dict[str, int]:
        """The counters of all structures, including dropped ones: counters never decrease."""
        total = self._past.copy()
        for sub in self.subwindows:
            total.update(sub.structure.counters())
        return dict(total)


def _total_ids(match_ranges: list[MatchRanges]) -> int:
    """The number of ids in match ranges."""
    return sum(int(one.ends.sum(dtype=np.int64)) - int(one.starts.sum(dtype=np.int64)) for one in match_ranges)
