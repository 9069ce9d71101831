"""The kernels that probe one side's window with new tuples of the other side, and their calls.

Counting: a part is one block (or the tail) and a slice of the queries, so that a block is loaded into one core's cache
only; the counts of all blocks are a matrix, which is summed at the end. Writing pairs: a part is a slice of queries,
and probes the blocks in order of position, so that each query's partners are written in ascending order at the offsets
that the counts give.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum, auto

import numpy as np

from millrace.host.base.types import Array, Positions
from millrace.host.join.contract import KeyProbe, Matches, SideProbes
from millrace.host.join.pair_memory import FEWER_ROWS, check_fits
from millrace.host.join.spo.block_search import (
    BITMAP_WORDS,
    BlockArgs,
    TailArgs,
    count_all,
    count_visible,
    end_rank,
    first_rank,
    mark,
    mark_chunks,
    word_mask,
    write_marked,
    write_visible,
)
from millrace.host.join.spo.block_window import BlockWindow
from millrace.host.kernels.word_sorter import sort_words
from millrace.host.runtime.allocator import allocate, free, result_array
from millrace.host.runtime.intrinsics import (
    WIDE_LANES,
    address,
    load,
    load_as,
    load_byte,
    lowest_bit,
    ones,
    stack_words,
    store,
    store_as,
)
from millrace.host.runtime.jit import inline, kernel, share
from millrace.host.runtime.kernel_args import KernelArgs
from millrace.host.runtime.team import Team

SLICE = 1 << 10
"""About how many queries a part handles."""
MIN_ORDERED = 1 << 9
"""From so many queries on, sorting them pays."""
_FEW = 32
"""A scan in order of position costs as much as one in order of a key, and marking one id per this many ranks."""
_U64, _I32 = np.uint64, np.int32


class Way(IntEnum):
    """How a query was answered in a block or the tail."""

    TABLE = 0
    PARTLY_VISIBLE = 1
    TAIL = 2
    ORDERED = 3
    CHUNKS = 4
    POSITIONS = 5


_WAYS = 8


class ProbeArgs(KernelArgs):
    """The arguments of a probe."""

    BLOCKS = auto()
    UNITS = auto()
    TAIL = auto()
    QUERIES = auto()
    SLICES = auto()
    LIVE = auto()
    LOW_A = auto()
    HIGH_A = auto()
    LOW_B = auto()
    HIGH_B = auto()
    WIDE_A = auto()
    WIDE_B = auto()
    BEGIN = auto()
    END = auto()
    STEP = auto()
    FOUND = auto()
    COUNTS = auto()
    NEXT = auto()
    OUT = auto()
    TUPLES = auto()
    OWN = auto()
    WAYS = auto()


@inline
def _ranks_a(given: int, block: int, q: int) -> tuple[int, int]:
    words, size, wide = load(block, BlockArgs.WORDS_A), load(block, BlockArgs.SIZE), load(given, ProbeArgs.WIDE_A)
    low = first_rank(words, size, load_as(load(given, ProbeArgs.LOW_A), q, _U64(0)), wide)
    return low, end_rank(words, size, load_as(load(given, ProbeArgs.HIGH_A), q, _U64(0)), wide)


@inline
def _ranks_b(given: int, block: int, q: int) -> tuple[int, int]:
    words, size, wide = load(block, BlockArgs.WORDS_B), load(block, BlockArgs.SIZE), load(given, ProbeArgs.WIDE_B)
    low = first_rank(words, size, load_as(load(given, ProbeArgs.LOW_B), q, _U64(0)), wide)
    return low, end_rank(words, size, load_as(load(given, ProbeArgs.HIGH_B), q, _U64(0)), wide)


@inline
def _visible_ids(given: int, block: int, q: int) -> tuple[int, int]:
    """The ids of a block that a query sees, as a range; empty if begin >= end."""
    base, at = load(block, BlockArgs.BASE), q * load(given, ProbeArgs.STEP)
    begin = max(load(load(given, ProbeArgs.BEGIN), at) - base, load(block, BlockArgs.BEGIN))
    return begin, min(load(load(given, ProbeArgs.END), at) - base, load(block, BlockArgs.END))


@inline
def _count_block(given: int, block: int, q: int, ways: int) -> int:
    """Count a query's partners in a block."""
    v0, v1 = _visible_ids(given, block, q)
    if v0 >= v1:
        return 0
    a0, a1 = _ranks_a(given, block, q)
    if a0 >= a1:
        return 0
    b0, b1 = _ranks_b(given, block, q)
    if b0 >= b1:
        return 0
    if v1 - v0 == load(block, BlockArgs.END) - load(block, BlockArgs.BEGIN):
        _took(ways, Way.TABLE)
        return count_all(block, a0, a1, b0, b1)
    _took(ways, Way.PARTLY_VISIBLE)
    return count_visible(block, a0, a1, b0, b1, v0, v1)


@inline
def _took(ways: int, way: int) -> None:
    store(ways, way, load(ways, way) + 1)


