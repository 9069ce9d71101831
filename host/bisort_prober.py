"""The `bisort_prober` unit on the CPU: where sorted bounds fall in a sorted run (PanJoin, III-E), on all threads.

Buffers: words and index of the run, low and high bounds (each ascending), starts and ends (out, 32 bits). Scalars:
length of the run, step of the index, number of bounds. `starts[j]` is the first position whose word is not below
`low[j]`, `ends[j]` the first whose word is above `high[j]`: the record `<start, end>` of the paper.

Bounds and index are merged, as in the paper, four stretches in step; then the bounds' partitions are searched by
counting in vector code. While ranges turn out to be short, ends are looked for right behind the starts instead.
`high[j]` need not belong to `low[j]`: the two streams are looked up apart where one is seen to be below the other.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from millrace.host.jit import inline, share
from millrace.host.memory import load_as, load_id, prefetch, store_as, table
from millrace.host.team import Team
from millrace.host.words import Array

SLICE = 1 << 12
"""About how many bounds one thread looks up at a time."""
NEAR = 8
"""How many words behind the start an end is looked for before the index is asked."""
AHEAD = 24
"""How many bounds ahead words are asked for."""
_U32 = np.uint32


@inline
def _size(like: Any) -> int:
    """Bytes of a word."""
    return 4 if type(like)(~type(like)(0)) == 0xFFFFFFFF else 8


@inline
def _below(word: Any, bound: Any, upper: bool) -> Any:
    """Whether a word lies before the place of a bound: below it, or for an upper bound not above it."""
    return (word < bound) | (upper & (word == bound))


@inline
def _partition(index: int, samples: int, bound: Any, upper: bool, like: Any) -> int:
    """How many samples lie before the place of a bound, by binary search."""
    low, high = 0, samples
    while low < high:
        middle = (low + high) >> 1
        if _below(load_as(index, middle, like), bound, upper):
            low = middle + 1
        else:
            high = middle
    return low


@inline
def _advance(index: int, samples: int, p: int, bound: Any, upper: bool, like: Any) -> Any:
    """Whether the next sample, if there is one, lies before the place of a bound."""
    return (p < samples) & _below(load_as(index, min(p, samples - 1), like), bound, upper)


@inline
def _partitions(
    index: int, samples: int, bounds: int, first: int, count: int, out: int, upper: bool, like: Any
) -> None:
    """For bounds `first` on, how many samples lie before each: bounds and index merged, four stretches in step."""
    quarter = count >> 2
    j0, j1, j2, j3 = first, first + quarter, first + 2 * quarter, first + 3 * quarter
    e0, e1, e2, e3 = j1, j2, j3, first + count
    p0 = _partition(index, samples, load_as(bounds, j0, like), upper, like)
    p1 = _partition(index, samples, load_as(bounds, min(j1, e3 - 1), like), upper, like)
    p2 = _partition(index, samples, load_as(bounds, min(j2, e3 - 1), like), upper, like)
    p3 = _partition(index, samples, load_as(bounds, min(j3, e3 - 1), like), upper, like)
    while (j0 < e0) & (j1 < e1) & (j2 < e2) & (j3 < e3):
        store_as(out, j0, _U32(p0))
        store_as(out, j1, _U32(p1))
        store_as(out, j2, _U32(p2))
        store_as(out, j3, _U32(p3))
        x0 = _advance(index, samples, p0, load_as(bounds, j0, like), upper, like)
        x1 = _advance(index, samples, p1, load_as(bounds, j1, like), upper, like)
        x2 = _advance(index, samples, p2, load_as(bounds, j2, like), upper, like)
        x3 = _advance(index, samples, p3, load_as(bounds, j3, like), upper, like)
        p0, p1, p2, p3 = p0 + x0, p1 + x1, p2 + x2, p3 + x3
        j0, j1, j2, j3 = j0 + 1 - x0, j1 + 1 - x1, j2 + 1 - x2, j3 + 1 - x3
    _finish(index, samples, bounds, j0, e0, p0, out, upper, like)
    _finish(index, samples, bounds, j1, e1, p1, out, upper, like)
    _finish(index, samples, bounds, j2, e2, p2, out, upper, like)
    _finish(index, samples, bounds, j3, e3, p3, out, upper, like)


@inline
def _finish(index: int, samples: int, bounds: int, j: int, end: int, p: int, out: int, upper: bool, like: Any) -> None:
    """What is left of one stretch."""
    while j < end:
        store_as(out, j, _U32(p))
        x = _advance(index, samples, p, load_as(bounds, j, like), upper, like)
        p += x
        j += 1 - x


@inline
def _place(words: int, n: int, step: int, partition: int, bound: Any, upper: bool, like: Any) -> int:
    """The place of a bound in the partition behind the last sample that lies before it."""
    base = max(partition - 1, 0) * step
    count = 0
    for k in range(min(step, n - base)):
        count += _below(load_as(words, base + k, like), bound, upper)
    return base + count


@inline
def _places(
    words: int, n: int, step: int, bounds: int, places: int, first: int, stop: int, upper: bool, like: Any
) -> None:
    """From partitions to places."""
    for j in range(first, stop):
        _fetch(words, step, places, min(j + AHEAD, stop - 1), like)
        p = load_id(places, j)
        store_as(places, j, _U32(_place(words, n, step, p, load_as(bounds, j, like), upper, like)))


@inline
def _fetch(words: int, step: int, partitions: int, j: int, like: Any) -> None:
    """Ask early for the words of a later bound's partition."""
    begin = words + max(load_id(partitions, j) - 1, 0) * step * _size(like)
    for line in range(0, step * _size(like), 64):
        prefetch(begin + line)


