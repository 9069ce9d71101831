"""A table's rows bucketed by key, payload next to the key, with a directory: what `mr.join` searches at random.

A row is a few adjacent 64-bit words: its *row key* (the key's word minus the smallest one in the upper bits, the row's
number in the lower bits), then its 64-bit columns. So a lookup by key finds number and payload in the same cache line.
The directory divides the keys into equally wide ranges, about as many as rows, and stores the first row of each. Rows
are scattered to groups by the leading bits of their key. Then each group, which fits into the cache, is scattered to
ranges. Rows inside a range are not sorted: a search compares all of them.

Limits: a row key has at most 64 bits, and keys must be distributed fairly evenly. Otherwise `KeyedRows.of` returns
None, and the caller uses an index.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import auto
from typing import Any

import numpy as np

from millrace.host.base.types import Array
from millrace.host.runtime.allocator import allocate, free
from millrace.host.runtime.intrinsics import address, load, load_as, load_id, store_as
from millrace.host.runtime.jit import inline, share
from millrace.host.runtime.kernel_args import KernelArgs
from millrace.host.runtime.team import Team

ROW_KEY_BITS = 64
PARTS_PER_THREAD = 4
MAX_LEADING_BITS = 12
"""The maximum number of leading key bits for the first scatter."""
GROUP_BITS = 10
"""About how many bits are left for the second scatter: such a group fits into the first-level cache."""
MAX_SKEW = 16
"""The maximum size of a group, as a multiple of the average."""
PADDING_ROWS = 8
"""Rows that can be read beyond the last one."""
LINE = 64
_U64 = np.uint64


class _Args(KernelArgs):
    """The arguments of the kernels that lay out rows."""

    N = auto()
    WORDS = auto()
    FLIP = auto()
    BASE = auto()
    NUMBER_BITS = auto()
    LEADING = auto()
    COUNTS = auto()
    ROWS = auto()
    GROUPS = auto()
    DIRECTORY = auto()
    STARTS = auto()
    SHIFT = auto()
    INNER = auto()
    LOCAL = auto()
    LOCAL_SIZE = auto()
    WIDTH = auto()
    COLUMNS = auto()  # from here on: the columns


class _MinMax(KernelArgs):
    """The arguments of `_part_min_max`."""

    WORDS = auto()
    FLIP = auto()
    N = auto()
    FOUND = auto()


@inline
def _part_min_max(given: int, part: int, parts: int, like: Any) -> None:
    """The smallest and the largest word of a part."""
    words, flip, n = load(given, _MinMax.WORDS), load_as(given, _MinMax.FLIP, _U64(0)), load(given, _MinMax.N)
    first, stop = n * part // parts, n * (part + 1) // parts
    smallest = biggest = _U64(load_as(words, first, like)) ^ flip
    for i in range(first, stop):
        word = _U64(load_as(words, i, like)) ^ flip
        smallest, biggest = min(smallest, word), max(biggest, word)
    found = load(given, _MinMax.FOUND)
    store_as(found, 2 * part, smallest)
    store_as(found, 2 * part + 1, biggest)


@share
def _part_min_max_32(given: int, part: int, parts: int) -> None:
    _part_min_max(given, part, parts, np.uint32(0))


@share
def _part_min_max_64(given: int, part: int, parts: int) -> None:
    _part_min_max(given, part, parts, np.uint64(0))


@inline
def _offset(given: int, i: int, like: Any) -> Any:
    """A key's distance from the smallest one."""
    word = _U64(load_as(load(given, _Args.WORDS), i, like)) ^ load_as(given, _Args.FLIP, _U64(0))
    return word - load_as(given, _Args.BASE, _U64(0))


