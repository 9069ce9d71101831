"""A table's rows in the order of one key, payload beside the key, and a directory: what `mr.join` searches at random.

A row is a few 64-bit words in a line: its *place* (the key's word less the least one, above the row's number, in one
integer that sorts like both), then its columns of 64 bits. So whoever finds a row by key has its number and payload in
the same cache line. The directory says for equally wide ranges of keys where the first row of each is; there are about
as many ranges as rows. Rows are dealt out to groups by the leading bits of their key, then inside each group, which is
in the cache by then, to ranges. Inside a range they are left as they come: whoever searches looks at all of them.

Limits: a place has 64 bits at most, and keys must be spread somewhat evenly; `KeyedRows.of` gives nothing where that is
not so, and other ways have to serve.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from millrace.host.base.types import Array
from millrace.host.runtime.intrinsics import address, load_as, load_id, store_as, table
from millrace.host.runtime.jit import inline, share
from millrace.host.runtime.team import Team

PLACE_BITS = 64
PARTS_PER_THREAD = 4
MOST_LEADING = 12
"""Leading bits of a key that rows are dealt out by first, at most."""
GROUP_BITS = 10
"""About how many bits are left for the second deal: a group of so many rows fits a first-level cache."""
MOST_UNEVEN = 16
"""How many times as large as the average a group may be."""
BEYOND = 8
"""Rows that can be read beyond the last one."""
LINE = 64
_U64 = np.uint64
_N, _WORDS, _FLIP, _BASE, _NUMBER_BITS, _LEADING, _COUNTS, _ROWS, _GROUPS, _DIRECTORY, _STARTS, _DOWN = range(12)
_INNER, _LOCAL, _LOCAL_SIZE, _WIDTH, _COLUMNS = range(12, 17)


@inline
def _extremes(given: int, part: int, parts: int, like: Any) -> None:
    """The least and the largest word of a stretch."""
    words, flip, n = load_as(given, 0, 0), load_as(given, 1, _U64(0)), load_as(given, 2, 0)
    first, stop = n * part // parts, n * (part + 1) // parts
    least = most = _U64(load_as(words, first, like)) ^ flip
    for i in range(first, stop):
        word = _U64(load_as(words, i, like)) ^ flip
        least, most = min(least, word), max(most, word)
    store_as(load_as(given, 3, 0), 2 * part, least)
    store_as(load_as(given, 3, 0), 2 * part + 1, most)


@share
def _extremes_32(given: int, part: int, parts: int) -> None:
    _extremes(given, part, parts, np.uint32(0))


@share
def _extremes_64(given: int, part: int, parts: int) -> None:
    _extremes(given, part, parts, np.uint64(0))


@inline
def _offset(given: int, i: int, like: Any) -> Any:
    """A key's distance from the least one."""
    word = _U64(load_as(load_as(given, _WORDS, 0), i, like)) ^ load_as(given, _FLIP, _U64(0))
    return word - load_as(given, _BASE, _U64(0))


