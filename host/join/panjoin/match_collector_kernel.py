"""The kernels of `match_collector.py`: count, collect and deliver the partners of probes.

A *source* is one `MatchRanges`, that is, starts, ends and ids from a run or a structure; it is one line of a table.
Starts and ends of a run in host memory are computed here, a block of probes at a time, so that they stay in the cache.
Most tuples have few partners, so four are copied and sorted at once, however many there are: a branch on their number
would often be mispredicted.
"""

from __future__ import annotations

from enum import auto
from typing import Any

import numpy as np

from millrace.host.join.panjoin.bisort_prober import BLOCK, resolve_bounds, seek_partitions
from millrace.host.join.panjoin.short_matches import MAX_MATCHES, SOURCE_SIZE, Source, applies, gather_short, put_short
from millrace.host.join.panjoin.subwindow import ID_PADDING
from millrace.host.kernels.segments import sort_segment
from millrace.host.runtime.intrinsics import copy_ids, load, load_as, load_id, prefetch, size_of, store_as, touch
from millrace.host.runtime.jit import inline, share
from millrace.host.runtime.kernel_args import KernelArgs

SPAN = 1 << 10
"""Probes whose partitions are looked up together."""
AHEAD = 12
"""How many tuples ahead memory is prefetched."""
_MAX_POSITION = np.int64((1 << 63) - 1)


class Args(KernelArgs):
    """The arguments of the kernels."""

    PROBES = auto()
    SOURCES = auto()
    TABLE = auto()
    PROBE_TUPLE = auto()
    SLOT = auto()
    BEGIN = auto()
    END = auto()
    STRIDE = auto()
    COUNTS = auto()
    SEGMENTS = auto()
    SCRATCH = auto()
    TOTALS = auto()
    TUPLES = auto()
    RANGES = auto()
    OUT = auto()
    OWN_POSITIONS = auto()
    FIRST_OWN = auto()
    TUPLE_TOTALS = auto()
    LOW = auto()
    HIGH = auto()
    LOCAL = auto()
    LOCAL_SIZE = auto()
    AREAS = auto()


@inline
def _visible_interval(given: int, q: int) -> tuple[int, int]:
    """The first position visible to a probe, and the number of visible positions."""
    probe_tuple = load_id(load(given, Args.PROBE_TUPLE), q) * load(given, Args.STRIDE)
    begin, end = load_as(load(given, Args.BEGIN), probe_tuple, 0), load_as(load(given, Args.END), probe_tuple, 0)
    return begin, end - begin


@inline
def _within(position: int, begin: int, length: int) -> Any:
    return np.uint64(position - begin) < np.uint64(length)


