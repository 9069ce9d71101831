"""The `bisort_prober` unit on the CPU: finds sorted bounds in a sorted run (PanJoin, III-E), on all threads.

Buffers: words and index of the run, low and high bounds (each ascending), starts and ends (out, 32 bits). Scalars:
length of the run, step of the index (a multiple of `LANES`), number of bounds. `starts[j]` is the first position whose
word is not below `low[j]`, `ends[j]` the first whose word is above `high[j]`: the record `<start, end>` of the paper.
`LANES` words can be read beyond the end of run and index.

Bounds and index are merged, as in the paper, one line of samples at a time and four segments interleaved
(`seek_partitions`). Then each bound's partition is loaded into the cache and searched in vector code, and the end of
its range is searched from the start on (`resolve_bounds`). If ranges are long, or `high` turns out not to belong to
`low`, the two are looked up separately. Words are read in full lines; a position beyond the end of a run becomes its
end.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import auto
from typing import Any

import numpy as np

from millrace.host.base.types import Array
from millrace.host.runtime.intrinsics import (
    LANES,
    leading_below,
    leading_upto,
    lines_below,
    lines_upto,
    load,
    load_as,
    load_id,
    prefetch,
    size_of,
    store_as,
    touch,
)
from millrace.host.runtime.jit import inline, share
from millrace.host.runtime.kernel_args import KernelArgs
from millrace.host.runtime.team import Team

SLICE = 1 << 12
"""About how many bounds one thread looks up at a time."""
BLOCK = 128
"""Bounds whose partitions are loaded together: their lines fit into the first-level cache."""
AHEAD = 16 * LANES
"""How many samples ahead are prefetched while bounds and index are merged."""
WIDE = 4 * LANES
"""Samples that are compared together if bounds are far apart."""
FAR = 4
"""From this many samples between two bounds on, bounds are far apart: a line is then passed about every second time, so
a branch on it would often be mispredicted."""
PATIENCE = 4
"""Lines of samples that are passed one by one before switching to binary search."""
_U32 = np.uint32


@inline
def _leading(where: int, bound: Any, upper: bool) -> int:
    """How many of a line's words are before the position of a bound: below it, or for an upper bound not above it."""
    return leading_upto(where, bound) if upper else leading_below(where, bound)


@inline
def _partition(index: int, first: int, samples: int, bound: Any, upper: bool, like: Any) -> int:
    """How many samples are before the position of a bound, by binary search from sample `first` on."""
    low, high = first, samples
    while low < high:
        middle = (low + high) >> 1
        sample = load_as(index, middle, like)
        if (sample < bound) | (upper & (sample == bound)):
            low = middle + 1
        else:
            high = middle
    return low


@inline
def _pass(index: int, p: int, samples: int, bound: Any, upper: bool, like: Any) -> int:
    """Advance `p` past the samples before the position of a bound."""
    passed = _leading(index + p * size_of(like), bound, upper)
    prefetch(index + (p + AHEAD) * size_of(like))
    p += passed
    lines = 0
    while (passed == LANES) & (p < samples):
        lines += 1
        if lines > PATIENCE:
            return _partition(index, p, samples, bound, upper, like)
        passed = _leading(index + p * size_of(like), bound, upper)
        p += passed
    return min(p, samples)


@inline
def _pass_far(index: int, p: int, samples: int, bound: Any, upper: bool, like: Any) -> int:
    """The same, for bounds that are far apart."""
    if p + WIDE > samples:
        return _pass(index, p, samples, bound, upper, like)
    where = index + p * size_of(like)
    passed = lines_upto(where, bound) if upper else lines_below(where, bound)
    prefetch(where + AHEAD * size_of(like))
    prefetch(where + (AHEAD + LANES) * size_of(like))
    return p + passed if passed < WIDE else _pass(index, p + WIDE, samples, bound, upper, like)


@inline
def _move(index: int, p: int, samples: int, bounds: int, j: int, out: int, upper: bool, far: bool, like: Any) -> int:
    """Advance `p` from one bound to the next, number `j`, and store it."""
    bound = load_as(bounds, j, like)
    if far:
        p = _pass_far(index, p, samples, bound, upper, like)
    else:
        p = _pass(index, p, samples, bound, upper, like)
    store_as(out, j, _U32(p))
    return p


