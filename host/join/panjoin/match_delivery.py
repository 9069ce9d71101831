"""The last kernel of `match_collector.py`: writes the collected partners in the order of the tuples' arrival.

Most tuples have few partners, so four are copied at once, however many there are: a branch on their number would often
be mispredicted.
"""

from __future__ import annotations

import numpy as np

from millrace.host.join.panjoin.match_collector_kernel import SLICE, Args
from millrace.host.join.panjoin.short_matches import CELL_BYTES, LONG_CELL
from millrace.host.join.panjoin.subwindow import ID_PADDING
from millrace.host.kernels.segments import sort_segment
from millrace.host.runtime.cell_intrinsics import CELL, take_half, visible_in_cell
from millrace.host.runtime.intrinsics import load, load_as, load_id, prefetch, store_as
from millrace.host.runtime.jit import inline, share

AHEAD = 12
"""How many tuples ahead memory is prefetched."""
_MAX_POSITION = np.int64((1 << 63) - 1)


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
def _in_cell(cells: int, slot: int) -> bool:
    """Whether the partners of a slot are in its cell."""
    return cells != 0 and load_as(cells, CELL_BYTES // 8 * slot, 0) != LONG_CELL


@inline
def _move_cell(given: int, slot: int, out: int, at: int) -> int:
    """Copy the partners in a cell. Returns their number."""
    cell, begin = load(given, Args.CELLS) + CELL_BYTES * slot, load_as(load(given, Args.BEGIN), 0, 0)
    count = visible_in_cell(cell, load_as(load(given, Args.END), 0, 0) - begin)
    for i in range(count):
        store_as(out, at + i, begin + load_id(cell, i))
    return count


@inline
def _deliver_many(given: int, i: int, out: int, first: int) -> int:
    """Write the partners of all ranges of a tuple in ascending order. Returns their number."""
    tuples, ranges, segments = load(given, Args.TUPLES), load(given, Args.RANGES), load(given, Args.SEGMENTS)
    at, cells = first, load(given, Args.CELLS)
    for k in range(ranges):
        slot = k * tuples + i
        if _in_cell(cells, slot):
            at += _move_cell(given, slot, out, at)
        else:
            count = load_as(segments, 2 * slot + 1, 0)
            _move(load(given, Args.SCRATCH), load_as(segments, 2 * slot, 0), count, out, at)
            at += count
    sort_segment(out + 8 * first, at - first)
    return at - first


@share
def deliver(given: int, part: int, parts: int) -> None:
    """Write each tuple's partners in ascending order, and the tuple's own position for each of them."""
    tuples, single = load(given, Args.TUPLES), load(given, Args.RANGES) == 1
    segments, scratch, counts = load(given, Args.SEGMENTS), load(given, Args.SCRATCH), load(given, Args.COUNTS)
    out, own_positions, own = load(given, Args.OUT), load(given, Args.OWN_POSITIONS), load(given, Args.FIRST_OWN)
    totals, cells = load(given, Args.TUPLE_TOTALS), load(given, Args.CELLS)
    begin = load_as(load(given, Args.BEGIN), 0, 0)
    length = load_as(load(given, Args.END), 0, 0) - begin
    at, limit = load_as(totals, part, 0), load_as(totals, part + 1, 0)
    first, stop = part << SLICE, min((part + 1) << SLICE, tuples)
    for i in range(first, stop):
        if single & (at + CELL <= limit) and _in_cell(cells, i):
            cell = cells + CELL_BYTES * i
            count = visible_in_cell(cell, length)
            take_half(cell, begin, own + i, out + 8 * at, own_positions + 8 * at)
            if count > CELL // 2:
                take_half(cell + 16, begin, own + i, out + 8 * at + 32, own_positions + 8 * at + 32)
        elif single & (at + ID_PADDING <= limit) & (cells == 0) and load_as(segments, 2 * i + 1, 0) <= ID_PADDING:
            prefetch(scratch + 8 * load_as(segments, 2 * min(i + AHEAD, stop - 1), 0))
            count = load_as(segments, 2 * i + 1, 0)
            _move_short(scratch, load_as(segments, 2 * i, 0), count, out, at)
            for k in range(ID_PADDING):
                store_as(own_positions, at + k, own + i)
        else:
            count = _deliver_many(given, i, out, at)
            for k in range(count):
                store_as(own_positions, at + k, own + i)
        store_as(counts, i, count)
        at += count
