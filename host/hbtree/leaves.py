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

from millrace.host.base.types import Array
from millrace.host.hbtree.layout import LINE
from millrace.host.runtime.huge_pages import huge_array
from millrace.host.runtime.intrinsics import load_as, size_of, store_as, table
from millrace.host.runtime.jit import inline

BESIDE = (4, 8)
"""Sizes of values that lie beside their words."""
UNSORTED, EQUALS, DISTINCT = 0, 1, 2
"""What is known of keys: out of order, in order with equal ones, each larger than the one before."""
_RAW, _FLIP, _N, _VALUES, _WIDTH, _STRIDE, _OUT = range(7)


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
def _full_line(raw: int, begin: int, flip: Any, out: int, per_leaf: int, like: Any) -> tuple[bool, bool]:
    """Copy a line of keys that is full and not the first; whether one falls, and whether one equals the one before."""
    falls, equals = False, False
    for i in range(per_leaf):
        word, before = _word(raw, begin + i, flip, like), _word(raw, begin + i - 1, flip, like)
        falls |= word < before
        equals |= word == before
        store_as(out, i, word)
    return falls, equals


@inline
def _edge_line(raw: int, begin: int, n: int, flip: Any, out: int, per_leaf: int, like: Any) -> tuple[bool, bool]:
    """The same for the first line and the last one, which is filled up with the largest word."""
    falls, equals = False, False
    for i in range(per_leaf):
        word = largest(like)
        if begin + i < n:
            word = _word(raw, begin + i, flip, like)
            if begin + i > 0:
                before = _word(raw, begin + i - 1, flip, like)
                falls |= word < before
                equals |= word == before
        store_as(out, i, word)
    return falls, equals


@inline
def _fill_lines(given: int, first: int, stop: int, per_leaf: int, like: Any) -> int:
    """Copy keys and values into some lines; what is known of the keys' order."""
    raw, flip = load_as(given, _RAW, 0), type(like)(load_as(given, _FLIP, np.uint64(0)))
    n, stride = load_as(given, _N, 0), load_as(given, _STRIDE, 0)
    values, width, offset = load_as(given, _VALUES, 0), load_as(given, _WIDTH, 0), per_leaf * size_of(like)
    out, falls, equals = load_as(given, _OUT, 0) + first * stride, False, False
    for line in range(first, stop):
        begin = line * per_leaf
        full = begin + per_leaf <= n
        if full & (begin > 0):
            fall, equal = _full_line(raw, begin, flip, out, per_leaf, like)
        else:
            fall, equal = _edge_line(raw, begin, n, flip, out, per_leaf, like)
        falls |= fall
        equals |= equal
        if full & (width == 8):
            for i in range(per_leaf):
                store_as(out + offset, i, load_as(values, begin + i, np.uint64(0)))
        elif full & (width == 4):
            for i in range(per_leaf):
                store_as(out + offset, i, load_as(values, begin + i, np.uint32(0)))
        elif width == 8:
            for i in range(n - begin):
                store_as(out + offset, i, load_as(values, begin + i, np.uint64(0)))
        elif width == 4:
            for i in range(n - begin):
                store_as(out + offset, i, load_as(values, begin + i, np.uint32(0)))
        out += stride
    return UNSORTED if falls else (EQUALS if equals else DISTINCT)


@inline
def fill_lines(given: int, first: int, stop: int, like: Any) -> int:
    """`_fill_lines`, twice, with numbers of words that are known when compiled; `given` is a `filling` table."""
    if load_as(given, _WIDTH, 0) == size_of(like):
        return _fill_lines(given, first, stop, LINE // size_of(like) // 2, like)
    return _fill_lines(given, first, stop, LINE // size_of(like), like)


def empty_leaves(word: np.dtype[Any], size: int, width: int) -> Leaves:
    """Leaves for so many keys, and values of `width` bytes beside them (0: none), to be filled."""
    none = Leaves(np.zeros(0, np.uint8), word, size, width)
    lines = max(-(-size // none.per_leaf), 1)
    leaves = replace(none, data=huge_array(lines * none.stride, np.uint8))
    if size == 0:
        leaves.data[:LINE] = 0xFF
    return leaves


def filling(leaves: Leaves, raw: Array, flip: int, values: Array | None) -> Array:
    """The table for `fill_lines`: keys as unsigned numbers, made words by flipping bits, and values to lie beside."""
    beside = raw if values is None else values
    given = table(raw, 0, leaves.size, beside, leaves.width, leaves.stride, leaves.data)
    given.view(np.uint64)[_FLIP] = flip
    return given