@inline
def _merge_segments(
    index: int,
    samples: int,
    bounds: int,
    quarter: int,
    out: int,
    upper: bool,
    far: bool,
    p0: int,
    p1: int,
    p2: int,
    p3: int,
    like: Any,
) -> int:
    """Merge four segments of bounds, interleaved: their loads are independent. Returns where the last one ends."""
    for j in range(quarter):
        p0 = _move(index, p0, samples, bounds, j, out, upper, far, like)
        p1 = _move(index, p1, samples, bounds, j + quarter, out, upper, far, like)
        p2 = _move(index, p2, samples, bounds, j + 2 * quarter, out, upper, far, like)
        p3 = _move(index, p3, samples, bounds, j + 3 * quarter, out, upper, far, like)
    return p3


@inline
def _partitions(index: int, samples: int, bounds: int, count: int, out: int, upper: bool, like: Any) -> None:
    """How many samples are before each bound: merges bounds and index in four interleaved segments."""
    quarter = count >> 2
    p0 = _partition(index, 0, samples, load_as(bounds, 0, like), upper, like)
    p1 = _partition(index, p0, samples, load_as(bounds, quarter, like), upper, like)
    p2 = _partition(index, p1, samples, load_as(bounds, 2 * quarter, like), upper, like)
    p3 = _partition(index, p2, samples, load_as(bounds, 3 * quarter, like), upper, like)
    # Two calls, so that `far` is a compile-time constant in each.
    if p3 - p0 < 3 * quarter * FAR:
        p3 = _merge_segments(index, samples, bounds, quarter, out, upper, False, p0, p1, p2, p3, like)
    else:
        p3 = _merge_segments(index, samples, bounds, quarter, out, upper, True, p0, p1, p2, p3, like)
    for j in range(4 * quarter, count):
        p3 = _move(index, p3, samples, bounds, j, out, upper, False, like)


@inline
def fetch(words: int, n: int, step: int, partitions: int, count: int, like: Any) -> None:
    """Load the lines of some partitions, and the lines after them, into the cache.

    Loads work better than prefetches here. Nothing may be written in this loop: a load that waits for memory delays
    earlier stores, and a load with the same page offset as such a store waits for it.
    """
    for j in range(count):
        begin = max(load_id(partitions, j) - 1, 0) * step
        for at in range(begin, begin + step + 1, LANES):
            touch(words + min(at, n) * size_of(like))


@inline
def _position(words: int, n: int, step: int, partition: int, bound: Any, upper: bool, like: Any) -> int:
    """The position of a bound, in the partition after the last sample before it."""
    base = max(partition - 1, 0) * step
    position = base + _leading(words + base * size_of(like), bound, upper)
    if step > LANES:
        for at in range(base + LANES, min(base + step, n), LANES):
            position += _leading(words + at * size_of(like), bound, upper)
    return min(position, n)


@inline
def _positions(words: int, n: int, step: int, bounds: int, count: int, positions: int, upper: bool, like: Any) -> None:
    """Replace the partitions of bounds by their positions."""
    for j in range(count):
        store_as(
            positions, j, _U32(_position(words, n, step, load_id(positions, j), load_as(bounds, j, like), upper, like))
        )


@inline
def _both_positions(
    words: int, n: int, step: int, low: int, high: int, count: int, starts: int, ends: int, like: Any
) -> Any:
    """Find starts from the partitions of `low`, and ends right after them. False if ends need a separate lookup."""
    misses = (count >> 4) + 1
    for j in range(count):
        lowest, highest = load_as(low, j, like), load_as(high, j, like)
        start = _position(words, n, step, load_id(starts, j), lowest, False, like)
        store_as(starts, j, _U32(start))
        more = leading_upto(words + start * size_of(like), highest)
        if (more == LANES) & (start + LANES < n):
            misses -= 1
        misses = 0 if highest < lowest else misses
        if misses <= 0:
            _positions(words, n, step, low + (j + 1) * size_of(like), count - j - 1, starts + 4 * (j + 1), False, like)
            return False
        end = start + more if more < LANES else _gallop(words, n, start + more, highest, like)
        store_as(ends, j, _U32(min(end, n)))
    return True


