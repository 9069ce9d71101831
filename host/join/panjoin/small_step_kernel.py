"""The compiled part of a small step (`small_step.py`): from the words of new tuples to the positions of their partners.

One call computes the ranges of all probes, searches every source (a sorted run or an insertion buffer), writes the
visible partners tuple by tuple, and merges the new tuples into the insertion buffer of their own side. Probes are
searched in the order of arrival, a block at a time and without branches, so that reads of several searches overlap.
Limits: one thread; `LANES` words
after the end of a source are read; partners of a tuple are sorted by insertion, so longer lists are left to the caller.
"""

from __future__ import annotations

from enum import auto
from typing import Any

import numpy as np

from millrace.host.runtime.intrinsics import (
    LANES,
    inside,
    leading_below,
    load,
    load_as,
    load_byte,
    load_id,
    ones,
    prefetch,
    size_of,
    store,
    store_as,
)
from millrace.host.runtime.jit import inline, kernel
from millrace.host.runtime.kernel_args import KernelArgs

BLOCK = 32
"""Searches that run side by side."""
MAX_SORTED = 32
"""Partners of a tuple that are sorted here, at most."""
_U32 = np.uint32


class HostSource(KernelArgs):
    """A line of the table of sources: sorted words with their ids, which count from position `FIRST`."""

    WORDS = auto()
    INDEX = auto()  # every word at a multiple of `LANES`; 0: there is no index
    IDS = auto()
    SIZE_AT = auto()  # where the number of words is
    FIRST = auto()


LINE = 8 * len(HostSource)
"""Bytes of a line."""


class Args(KernelArgs):
    """The arguments and the results of a small step."""

    WORDS = auto()  # words of the new tuples' own keys, in order of arrival
    VALUES = auto()  # integers of which the words are made first; 0: the words are there
    FLIP = auto()  # the bits of a value that its word has inverted
    LIVE = auto()  # which tuples can match (bytes); 0: all
    TUPLES = auto()
    LOW = auto()  # the ranges that tuples search, `RANGES` lines; 0: the band around each word
    HIGH = auto()
    RANGES = auto()
    BELOW = auto()
    ABOVE = auto()
    TABLE = auto()
    SOURCES = auto()
    BEGIN = auto()  # the visible interval of each tuple, or of all
    END = auto()
    STRIDE = auto()
    BEGIN_VALUE = auto()  # memory for one interval
    END_VALUE = auto()
    COUNTS = auto()
    WANT = auto()
    ROOM = auto()  # partners for which `OUT` and `OWN` have room
    OUT = auto()
    OWN = auto()
    FIRST_OWN = auto()
    BOUNDS = auto()  # scratch: low and high of all probes, then start and end of each in every source
    BUFFER_WORDS = auto()  # the insertion buffer of the new tuples' side; 0: they are inserted elsewhere
    BUFFER_IDS = auto()
    BUFFER_SIZE = auto()
    FIRST_ID = auto()
    SORTED = auto()  # scratch of the insertion: words twice, ids twice
    CANDIDATES = auto()  # result: partners before the check of visibility
    LONGEST = auto()  # result: the most partners of a tuple
    TOTAL = auto()  # result: all partners


@inline
def _make_words(given: int, like: Any) -> None:
    """Store the words of integers."""
    words, values = load(given, Args.WORDS), load(given, Args.VALUES)
    flip = type(like)(load_as(given, Args.FLIP, np.uint64(0)))
    for i in range(load(given, Args.TUPLES)):
        store_as(words, i, type(like)(load_as(values, i, like) ^ flip))


@inline
def _make_bounds(given: int, like: Any) -> None:
    """Store low and high of each probe. A tuple that cannot match has an empty range."""
    n, ranges, live = load(given, Args.TUPLES), load(given, Args.RANGES), load(given, Args.LIVE)
    words, lows, highs = load(given, Args.WORDS), load(given, Args.LOW), load(given, Args.HIGH)
    bounds = load(given, Args.BOUNDS)
    below = type(like)(load_as(given, Args.BELOW, np.uint64(0)))
    above = type(like)(load_as(given, Args.ABOVE, np.uint64(0)))
    largest = type(like)(~type(like)(0))
    for i in range(n * ranges):
        if lows:
            low, high = load_as(lows, i, like), load_as(highs, i, like)
        else:
            word = load_as(words, i, like)
            low = type(like)(word - min(word, below))
            high = type(like)(word + min(type(like)(largest - word), above))
        if live and not load_byte(live, i % n):
            low, high = type(like)(1), type(like)(0)
        store_as(bounds, 2 * i, low)
        store_as(bounds, 2 * i + 1, high)


