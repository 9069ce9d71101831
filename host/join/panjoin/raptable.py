"""`index="rap"`: RaP-Table, a subwindow whose tuples are partitioned by ranges of words (PanJoin, III-B).

P splitters divide the words into partitions, whose tuples are stored in an LLAT. The splitters of a subwindow are
computed from the tuples of its predecessor, by Algorithm 1 (`adjusted`; the printed formula lacks the base). The first
subwindow has no predecessor: it samples a large first batch, or begins with evenly spaced splitters. Until its sample
is large enough, it repartitions each time it has grown by a factor of `_REGROWTH`. The three histograms are computed
from the tuples, once per subwindow: updating them would cost every insertion two more cache lines.

Limits: drifting keys (ids, timestamps) all fall into one partition, as the paper says; use WiB+-Tree for such streams.
So that their probes do not scan all tuples, a table whose largest partition is too large repartitions as well, with
splitters also where the keys seem to drift to (`_ahead`; not in the paper). Memory is allocated for 2.6 times the
capacity; more than half of it is usually never touched.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from millrace.host.base.types import Array
from millrace.host.join.panjoin import raptable_kernel as rk
from millrace.host.join.panjoin.llat import Llat, LlatStructure, min_entry_capacity
from millrace.host.join.panjoin.llat_entries import NEXT, RIGHT, TAIL, LlatTable
from millrace.host.join.panjoin.llat_probe import Arrays, Scalars
from millrace.host.join.panjoin.subwindow import InsertBatch, StructureContext
from millrace.host.runtime.intrinsics import address
from millrace.host.runtime.jit import Share

PARTITION = 38
"""Tuples of a partition when the subwindow is full. Sizes from 16 to 48 differ little in measurements: larger ones
scan longer, smaller ones insert and search slower. With this size an entry has 48 tuples, a multiple of `LANES`."""
_SAMPLE = 1024
"""From this many tuples on, splitters can be computed from them."""
_REGROWTH = 8
"""The growth factor after which a first subwindow repartitions. All repartitionings together cost less than twice the
last one."""
_OVERLONG = 8
"""A partition with more than 1 / _OVERLONG of all tuples is too large."""
_PATIENCE = 64
"""How many chained entries must be added before partition sizes are checked: scanning fewer costs almost nothing."""

Counts = npt.NDArray[np.int64]
Words64 = npt.NDArray[np.uint64]


def even(partitions: int, word: np.dtype[np.unsignedinteger]) -> Array:
    """Splitters evenly spaced over all words."""
    span = 1 << (8 * word.itemsize)
    return np.array([span * p // partitions for p in range(partitions)], word)


def adjusted(count: Counts, smallest: Words64, largest: Words64, partitions: int) -> Words64:
    """Algorithm 1: the splitters that would have divided these tuples evenly, from histograms per partition.

    Splitter j is the word with bal_j = N / P * j tuples below it, assuming that the tuples of a partition are evenly
    spaced between its smallest and largest word. Splitters ascend, and the first is 0: no word is below it.
    """
    splitters = np.zeros(partitions, np.uint64)
    total = int(count.sum())
    if total == 0:
        return splitters
    sums = np.cumsum(count)
    balance = np.arange(1, partitions) * (total / partitions)
    at = np.searchsorted(sums, balance)
    share = (balance - (sums[at] - count[at])) / count[at]
    width = largest[at] - smallest[at]
    # A share of the width may round up beyond the width, and beyond 64 bits: compare before converting it to a word.
    offset = share * width
    inside = offset < width.astype(np.float64)
    splitters[1:] = smallest[at] + np.where(inside, np.where(inside, offset, 0).astype(np.uint64), width)
    return splitters


class RapTable(LlatStructure):
    """A subwindow divided into partitions."""

    name = "rap"

    def __init__(self, context: StructureContext, first: int, splitters: Array | None = None) -> None:
        """Empty. Without `splitters`, they are computed from the first tuples."""
        super().__init__(context, first)
        self.partitions = max(1, context.capacity // PARTITION)
        self._enough = _SAMPLE if splitters is None else -1
        self._past_full = 0
        self._build(even(self.partitions, context.word) if splitters is None else splitters)

    @property
    def splitters(self) -> Array:
        """The smallest word of each partition."""
        return self.llat.floors[: self.partitions]

    def _build(self, splitters: Array) -> None:
        """Create an empty LLAT with these splitters."""
        p = self.partitions
        self.llat = llat = Llat(self.context.word, min_entry_capacity(self.context.capacity, p), 2 * p)
        llat.floors[:p] = splitters
        llat.metas[:p, NEXT] = -1
        llat.metas[:p, TAIL] = np.arange(p)
        llat.metas[:p, RIGHT] = np.arange(1, p + 1)
        llat.metas[p - 1, RIGHT] = -1
        llat.table[LlatTable.POINTER], llat.table[rk.PARTITIONS] = p, p
        self.table = address(llat.table)
        # Each extra entry in use implies a full one, so this many tuples never need more entries.
        self._safe = p * llat.entry_capacity
        self._alarm = p + _PATIENCE

    def insert(self, batch: InsertBatch) -> None:
        """Insert a sorted batch."""
        size = self._size + len(batch.words)
        if 0 <= self._enough <= size:
            self._repartition_with(batch)
        self._reserve(size)
        pointer = rk.insert(self.table, batch.words, batch.ids, self.like)
        self._size = size
        if pointer >= self._alarm:
            self._check_partitions()

    def _reserve(self, size: int) -> None:
        """Ensure that there are enough entries for `size` tuples, whatever their words."""
        if size > self._safe:
            more = 2 * -(-size // self.llat.entry_capacity)
            self.llat.grow(self.partitions + more)
            self._safe = more * self.llat.entry_capacity

    def _repartition_with(self, batch: InsertBatch) -> None:
        """Repartition by all words, including those of the batch about to be inserted."""
        words = np.sort(np.concatenate([self._tuples()[0], batch.words]))
        self._repartition(words)
        self._enough = _REGROWTH * len(words) if len(words) < 2 * self.partitions else -1

    def _repartition(self, words: Array, before: Sequence[int] = (), after: Sequence[int] = ()) -> None:
        """Take equally spaced sorted words as splitters, between those given, and move all tuples."""
        own_words, own_ids = self._tuples()
        inner = self.partitions - len(before) - len(after)
        splitters = np.empty(self.partitions, self.context.word)
        splitters[: len(before)] = before
        splitters[len(before) : len(before) + inner] = words[np.arange(inner) * len(words) // inner]
        splitters[len(before) + inner :] = after
        splitters[0] = 0
        self._past_full += self._full()
        self._build(splitters)
        self._reserve(len(words))
        order = np.argsort(own_words)
        rk.insert(self.table, own_words[order], own_ids[order], self.like)

    def _check_partitions(self) -> None:
        """Repartition if one partition caused the many chained entries, and set when to check again."""
        count, smallest, largest = self.histograms()
        at = int(count.argmax())
        patience = max(_PATIENCE, self._size // (_OVERLONG * self.llat.entry_capacity))
        if _OVERLONG * count[at] > self._size and smallest[at] < largest[at]:
            ahead = self._ahead(at, int(count[at]), int(smallest[at]), int(largest[at]))
            self._repartition(np.sort(self._tuples()[0]), *ahead)
            if _OVERLONG * self.histograms()[0].max() > self._size:
                # A heavy hitter: repartitioning does not help, so it is tried rarely.
                patience = max(patience, self._size // self.llat.entry_capacity)
        self._alarm = int(self.llat.table[LlatTable.POINTER]) + patience

    def _ahead(self, at: int, count: int, smallest: int, largest: int) -> tuple[list[int], list[int]]:
        """Splitters below and above all words, for keys that seem to drift beyond the first or the last partition.

        Assumes that the next tuples are as dense as those of that partition. At most half of all splitters are used
        for this: if the keys do not drift, the others still serve.
        """
        half = self.partitions // 2
        width = (largest - smallest) * max(self.context.capacity - self._size, 0) // count
        if at == self.partitions - 1:
            width = min(width, int(np.iinfo(self.context.word).max) - largest)
            return [], [largest + width * i // half for i in range(1, half + 1)]
        if at == 0:
            width = min(width, smallest)
            return [smallest - width * i // half for i in range(half, 0, -1)], []
        return [], []

    def _tuples(self) -> tuple[Array, Array]:
        """Copies of all words and ids, partition by partition."""
        words, ids = np.empty(self._size, self.context.word), np.empty(self._size, np.uint32)
        rk.gather(self.table, words, ids, self.like)
        return words, ids

    def histograms(self) -> tuple[Counts, Words64, Words64]:
        """The number of tuples, smallest and largest word of each partition."""
        count = np.empty(self.partitions, np.int64)
        smallest, largest = np.empty(self.partitions, np.uint64), np.empty(self.partitions, np.uint64)
        rk.histograms(self.table, count, smallest, largest, self.like)
        return count, smallest, largest

    def successor(self, context: StructureContext, first: int) -> RapTable:
        """An empty table with splitters adjusted to the tuples of this one, if there are enough."""
        partitions = max(1, context.capacity // PARTITION)
        if self._size < min(partitions, _SAMPLE):
            return RapTable(context, first)
        return RapTable(context, first, adjusted(*self.histograms(), partitions).astype(context.word))

    def _probe_alone(self, job: Array, scalars: Scalars, arrays: Arrays) -> int:
        return rk.probe_alone(job, scalars, arrays, self.like)

    def _prober(self) -> Share:
        return rk.probe32 if self.context.word.itemsize == 4 else rk.probe64

    def counters(self) -> dict[str, int]:
        """Chained entries, over all repartitionings."""
        return {"boundaries": self._past_full + self._full()}

    def _full(self) -> int:
        return int(self.llat.table[LlatTable.POINTER]) - self.partitions
