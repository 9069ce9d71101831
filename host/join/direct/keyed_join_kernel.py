"""The kernels of `keyed_join.py`: look up ranges of keys, and copy the pairs found to result columns.

Each lookup makes two random accesses, one to the directory and one to the rows. Both are prefetched one block of rows
ahead. The pairs of a block are then copied column by column while they are in the first-level cache. Only the partners
of one row are sorted.
"""

from __future__ import annotations

from enum import auto
from typing import Any

import numpy as np

from millrace.host.kernels.segments import sort_segment
from millrace.host.runtime.intrinsics import (
    LINE,
    fence_streams,
    load,
    load_as,
    load_id,
    lowest_bit,
    ones,
    prefetch,
    prefetch_far,
    store_as,
    store_sorted,
    stream_line,
)
from millrace.host.runtime.jit import inline, share
from millrace.host.runtime.kernel_args import KernelArgs

BLOCK = 64
"""Rows that are processed together: their pairs fit into the first-level cache."""
SHORT = 4
"""Partners that are sorted at once, without a loop."""
CANDIDATES = 5
"""Keyed rows of a range that are always compared, without a branch on their number: they fit into two cache lines."""
STAGE = 1 << 10
"""The maximum number of staged pairs, which are found but not yet copied."""
MAX_PARTNERS = STAGE // 2
"""The maximum number of partners of a row."""
_SLACK = 8
"""Pairs after the last staged one that may be overwritten."""
_U64, _U32 = np.uint64, np.uint32
_MAX_INT64: Any = np.int64((1 << 63) - 1)
# The memory of a part: the ranges of three blocks of rows; the staged pairs; one column of them.
_LOW, _HIGH, _BEGIN, _END, _SLOT = 0, 8 * BLOCK, 16 * BLOCK, 20 * BLOCK, 24 * BLOCK
_SLOTS = 3
_OWN = _SLOTS * _SLOT
_STAGED = _OWN + 8 * (STAGE + _SLACK)
_COLUMN = _STAGED + 8 * (STAGE + _SLACK)
LOCAL_SIZE = _COLUMN + 8 * (STAGE + _SLACK)


class Args(KernelArgs):
    """The arguments of the kernels."""

    WORDS_LOW = auto()
    WORDS_HIGH = auto()
    FLIP = auto()
    BELOW = auto()
    ABOVE = auto()
    LARGEST = auto()
    BASE = auto()
    TOP = auto()
    NUMBER_BITS = auto()
    SHIFT = auto()
    ROWS = auto()
    DIRECTORY = auto()
    LOCAL = auto()
    PARTS = auto()
    R_COLUMNS = auto()
    S_COLUMNS = auto()
    S_KEY = auto()
    KEY_FLIP = auto()
    R_SEQ = auto()
    S_SEQ = auto()
    WIDTH = auto()
    COLUMNS = auto()  # from here on: source and result of each r column, then the result of each s column


class Part(KernelArgs):
    """A part of the rows."""

    FIRST = auto()  # its first row
    STOP = auto()  # its end
    AT = auto()  # the offset of its space in the result
    SPACE = auto()  # the size of its space
    FOUND = auto()  # the number of pairs found


PART_SIZE = len(Part)


@inline
def _locate_ranges(given: int, first: int, count: int, slot: int, like: Any) -> None:
    """Compute the range of row keys that each of some rows looks up, and prefetch its directory line."""
    lows, highs, flip = load(given, Args.WORDS_LOW), load(given, Args.WORDS_HIGH), load_as(given, Args.FLIP, _U64(0))
    below, above = load_as(given, Args.BELOW, _U64(0)), load_as(given, Args.ABOVE, _U64(0))
    largest, base, top = (
        load_as(given, Args.LARGEST, _U64(0)),
        load_as(given, Args.BASE, _U64(0)),
        load_as(given, Args.TOP, _U64(0)),
    )
    up, shift = load_as(given, Args.NUMBER_BITS, _U64(0)), load_as(given, Args.SHIFT, _U64(0))
    directory, numbers = load(given, Args.DIRECTORY), (_U64(1) << up) - _U64(1)
    for j in range(count):
        low, high = _U64(load_as(lows, first + j, like)) ^ flip, _U64(load_as(highs, first + j, like)) ^ flip
        low -= min(low, below)
        high += min(largest - high, above)
        none = (low > high) | (high < base) | (low > top)
        low, high = max(low, base) - base, min(high, top) - base
        low, high = _U64(0) if none else low << up, _U64(0) if none else (high << up) | numbers
        store_as(slot + _LOW, j, low)
        # An empty range ends before it begins, at the first directory entry.
        store_as(slot + _HIGH, j, high)
        store_as(slot + _BEGIN, j, _U32(low >> shift))
        store_as(slot + _END, j, _U32(_U64(0) if none else (high >> shift) + _U64(1)))
        prefetch(directory + 4 * np.int64(low >> shift))  # type: ignore[arg-type]