@inline
def _both_places(
    words: int, n: int, step: int, low: int, high: int, starts: int, ends: int, first: int, stop: int, like: Any
) -> int:
    """Starts and, right behind them, ends; gives up where too many ranges are long. How many starts were found."""
    misses = ((stop - first) >> 4) + 1
    for j in range(first, stop):
        _fetch(words, step, starts, min(j + AHEAD, stop - 1), like)
        p = load_id(starts, j)
        start = _place(words, n, step, p, load_as(low, j, like), False, like)
        store_as(starts, j, _U32(start))
        bound = load_as(high, j, like)
        end = start
        for k in range(min(NEAR, n - start)):
            end += load_as(words, start + k, like) <= bound
        if (end == start + NEAR) | (bound < load_as(low, j, like)):
            misses -= 1
            if (misses == 0) | (bound < load_as(low, j, like)):
                return j + 1
            end = _gallop(words, n, end, bound, like)
        store_as(ends, j, _U32(end))
    return -1


@inline
def _probe(given: int, part: int, parts: int, like: Any) -> None:
    words, index, low, high = (load_as(given, 0, 0), load_as(given, 1, 0), load_as(given, 2, 0), load_as(given, 3, 0))
    starts, ends = load_as(given, 4, 0), load_as(given, 5, 0)
    n, step, m = load_as(given, 6, 0), load_as(given, 7, 0), load_as(given, 8, 0)
    first, stop = m * part // parts, m * (part + 1) // parts
    if first == stop:
        return
    samples = (n + step - 1) // step
    _partitions(index, samples, low, first, stop - first, starts, False, like)
    found = _both_places(words, n, step, low, high, starts, ends, first, stop, like)
    if found >= 0:
        _places(words, n, step, low, starts, found, stop, False, like)
        _partitions(index, samples, high, first, stop - first, ends, True, like)
        _places(words, n, step, high, ends, first, stop, True, like)


@inline
def _gallop(words: int, n: int, at: int, bound: Any, like: Any) -> int:
    """The first position from `at` on whose word is above a bound, in steps that double and then halve."""
    leap = 1
    while at + leap < n and load_as(words, at + leap, like) <= bound:
        at += leap
        leap <<= 1
    low, high = at, min(at + leap, n)
    while low < high:
        middle = (low + high) >> 1
        if load_as(words, middle, like) <= bound:
            low = middle + 1
        else:
            high = middle
    return low


@share
def _probe_32(given: int, part: int, parts: int) -> None:
    _probe(given, part, parts, np.uint32(0))


@share
def _probe_64(given: int, part: int, parts: int) -> None:
    _probe(given, part, parts, np.uint64(0))


def bisort_prober(arrays: Sequence[Array], scalars: Sequence[int], team: Team) -> int:
    """Find the records of all bounds."""
    words, index, low, high, starts, ends = arrays
    n, step, m = scalars
    if n == 0:
        starts[:m] = ends[:m] = 0
        return m
    probe = _probe_64 if words.dtype == np.uint64 else _probe_32
    team.run(probe, table(words, index, low, high, starts, ends, n, step, m), -(-m // SLICE))
    return m