@inline
def _count(given: int, part: int, parts: int, like: Any) -> None:
    """How many rows of a stretch have each leading bits."""
    n, leading = load_as(given, _N, 0), load_as(given, _LEADING, _U64(0))
    counts = load_as(given, _COUNTS, 0) + 8 * part * load_as(given, _GROUPS, 0)
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
def _deal(given: int, part: int, parts: int, like: Any, width: int) -> None:
    """Put the rows of a stretch where rows of their leading bits go."""
    n, leading, bits = load_as(given, _N, 0), load_as(given, _LEADING, _U64(0)), load_as(given, _NUMBER_BITS, _U64(0))
    counts, rows = load_as(given, _COUNTS, 0) + 8 * part * load_as(given, _GROUPS, 0), load_as(given, _ROWS, 0)
    for i in range(n * part // parts, n * (part + 1) // parts):
        offset = _offset(given, i, like)
        at = np.int64(offset >> leading)
        place = load_as(counts, at, 0)
        store_as(counts, at, place + 1)
        to = rows + 8 * width * place
        store_as(to, 0, (offset << bits) | _U64(i))
        for c in range(1, width):
            store_as(to, c, load_as(load_as(given, _COLUMNS + c - 1, 0), i, 0))


@share
def _deal_64_2(given: int, part: int, parts: int) -> None:
    _deal(given, part, parts, np.uint64(0), 2)


@share
def _deal_64(given: int, part: int, parts: int) -> None:
    _deal(given, part, parts, np.uint64(0), load_as(given, _WIDTH, 0))


@share
def _deal_32(given: int, part: int, parts: int) -> None:
    _deal(given, part, parts, np.uint32(0), load_as(given, _WIDTH, 0))


@inline
def _settle_one(given: int, group: int, local: int, width: int) -> None:
    """Deal one group out to its ranges of keys, in place, and note in the directory where each begins."""
    starts, inner, down = load_as(given, _STARTS, 0), load_as(given, _INNER, 0), load_as(given, _DOWN, _U64(0))
    directory = load_as(given, _DIRECTORY, 0) + 4 * (group << inner)
    first, count = load_as(starts, group, 0), load_as(starts, group + 1, 0) - load_as(starts, group, 0)
    rows, ranges = load_as(given, _ROWS, 0) + 8 * width * first, 1 << inner
    mask, copy = _U64(ranges - 1), local + 4 * ranges
    for r in range(ranges):
        store_as(local, r, np.uint32(0))
    for i in range(count):
        place = load_as(rows, i * width, _U64(0))
        k: Any = np.int64((place >> down) & mask)
        store_as(local, k, np.uint32(load_id(local, k) + 1))
        store_as(copy, i * width, place)
        for c in range(1, width):
            store_as(copy, i * width + c, load_as(rows, i * width + c, 0))
    at = 0
    for r in range(ranges):
        size = load_id(local, r)
        store_as(local, r, np.uint32(at))
        store_as(directory, r, np.uint32(first + at))
        at += size
    for i in range(count):
        k = np.int64((load_as(copy, i * width, _U64(0)) >> down) & mask)
        to = load_id(local, k)
        store_as(local, k, np.uint32(to + 1))
        for c in range(width):
            store_as(rows, to * width + c, load_as(copy, i * width + c, 0))


@inline
def _settle_share(given: int, part: int, parts: int, width: int) -> None:
    """Deal a share of the groups out."""
    groups, local = load_as(given, _GROUPS, 0), load_as(given, _LOCAL, 0) + part * load_as(given, _LOCAL_SIZE, 0)
    for group in range(groups * part // parts, groups * (part + 1) // parts):
        _settle_one(given, group, local, width)


@share
def _settle_2(given: int, part: int, parts: int) -> None:
    _settle_share(given, part, parts, 2)


@share
def _settle(given: int, part: int, parts: int) -> None:
    _settle_share(given, part, parts, load_as(given, _WIDTH, 0))


@dataclass(frozen=True)
class KeyedRows:
    """Rows in order of their places: `width` words each, place first."""

    rows: Array
    directory: Array
    """`directory[place >> down]` is the first row of a range of places."""
    count: int
    width: int
    base: int
    top: int
    """The least and the largest word."""
    number_bits: int
    down: int

    @staticmethod
    def of(words: Array, flip: int, columns: Sequence[Array], team: Team) -> KeyedRows | None:
        """Rows with these words, each with `flip` applied, and columns of 64 bits; nothing where keys do not suit.

        Arrays come from the team's arena.
        """
        n, parts = len(words), PARTS_PER_THREAD * team.threads
        base, top = _ends(words, flip, team, parts)
        key_bits, number_bits = max((top - base).bit_length(), 1), max((n - 1).bit_length(), 1)
        if key_bits + number_bits > PLACE_BITS:
            return None
        bits = min(key_bits, number_bits)
        outer = min(max(bits - GROUP_BITS, 0), MOST_LEADING)
        width, down = 1 + len(columns), number_bits + key_bits - bits
        counts = np.zeros((parts, 1 << outer), np.int64)
        given = np.zeros(_COLUMNS + len(columns), np.int64)
        given.view(np.uint64)[[_FLIP, _BASE]] = flip, base
        given[[_N, _WORDS, _COUNTS]] = n, address(words), address(counts)
        given[[_NUMBER_BITS, _LEADING, _GROUPS]] = number_bits, key_bits - outer, 1 << outer
        given[[_DOWN, _INNER, _WIDTH]] = down, bits - outer, width
        given[_COLUMNS:] = [address(column) for column in columns]
        team.run(_count_64 if words.itemsize == 8 else _count_32, given, parts)
        largest = int(counts.sum(axis=0).max())
        if largest > MOST_UNEVEN * max(n >> outer, 1):
            return None
        rows = team.arena.take((n + BEYOND) * width, np.int64)
        directory = team.arena.take((1 << bits) + 1, np.uint32)
        directory[1 << bits] = n
        given[[_ROWS, _DIRECTORY]] = address(rows), address(directory)
        _lay_out(given, counts, largest, words.itemsize == 8, team)
        return KeyedRows(rows, directory, n, width, base, top, number_bits, down)

    def release(self, team: Team) -> None:
        """Give the arrays back."""
        team.arena.give(self.rows)
        team.arena.give(self.directory)


def _lay_out(given: Array, counts: Array, largest: int, wide: bool, team: Team) -> None:
    """Deal all rows out twice; `counts` are those of each part and group, `largest` is that of the largest group."""
    parts, groups = counts.shape
    starts = np.zeros(groups + 1, np.int64)
    np.cumsum(counts.sum(axis=0), out=starts[1:])
    counts[:] = np.cumsum(counts, axis=0) - counts + starts[:-1]  # where each part's rows of a group go
    width, shares = int(given[_WIDTH]), min(groups, 2 * parts)
    size = (4 << int(given[_INNER])) + 8 * width * largest + LINE & -LINE
    local = team.arena.take(shares * size, np.uint8)
    given[[_STARTS, _LOCAL, _LOCAL_SIZE]] = address(starts), address(local), size
    common = wide and width == 2  # the loops over a row's words are worth knowing their length
    team.run(_deal_64_2 if common else _deal_64 if wide else _deal_32, given, parts)
    team.run(_settle_2 if width == 2 else _settle, given, shares)
    team.arena.give(local)


def _ends(words: Array, flip: int, team: Team, parts: int) -> tuple[int, int]:
    """The least and the largest word."""
    found = np.zeros((parts, 2), np.uint64)
    given = table(words, 0, len(words), found)
    given.view(np.uint64)[1] = flip
    team.run(_extremes_64 if words.itemsize == 8 else _extremes_32, given, parts)
    return int(found[:, 0].min()), int(found[:, 1].max())
