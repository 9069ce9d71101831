"""The kernels of RaP-Table: rebounding binary search, insertion, probing, histograms (PanJoin, III-B, III-E).

Partition p is entry p of the LLAT; its splitter is the entry's floor. Of equal splitters the last one owns the words,
so the partitions of the others are empty. The backward phase of the search has no branches, so the CPU can start the
next tuple's search before the last load of this one completes.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from millrace.host.base.types import Array
from millrace.host.join.panjoin.llat_entries import FILL, NEXT, LlatTable, append, meta, run_end, word_at
from millrace.host.join.panjoin.llat_probe import Arrays, Probe, Scalars, fill_job, part_range, required_ids, scan_part
from millrace.host.runtime.intrinsics import load, load_as, store
from millrace.host.runtime.jit import inline, kernel, share

PARTITIONS = LlatTable.OWN
"""The only table column of RaP-Table itself: P, the number of partitions."""


@inline
def _rebound(splitters: int, partitions: int, start: int, word: Any, like: Any) -> int:
    """The last partition from `start` on whose splitter is at most `word`. The one at `start` is."""
    step = 1
    while start + step < partitions and word_at(splitters, start + step, like) <= word:
        start += step
        step *= 2
    while step > 1:
        step //= 2
        probe = min(start + step, partitions - 1)
        if word_at(splitters, probe, like) <= word:
            start = probe
    return start


@inline
def _partition(splitters: int, partitions: int, word: Any, like: Any) -> int:
    """The last partition whose splitter is at most `word`, by binary search."""
    start, size = 0, partitions
    while size > 1:
        half = size // 2
        start += half if word_at(splitters, start + half, like) <= word else 0
        size -= half
    return start


@inline
def _insert(t: int, words: int, ids: int, n: int, like: Any) -> None:
    """Insert a sorted batch. The caller ensures that there are enough entries."""
    splitters, partitions = load(t, LlatTable.FLOORS), load(t, PARTITIONS)
    i = 0
    p = _partition(splitters, partitions, word_at(words, 0, like), like) if n > 0 else 0
    while i < n:
        p = _rebound(splitters, partitions, p, word_at(words, i, like), like)
        stop = run_end(t, p, words, i, n, like)
        i = append(t, p, words, ids, i, stop, like)


@inline
def _probe(job: int, part: int, parts: int, like: Any) -> None:
    """Find the partitions of a part's low bounds, each starting from the previous one, then scan."""
    t = load(job, Probe.TABLE)
    splitters, partitions = load(t, LlatTable.FLOORS), load(t, PARTITIONS)
    lows, heads = load(job, Probe.LOW), load(job, Probe.HEADS)
    start, stop = part_range(job, part, parts)
    p = _partition(splitters, partitions, word_at(lows, start, like), like) if start < stop else 0
    for q in range(start, stop):
        p = _rebound(splitters, partitions, p, word_at(lows, q, like), like)
        store(heads, q, p)
    scan_part(job, part, parts, like)


@kernel
def insert(t: int, words: Array, ids: Array, like: Any) -> int:
    """Insert a sorted batch. The caller ensures that there are enough entries. Returns PtrG."""
    _insert(t, words.ctypes.data, ids.ctypes.data, len(words), like)
    return load(t, LlatTable.POINTER)


@kernel
def probe_alone(job: Array, scalars: Scalars, arrays: Arrays, like: Any) -> int:
    """Run all probes. Returns `required_ids`."""
    _probe(fill_job(job, scalars, arrays), 0, 1, like)
    return required_ids(job)


@share
def probe32(job: int, part: int, parts: int) -> None:
    """Run a part of the probes, with 32-bit words."""
    _probe(job, part, parts, np.uint32(0))


@share
def probe64(job: int, part: int, parts: int) -> None:
    """Run a part of the probes, with 64-bit words."""
    _probe(job, part, parts, np.uint64(0))


@kernel
def histograms(t: int, count: Array, smallest: Array, largest: Array, like: Any) -> None:
    """The number of tuples, the smallest and the largest word (uint64) of every partition. Empty ones have no words."""
    words, capacity = load(t, LlatTable.WORDS), load(t, LlatTable.ENTRY_CAPACITY)
    for p in range(len(count)):
        entry = p
        count[p] = 0
        low, high = np.uint64(0xFFFFFFFFFFFFFFFF), np.uint64(0)
        while entry >= 0:
            fill = meta(t, entry, FILL)
            for i in range(entry * capacity, entry * capacity + fill):
                word = word_at(words, i, like)
                low, high = min(low, word), max(high, word)
            count[p] += fill
            entry = meta(t, entry, NEXT)
        smallest[p], largest[p] = low, high


@kernel
def gather(t: int, words: Array, ids: Array, like: Any) -> None:
    """Copy all tuples, partition by partition."""
    own_words, own_ids, capacity = load(t, LlatTable.WORDS), load(t, LlatTable.IDS), load(t, LlatTable.ENTRY_CAPACITY)
    done = 0
    for p in range(load(t, PARTITIONS)):
        entry = p
        while entry >= 0:
            at = entry * capacity
            for i in range(at, at + meta(t, entry, FILL)):
                words[done] = load_as(own_words, i, like)
                ids[done] = load_as(own_ids, i, np.uint32(0))
                done += 1
            entry = meta(t, entry, NEXT)
