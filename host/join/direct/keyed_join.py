"""Pairs of a table's rows with keyed rows (`keyed_rows.py`), payload included, straight into result columns.

The asking rows come in their own order, which is the order of the result, and each looks up the keyed rows in its range
of keys at random: two reads of memory that nobody can foresee, one in the directory and one of the rows. Both are asked
for a block of rows ahead. What a block has found is then copied column by column while it is in the first-level cache.
Nothing is sorted but the few partners of one row. How many pairs there will be is guessed from a sample; each part of
the asking rows writes to a room of its own in the result's columns, which becomes a chunk of the result, and a part
that finds more than its room holds is done again with as much as it needs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from millrace.host.base.types import Array
from millrace.host.join.direct.keyed_rows import KeyedRows
from millrace.host.kernels.segments import sort_segment
from millrace.host.runtime.intrinsics import (
    address,
    bits,
    load_as,
    load_id,
    lowest_bit,
    prefetch,
    prefetch_far,
    store_as,
)
from millrace.host.runtime.jit import inline, share
from millrace.host.runtime.lanes import LINE, settle_streams, store_sorted, stream_line
from millrace.host.runtime.result_memory import result_array
from millrace.host.runtime.team import Team

BLOCK = 64
"""Rows that are worked on together: what they find fits a first-level cache."""
FEW = 4
"""Partners that are put in order at once."""
CANDIDATES = 5
"""Keyed rows of a range that are looked at without a guess how many there are: two cache lines hold as many."""
STAGE = 1 << 10
"""Pairs that are noted at most before they are copied."""
MOST_PARTNERS = STAGE // 2
"""Partners of a row at most."""
PART_ROWS = 1 << 16
"""Rows of a part at least, where there are enough for `LEAST_PARTS`."""
LEAST_PARTS = 16
MOST_LOOKED = 16
"""Keyed rows that a row may look at, on the average."""
SPARE = 1.125
"""Room for so many times the pairs that the sample lets expect."""
LEAST_SPACE = 1 << 10
"""Pairs that a part has room for beyond those."""
_ROOM = 8
"""Places behind the last noted pair that may be written."""
_U64, _U32 = np.uint64, np.uint32
_MOST: Any = np.int64((1 << 63) - 1)
# A part's own memory: for three blocks of rows what they look for; the noted pairs, and one column of them.
_LOW, _HIGH, _BEGIN, _END, _SLOT = 0, 8 * BLOCK, 16 * BLOCK, 20 * BLOCK, 24 * BLOCK
_SLOTS = 3
_OWN = _SLOTS * _SLOT
_NOTED = _OWN + 8 * (STAGE + _ROOM)
_COLUMN = _NOTED + 8 * (STAGE + _ROOM)
_LOCAL_SIZE = _COLUMN + 8 * (STAGE + _ROOM)
# The arguments of the kernels.
_WORDS_LOW, _WORDS_HIGH, _FLIP, _BELOW, _ABOVE, _LARGEST, _BASE, _TOP, _NUMBER_BITS, _DOWN = range(10)
_ROWS, _DIRECTORY, _LOCAL, _PARTS, _R_COLUMNS, _S_COLUMNS, _S_KEY, _KEY_FLIP, _R_SEQ, _S_SEQ = range(10, 20)
_WIDTH, _COLUMNS = 20, 21
# What a part is: its rows, where its room begins, how much it is, and how many pairs were found.
_FIRST, _STOP, _AT, _SPACE, _FOUND, _PART = range(6)


@inline
def _ask(given: int, first: int, count: int, slot: int, like: Any) -> None:
    """Work out which places some rows look for, and ask for their lines of the directory."""
    lows, highs, flip = load_as(given, _WORDS_LOW, 0), load_as(given, _WORDS_HIGH, 0), load_as(given, _FLIP, _U64(0))
    below, above = load_as(given, _BELOW, _U64(0)), load_as(given, _ABOVE, _U64(0))
    largest, base, top = (
        load_as(given, _LARGEST, _U64(0)),
        load_as(given, _BASE, _U64(0)),
        load_as(given, _TOP, _U64(0)),
    )
    up, down = load_as(given, _NUMBER_BITS, _U64(0)), load_as(given, _DOWN, _U64(0))
    directory, numbers = load_as(given, _DIRECTORY, 0), (_U64(1) << up) - _U64(1)
    for j in range(count):
        low, high = _U64(load_as(lows, first + j, like)) ^ flip, _U64(load_as(highs, first + j, like)) ^ flip
        low -= min(low, below)
        high += min(largest - high, above)
        none = (low > high) | (high < base) | (low > top)
        low, high = max(low, base) - base, min(high, top) - base
        low, high = _U64(0) if none else low << up, _U64(0) if none else (high << up) | numbers
        store_as(slot + _LOW, j, low)
        # A range that is empty ends before it begins, at the very first place.
        store_as(slot + _HIGH, j, high)
        store_as(slot + _BEGIN, j, _U32(low >> down))
        store_as(slot + _END, j, _U32(_U64(0) if none else (high >> down) + _U64(1)))
        prefetch(directory + 4 * np.int64(low >> down))


@inline
def _look_up(given: int, count: int, slot: int, width: int) -> None:
    """From ranges of the directory to rows, and ask for those."""
    directory, rows = load_as(given, _DIRECTORY, 0), load_as(given, _ROWS, 0)
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
    """Which of the first rows of a range have a place in the range, as bits."""
    found: Any = 0
    for i in range(CANDIDATES):
        place = load_as(rows, (begin + i) * width, _U64(0))
        found |= np.int64((place >= low) & (place <= high)) << i
    return found & ((1 << min(end - begin, CANDIDATES)) - 1)


@inline
def _noted(rows: int, width: int, i: int, numbers: Any) -> Any:
    """A row's number and, below, where it is."""
    return np.int64((load_as(rows, i * width, _U64(0)) & numbers) << _U64(32)) | i