@inline
def _look_up(given: int, count: int, slot: int, width: int) -> None:
    """Replace ranges of the directory by ranges of rows, and prefetch the rows."""
    directory, rows = load(given, Args.DIRECTORY), load(given, Args.ROWS)
    for j in range(count):
        begin = load_id(directory, load_id(slot + _BEGIN, j))
        end = load_id(directory, load_id(slot + _END, j))
        store_as(slot + _BEGIN, j, _U32(begin))
        store_as(slot + _END, j, _U32(end))
        where = rows + 8 * width * begin
        prefetch_far(where)
        prefetch_far(where + 64)


@inline
def _within(rows: int, width: int, begin: int, end: int, low: Any, high: Any) -> Any:
    """A bit mask of which of the first `CANDIDATES` rows have a row key in the range."""
    found: Any = 0
    for i in range(CANDIDATES):
        row_key = load_as(rows, (begin + i) * width, _U64(0))
        found |= np.int64((row_key >= low) & (row_key <= high)) << i
    return found & ((1 << min(end - begin, CANDIDATES)) - 1)


@inline
def _packed_row(rows: int, width: int, i: int, numbers: Any) -> Any:
    """A row's number in the upper 32 bits and its index in the lower."""
    return np.int64((load_as(rows, i * width, _U64(0)) & numbers) << _U64(32)) | i


@inline
def _write_short(rows: int, width: int, begin: int, found: int, numbers: Any, out: int) -> None:
    """Write up to four rows, given as a bit mask, in order of their numbers.

    Reads the row keys again instead of just-written values: those reads would wait for all earlier stores.
    """
    a = _packed_row(rows, width, begin + (lowest_bit(found) & 7), numbers)
    second = found & (found - 1)
    b = _packed_row(rows, width, begin + (lowest_bit(second) & 7), numbers)
    third = second & (second - 1)
    c = _packed_row(rows, width, begin + (lowest_bit(third) & 7), numbers)
    fourth = third & (third - 1)
    d = _packed_row(rows, width, begin + (lowest_bit(fourth) & 7), numbers)
    b, c, d = b if second else _MAX_INT64, c if third else _MAX_INT64, d if fourth else _MAX_INT64
    store_sorted(out, a, b, c, d)


@inline
def _write_any(rows: int, width: int, begin: int, end: int, low: Any, high: Any, numbers: Any, out: int) -> int:
    """Write any number of rows in order of their numbers. Returns their number; writes at most `MAX_PARTNERS`."""
    count = 0
    for i in range(begin, end):
        row_key = load_as(rows, i * width, _U64(0))
        if (row_key >= low) & (row_key <= high):
            if count < MAX_PARTNERS:
                store_as(out, count, _packed_row(rows, width, i, numbers))
            count += 1
    if count <= MAX_PARTNERS:
        sort_segment(out, count)
    return count


@inline
def _stream(source: int, count: int, out: int) -> None:
    for k in range(0, count, LINE):
        stream_line(source + 8 * k, out + 8 * k)


@inline
def _copy(given: int, out: int, local: int, count: int, width: int) -> None:
    """Copy full lines of staged pairs to the result columns."""
    r_columns, s_columns = load(given, Args.R_COLUMNS), load(given, Args.S_COLUMNS)
    rows, own, pairs, column = load(given, Args.ROWS), local + _OWN, local + _STAGED, local + _COLUMN
    for c in range(s_columns):
        for k in range(count):
            at = load_as(pairs, k, 0) & 0xFFFFFFFF
            store_as(column, k, load_as(rows, at * width + 1 + c, 0))
        _stream(column, count, load_as(given, Args.COLUMNS + 2 * r_columns + c, 0) + 8 * out)
    if load(given, Args.S_KEY):
        up, flip = load_as(given, Args.NUMBER_BITS, _U64(0)), load_as(given, Args.KEY_FLIP, _U64(0))
        base = load_as(given, Args.BASE, _U64(0))
        for k in range(count):
            row_key = load_as(rows, (load_as(pairs, k, 0) & 0xFFFFFFFF) * width, _U64(0))
            store_as(column, k, ((row_key >> up) + base) ^ flip)
        _stream(column, count, load(given, Args.S_KEY) + 8 * out)
    for c in range(r_columns):
        source = load_as(given, Args.COLUMNS + 2 * c, 0)
        for k in range(count):
            store_as(column, k, load_as(source, load_as(own, k, 0), 0))
        _stream(column, count, load_as(given, Args.COLUMNS + 2 * c + 1, 0) + 8 * out)
    for k in range(count):
        store_as(column, k, load_as(pairs, k, 0) >> 32)
    _stream(column, count, load(given, Args.S_SEQ) + 8 * out)
    _stream(own, count, load(given, Args.R_SEQ) + 8 * out)


@inline
def _flush(given: int, mine: int, local: int, staged: int, final: bool, width: int) -> int:
    """Copy staged pairs if there is space: full lines, or all if `final`. Returns how many are still staged."""
    found, space = load_as(mine, Part.FOUND, 0), load_as(mine, Part.SPACE, 0)
    count = (staged + LINE - 1) & -LINE if final else staged & -LINE
    for k in range(staged, count):  # fill the last line with any existing rows
        store_as(local + _OWN, k, load_as(mine, Part.FIRST, 0))
        store_as(local + _STAGED, k, 0)
    if found + count <= space:
        _copy(given, load_as(mine, Part.AT, 0) + found, local, count, width)
    if final:
        store_as(mine, Part.FOUND, found + staged)
        return 0
    store_as(mine, Part.FOUND, found + count)
    for k in range(staged - count):
        store_as(local + _OWN, k, load_as(local + _OWN, count + k, 0))
        store_as(local + _STAGED, k, load_as(local + _STAGED, count + k, 0))
    return staged - count


