"""The L-segment of an HB+-Tree: sorted words in lines of 64 bytes, small values in or beside their words' line.

What a lookup costs is the lines that it reads from memory. Values as wide as the words share a line with them, half and
half, as in the paper (thesis, appendix A, Figure 2a: four pairs of 64 bits a line): a lookup reads one line of an inner
level and one of the leaves. Values of 4 bytes beside words of 8, or the other way round, lie behind their line, and all
others stay apart, with the caller. The last line is filled up with the largest word. Keys that are sorted already are
found so in the very pass that copies them.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from millrace.host.bisort_prober import size_of
from millrace.host.hbtree_layout import LINE
from millrace.host.huge import huge_array
from millrace.host.jit import inline, share
from millrace.host.memory import load_as, store_as, table
from millrace.host.team import Team
from millrace.host.words import Array

BESIDE = (4, 8)
"""Sizes of values that lie beside their words."""
SLICE = 1 << 14
"""Lines that one thread fills at a time."""
UNSORTED, EQUALS, DISTINCT = 0, 1, 2
"""What is known of keys: out of order, in order with equal ones, each larger than the one before."""
_RAW, _FLIP, _N, _VALUES, _WIDTH, _LINES, _STRIDE, _OUT, _VERDICTS = range(9)


@dataclass(frozen=True)
class Leaves:
    """The segment: `data` holds words every `stride` bytes, and behind them their values of `width` bytes (0: none)."""

    data: Array
    word: np.dtype[Any]
    size: int
    width: int

    @property
    def paired(self) -> bool:
        """Whether values share the line of their words."""
        return self.width == self.word.itemsize

    @property
    def per_leaf(self) -> int:
        """Words of a line."""
        return LINE // self.word.itemsize // (2 if self.paired else 1)

    @property
    def offset(self) -> int:
        """Bytes from a line's words to their values."""
        return self.per_leaf * self.word.itemsize

    @property
    def stride(self) -> int:
        """Bytes from a line to the next."""
        return self.offset + self.per_leaf * self.width

    @property
    def lines(self) -> int:
        """How many lines."""
        return len(self.data) // self.stride

    @property
    def padded_words(self) -> Array:
        """All words, with those that fill the last line: the segment itself, or a copy where values lie between."""
        rows = self.data.reshape(self.lines, self.stride)[:, : self.offset]
        words: Array = np.ascontiguousarray(rows).reshape(-1).view(self.word)
        return words

    @property
    def words(self) -> Array:
        """The sorted words."""
        return self.padded_words[: self.size]

    @property
    def values(self) -> Array:
        """The values beside the words, in key order, as unsigned numbers: a copy."""
        rows = self.data.reshape(self.lines, self.stride)[:, self.offset :]
        return np.ascontiguousarray(rows).reshape(-1).view(f"u{self.width}")[: self.size]


@inline
def largest(like: Any) -> Any:
    """The largest word."""
    return type(like)(~type(like)(0))


@inline
def _word(raw: int, index: int, flip: Any, like: Any) -> Any:
    return type(like)(load_as(raw, index, like) ^ flip)


@inline
def _fill_lines(given: int, part: int, parts: int, per_leaf: int, like: Any) -> None:
    """Copy a stretch of keys and values into their lines; note whether the keys are in order."""
    raw, flip = load_as(given, _RAW, 0), type(like)(load_as(given, _FLIP, np.uint64(0)))
    n, lines, stride = load_as(given, _N, 0), load_as(given, _LINES, 0), load_as(given, _STRIDE, 0)
    values, width, offset = load_as(given, _VALUES, 0), load_as(given, _WIDTH, 0), per_leaf * size_of(like)
    first, stop = lines * part // parts, lines * (part + 1) // parts
    out = load_as(given, _OUT, 0) + first * stride
    before = _word(raw, max(first * per_leaf - 1, 0), flip, like)
    falls, equals = False, False
    for line in range(first, stop):
        begin = line * per_leaf
        count = min(n - begin, per_leaf)
        if begin > 0:
            falls |= _word(raw, begin, flip, like) < before
            equals |= _word(raw, begin, flip, like) == before
        if count == per_leaf:
            for i in range(per_leaf):
                store_as(out, i, _word(raw, begin + i, flip, like))
        else:
            for i in range(per_leaf):
                store_as(out, i, _word(raw, begin + i, flip, like) if i < count else largest(like))
        for i in range(count - 1):
            falls |= load_as(out, i + 1, like) < load_as(out, i, like)
            equals |= load_as(out, i + 1, like) == load_as(out, i, like)
        before = load_as(out, count - 1, like)
        if width == 8:
            for i in range(count):
                store_as(out + offset, i, load_as(values, begin + i, np.uint64(0)))
        elif width == 4:
            for i in range(count):
                store_as(out + offset, i, load_as(values, begin + i, np.uint32(0)))
        out += stride
    store_as(load_as(given, _VERDICTS, 0), part, 0 if falls else (1 if equals else 2))


@inline
def _fill(given: int, part: int, parts: int, like: Any) -> None:
    """Twice the same with numbers of words that are known when compiled."""
    if load_as(given, _WIDTH, 0) == size_of(like):
        _fill_lines(given, part, parts, LINE // size_of(like) // 2, like)
    else:
        _fill_lines(given, part, parts, LINE // size_of(like), like)


@share
def _fill_32(given: int, part: int, parts: int) -> None:
    _fill(given, part, parts, np.uint32(0))


@share
def _fill_64(given: int, part: int, parts: int) -> None:
    _fill(given, part, parts, np.uint64(0))


def fill(raw: Array, flip: int, values: Array | None, team: Team) -> tuple[Leaves, int]:
    """Keys as unsigned numbers, made words by flipping bits, and the values to lie beside; what is known of the order.

    If they turn out `UNSORTED`, the leaves are of no use.
    """
    word, n = raw.dtype, len(raw)
    width = 0 if values is None else values.dtype.itemsize
    none = Leaves(np.zeros(0, np.uint8), word, n, width)
    lines, stride = max(-(-n // none.per_leaf), 1), none.stride
    leaves = replace(none, data=huge_array(lines * stride, np.uint8))
    if n == 0:
        leaves.data[:LINE] = 0xFF
        return leaves, DISTINCT
    parts = -(-lines // SLICE)
    verdicts = np.zeros(parts, np.int64)
    beside = raw if values is None else values
    given = table(raw, 0, n, beside, width, lines, stride, leaves.data, verdicts)
    given.view(np.uint64)[_FLIP] = flip
    team.run(_fill_64 if word.itemsize == 8 else _fill_32, given, parts)
    return leaves, int(verdicts.min())