@inline
def _few(rows: int, width: int, begin: int, found: int, numbers: Any, out: int) -> None:
    """Write up to four rows, told by bits, in order of their numbers.

    They are read anew from the rows: what was just written could be read only when all writes before it are done.
    """
    a = _noted(rows, width, begin + (lowest_bit(found) & 7), numbers)
    second = found & (found - 1)
    b = _noted(rows, width, begin + (lowest_bit(second) & 7), numbers)
    third = second & (second - 1)
    c = _noted(rows, width, begin + (lowest_bit(third) & 7), numbers)
    fourth = third & (third - 1)
    d = _noted(rows, width, begin + (lowest_bit(fourth) & 7), numbers)
    b, c, d = b if second else _MOST, c if third else _MOST, d if fourth else _MOST
    store_sorted(out, a, b, c, d)


@inline
def _many(rows: int, width: int, begin: int, end: int, low: Any, high: Any, numbers: Any, out: int) -> int:
    """Write any number of rows in order of their numbers; how many they are, beyond `MOST_PARTNERS` not all written."""
    count = 0
    for i in range(begin, end):
        place = load_as(rows, i * width, _U64(0))
        if (place >= low) & (place <= high):
            if count < MOST_PARTNERS:
                store_as(out, count, _noted(rows, width, i, numbers))
            count += 1
    if count <= MOST_PARTNERS:
        sort_segment(out, count)
    return count


@inline
def _stream(source: int, count: int, out: int) -> None:
    for k in range(0, count, LINE):
        stream_line(source + 8 * k, out + 8 * k)