@inline
def _lower_bound(positions: int, count: int, bound: int) -> int:
    """How many ascending positions are below a bound."""
    if count == 0 or load(positions, 0) >= bound:
        return 0
    if load(positions, count - 1) < bound:
        return count
    low, high = 0, count
    while low < high:
        middle = (low + high) >> 1
        if load(positions, middle) < bound:
            low = middle + 1
        else:
            high = middle
    return low


@inline
def _probe_tail(given: int, q: int, out: int) -> int:
    """Compare a query with the tail. Returns the number of partners; writes their positions unless `out` is 0."""
    tail, at = load(given, ProbeArgs.TAIL), q * load(given, ProbeArgs.STEP)
    a, b, wide_a, wide_b = (
        load(tail, TailArgs.WORDS_A),
        load(tail, TailArgs.WORDS_B),
        load(given, ProbeArgs.WIDE_A),
        load(given, ProbeArgs.WIDE_B),
    )
    low_a, high_a = (
        load_as(load(given, ProbeArgs.LOW_A), q, _U64(0)),
        load_as(load(given, ProbeArgs.HIGH_A), q, _U64(0)),
    )
    low_b, high_b = (
        load_as(load(given, ProbeArgs.LOW_B), q, _U64(0)),
        load_as(load(given, ProbeArgs.HIGH_B), q, _U64(0)),
    )
    if (low_a > high_a) | (low_b > high_b):
        return 0
    positions, size = load(tail, TailArgs.POSITIONS), load(tail, TailArgs.SIZE)
    start = _lower_bound(positions, size, load(load(given, ProbeArgs.BEGIN), at))
    stop = _lower_bound(positions, size, load(load(given, ProbeArgs.END), at))
    total = 0
    for i in range(start, stop, WIDE_LANES):
        found = word_mask(a, i, low_a, high_a, wide_a) & word_mask(b, i, low_b, high_b, wide_b)
        found &= (1 << min(stop - i, WIDE_LANES)) - 1
        if out != 0:
            bits = found
            while bits != 0:
                store(out, 0, load(positions, i + lowest_bit(bits)))
                out += 8
                bits &= bits - 1
        total += ones(found)
    return total