@share
def count_matches(given: int, part: int, parts: int) -> None:
    """Count the partners of each probe."""
    probes, sources, table = load(given, Args.PROBES), load(given, Args.SOURCES), load(given, Args.TABLE)
    counts, slots = load(given, Args.COUNTS), load(given, Args.SLOT)
    for q in range(probes * part // parts, probes * (part + 1) // parts):
        total = 0
        for k in range(sources):
            line = table + 8 * SOURCE_SIZE * k
            start = load_id(load(line, Source.STARTS), q)
            end = load_id(load(line, Source.ENDS), q)
            if load(line, Source.CHECK):
                begin, length = _visible_interval(given, q)
                ids, begin = load(line, Source.IDS), begin - load(line, Source.FIRST)
                for i in range(start, end):
                    total += _within(load_id(ids, i), begin, length)
            else:
                total += end - start
        store_as(counts, load_id(slots, q), total)


# Collecting. The memory of a part has these sections:
# - a pair of addresses per source: starts and ends of the probes of the current span;
# - for every source, `SPAN` starts and `SPAN` ends, for those that are computed here;
# - cursors: for each probe of a block its number of partners, later the address of the next one; then the offset of its
#   first partner;
# - a dummy slot for values to be dropped;
# - the memory of `short_matches.py`.


@inline
def _cursors(local: int, sources: int) -> int:
    return local + (16 + 8 * SPAN) * sources


@inline
def _open_span(given: int, first: int, count: int, local: int, like: Any) -> None:
    """Store where the match ranges of a span of probes are, and look up the partitions of those to be computed."""
    sources, table, low = load(given, Args.SOURCES), load(given, Args.TABLE), load(given, Args.LOW)
    for k in range(sources):
        line = table + 8 * SOURCE_SIZE * k
        if load(line, Source.WORDS):
            starts = local + 16 * sources + 8 * SPAN * k
            store_as(local, 2 * k, starts)
            store_as(local, 2 * k + 1, starts + 4 * SPAN)
            n, step, index = load(line, Source.SIZE), load(line, Source.STEP), load(line, Source.INDEX)
            seek_partitions(n, step, index, low + first * size_of(like), count, starts, like)
        else:
            store_as(local, 2 * k, load(line, Source.STARTS) + 4 * first)
            store_as(local, 2 * k + 1, load(line, Source.ENDS) + 4 * first)


@inline
def _make_ranges(given: int, first: int, at: int, count: int, local: int, like: Any) -> int:
    """Compute the match ranges of a block, and load their ids into the cache. Returns the number of ids."""
    sources, table = load(given, Args.SOURCES), load(given, Args.TABLE)
    bounds = (first + at) * size_of(like)
    low, high = load(given, Args.LOW) + bounds, load(given, Args.HIGH) + bounds
    cursors, named = _cursors(local, sources), 0
    for j in range(count):
        store_as(cursors, j, 0)
    for k in range(sources):
        line = table + 8 * SOURCE_SIZE * k
        starts, ends = load_as(local, 2 * k, 0) + 4 * at, load_as(local, 2 * k + 1, 0) + 4 * at
        words = load(line, Source.WORDS)
        if words:
            n, step, index = load(line, Source.SIZE), load(line, Source.STEP), load(line, Source.INDEX)
            resolve_bounds(words, n, step, index, low, high, count, starts, ends, like)
        ids = load(line, Source.IDS)
        for j in range(count):
            start, end = load_id(starts, j), load_id(ends, j)
            # Many match ranges are empty. Touch the first ids for those, to save a cache line.
            touch(ids + 4 * start * (start < end))
        for j in range(count):
            found = load_id(ends, j) - load_id(starts, j)
            store_as(cursors, j, load_as(cursors, j, 0) + found)
            named += found
    return named


@inline
def _copy_checked(ids: int, start: int, end: int, first: int, begin: int, length: int, out: int, dummy: int) -> int:
    """Copy the visible positions; the others go to a dummy slot. Returns the address for the next one."""
    for i in range(start, start + ID_PADDING):
        position = load_id(ids, i) + first
        kept = (i < end) & _within(position, begin, length)
        store_as(out if kept else dummy, 0, position)
        out += 8 * kept
    for i in range(start + ID_PADDING, end):
        position = load_id(ids, i) + first
        kept = _within(position, begin, length)
        store_as(out if kept else dummy, 0, position)
        out += 8 * kept
    return out


@inline
def _copy(ids: int, start: int, end: int, first: int, out: int) -> int:
    """Copy positions. Returns the address for the next one."""
    copy_ids(ids + 4 * start, first, out, end - start)
    for i in range(ID_PADDING, end - start):
        store_as(out, i, load_id(ids, start + i) + first)
    return out + 8 * (end - start)


@inline
def _copy_run(given: int, k: int, first: int, start_at: int, count: int, local: int) -> None:
    """Append the partners that a block of probes has in one source to those of each probe."""
    sources, line = load(given, Args.SOURCES), load(given, Args.TABLE) + 8 * SOURCE_SIZE * k
    starts, ends = load_as(local, 2 * k, 0) + 4 * start_at, load_as(local, 2 * k + 1, 0) + 4 * start_at
    cursors = _cursors(local, sources)
    dummy = cursors + 8 * 2 * BLOCK
    ids, base = load(line, Source.IDS), load(line, Source.FIRST)
    if load(line, Source.CHECK):
        for j in range(count):
            begin, length = _visible_interval(given, first + start_at + j)
            start, end = load_id(starts, j), load_id(ends, j)
            start, end = start * (start < end), end * (start < end)
            out = _copy_checked(ids, start, end, base, begin, length, load_as(cursors, j, 0), dummy)
            store_as(cursors, j, out)
    else:
        for j in range(count):
            start, end = load_id(starts, j), load_id(ends, j)
            start, end = start * (start < end), end * (start < end)
            store_as(cursors, j, _copy(ids, start, end, base, load_as(cursors, j, 0)))


@inline
def _collect_block(given: int, first: int, start_at: int, count: int, local: int, out: int, at: int) -> int:
    """Store the partners of a block of probes side by side, and where each probe's are. Returns the next offset.

    Processes one source after the other. Partners that are not visible leave a gap.
    """
    sources, slots = load(given, Args.SOURCES), load(given, Args.SLOT) + 4 * (first + start_at)
    cursors, segments = _cursors(local, sources), load(given, Args.SEGMENTS)
    for j in range(count):
        store_as(cursors, BLOCK + j, at)
        after = at + load_as(cursors, j, 0)
        store_as(cursors, j, out + 8 * at)
        at = after
    for k in range(sources):
        _copy_run(given, k, first, start_at, count, local)
    for j in range(count):
        slot, begin = load_id(slots, j), load_as(cursors, BLOCK + j, 0)
        store_as(segments, 2 * slot, begin)
        store_as(segments, 2 * slot + 1, ((load_as(cursors, j, 0) - out) >> 3) - begin)
    return at


@inline
def _try_short(given: int, first: int, at: int, count: int, last: int, local: int, like: Any) -> int:
    """Gather the partners of a block of probes with few each. Returns their number, or -1 if a probe has too many."""
    sources, bounds = load(given, Args.SOURCES), (first + at) * size_of(like)
    low, high = load(given, Args.LOW) + bounds, load(given, Args.HIGH) + bounds
    begin, end = load_as(load(given, Args.BEGIN), 0, 0), load_as(load(given, Args.END), 0, 0)
    own = _short_memory(local, sources)
    return gather_short(load(given, Args.TABLE), sources, local, at, low, high, count, last, begin, end, own, like)


@inline
def _short_memory(local: int, sources: int) -> int:
    return _cursors(local, sources) + 8 * (2 * BLOCK + 1)


@inline
def _collect(given: int, part: int, parts: int, like: Any) -> None:
    """Store the partners of each probe side by side while there is space. Reports how much space they need."""
    probes, scratch = load(given, Args.PROBES), load(given, Args.SCRATCH)
    local = load(given, Args.LOCAL) + part * load(given, Args.LOCAL_SIZE)
    areas, needed = load(given, Args.AREAS), ID_PADDING
    at, limit = load_as(areas, part, 0), load_as(areas, part + 1, 0)
    stop = probes * (part + 1) // parts
    sources, segments = load(given, Args.SOURCES), load(given, Args.SEGMENTS)
    short = applies(load(given, Args.TABLE), sources, load(given, Args.STRIDE))
    # If the short path fails often, it is tried only now and then.
    credit = 1 if short else -probes
    for first in range(probes * part // parts, stop, SPAN):
        span = min(SPAN, stop - first)
        _open_span(given, first, span, local, like)
        for block in range(0, span, BLOCK):
            count, named = min(BLOCK, span - block), -1
            if (credit > 0) & (at + MAX_MATCHES * (count + 1) <= limit):
                named = _try_short(given, first, block, count, span - 1 - block, local, like)
                credit = min(credit + 1, 16) if named >= 0 else credit - 4
            else:
                credit += 1
            if named >= 0:
                slots = load(given, Args.SLOT) + 4 * (first + block)
                at = put_short(slots, count, _short_memory(local, sources), scratch, at, segments)
                needed += named
                continue
            named = _make_ranges(given, first, block, count, local, like)
            needed += named
            if at + named + ID_PADDING <= limit:
                at = _collect_block(given, first, block, count, local, scratch, at)
    store_as(load(given, Args.TOTALS), part + 1, needed)


@share
def collect_32(given: int, part: int, parts: int) -> None:
    _collect(given, part, parts, np.uint32(0))


@share
def collect_64(given: int, part: int, parts: int) -> None:
    _collect(given, part, parts, np.uint64(0))


@share
def tuple_totals(given: int, part: int, parts: int) -> None:
    """The number of partners of a slice of tuples."""
    tuples, ranges, segments = load(given, Args.TUPLES), load(given, Args.RANGES), load(given, Args.SEGMENTS)
    total = 0
    for k in range(ranges):
        for i in range(tuples * part // parts, tuples * (part + 1) // parts):
            total += load_as(segments, 2 * (k * tuples + i) + 1, 0)
    store_as(load(given, Args.TUPLE_TOTALS), part + 1, total)


@inline
def _move_short(scratch: int, begin: int, count: int, out: int, at: int) -> None:
    """Copy up to four partners in ascending order. Always writes four values."""
    a, b = load_as(scratch, begin, 0), load_as(scratch, begin + 1, 0)
    c, d = load_as(scratch, begin + 2, 0), load_as(scratch, begin + 3, 0)
    # Values after the partners are sorted to the end.
    b, c, d = b if count > 1 else _MAX_POSITION, c if count > 2 else _MAX_POSITION, d if count > 3 else _MAX_POSITION
    a, b, c, d = min(a, b), max(a, b), min(c, d), max(c, d)
    a, c, b, d = min(a, c), max(a, c), min(b, d), max(b, d)
    store_as(out, at, a)
    store_as(out, at + 1, min(b, c))
    store_as(out, at + 2, max(b, c))
    store_as(out, at + 3, d)


@inline
def _move(scratch: int, begin: int, count: int, out: int, at: int) -> None:
    """Copy partners."""
    for i in range(count):
        store_as(out, at + i, load_as(scratch, begin + i, 0))


@inline
def _deliver_many(given: int, i: int, out: int, first: int) -> int:
    """Write the partners of all ranges of a tuple in ascending order. Returns their number."""
    tuples, ranges, segments = load(given, Args.TUPLES), load(given, Args.RANGES), load(given, Args.SEGMENTS)
    at = first
    for k in range(ranges):
        begin, count = (load_as(segments, 2 * (k * tuples + i), 0), load_as(segments, 2 * (k * tuples + i) + 1, 0))
        _move(load(given, Args.SCRATCH), begin, count, out, at)
        at += count
    sort_segment(out + 8 * first, at - first)
    return at - first


@share
def deliver(given: int, part: int, parts: int) -> None:
    """Write each tuple's partners in ascending order, and the tuple's own position for each of them."""
    tuples, single = load(given, Args.TUPLES), load(given, Args.RANGES) == 1
    segments, scratch, counts = load(given, Args.SEGMENTS), load(given, Args.SCRATCH), load(given, Args.COUNTS)
    out, own_positions, own = load(given, Args.OUT), load(given, Args.OWN_POSITIONS), load(given, Args.FIRST_OWN)
    totals = load(given, Args.TUPLE_TOTALS)
    at, limit = load_as(totals, part, 0), load_as(totals, part + 1, 0)
    stop = tuples * (part + 1) // parts
    for i in range(tuples * part // parts, stop):
        prefetch(scratch + 8 * load_as(segments, 2 * min(i + AHEAD, stop - 1), 0))
        count = load_as(segments, 2 * i + 1, 0)
        if single & (count <= ID_PADDING) & (at + ID_PADDING <= limit):
            _move_short(scratch, load_as(segments, 2 * i, 0), count, out, at)
            for k in range(ID_PADDING):
                store_as(own_positions, at + k, own + i)
        else:
            count = _deliver_many(given, i, out, at)
            for k in range(count):
                store_as(own_positions, at + k, own + i)
        store_as(counts, i, count)
        at += count