@inline
def _find(given: int, mine: int, first: int, count: int, slot: int, local: int, staged: int, width: int) -> int:
    """Stage the pairs of a block, in order. Returns the number of staged pairs, or -1 if a row has too many."""
    rows, up = load(given, Args.ROWS), load_as(given, Args.NUMBER_BITS, _U64(0))
    numbers, own, pairs = (_U64(1) << up) - _U64(1), local + _OWN, local + _STAGED
    for j in range(count):
        begin, end = load_id(slot + _BEGIN, j), load_id(slot + _END, j)
        low, high = load_as(slot + _LOW, j, _U64(0)), load_as(slot + _HIGH, j, _U64(0))
        found = _within(rows, width, begin, end, low, high)
        number = ones(found)
        if (number <= SHORT) & (end <= begin + CANDIDATES) & (staged <= STAGE):
            _write_short(rows, width, begin, found, numbers, pairs + 8 * staged)
            for k in range(SHORT):
                store_as(own, staged + k, first + j)
        else:
            if staged + MAX_PARTNERS > STAGE:
                staged = _flush(given, mine, local, staged, False, width)
            number = _write_any(rows, width, begin, end, low, high, numbers, pairs + 8 * staged)
            if number > MAX_PARTNERS:
                return -1
            for k in range(number):
                store_as(own, staged + k, first + j)
        staged += number
    return staged


@inline
def _join(given: int, part: int, like: Any, width: int) -> None:
    """Join one part of the probing rows. Sets Part.FOUND to -1 if a row has too many partners."""
    mine, local = load(given, Args.PARTS) + 8 * PART_SIZE * part, load(given, Args.LOCAL) + LOCAL_SIZE * part
    first, stop = load_as(mine, Part.FIRST, 0), load_as(mine, Part.STOP, 0)
    blocks, staged = (stop - first + BLOCK - 1) // BLOCK, 0
    store_as(mine, Part.FOUND, 0)
    for block in range(blocks + 2):
        if block < blocks:
            begin = first + block * BLOCK
            _locate_ranges(given, begin, min(BLOCK, stop - begin), local + (block % _SLOTS) * _SLOT, like)
        if 1 <= block <= blocks:
            begin = first + (block - 1) * BLOCK
            _look_up(given, min(BLOCK, stop - begin), local + ((block - 1) % _SLOTS) * _SLOT, width)
        if block >= 2:
            begin, slot = first + (block - 2) * BLOCK, local + ((block - 2) % _SLOTS) * _SLOT
            staged = _find(given, mine, begin, min(BLOCK, stop - begin), slot, local, staged, width)
            if staged < 0:
                store_as(mine, Part.FOUND, -1)
                return
            staged = _flush(given, mine, local, staged, False, width)
    _flush(given, mine, local, staged, True, width)
    fence_streams()


@share
def join_64_2(given: int, part: int, parts: int) -> None:
    _join(given, part, np.uint64(0), 2)


@share
def join_64(given: int, part: int, parts: int) -> None:
    _join(given, part, np.uint64(0), load(given, Args.WIDTH))


@share
def join_32(given: int, part: int, parts: int) -> None:
    _join(given, part, np.uint32(0), load(given, Args.WIDTH))


@inline
def _sample(given: int, part: int, like: Any) -> None:
    """Count the pairs of a part's first rows (Part.FOUND), and the keyed rows that they compare (Part.SPACE)."""
    mine, local = load(given, Args.PARTS) + 8 * PART_SIZE * part, load(given, Args.LOCAL) + LOCAL_SIZE * part
    first, width, rows = load_as(mine, Part.FIRST, 0), load(given, Args.WIDTH), load(given, Args.ROWS)
    count = min(BLOCK, load_as(mine, Part.STOP, 0) - first)
    _locate_ranges(given, first, count, local, like)
    _look_up(given, count, local, width)
    found: Any = 0
    scanned = 0
    for j in range(count):
        begin, end = load_id(local + _BEGIN, j), load_id(local + _END, j)
        low, high = load_as(local + _LOW, j, _U64(0)), load_as(local + _HIGH, j, _U64(0))
        scanned += end - begin
        for i in range(begin, end):
            row_key = load_as(rows, i * width, _U64(0))
            found += np.int64((row_key >= low) & (row_key <= high))
    store_as(mine, Part.FOUND, found)
    store_as(mine, Part.SPACE, scanned)


@share
def sample_64(given: int, part: int, parts: int) -> None:
    _sample(given, part, np.uint64(0))


@share
def sample_32(given: int, part: int, parts: int) -> None:
    _sample(given, part, np.uint32(0))