@inline
def _gallop(words: int, n: int, at: int, bound: Any, like: Any) -> int:
    """The first position from `at` on whose word is above a bound, by galloping search."""
    leap = 1
    while at + leap < n and load_as(words, at + leap, like) <= bound:
        at += leap
        leap <<= 1
    low, high = min(at, n), min(at + leap, n)
    while low < high:
        middle = (low + high) >> 1
        if load_as(words, middle, like) <= bound:
            low = middle + 1
        else:
            high = middle
    return low


@inline
def _ends(words: int, n: int, low: int, high: int, count: int, starts: int, ends: int, like: Any) -> Any:
    """Find ends right after the starts. False if ends need a separate lookup."""
    misses = (count >> 4) + 1
    for j in range(count):
        start, highest = load_id(starts, j), load_as(high, j, like)
        more = leading_upto(words + start * size_of(like), highest)
        misses -= more == LANES
        if (misses <= 0) | (highest < load_as(low, j, like)):
            return False
        if more == LANES:
            more = _gallop(words, n, start + LANES, highest, like) - start
        store_as(ends, j, _U32(min(start + more, n)))
    return True


@inline
def seek_partitions(n: int, step: int, index: int, low: int, count: int, starts: int, like: Any) -> None:
    """Store the partitions of some low bounds as starts. The run is not empty."""
    _partitions(index, (n + step - 1) // step, low, count, starts, False, like)


@inline
def resolve_bounds(
    words: int, n: int, step: int, index: int, low: int, high: int, count: int, starts: int, ends: int, like: Any
) -> None:
    """Find starts and ends from the partitions that `seek_partitions` stored."""
    if step == 1:  # the words are their own index, so the partitions are the starts
        if not _ends(words, n, low, high, count, starts, ends, like):
            _partitions(index, n, high, count, ends, True, like)
        return
    # With a constant step, the compiler makes the search of a partition straight-line code.
    if step == LANES:
        fetch(words, n, LANES, starts, count, like)
        done = _both_positions(words, n, LANES, low, high, count, starts, ends, like)
    else:
        fetch(words, n, step, starts, count, like)
        done = _both_positions(words, n, step, low, high, count, starts, ends, like)
    if not done:
        _partitions(index, (n + step - 1) // step, high, count, ends, True, like)
        fetch(words, n, step, ends, count, like)
        _positions(words, n, step, high, count, ends, True, like)


class _Args(KernelArgs):
    """The arguments of the prober."""

    WORDS = auto()
    INDEX = auto()
    LOW = auto()
    HIGH = auto()
    STARTS = auto()
    ENDS = auto()
    SIZE = auto()  # of the run
    STEP = auto()
    COUNT = auto()  # of probes


@inline
def _probe(given: int, part: int, parts: int, like: Any) -> None:
    words, index = load(given, _Args.WORDS), load(given, _Args.INDEX)
    low, high = load(given, _Args.LOW), load(given, _Args.HIGH)
    starts, ends = load(given, _Args.STARTS), load(given, _Args.ENDS)
    n, step, m = load(given, _Args.SIZE), load(given, _Args.STEP), load(given, _Args.COUNT)
    first, stop = m * part // parts, m * (part + 1) // parts
    if first == stop:
        return
    seek_partitions(n, step, index, low + first * size_of(like), stop - first, starts + 4 * first, like)
    for block in range(first, stop, BLOCK):
        count, at = min(BLOCK, stop - block), block * size_of(like)
        resolve_bounds(words, n, step, index, low + at, high + at, count, starts + 4 * block, ends + 4 * block, like)


@share
def _probe_32(given: int, part: int, parts: int) -> None:
    _probe(given, part, parts, np.uint32(0))


@share
def _probe_64(given: int, part: int, parts: int) -> None:
    _probe(given, part, parts, np.uint64(0))


def bisort_prober(arrays: Sequence[Array], scalars: Sequence[int], team: Team) -> int:
    """Find starts and ends of all bounds."""
    words, index, low, high, starts, ends = arrays
    n, step, m = scalars
    if n == 0:
        starts[:m] = ends[:m] = 0
        return m
    probe = _probe_64 if words.dtype == np.uint64 else _probe_32
    given = _Args.pack(
        WORDS=words, INDEX=index, LOW=low, HIGH=high, STARTS=starts, ENDS=ends, SIZE=n, STEP=step, COUNT=m
    )
    team.run(probe, given, -(-m // SLICE))
    return m
