"""The kernels of RaP-Table: rebounding binary search, insertion, probing, histograms (PanJoin, III-B, III-E).

Partition p is entry p of the LLAT, its splitter the entry's floor; of equal splitters the last one owns the words, so
the partitions of the others are empty. The search is without branches in its backward phase: the next tuple's search
can then begin before this one's last load has come.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from millrace.host.base.types import Array
from millrace.host.join.panjoin.llat import (
    FILL,
    FLOORS,
    IDS,
    JOB_TABLE,
    LOW,
    NEXT,
    OWN,
    PLACES,
    POINTER,
    ROOM,
    WORDS,
    Arrays,
    Scalars,
    append,
    cut,
    lacking,
    meta,
    pose,
    run_end,
    scan_part,
    word_at,
)
from millrace.host.runtime.intrinsics import load_as
from millrace.host.runtime.jit import inline, kernel, load, share, store

PARTITIONS = OWN
"""The only column of the table beside the LLAT's own: P."""


@inline
def _rebound(splitters: int, partitions: int, start: int, word: Any, like: Any) -> int:
    """The last partition, from `start` on, whose splitter is at most `word`; the one at `start` is."""
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
    """Put a sorted batch in; there are entries enough."""
    splitters, partitions = load(t, FLOORS), load(t, PARTITIONS)
    i = 0
    p = _partition(splitters, partitions, word_at(words, 0, like), like) if n > 0 else 0
    while i < n:
        p = _rebound(splitters, partitions, p, word_at(words, i, like), like)
        stop = run_end(t, p, words, i, n, like)
        i = append(t, p, words, ids, i, stop, like)


@inline
def _probe(job: int, part: int, parts: int, like: Any) -> None:
    """Find the partitions of a part's low ends, each from that of the one before, then scan."""
    t = load(job, JOB_TABLE)
    splitters, partitions = load(t, FLOORS), load(t, PARTITIONS)
    lows, places = load(job, LOW), load(job, PLACES)
    start, stop = cut(job, part, parts)
    p = _partition(splitters, partitions, word_at(lows, start, like), like) if start < stop else 0
    for q in range(start, stop):
        p = _rebound(splitters, partitions, p, word_at(lows, q, like), like)
        store(places, q, p)
    scan_part(job, part, parts, like)


@kernel
def insert(t: int, words: Array, ids: Array, like: Any) -> int:
    """Put a sorted batch in; there are entries enough. Gives PtrG."""
    _insert(t, words.ctypes.data, ids.ctypes.data, len(words), like)
    return load(t, POINTER)


@kernel
def probe_alone(job: Array, scalars: Scalars, arrays: Arrays, like: Any) -> int:
    """Put all questions; what is `lacking`."""
    _probe(pose(job, scalars, arrays), 0, 1, like)
    return lacking(job)


@share
def probe32(job: int, part: int, parts: int) -> None:
    """Put a part of the questions, words of 32 bits."""
    _probe(job, part, parts, np.uint32(0))


@share
def probe64(job: int, part: int, parts: int) -> None:
    """Put a part of the questions, words of 64 bits."""
    _probe(job, part, parts, np.uint64(0))


@kernel
def histograms(t: int, count: Array, least: Array, most: Array, like: Any) -> None:
    """The number of tuples, the least and the largest word (uint64) of every partition; an empty one has neither."""
    words, room = load(t, WORDS), load(t, ROOM)
    for p in range(len(count)):
        entry = p
        count[p] = 0
        low, high = np.uint64(0xFFFFFFFFFFFFFFFF), np.uint64(0)
        while entry >= 0:
            fill = meta(t, entry, FILL)
            for i in range(entry * room, entry * room + fill):
                word = word_at(words, i, like)
                low, high = min(low, word), max(high, word)
            count[p] += fill
            entry = meta(t, entry, NEXT)
        least[p], most[p] = low, high


@kernel
def gather(t: int, words: Array, ids: Array, like: Any) -> None:
    """Copy all tuples, partition by partition."""
    own_words, own_ids, room = load(t, WORDS), load(t, IDS), load(t, ROOM)
    done = 0
    for p in range(load(t, PARTITIONS)):
        entry = p
        while entry >= 0:
            at = entry * room
            for i in range(at, at + meta(t, entry, FILL)):
                words[done] = load_as(own_words, i, like)
                ids[done] = load_as(own_ids, i, np.uint32(0))
                done += 1
            entry = meta(t, entry, NEXT)