@inline
def _copy(given: int, out: int, local: int, count: int, width: int) -> None:
    """From whole lines of noted pairs to the result's columns."""
    r_columns, s_columns = load_as(given, _R_COLUMNS, 0), load_as(given, _S_COLUMNS, 0)
    rows, own, noted, column = load_as(given, _ROWS, 0), local + _OWN, local + _NOTED, local + _COLUMN
    for c in range(s_columns):
        for k in range(count):
            at = load_as(noted, k, 0) & 0xFFFFFFFF
            store_as(column, k, load_as(rows, at * width + 1 + c, 0))
        _stream(column, count, load_as(given, _COLUMNS + 2 * r_columns + c, 0) + 8 * out)
    if load_as(given, _S_KEY, 0):
        up, flip = load_as(given, _NUMBER_BITS, _U64(0)), load_as(given, _KEY_FLIP, _U64(0))
        base = load_as(given, _BASE, _U64(0))
        for k in range(count):
            place = load_as(rows, (load_as(noted, k, 0) & 0xFFFFFFFF) * width, _U64(0))
            store_as(column, k, ((place >> up) + base) ^ flip)
        _stream(column, count, load_as(given, _S_KEY, 0) + 8 * out)
    for c in range(r_columns):
        source = load_as(given, _COLUMNS + 2 * c, 0)
        for k in range(count):
            store_as(column, k, load_as(source, load_as(own, k, 0), 0))
        _stream(column, count, load_as(given, _COLUMNS + 2 * c + 1, 0) + 8 * out)
    for k in range(count):
        store_as(column, k, load_as(noted, k, 0) >> 32)
    _stream(column, count, load_as(given, _S_SEQ, 0) + 8 * out)
    _stream(own, count, load_as(given, _R_SEQ, 0) + 8 * out)


@inline
def _flush(given: int, mine: int, local: int, staged: int, whole: bool, width: int) -> int:
    """Copy noted pairs, the last of them too if `whole`, unless there is no room; how many are still noted."""
    found, space = load_as(mine, _FOUND, 0), load_as(mine, _SPACE, 0)
    count = (staged + LINE - 1) & -LINE if whole else staged & -LINE
    for k in range(staged, count):  # the rest of the last line: any rows that there are
        store_as(local + _OWN, k, load_as(mine, _FIRST, 0))
        store_as(local + _NOTED, k, 0)
    if found + count <= space:
        _copy(given, load_as(mine, _AT, 0) + found, local, count, width)
    if whole:
        store_as(mine, _FOUND, found + staged)
        return 0
    store_as(mine, _FOUND, found + count)
    for k in range(staged - count):
        store_as(local + _OWN, k, load_as(local + _OWN, count + k, 0))
        store_as(local + _NOTED, k, load_as(local + _NOTED, count + k, 0))
    return staged - count


@inline
def _find(given: int, mine: int, first: int, count: int, slot: int, local: int, staged: int, width: int) -> int:
    """Note the pairs of a block, in order, behind the others; how many are noted, or -1 where a row has too many."""
    rows, up = load_as(given, _ROWS, 0), load_as(given, _NUMBER_BITS, _U64(0))
    numbers, own, noted = (_U64(1) << up) - _U64(1), local + _OWN, local + _NOTED
    for j in range(count):
        begin, end = load_id(slot + _BEGIN, j), load_id(slot + _END, j)
        low, high = load_as(slot + _LOW, j, _U64(0)), load_as(slot + _HIGH, j, _U64(0))
        found = _within(rows, width, begin, end, low, high)
        number = bits(found)
        if (number <= FEW) & (end <= begin + CANDIDATES) & (staged <= STAGE):
            _few(rows, width, begin, found, numbers, noted + 8 * staged)
            for k in range(FEW):
                store_as(own, staged + k, first + j)
        else:
            if staged + MOST_PARTNERS > STAGE:
                staged = _flush(given, mine, local, staged, False, width)
            number = _many(rows, width, begin, end, low, high, numbers, noted + 8 * staged)
            if number > MOST_PARTNERS:
                return -1
            for k in range(number):
                store_as(own, staged + k, first + j)
        staged += number
    return staged


@inline
def _join(given: int, part: int, like: Any, width: int) -> None:
    """The pairs of one part of the asking rows; where a row has too many partners, -1 of them."""
    mine, local = load_as(given, _PARTS, 0) + 8 * _PART * part, load_as(given, _LOCAL, 0) + _LOCAL_SIZE * part
    first, stop = load_as(mine, _FIRST, 0), load_as(mine, _STOP, 0)
    blocks, staged = (stop - first + BLOCK - 1) // BLOCK, 0
    store_as(mine, _FOUND, 0)
    for block in range(blocks + 2):
        if block < blocks:
            begin = first + block * BLOCK
            _ask(given, begin, min(BLOCK, stop - begin), local + (block % _SLOTS) * _SLOT, like)
        if 1 <= block <= blocks:
            begin = first + (block - 1) * BLOCK
            _look_up(given, min(BLOCK, stop - begin), local + ((block - 1) % _SLOTS) * _SLOT, width)
        if block >= 2:
            begin, slot = first + (block - 2) * BLOCK, local + ((block - 2) % _SLOTS) * _SLOT
            staged = _find(given, mine, begin, min(BLOCK, stop - begin), slot, local, staged, width)
            if staged < 0:
                store_as(mine, _FOUND, -1)
                return
            staged = _flush(given, mine, local, staged, False, width)
    _flush(given, mine, local, staged, True, width)
    settle_streams()


