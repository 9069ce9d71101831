"""The kernels of `match_collector.py` that count and collect the partners of probes.

A *source* is one `MatchRanges`, that is, starts, ends and ids from a run or a structure; it is one line of a table.
Starts and ends of a run in host memory are computed here, a block of probes at a time, so that they stay in the cache.
Most tuples have few partners: `short_matches.py` collects them. `match_delivery.py` has the kernel that comes after.
"""

from __future__ import annotations

from enum import auto
from typing import Any

import numpy as np

from millrace.host.join.panjoin.bisort_prober import BLOCK, resolve_bounds, seek_partitions
from millrace.host.join.panjoin.short_matches import (
    CELL_BYTES,
    LONG_CELL,
    MAX_HELD,
    SOURCE_SIZE,
    Source,
    gather_short,
    put_long,
    put_short,
)
from millrace.host.join.panjoin.subwindow import ID_PADDING
from millrace.host.runtime.cell_intrinsics import prefetch_to_write
from millrace.host.runtime.intrinsics import copy_ids, load, load_as, load_id, size_of, store_as, touch
from millrace.host.runtime.jit import inline, share
from millrace.host.runtime.kernel_args import KernelArgs

SPAN = 1 << 10
"""Probes whose partitions are looked up together."""
SLICE = 12
"""Tuples are delivered in slices of two to the power of this."""


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
    CELLS = auto()
    SLICE_TOTALS = auto()


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
def _collect_block(
    given: int, first: int, start_at: int, count: int, local: int, out: int, at: int, totals: int
) -> int:
    """Store the partners of a block of probes side by side, and where each probe's are. Returns the next offset.

    Processes one source after the other. Partners that are not visible leave a gap.
    """
    sources = load(given, Args.SOURCES)
    cursors = _cursors(local, sources)
    for j in range(count):
        store_as(cursors, BLOCK + j, at)
        after = at + load_as(cursors, j, 0)
        store_as(cursors, j, out + 8 * at)
        at = after
    for k in range(sources):
        _copy_run(given, k, first, start_at, count, local)
    for j in range(count):
        q, begin = first + start_at + j, load_as(cursors, BLOCK + j, 0)
        number = ((load_as(cursors, j, 0) - out) >> 3) - begin
        _put_segment(given, q, begin, number)
        _add_to_slice(totals, load_id(load(given, Args.PROBE_TUPLE), q), number)
    return at


@inline
def _put_segment(given: int, q: int, begin: int, number: int) -> None:
    """Store where the partners of a probe are."""
    slot, segments, cells = load_id(load(given, Args.SLOT), q), load(given, Args.SEGMENTS), load(given, Args.CELLS)
    store_as(segments, 2 * slot, begin)
    store_as(segments, 2 * slot + 1, number)
    if cells:
        store_as(cells, CELL_BYTES // 8 * slot, LONG_CELL)


@inline
def _add_to_slice(totals: int, tuple_number: int, number: int) -> None:
    """Count partners of a tuple in its slice."""
    at = tuple_number >> SLICE
    store_as(totals, at, load_as(totals, at, 0) + number)


@inline
def _try_short(given: int, first: int, at: int, count: int, last: int, local: int, like: Any) -> int:
    """Gather the candidates of a block of probes with few each. Returns 0 unless a probe has too many."""
    sources, bounds = load(given, Args.SOURCES), (first + at) * size_of(like)
    low, high = load(given, Args.LOW) + bounds, load(given, Args.HIGH) + bounds
    begin, own = load_as(load(given, Args.BEGIN), 0, 0), _short_memory(local, sources)
    return gather_short(load(given, Args.TABLE), sources, local, at, low, high, count, last, begin, own, like)


@inline
def _short_memory(local: int, sources: int) -> int:
    """The memory of `short_matches.py`, at a cache line."""
    return (_cursors(local, sources) + 8 * (2 * BLOCK + 1) + 63) & ~63


@inline
def _put_block(given: int, first: int, count: int, local: int, at: int, totals: int) -> int:
    """Write the gathered partners of a block to the cells of its tuples. Returns the next offset of the others."""
    own, cells = _short_memory(local, load(given, Args.SOURCES)), load(given, Args.CELLS)
    slots, tuples = load(given, Args.SLOT) + 4 * first, load(given, Args.PROBE_TUPLE) + 4 * first
    scratch, begin = load(given, Args.SCRATCH), load_as(load(given, Args.BEGIN), 0, 0)
    length = load_as(load(given, Args.END), 0, 0) - begin
    for j in range(count):
        number = put_short(j, length, own, cells + CELL_BYTES * load_id(slots, j))
        if number < 0:
            number = put_long(j, begin, length, own, scratch, at)
            _put_segment(given, first + j, at, number)
            at += number
        _add_to_slice(totals, load_id(tuples, j), number)
    return at


@inline
def _prefetch_cells(given: int, first: int, stop: int) -> None:
    """Prefetch the cells of a block."""
    slots, cells = load(given, Args.SLOT), load(given, Args.CELLS)
    for q in range(first, min(first + BLOCK, stop)):
        prefetch_to_write(cells + CELL_BYTES * load_id(slots, q))


@inline
def _collect(given: int, part: int, parts: int, like: Any) -> None:
    """Store the partners of each probe while there is space. Reports how much space those outside cells need."""
    probes, scratch = load(given, Args.PROBES), load(given, Args.SCRATCH)
    local = load(given, Args.LOCAL) + part * load(given, Args.LOCAL_SIZE)
    areas, needed = load(given, Args.AREAS), ID_PADDING
    at, limit = load_as(areas, part, 0), load_as(areas, part + 1, 0)
    stop, slices = probes * (part + 1) // parts, (load(given, Args.TUPLES) >> SLICE) + 1
    totals = load(given, Args.SLICE_TOTALS) + 8 * slices * part
    for i in range(slices):
        store_as(totals, i, 0)
    # If the short path fails often, it is tried only now and then.
    short = load(given, Args.CELLS) != 0
    credit = 1 if short else -probes
    for first in range(probes * part // parts, stop, SPAN):
        span = min(SPAN, stop - first)
        _open_span(given, first, span, local, like)
        for block in range(0, span, BLOCK):
            count = min(BLOCK, span - block)
            if (credit > 0) & (at + MAX_HELD * (count + 1) <= limit):
                _prefetch_cells(given, first + block, stop)
                if not _try_short(given, first, block, count, span - 1 - block, local, like):
                    credit = min(credit + 1, 16)
                    after = _put_block(given, first + block, count, local, at, totals)
                    needed, at = needed + after - at, after
                    continue
                credit -= 4
            else:
                credit += 1
            named = _make_ranges(given, first, block, count, local, like)
            needed += named
            if at + named + ID_PADDING <= limit:
                at = _collect_block(given, first, block, count, local, scratch, at, totals)
    store_as(load(given, Args.TOTALS), part + 1, needed)


@share
def collect_32(given: int, part: int, parts: int) -> None:
    _collect(given, part, parts, np.uint32(0))


@share
def collect_64(given: int, part: int, parts: int) -> None:
    _collect(given, part, parts, np.uint64(0))
