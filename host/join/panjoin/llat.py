"""LLAT, the Linked List Adaptive Table that stores the tuples of RaP-Table and WiB+-Tree (PanJoin, III-B2).

The tuples of a partition are stored together, unsorted, in an *entry* of fixed capacity. A partition that outgrows its
entry gets another one through the Next link (capacity rounded up, as corrected). Words and ids are separate arrays, so
that a scan reads words only, `LANES` at a time. A partition is identified by its Head entry. The Head also stores the
Tail (an insertion never walks the chain), the partition to its right, and the floor: the smallest word allowed in it.
The words of partition p are in `floor(p) .. floor(right of p) - 1`. So a range of words covers the partition of its low
end, complete partitions, and the partition of its high end (III-F2).

Limits: ids and entries are below 2^31; one probe call finds fewer than 2^32 tuples whose ids are wanted (the matcher
bounds its steps accordingly). The arrays belong to `Llat`; the kernels (`llat_entries.py`, `llat_probe.py`) never
allocate. Found ids are copies, so later insertions do not change them.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

import numpy as np

from millrace.host.base.errors import ArgumentError
from millrace.host.base.types import Array, Ids
from millrace.host.join.pair_memory import FEWER_ROWS, check_fits
from millrace.host.join.panjoin.llat_entries import LANES, META, TABLE, LlatTable
from millrace.host.join.panjoin.llat_probe import (
    PART_STATE,
    PROBE_SIZE,
    Arrays,
    Probe,
    Scalars,
    fill_job_shared,
    required_ids_shared,
    set_found,
)
from millrace.host.join.panjoin.subwindow import (
    ID_PADDING,
    MatchRanges,
    RangeProbes,
    Structure,
    StructureContext,
    VisibleIntervals,
)
from millrace.host.runtime.intrinsics import address
from millrace.host.runtime.jit import Share

SIGMA = 1.25
"""How much more than its fair share an entry can hold, for small skew. The paper advises 1.10 to 1.25."""
MIN_SHARED_PROBES = 1024
"""From this many probes on, the team's threads share the work: posting a job costs as much as some hundred probes."""
_MAX_IDS = (1 << 32) - 1
"""The ids of a step are counted in 32 bits."""
_IDS_PER_PROBE = 4
"""Space for ids per probe at first. If it is too small, everything is scanned a second time with exactly the space
needed, and the next call starts with more, up to _MAX_IDS_PER_PROBE."""
_MAX_IDS_PER_PROBE = 64
_SLACK = 64
"""Extra space for ids per part, so that a few probes can find more."""
_LINE = 64