@share
def _join_64_2(given: int, part: int, parts: int) -> None:
    _join(given, part, np.uint64(0), 2)


@share
def _join_64(given: int, part: int, parts: int) -> None:
    _join(given, part, np.uint64(0), load_as(given, _WIDTH, 0))


@share
def _join_32(given: int, part: int, parts: int) -> None:
    _join(given, part, np.uint32(0), load_as(given, _WIDTH, 0))


@inline
def _try(given: int, part: int, like: Any) -> None:
    """How many pairs the first rows of a part have (found), and how many keyed rows they look at (space)."""
    mine, local = load_as(given, _PARTS, 0) + 8 * _PART * part, load_as(given, _LOCAL, 0) + _LOCAL_SIZE * part
    first, width, rows = load_as(mine, _FIRST, 0), load_as(given, _WIDTH, 0), load_as(given, _ROWS, 0)
    count = min(BLOCK, load_as(mine, _STOP, 0) - first)
    _ask(given, first, count, local, like)
    _look_up(given, count, local, width)
    found: Any = 0
    looked = 0
    for j in range(count):
        begin, end = load_id(local + _BEGIN, j), load_id(local + _END, j)
        low, high = load_as(local + _LOW, j, _U64(0)), load_as(local + _HIGH, j, _U64(0))
        looked += end - begin
        for i in range(begin, end):
            place = load_as(rows, i * width, _U64(0))
            found += np.int64((place >= low) & (place <= high))
    store_as(mine, _FOUND, found)
    store_as(mine, _SPACE, looked)


@share
def _try_64(given: int, part: int, parts: int) -> None:
    _try(given, part, np.uint64(0))


@share
def _try_32(given: int, part: int, parts: int) -> None:
    _try(given, part, np.uint32(0))


@dataclass(frozen=True)
class Ranges:
    """The words that each row looks for: from `low`, with `flip` applied, less `below`, to `high` likewise and `above`.

    Both saturate at the ends of the word's type.
    """

    low: Array
    high: Array
    flip: int = 0
    below: int = 0
    above: int = 0

    def __len__(self) -> int:
        """How many rows."""
        return len(self.low)


@dataclass(frozen=True)
class Chunk:
    """Pairs in order: row numbers of both sides, then the columns of 64 bits that were asked for."""

    rows: Array
    partners: Array
    r_columns: list[Array]
    s_columns: list[Array]
    s_key: Array | None