@share
def _count_part(given: int, part: int, parts: int) -> None:
    """Count the partners of a slice of queries in one block or the tail."""
    slices, queries = load(given, ProbeArgs.SLICES), load(given, ProbeArgs.QUERIES)
    unit, number, live = part // slices, part % slices, load(given, ProbeArgs.LIVE)
    found, ways = load(given, ProbeArgs.FOUND) + 4 * unit * queries, load(given, ProbeArgs.WAYS) + 8 * _WAYS * part
    block = load(load(given, ProbeArgs.BLOCKS), unit)
    for q in range(queries * number // slices, queries * (number + 1) // slices):
        total = 0
        if load_byte(live, q) != 0:
            if block != 0:
                total = _count_block(given, block, q, ways)
            else:
                _took(ways, Way.TAIL)
                total = _probe_tail(given, q, 0)
        store_as(found, q, _I32(total))


@inline
def _write_block(given: int, block: int, q: int, found: int, out: int, bitmap: int, ways: int) -> int:
    """Write the positions of a query's partners in a block; returns the end of `out`."""
    v0, v1 = _visible_ids(given, block, q)
    a0, a1 = _ranks_a(given, block, q)
    b0, b1 = _ranks_b(given, block, q)
    chunks = min(a1 - a0, 256 * (found + 4))
    width = min(chunks, b1 - b0)
    if width + _FEW * found >= v1 - v0:
        _took(ways, Way.POSITIONS)
        return write_visible(block, a0, a1, b0, b1, v0, v1, out)
    if width == b1 - b0:
        _took(ways, Way.ORDERED)
        mark(load(block, BlockArgs.A_IN_B), load(block, BlockArgs.IDS_B), b0, b1, a0, a1, v0, v1, bitmap)
    elif width == a1 - a0:
        _took(ways, Way.ORDERED)
        mark(load(block, BlockArgs.B_IN_A), load(block, BlockArgs.IDS_A), a0, a1, b0, b1, v0, v1, bitmap)
    else:
        _took(ways, Way.CHUNKS)
        mark_chunks(block, a0, a1, b0, b1, v0, v1, bitmap)
    return write_marked(bitmap, load(block, BlockArgs.BASE), out)


@share
def _write_part(given: int, part: int, parts: int) -> None:
    """Write the partners of a slice of queries, block by block, and the positions of the queries' own tuples."""
    queries, units = load(given, ProbeArgs.QUERIES), load(given, ProbeArgs.UNITS)
    found, counts, out = load(given, ProbeArgs.FOUND), load(given, ProbeArgs.COUNTS), load(given, ProbeArgs.OUT)
    own, tuples, following = load(given, ProbeArgs.OWN), load(given, ProbeArgs.TUPLES), load(given, ProbeArgs.NEXT)
    ways = load(given, ProbeArgs.WAYS) + 8 * _WAYS * part
    start, stop = queries * part // parts, queries * (part + 1) // parts
    bitmap = stack_words(BITMAP_WORDS)
    for i in range(BITMAP_WORDS):
        store(bitmap, i, 0)
    for q in range(start, stop):
        at, position = own + 8 * load(following, q), load(tuples, q)
        for i in range(load(counts, q)):
            store(at, i, position)
    for unit in range(units):
        block = load(load(given, ProbeArgs.BLOCKS), unit)
        for q in range(start, stop):
            count = int(load_as(found, unit * queries + q, _I32(0)))
            if count != 0:
                at = out + 8 * load(following, q)
                if block != 0:
                    _write_block(given, block, q, count, at, bitmap, ways)
                else:
                    _probe_tail(given, q, at)
                store(following, q, load(following, q) + count)


@kernel
def _sum_counts(found: int, units: int, queries: int, counts: int) -> None:
    """Add the rows of the matrix of counts."""
    for q in range(queries):
        store(counts, q, 0)
    for unit in range(units):
        row = found + 4 * unit * queries
        for q in range(queries):
            store(counts, q, load(counts, q) + int(load_as(row, q, _I32(0))))


class Probe:
    """The new tuples of one side as queries on the other side's window.

    Many queries are put in order of their bound of key A, so that neighbours search the same part of a block.
    """

    def __init__(self, window: BlockWindow, part: SideProbes, team: Team) -> None:
        """Prepare the queries; `part` has at least one tuple."""
        self._team, self._n, self._first = team, len(part), part.first
        blocks = [block for block in window.blocks if block.first < part.end[-1] and part.begin[0] < block.end]
        units = np.array([address(block.given) for block in blocks] + [0] * (window.tail_size > 0), np.int64)
        self._units = len(units)
        self._slices = max(1, self._n // SLICE)
        self._order = _query_order(part.probes[0], team) if self._n >= MIN_ORDERED and len(blocks) else None
        step = int(part.begin.strides != (0,) or part.end.strides != (0,))
        begin, end = (self._ordered(one) if step else np.ascontiguousarray(one[:1]) for one in (part.begin, part.end))
        bounds = allocate(4 * self._n, np.uint64).reshape(4, self._n)
        for key, probe in enumerate(part.probes):
            for line, words in ((2 * key, probe.low[0]), (2 * key + 1, probe.high[0])):
                bounds[line] = words if self._order is None else words[self._order]
        self._found = allocate(max(self._units * self._n, 1), np.int32)
        live = self._ordered(part.live)
        self._ways = np.zeros(max(self._units * self._slices, 1) * _WAYS, np.int64)
        self._kept: list[Array] = [begin, end, bounds, live, units]
        row = 8 * self._n
        self._given = ProbeArgs.partly(
            BLOCKS=units,
            UNITS=self._units,
            TAIL=window.tail_given,
            QUERIES=self._n,
            SLICES=self._slices,
            LIVE=live,
            LOW_A=address(bounds),
            HIGH_A=address(bounds) + row,
            LOW_B=address(bounds) + 2 * row,
            HIGH_B=address(bounds) + 3 * row,
            WIDE_A=int(window.words[0].itemsize == 8),
            WIDE_B=int(window.words[1].itemsize == 8),
            BEGIN=begin,
            END=end,
            STEP=step,
            FOUND=self._found,
            WAYS=self._ways,
        )

    def _ordered(self, values: Array) -> Array:
        """The values of all tuples, in order of the queries."""
        return np.ascontiguousarray(values) if self._order is None else values[self._order]

    def matches(self, want_positions: bool) -> Matches:
        """The partners of each tuple, or only their number."""
        if self._units:
            self._team.run(_count_part, self._given, self._units * self._slices)
        found = np.empty(self._n, np.int64)
        _sum_counts(address(self._found), self._units, self._n, address(found))
        counts = found
        if self._order is not None:
            counts = np.empty(self._n, np.int64)
            counts[self._order] = found
        return self._write(found, counts) if want_positions else Matches(counts, None)

    def _write(self, found: Positions, counts: Positions) -> Matches:
        """Write the partners; `found` are the counts in order of the queries."""
        ends = np.cumsum(counts)
        total = int(ends[-1])
        check_fits(total, FEWER_ROWS)
        out, own = result_array(total, np.int64), result_array(total, np.int64)
        if total:
            following = self._ordered(ends - counts)
            tuples = self._ordered(np.arange(self._first, self._first + self._n))
            given = self._given
            given[ProbeArgs.COUNTS], given[ProbeArgs.NEXT] = address(found), address(following)
            given[ProbeArgs.OUT], given[ProbeArgs.OWN] = address(out), address(own)
            given[ProbeArgs.TUPLES] = address(tuples)
            self._team.run(_write_part, given, self._slices)
        return Matches(counts, out, own)

    def ways(self) -> Sequence[int]:
        """How often each `Way` was taken."""
        taken: list[int] = self._ways.reshape(-1, _WAYS).sum(axis=0).tolist()
        return taken

    def free(self) -> None:
        """Return scratch memory to the allocator."""
        for array in (*self._kept, self._found):
            free(array)


def _query_order(probe: KeyProbe, team: Team) -> Array:
    """The order of queries by the bound that tells them apart best."""
    words, order = sort_words(probe.high[0] if probe.shape == "at most" else probe.low[0], team)
    free(words)
    return order