class Llat:
    """The arrays: words, ids, metadata and floors of all entries, and the table of their addresses for the kernels."""

    def __init__(self, word: np.dtype[Any], entry_capacity: int, entries: int) -> None:
        """`entries` unused entries for `entry_capacity` tuples each, rounded up to full lanes."""
        self.word = word
        self.entry_capacity = -(-entry_capacity // LANES) * LANES
        self.table = np.zeros(TABLE, np.int64)
        self.table[LlatTable.ENTRY_CAPACITY], self.table[LlatTable.BYTES] = (
            self.entry_capacity,
            self.entry_capacity * word.itemsize,
        )
        self._make(entries)

    def _make(self, entries: int) -> None:
        self.entries = entries
        self.words = _aligned(entries * self.entry_capacity, self.word)
        self.ids = _aligned(entries * self.entry_capacity, np.dtype(np.uint32))
        self.metas = np.zeros((entries, META), np.int32)
        self.floors = np.zeros(entries, self.word)
        for column, array in (
            (LlatTable.WORDS, self.words),
            (LlatTable.IDS, self.ids),
            (LlatTable.METAS, self.metas),
            (LlatTable.FLOORS, self.floors),
        ):
            self.table[column] = address(array)
        self.table[LlatTable.ENTRIES] = entries

    def grow(self, entries: int) -> None:
        """Enlarge to `entries` entries. Those in use are kept."""
        used = int(self.table[LlatTable.POINTER])
        rows = used * self.entry_capacity
        words, ids, metas, floors = self.words, self.ids, self.metas, self.floors
        self._make(entries)
        self.words[:rows], self.ids[:rows] = words[:rows], ids[:rows]
        self.metas[:used], self.floors[:used] = metas[:used], floors[:used]


def _aligned(size: int, dtype: np.dtype[Any]) -> Array:
    """An uninitialised array that begins at a cache line."""
    raw = np.empty(size * dtype.itemsize + _LINE, np.uint8)
    skip = -address(raw) % _LINE
    memory: Array = raw[skip : skip + size * dtype.itemsize].view(dtype)
    return memory


def min_entry_capacity(capacity: int, partitions: int) -> int:
    """The smallest entry capacity with which 2 P entries are enough for any skew."""
    return int(np.ceil(capacity / partitions * SIGMA))


_NO_INTERVAL = np.zeros(1, np.int64)
_NO_IDS = np.zeros(ID_PADDING, np.uint32)


class LlatStructure(Structure):
    """A structure whose tuples are in an LLAT: what RaP-Table and WiB+-Tree have in common."""

    llat: Llat
    table: int
    """The address of the LLAT's table."""

    def __init__(self, context: StructureContext, first: int) -> None:
        """Creates no LLAT: each structure makes its own."""
        super().__init__(context, first)
        self.like: Any = context.word.type(0)
        self._size = 0
        self._ids_per_probe = _IDS_PER_PROBE

    def __len__(self) -> int:
        """The number of tuples."""
        return self._size

    @abstractmethod
    def _probe_alone(self, job: Array, scalars: Scalars, arrays: Arrays) -> int:
        """Run all probes on one thread, in one kernel call. Returns `required_ids`."""

    @abstractmethod
    def _prober(self) -> Share:
        """The kernel that runs one part of the probes."""

    def probe(self, probes: RangeProbes, visible: VisibleIntervals | None, want: bool) -> list[MatchRanges]:
        """Find the partition of each probe's low bound, scan from there, and keep the visible ids."""
        n = len(probes.low)
        parts = 4 * self.context.team.threads if n >= MIN_SHARED_PROBES and self.context.team.threads > 1 else 1
        stride, begin, end = -1, _NO_INTERVAL, _NO_INTERVAL
        if visible is not None:
            begin, end = visible.begin, visible.end
            stride = int(len(begin) > 1)
        starts, ends = np.empty(n, np.uint32), np.empty(n, np.uint32)
        found = np.empty(self._ids_per_probe * n + _SLACK * parts + ID_PADDING, np.uint32) if want else _NO_IDS
        job = np.empty(PROBE_SIZE + PART_STATE * parts + n, np.int64)
        scalars = (self.table, self.first, stride, int(want), parts)
        arrays = (probes.low, probes.high, probes.probe_tuple, begin, end, starts, ends, found)
        if parts == 1:
            required = self._probe_alone(job, scalars, arrays)
        else:
            fill_job_shared(job, scalars, arrays)
            self.context.team.run(self._prober(), job, parts)
            required = required_ids_shared(job)
        if required >= 0:
            found = self._rescan(job, required, n)
        return [MatchRanges(starts, ends, lambda: found, self.first, check=False)]

    def _rescan(self, job: Array, required: int, n: int) -> Ids:
        """Scan a second time, with space for all ids."""
        check_fits(required, FEWER_ROWS)
        if required > _MAX_IDS:
            raise ArgumentError(f"a step has {required:,} pairs; allowed are {_MAX_IDS:,} a step: {FEWER_ROWS}")
        self._ids_per_probe = min(max(self._ids_per_probe, 2 * required // n), _MAX_IDS_PER_PROBE)
        found: Ids = np.empty(required + ID_PADDING, np.uint32)
        set_found(job, found)
        self.context.team.run(self._prober(), job, int(job[Probe.PARTS]))
        return found