class KeyedJoin:
    """The join of some rows with keyed rows; `key_flip`: the key's words are wanted as a column, with this applied."""

    def __init__(
        self, asking: Ranges, keyed: KeyedRows, r_columns: Sequence[Array], key_flip: int | None, team: Team
    ) -> None:
        """Nothing is joined yet."""
        self._team, self._keyed, self._r_columns, self._key_flip = team, keyed, r_columns, key_flip
        self._asking = asking
        wide = asking.low.itemsize == 8
        self._try, self._join = (_try_64, _join_64) if wide else (_try_32, _join_32)
        if wide and keyed.width == 2:
            self._join = _join_64_2
        self._given = np.zeros(_COLUMNS + 2 * len(r_columns) + keyed.width - 1, np.int64)
        largest = (1 << (8 * asking.low.itemsize)) - 1
        words = self._given.view(np.uint64)
        words[[_FLIP, _LARGEST]] = asking.flip, largest
        words[[_BELOW, _ABOVE]] = min(asking.below, largest), min(asking.above, largest)
        words[[_BASE, _TOP, _KEY_FLIP]] = keyed.base, keyed.top, key_flip or 0
        self._given[[_WORDS_LOW, _WORDS_HIGH]] = address(asking.low), address(asking.high)
        self._given[[_NUMBER_BITS, _DOWN, _WIDTH]] = keyed.number_bits, keyed.down, keyed.width
        self._given[[_ROWS, _DIRECTORY]] = address(keyed.rows), address(keyed.directory)
        self._given[[_R_COLUMNS, _S_COLUMNS]] = len(r_columns), keyed.width - 1

    def run(self) -> list[Chunk] | None:
        """All pairs, a chunk for each part of the rows; nothing where rows look at too much, or have too many pairs."""
        parts = _parts(len(self._asking))
        local = self._team.arena.take(len(parts) * _LOCAL_SIZE, np.uint8)
        self._given[_LOCAL] = address(local)
        try:
            space = self._space(parts)
            if space is None:
                return None
            parts[:, _SPACE] = space
            chunks = self._run(parts)
            crowded = np.flatnonzero(parts[:, _FOUND] > parts[:, _SPACE])
            if chunks is not None and len(crowded):
                again = parts[crowded]
                again[:, _SPACE] = (again[:, _FOUND] + LINE - 1) & -LINE
                for i, chunk in zip(crowded, self._run(again) or [], strict=True):
                    chunks[i] = chunk
            return chunks
        finally:
            self._team.arena.give(local)

    def _space(self, parts: Array) -> Array | None:
        """How many pairs each part needs room for, by a sample; nothing where rows look at too much."""
        self._given[_PARTS] = address(parts)
        self._team.run(self._try, self._given, len(parts))
        tried = int(np.minimum(parts[:, _STOP] - parts[:, _FIRST], BLOCK).sum())
        if parts[:, _SPACE].sum() > MOST_LOOKED * tried:
            return None
        rate = SPARE * parts[:, _FOUND].sum() / tried
        space: Array = ((parts[:, _STOP] - parts[:, _FIRST]) * rate).astype(np.int64) + LEAST_SPACE & -LINE
        return space

    def _run(self, parts: Array) -> list[Chunk] | None:
        """Join parts, each in a room of its own."""
        given, r_count, s_count = self._given, len(self._r_columns), self._keyed.width - 1
        parts[:, _AT] = np.cumsum(parts[:, _SPACE]) - parts[:, _SPACE]
        size = int(parts[:, _SPACE].sum())
        outs = [_aligned(size) for _ in range(2 + r_count + s_count)]
        key = None if self._key_flip is None else _aligned(size)
        given[[_PARTS, _R_SEQ, _S_SEQ]] = address(parts), address(outs[0]), address(outs[1])
        given[_S_KEY] = 0 if key is None else address(key)
        for c, (source, out) in enumerate(zip(self._r_columns, outs[2:], strict=False)):
            given[[_COLUMNS + 2 * c, _COLUMNS + 2 * c + 1]] = address(source), address(out)
        given[_COLUMNS + 2 * r_count :] = [address(out) for out in outs[2 + r_count :]]
        self._team.run(self._join, given, len(parts))
        if (parts[:, _FOUND] < 0).any():
            return None
        chunks = []
        for at, found in parts[:, [_AT, _FOUND]].tolist():
            mine = [out[at : at + found] for out in outs]
            own_key = None if key is None else key[at : at + found]
            chunks.append(Chunk(mine[0], mine[1], mine[2 : 2 + r_count], mine[2 + r_count :], own_key))
        return chunks


def _parts(rows: int) -> Array:
    """Parts of rows, and nothing found yet."""
    count = max(rows // PART_ROWS, min(LEAST_PARTS, -(-rows // BLOCK)))
    bounds = np.arange(count + 1) * rows // count
    parts = np.zeros((count, _PART), np.int64)
    parts[:, _FIRST], parts[:, _STOP] = bounds[:-1], bounds[1:]
    return parts


def _aligned(size: int) -> Array:
    """A result column that begins at a cache line."""
    out = result_array(size + LINE, np.int64)
    return out[-(address(out) // 8) % LINE :][:size]