@inline
def _count(given: int, part: int, parts: int, like: Any) -> None:
    """Count the rows of a part per group (leading bits)."""
    n, leading = load(given, _Args.N), load_as(given, _Args.LEADING, _U64(0))
    counts = load(given, _Args.COUNTS) + 8 * part * load(given, _Args.GROUPS)
    for i in range(n * part // parts, n * (part + 1) // parts):
        at = np.int64(_offset(given, i, like) >> leading)
        store_as(counts, at, load_as(counts, at, 0) + 1)


@share
def _count_32(given: int, part: int, parts: int) -> None:
    _count(given, part, parts, np.uint32(0))


@share
def _count_64(given: int, part: int, parts: int) -> None:
    _count(given, part, parts, np.uint64(0))


@inline
def _scatter(given: int, part: int, parts: int, like: Any, width: int) -> None:
    """Scatter the rows of a part to their groups."""
    n, leading, bits = (
        load(given, _Args.N),
        load_as(given, _Args.LEADING, _U64(0)),
        load_as(given, _Args.NUMBER_BITS, _U64(0)),
    )
    counts, rows = load(given, _Args.COUNTS) + 8 * part * load(given, _Args.GROUPS), load(given, _Args.ROWS)
    for i in range(n * part // parts, n * (part + 1) // parts):
        offset = _offset(given, i, like)
        at = np.int64(offset >> leading)
        target = load_as(counts, at, 0)
        store_as(counts, at, target + 1)
        to = rows + 8 * width * target
        store_as(to, 0, (offset << bits) | _U64(i))
        for c in range(1, width):
            store_as(to, c, load_as(load_as(given, _Args.COLUMNS + c - 1, 0), i, 0))


@share
def _scatter_64_2(given: int, part: int, parts: int) -> None:
    _scatter(given, part, parts, np.uint64(0), 2)


@share
def _scatter_64(given: int, part: int, parts: int) -> None:
    _scatter(given, part, parts, np.uint64(0), load(given, _Args.WIDTH))


@share
def _scatter_32(given: int, part: int, parts: int) -> None:
    _scatter(given, part, parts, np.uint32(0), load(given, _Args.WIDTH))


@inline
def _scatter_group(given: int, group: int, local: int, width: int) -> None:
    """Scatter one group to its ranges of keys, in place, and store in the directory where each begins."""
    starts, inner, shift = load(given, _Args.STARTS), load(given, _Args.INNER), load_as(given, _Args.SHIFT, _U64(0))
    directory = load(given, _Args.DIRECTORY) + 4 * (group << inner)
    first, count = load_as(starts, group, 0), load_as(starts, group + 1, 0) - load_as(starts, group, 0)
    rows, ranges = load(given, _Args.ROWS) + 8 * width * first, 1 << inner
    mask, copy = _U64(ranges - 1), local + 4 * ranges
    for r in range(ranges):
        store_as(local, r, np.uint32(0))
    for i in range(count):
        row_key = load_as(rows, i * width, _U64(0))
        k: Any = np.int64((row_key >> shift) & mask)
        store_as(local, k, np.uint32(load_id(local, k) + 1))
        store_as(copy, i * width, row_key)
        for c in range(1, width):
            store_as(copy, i * width + c, load_as(rows, i * width + c, 0))
    at = 0
    for r in range(ranges):
        size = load_id(local, r)
        store_as(local, r, np.uint32(at))
        store_as(directory, r, np.uint32(first + at))
        at += size
    for i in range(count):
        k = np.int64((load_as(copy, i * width, _U64(0)) >> shift) & mask)
        to = load_id(local, k)
        store_as(local, k, np.uint32(to + 1))
        for c in range(width):
            store_as(rows, to * width + c, load_as(copy, i * width + c, 0))


@inline
def _scatter_groups(given: int, part: int, parts: int, width: int) -> None:
    """Scatter a share of the groups."""
    groups, local = load(given, _Args.GROUPS), load(given, _Args.LOCAL) + part * load(given, _Args.LOCAL_SIZE)
    for group in range(groups * part // parts, groups * (part + 1) // parts):
        _scatter_group(given, group, local, width)


@share
def _scatter_groups_2(given: int, part: int, parts: int) -> None:
    _scatter_groups(given, part, parts, 2)


@share
def _scatter_groups_any(given: int, part: int, parts: int) -> None:
    _scatter_groups(given, part, parts, load(given, _Args.WIDTH))


@dataclass(frozen=True)
class KeyedRows:
    """Rows by range of row keys: `width` words each, row key first."""

    rows: Array
    directory: Array
    """`directory[row_key >> shift]` is the first row of a range of row keys."""
    count: int
    width: int
    base: int
    top: int
    """The smallest and the largest word."""
    number_bits: int
    shift: int

    @staticmethod
    def of(words: Array, flip: int, columns: Sequence[Array], team: Team) -> KeyedRows | None:
        """Rows with these words, XOR `flip`, and 64-bit columns. None if the keys are not suitable.

        Arrays come from the allocator.
        """
        n, parts = len(words), PARTS_PER_THREAD * team.threads
        base, top = _min_max(words, flip, team, parts)
        key_bits, number_bits = max((top - base).bit_length(), 1), max((n - 1).bit_length(), 1)
        if key_bits + number_bits > ROW_KEY_BITS:
            return None
        bits = min(key_bits, number_bits)
        outer = min(max(bits - GROUP_BITS, 0), MAX_LEADING_BITS)
        width, shift = 1 + len(columns), number_bits + key_bits - bits
        counts = np.zeros((parts, 1 << outer), np.int64)
        given = _Args.partly(
            *columns,
            N=n,
            WORDS=words,
            FLIP=flip,
            BASE=base,
            NUMBER_BITS=number_bits,
            LEADING=key_bits - outer,
            COUNTS=counts,
            GROUPS=1 << outer,
            SHIFT=shift,
            INNER=bits - outer,
            WIDTH=width,
        )
        team.run(_count_64 if words.itemsize == 8 else _count_32, given, parts)
        largest = int(counts.sum(axis=0).max())
        if largest > MAX_SKEW * max(n >> outer, 1):
            return None
        rows = allocate((n + PADDING_ROWS) * width, np.int64)
        directory = allocate((1 << bits) + 1, np.uint32)
        directory[1 << bits] = n
        given[[_Args.ROWS, _Args.DIRECTORY]] = address(rows), address(directory)
        _partition_rows(given, counts, largest, words.itemsize == 8, team)
        return KeyedRows(rows, directory, n, width, base, top, number_bits, shift)

    def release(self, team: Team) -> None:
        """Return the arrays to the allocator."""
        free(self.rows)
        free(self.directory)


def _partition_rows(given: Array, counts: Array, largest: int, wide: bool, team: Team) -> None:
    """Scatter all rows twice. `counts`: rows per part and group; `largest`: rows of the largest group."""
    parts, groups = counts.shape
    starts = np.zeros(groups + 1, np.int64)
    np.cumsum(counts.sum(axis=0), out=starts[1:])
    counts[:] = np.cumsum(counts, axis=0) - counts + starts[:-1]  # the target of each part's rows of a group
    width, shares = int(given[_Args.WIDTH]), min(groups, 2 * parts)
    size = (4 << int(given[_Args.INNER])) + 8 * width * largest + LINE & -LINE
    local = allocate(shares * size, np.uint8)
    given[[_Args.STARTS, _Args.LOCAL, _Args.LOCAL_SIZE]] = address(starts), address(local), size
    common = wide and width == 2  # a constant width unrolls the loops over a row's words
    team.run(_scatter_64_2 if common else _scatter_64 if wide else _scatter_32, given, parts)
    team.run(_scatter_groups_2 if width == 2 else _scatter_groups_any, given, shares)
    free(local)


def _min_max(words: Array, flip: int, team: Team, parts: int) -> tuple[int, int]:
    """The smallest and the largest word."""
    found = np.zeros((parts, 2), np.uint64)
    given = _MinMax.pack(WORDS=words, FLIP=flip, N=len(words), FOUND=found)
    team.run(_part_min_max_64 if words.itemsize == 8 else _part_min_max_32, given, parts)
    return int(found[:, 0].min()), int(found[:, 1].max())
