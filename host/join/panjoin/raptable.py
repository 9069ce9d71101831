"""`index="rap"`: RaP-Table, a subwindow whose tuples are partitioned by ranges of words (PanJoin, III-B).

P splitters cut the words into partitions, whose tuples are in an LLAT. A subwindow's splitters are made from what its
predecessor held, by Algorithm 1 (`adjusted`; the printed formula lacks the base). The first of all has none: it
takes a large first batch as a sample, or begins with splitters spread evenly, and as long as it knows too little it
splits itself anew whenever it has grown `_REGROWTH` times. The three histograms are taken from the tuples when they
are asked for, once per subwindow: keeping them up would cost every insertion two more cache lines.

Limits: keys that wander (ids, timestamps) all fall into one partition, as the paper says; such streams are for
WiB+-Tree. Lest they make every probe a scan of everything, a table whose largest partition has become a good part of
it splits itself anew too, with splitters also for where keys seem to go (`_ahead`; not in the paper). Memory is
for 2.6 times the capacity, more than half of it untouched as a rule.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from millrace.host.base.types import Array
from millrace.host.join.panjoin import raptable_kernel as rk
from millrace.host.join.panjoin.llat import NEXT, POINTER, RIGHT, TAIL, Arrays, Llat, LlatStructure, Scalars, entry_room
from millrace.host.join.panjoin.subwindow import Batch, Site
from millrace.host.runtime.intrinsics import address
from millrace.host.runtime.jit import Share

PARTITION = 38
"""Tuples of a partition when the subwindow is full. Sizes from 16 to 48 were measured to differ little: larger ones
scan longer, smaller ones insert and search slower. With this one entries are of 48 tuples, whole lanes."""
_SAMPLE = 1024
"""Tuples from which splitters can be learned."""
_REGROWTH = 8
"""How many times more tuples there must be before a first subwindow learns again: all together cost less than twice
the last time."""
_OVERLONG = 8
"""A partition with more than this part of all tuples is too long."""
_PATIENCE = 64
"""Entries by which chains must have grown before the partitions are looked at: scanning fewer costs next to nothing."""

Counts = npt.NDArray[np.int64]
Words64 = npt.NDArray[np.uint64]


def even(partitions: int, word: np.dtype[np.unsignedinteger]) -> Array:
    """Splitters spread evenly over all words."""
    span = 1 << (8 * word.itemsize)
    return np.array([span * p // partitions for p in range(partitions)], word)


def adjusted(count: Counts, least: Words64, most: Words64, partitions: int) -> Words64:
    """Algorithm 1: splitters that would have parted these tuples evenly, from histograms per partition.

    Splitter j is where bal_j = N / P * j tuples are below, were each partition's tuples spread evenly between its
    least and largest word. Ascending, because partitions are, and the first is 0: no word is below all partitions.
    """
    splitters = np.zeros(partitions, np.uint64)
    total = int(count.sum())
    if total == 0:
        return splitters
    sums = np.cumsum(count)
    balance = np.arange(1, partitions) * (total / partitions)
    at = np.searchsorted(sums, balance)
    share = (balance - (sums[at] - count[at])) / count[at]
    width = most[at] - least[at]
    # A share of the width may round up beyond it, and beyond 64 bits: compare before it becomes a word.
    offset = share * width
    inside = offset < width.astype(np.float64)
    splitters[1:] = least[at] + np.where(inside, np.where(inside, offset, 0).astype(np.uint64), width)
    return splitters


class RapTable(LlatStructure):
    """A subwindow in partitions."""

    name = "rap"

    def __init__(self, site: Site, first: int, splitters: Array | None = None) -> None:
        """Empty; splitters that nobody gives are learned from the first tuples."""
        super().__init__(site, first)
        self.partitions = max(1, site.capacity // PARTITION)
        self._enough = _SAMPLE if splitters is None else -1
        self._past_full = 0
        self._build(even(self.partitions, site.word) if splitters is None else splitters)

    @property
    def splitters(self) -> Array:
        """The least word of each partition."""
        return self.llat.floors[: self.partitions]

    def _build(self, splitters: Array) -> None:
        """An empty LLAT with these splitters."""
        p = self.partitions
        self.llat = llat = Llat(self.site.word, entry_room(self.site.capacity, p), 2 * p)
        llat.floors[:p] = splitters
        llat.metas[:p, NEXT] = -1
        llat.metas[:p, TAIL] = np.arange(p)
        llat.metas[:p, RIGHT] = np.arange(1, p + 1)
        llat.metas[p - 1, RIGHT] = -1
        llat.table[POINTER], llat.table[rk.PARTITIONS] = p, p
        self.table = address(llat.table)
        # Each reserved entry in use stands for a full one, so this many tuples can never need more.
        self._safe = p * llat.room
        self._alarm = p + _PATIENCE

    def insert(self, batch: Batch) -> None:
        """Put a sorted batch in."""
        size = self._size + len(batch.words)
        if 0 <= self._enough <= size:
            self._learn(batch)
        self._reserve(size)
        pointer = rk.insert(self.table, batch.words, batch.ids, self.like)
        self._size = size
        if pointer >= self._alarm:
            self._shorten()

    def _reserve(self, size: int) -> None:
        """Have entries enough for so many tuples, whatever their words."""
        if size > self._safe:
            more = 2 * -(-size // self.llat.room)
            self.llat.grow(self.partitions + more)
            self._safe = more * self.llat.room

    def _learn(self, batch: Batch) -> None:
        """Split anew by all the words there are, those of the batch to come included."""
        words = np.sort(np.concatenate([self._tuples()[0], batch.words]))
        self._split(words)
        self._enough = _REGROWTH * len(words) if len(words) < 2 * self.partitions else -1

    def _split(self, words: Array, before: Sequence[int] = (), after: Sequence[int] = ()) -> None:
        """Take splitters at equal distances from sorted words, some given ones around them, and move all tuples."""
        own_words, own_ids = self._tuples()
        inner = self.partitions - len(before) - len(after)
        splitters = np.empty(self.partitions, self.site.word)
        splitters[: len(before)] = before
        splitters[len(before) : len(before) + inner] = words[np.arange(inner) * len(words) // inner]
        splitters[len(before) + inner :] = after
        splitters[0] = 0
        self._past_full += self._full()
        self._build(splitters)
        self._reserve(len(words))
        order = np.argsort(own_words)
        rk.insert(self.table, own_words[order], own_ids[order], self.like)

    def _shorten(self) -> None:
        """Many entries are chained: split anew if that is the fault of one partition, and say when to look again."""
        count, least, most = self.histograms()
        at = int(count.argmax())
        patience = max(_PATIENCE, self._size // (_OVERLONG * self.llat.room))
        if _OVERLONG * count[at] > self._size and least[at] < most[at]:
            ahead = self._ahead(at, int(count[at]), int(least[at]), int(most[at]))
            self._split(np.sort(self._tuples()[0]), *ahead)
            if _OVERLONG * self.histograms()[0].max() > self._size:
                # A heavy hitter: splitting does not help, and shall not be tried often.
                patience = max(patience, self._size // self.llat.room)
        self._alarm = int(self.llat.table[POINTER]) + patience

    def _ahead(self, at: int, count: int, least: int, most: int) -> tuple[list[int], list[int]]:
        """Splitters below and above all words, where keys seem to go: on beyond the first or the last partition.

        The tuples to come are thought to be as dense as those of that partition. Half of all splitters go there,
        not more: if it was no move, the others still serve.
        """
        half = self.partitions // 2
        width = (most - least) * max(self.site.capacity - self._size, 0) // count
        if at == self.partitions - 1:
            width = min(width, int(np.iinfo(self.site.word).max) - most)
            return [], [most + width * i // half for i in range(1, half + 1)]
        if at == 0:
            width = min(width, least)
            return [least - width * i // half for i in range(half, 0, -1)], []
        return [], []

    def _tuples(self) -> tuple[Array, Array]:
        """A copy of all words and ids, partition by partition."""
        words, ids = np.empty(self._size, self.site.word), np.empty(self._size, np.uint32)
        rk.gather(self.table, words, ids, self.like)
        return words, ids

    def histograms(self) -> tuple[Counts, Words64, Words64]:
        """Number of tuples, least and largest word of each partition."""
        count = np.empty(self.partitions, np.int64)
        least, most = np.empty(self.partitions, np.uint64), np.empty(self.partitions, np.uint64)
        rk.histograms(self.table, count, least, most, self.like)
        return count, least, most

    def successor(self, site: Site, first: int) -> RapTable:
        """An empty table with splitters adjusted to what is in this one, if that is enough to learn from."""
        partitions = max(1, site.capacity // PARTITION)
        if self._size < min(partitions, _SAMPLE):
            return RapTable(site, first)
        return RapTable(site, first, adjusted(*self.histograms(), partitions).astype(site.word))

    def _probe_alone(self, job: Array, scalars: Scalars, arrays: Arrays) -> int:
        return rk.probe_alone(job, scalars, arrays, self.like)

    def _prober(self) -> Share:
        return rk.probe32 if self.site.word.itemsize == 4 else rk.probe64

    def counters(self) -> dict[str, int]:
        """Entries that became full and got another, before and after each new split."""
        return {"boundaries": self._past_full + self._full()}

    def _full(self) -> int:
        return int(self.llat.table[POINTER]) - self.partitions
