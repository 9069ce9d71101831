"""The L-segment of an HB+-Tree: sorted words in lines of 64 bytes, with small values inline.

The cost of a lookup is the number of lines it reads from memory. Values as wide as the words share a line with them,
half and half, as in the paper (thesis, appendix A, Figure 2a: four pairs of 64 bits per line): a lookup reads one line
of an inner level and one of the leaves. Values of 4 bytes with words of 8, or the reverse, directly follow their line.
Values of other sizes are stored separately by the caller. The last line is padded with the largest word. The pass that
copies the keys also detects whether they are sorted.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import auto
from typing import Any

import numpy as np

from millrace.host.base.types import Array
from millrace.host.hbtree.layout import LINE
from millrace.host.runtime.allocator import huge_array
from millrace.host.runtime.intrinsics import load, load_as, size_of, store_as
from millrace.host.runtime.jit import inline
from millrace.host.runtime.kernel_args import KernelArgs

INLINE_WIDTHS = (4, 8)
"""Sizes in bytes of values that can be stored inline."""
UNSORTED, EQUALS, DISTINCT = 0, 1, 2
"""Order of the keys: unsorted, sorted with equal keys, strictly ascending."""


class _Args(KernelArgs):
    """The arguments of `fill_lines`."""

    RAW = auto()
    FLIP = auto()
    N = auto()
    VALUES = auto()
    WIDTH = auto()
    STRIDE = auto()
    OUT = auto()


@dataclass(frozen=True)
class Leaves:
    """The segment: `data` has a line every `stride` bytes: words, then their values of `width` bytes (0: none)."""

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
        """Words per line."""
        return LINE // self.word.itemsize // (2 if self.paired else 1)

    @property
    def offset(self) -> int:
        """Bytes from the beginning of a line to its values."""
        return self.per_leaf * self.word.itemsize

    @property
    def stride(self) -> int:
        """Bytes from one line to the next."""
        return self.offset + self.per_leaf * self.width

    @property
    def lines(self) -> int:
        """Number of lines."""
        return len(self.data) // self.stride

    @property
    def padded_words(self) -> Array:
        """All words including the padding: the segment itself, or a copy if there are inline values."""
        rows = self.data.reshape(self.lines, self.stride)[:, : self.offset]
        words: Array = np.ascontiguousarray(rows).reshape(-1).view(self.word)
        return words

    def words_at(self, positions: Array) -> Array:
        """The words at positions."""
        rows = self.data.reshape(self.lines, self.stride)[:, : self.offset].view(self.word)
        found: Array = rows[positions // self.per_leaf, positions % self.per_leaf]
        return found

    @property
    def words(self) -> Array:
        """The sorted words."""
        return self.padded_words[: self.size]

    @property
    def values(self) -> Array:
        """A copy of the inline values in key order, as unsigned numbers."""
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
    """Copy a full line of keys (not the first); return whether a key is smaller than, or equal to, the one before."""
    falls, equals = False, False
    for i in range(per_leaf):
        word, before = _word(raw, begin + i, flip, like), _word(raw, begin + i - 1, flip, like)
        falls |= word < before
        equals |= word == before
        store_as(out, i, word)
    return falls, equals


@inline
def _edge_line(raw: int, begin: int, n: int, flip: Any, out: int, per_leaf: int, like: Any) -> tuple[bool, bool]:
    """The same for the first line and the last one, which is padded with the largest word."""
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
def _fill_lines(args: int, first: int, stop: int, per_leaf: int, like: Any) -> int:
    """Copy keys and values into some lines; return the order of the keys."""
    raw, flip = load(args, _Args.RAW), type(like)(load_as(args, _Args.FLIP, np.uint64(0)))
    n, stride = load(args, _Args.N), load(args, _Args.STRIDE)
    values, width, offset = load(args, _Args.VALUES), load(args, _Args.WIDTH), per_leaf * size_of(like)
    out, falls, equals = load(args, _Args.OUT) + first * stride, False, False
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
def fill_lines(args: int, first: int, stop: int, like: Any) -> int:
    """`_fill_lines`, compiled for both line sizes as constants; `args` is a `fill_arguments` table."""
    if load(args, _Args.WIDTH) == size_of(like):
        return _fill_lines(args, first, stop, LINE // size_of(like) // 2, like)
    return _fill_lines(args, first, stop, LINE // size_of(like), like)


def empty_leaves(word: np.dtype[Any], size: int, width: int) -> Leaves:
    """Allocate leaves for `size` keys and inline values of `width` bytes (0: none)."""
    none = Leaves(np.zeros(0, np.uint8), word, size, width)
    lines = max(-(-size // none.per_leaf), 1)
    leaves = replace(none, data=huge_array(lines * none.stride, np.uint8))
    if size == 0:
        leaves.data[:LINE] = 0xFF
    return leaves


def fill_arguments(leaves: Leaves, raw: Array, flip: int, values: Array | None) -> Array:
    """The arguments of `fill_lines`: keys (unsigned numbers that become words by flipping bits) and inline values."""
    values, out = raw if values is None else values, leaves.data
    return _Args.pack(
        RAW=raw, FLIP=flip, N=leaves.size, VALUES=values, WIDTH=leaves.width, STRIDE=leaves.stride, OUT=out
    )