@inline
def _end(words: int, start: int, size: int, low: Any, high: Any, like: Any) -> int:
    """The first word above `high`, from `start` on, which is the first word not below `low`."""
    near = ones(inside(words + start * size_of(like), low, high) & ((1 << min(size - start, LANES)) - 1))
    if near < LANES:
        return start + near
    bottom, top = start + LANES, size
    while bottom < top:
        middle = (bottom + top) >> 1
        if load_as(words, middle, like) <= high:
            bottom = middle + 1
        else:
            top = middle
    return bottom


@inline
def _before_block(words: int, size: int, bounds: int, found: int, start: int, stop: int, like: Any) -> None:
    """Store, for a block of probes side by side, how many of the sorted words are below each low bound."""
    for j in range(start, stop):
        store(found, 2 * j, 0)
    left = size
    while left > 1:
        half = left >> 1
        for j in range(start, stop):
            base, low = load(found, 2 * j), load_as(bounds, 2 * j, like)
            store(found, 2 * j, base + half * int(load_as(words, base + half - 1, like) < low))
        left -= half
    for j in range(start, stop):
        base = load(found, 2 * j)
        store(found, 2 * j, base + int(load_as(words, base, like) < load_as(bounds, 2 * j, like)))


@inline
def _search(line: int, bounds: int, found: int, probes: int, like: Any) -> int:
    """Store start and end of each probe's partners in one source; return how many partners all probes have.

    An index of samples is searched first, which stays in the cache; then one line of words has the start.
    """
    words, size = load(line, HostSource.WORDS), load(load(line, HostSource.SIZE_AT), 0)
    index, ids = load(line, HostSource.INDEX), load(line, HostSource.IDS)
    if size == 0:
        for j in range(2 * probes):
            store(found, j, 0)
        return 0
    total = 0
    for block in range(0, probes, BLOCK):
        stop = min(block + BLOCK, probes)
        if index:
            _before_block(index, (size + LANES - 1) // LANES, bounds, found, block, stop, like)
            for j in range(block, stop):
                first = max(load(found, 2 * j) - 1, 0) * LANES
                prefetch(words + first * size_of(like))
                prefetch(ids + 4 * first)
            for j in range(block, stop):
                first = max(load(found, 2 * j) - 1, 0) * LANES
                below = leading_below(words + first * size_of(like), load_as(bounds, 2 * j, like))
                store(found, 2 * j, min(first + below, size))
        else:
            _before_block(words, size, bounds, found, block, stop, like)
        for j in range(block, stop):
            low, high, start = load_as(bounds, 2 * j, like), load_as(bounds, 2 * j + 1, like), load(found, 2 * j)
            end = _end(words, start, size, low, high, like) if low <= high else start
            store(found, 2 * j + 1, end)
            total += end - start
    return total


@inline
def _search_all(given: int, like: Any) -> None:
    """Search every source; store the number of candidates."""
    probes = load(given, Args.TUPLES) * load(given, Args.RANGES)
    bounds, table = load(given, Args.BOUNDS), load(given, Args.TABLE)
    candidates = 0
    for k in range(load(given, Args.SOURCES)):
        line = table + LINE * k
        candidates += _search(line, bounds, bounds + 16 * probes * (k + 1), probes, like)
    store(given, Args.CANDIDATES, candidates)


@inline
def _sort_partners(out: int, start: int, stop: int) -> None:
    for i in range(start + 1, stop):
        value, at = load(out, i), i
        while at > start and load(out, at - 1) > value:
            store(out, at, load(out, at - 1))
            at -= 1
        store(out, at, value)


@inline
def _write_partners(given: int) -> None:
    """Write each tuple's visible partners, ascending; or only count them."""
    n, ranges, sources = load(given, Args.TUPLES), load(given, Args.RANGES), load(given, Args.SOURCES)
    probes, table, want = n * ranges, load(given, Args.TABLE), load(given, Args.WANT)
    bounds, counts, stride = load(given, Args.BOUNDS), load(given, Args.COUNTS), load(given, Args.STRIDE)
    out, own, first_own = load(given, Args.OUT), load(given, Args.OWN), load(given, Args.FIRST_OWN)
    at, longest = 0, 0
    for t in range(n):
        begin, end = load(load(given, Args.BEGIN), t * stride), load(load(given, Args.END), t * stride)
        before = at
        for k in range(sources):
            line, found = table + LINE * k, bounds + 16 * probes * (k + 1)
            ids, first = load(line, HostSource.IDS), load(line, HostSource.FIRST)
            for q in range(t, probes, n):
                for i in range(load(found, 2 * q), load(found, 2 * q + 1)):
                    position = load_id(ids, i) + first
                    if begin <= position < end:
                        if want:
                            store(out, at, position)
                            store(own, at, first_own + t)
                        at += 1
        store(counts, t, at - before)
        longest = max(longest, at - before)
        if want and at - before <= MAX_SORTED:
            _sort_partners(out, before, at)
    store(given, Args.LONGEST, longest)
    store(given, Args.TOTAL, at)


@inline
def _sort_live(given: int, like: Any) -> int:
    """Sort the live tuples by word, equal words by id, into the scratch memory; return how many there are.

    A tuple's place is the number of tuples before it. Counting them all is quadratic, but without a branch.
    """
    n, live, words = load(given, Args.TUPLES), load(given, Args.LIVE), load(given, Args.WORDS)
    scratch, first = load(given, Args.SORTED), load(given, Args.FIRST_ID)
    out, ids = scratch + 8 * n, scratch + 16 * n
    count = 0
    for i in range(n):
        if live == 0 or load_byte(live, i):
            store_as(scratch, count, load_as(words, i, like))
            store_as(ids + 4 * n, count, _U32(first + i))
            count += 1
    for i in range(count):
        word, before = load_as(scratch, i, like), 0
        for k in range(i):
            before += int(load_as(scratch, k, like) <= word)
        for k in range(i + 1, count):
            before += int(load_as(scratch, k, like) < word)
        store_as(out, before, word)
        store_as(ids, before, load_as(ids + 4 * n, i, _U32(0)))
    return count


@inline
def _insert(given: int, like: Any) -> None:
    """Merge the live tuples, sorted, into the insertion buffer from its back. Equal words: older first."""
    n, scratch = load(given, Args.TUPLES), load(given, Args.SORTED)
    count = _sort_live(given, like)
    new_words, new_ids = scratch + 8 * n, scratch + 16 * n
    words, ids, size = load(given, Args.BUFFER_WORDS), load(given, Args.BUFFER_IDS), load(given, Args.BUFFER_SIZE)
    i, at = size - 1, size + count - 1
    for j in range(count - 1, -1, -1):
        word = load_as(new_words, j, like)
        while i >= 0 and load_as(words, i, like) > word:
            store_as(words, at, load_as(words, i, like))
            store_as(ids, at, load_as(ids, i, _U32(0)))
            i, at = i - 1, at - 1
        store_as(words, at, word)
        store_as(ids, at, load_as(new_ids, j, _U32(0)))
        at -= 1
    store(given, Args.BUFFER_SIZE, size + count)


@inline
def _step(given: int, like: Any) -> int:
    if load(given, Args.VALUES):
        _make_words(given, like)
    _make_bounds(given, like)
    _search_all(given, like)
    if load(given, Args.BUFFER_WORDS):
        _insert(given, like)
    candidates = load(given, Args.CANDIDATES)
    if load(given, Args.WANT) and candidates > load(given, Args.ROOM):
        return candidates
    _write_partners(given)
    return candidates


@kernel
def step_64(given: int) -> int:
    """Run a step; return the number of candidates. If there is no room for them, `deliver` has yet to be called."""
    return _step(given, np.uint64(0))


@kernel
def step_32(given: int) -> int:
    """The same for words of 32 bits."""
    return _step(given, np.uint32(0))


@kernel
def deliver(given: int) -> None:
    """Write the partners of a step that had no room for them."""
    _write_partners(given)
