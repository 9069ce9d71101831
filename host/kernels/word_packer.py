"""Packs the words of several keys into one word, and finds ranks of words: the kernels of `expr/word_layout.py`.

One pass per key instead of about ten in NumPy, which take longer than a join of small groups. All keys but the last
have one code per range, so a range of combined words is one, too. An empty range is 1 .. 0, and stays so.
"""

from __future__ import annotations

from enum import auto
from typing import Any

import numpy as np

from millrace.host.base.types import Array
from millrace.host.runtime.allocator import result_array
from millrace.host.runtime.intrinsics import load, load_as, store, store_as
from millrace.host.runtime.jit import inline, share
from millrace.host.runtime.kernel_args import KernelArgs
from millrace.host.runtime.team import Team

LANES = 16
"""Searches that proceed together, so that their cache misses overlap."""
_ALONE = Team(1)
_U64 = np.uint64


class _Pack(KernelArgs):
    """The arguments of the packing kernels. A code is `(word - BASE) >> SHIFT`, of `BITS` bits."""

    COUNT = auto()
    LOW = auto()  # words, or the lower ends of ranges
    HIGH = auto()  # the upper ends
    BASE = auto()
    TOP = auto()  # the largest word inside
    SHIFT = auto()
    BITS = auto()
    FIRST = auto()  # whether this is the first key: nothing is packed yet
    OUT_LOW = auto()
    OUT_HIGH = auto()
    OUTSIDE = auto()  # whether a word was below BASE or above TOP


@inline
def _append(given: int, like: Any) -> None:
    words, out, count = load(given, _Pack.LOW), load(given, _Pack.OUT_LOW), load(given, _Pack.COUNT)
    base, top = load_as(given, _Pack.BASE, _U64(0)), load_as(given, _Pack.TOP, _U64(0))
    shift, bits, first = (
        load_as(given, _Pack.SHIFT, _U64(0)),
        load_as(given, _Pack.BITS, _U64(0)),
        load(given, _Pack.FIRST),
    )
    outside = False
    for i in range(count):
        word = _U64(load_as(words, i, like))
        outside |= (word < base) | (word > top)
        code = (word - base) >> shift
        store_as(out, i, code if first else (load_as(out, i, _U64(0)) << bits) | code)
    store(given, _Pack.OUTSIDE, int(outside))


@inline
def _append_ends(given: int, like: Any) -> None:
    lows, highs, count = load(given, _Pack.LOW), load(given, _Pack.HIGH), load(given, _Pack.COUNT)
    out_low, out_high = load(given, _Pack.OUT_LOW), load(given, _Pack.OUT_HIGH)
    base, top = load_as(given, _Pack.BASE, _U64(0)), load_as(given, _Pack.TOP, _U64(0))
    shift, bits, first = (
        load_as(given, _Pack.SHIFT, _U64(0)),
        load_as(given, _Pack.BITS, _U64(0)),
        load(given, _Pack.FIRST),
    )
    for i in range(count):
        low, high = max(_U64(load_as(lows, i, like)), base), min(_U64(load_as(highs, i, like)), top)
        empty = low > high
        prefix = _U64(0)
        if not first:
            prefix = load_as(out_low, i, _U64(0))
            empty |= prefix > load_as(out_high, i, _U64(0))
            prefix <<= bits
        store_as(out_low, i, _U64(1) if empty else prefix | ((low - base) >> shift))
        store_as(out_high, i, _U64(0) if empty else prefix | ((high - base) >> shift))


@share
def _append_32(given: int, part: int, parts: int) -> None:
    _append(given, np.uint32(0))


@share
def _append_64(given: int, part: int, parts: int) -> None:
    _append(given, np.uint64(0))


@share
def _append_ends_32(given: int, part: int, parts: int) -> None:
    _append_ends(given, np.uint32(0))


@share
def _append_ends_64(given: int, part: int, parts: int) -> None:
    _append_ends(given, np.uint64(0))


def append_words(packed: Array | None, words: Array, base: int, top: int, shift: int, bits: int) -> tuple[Array, bool]:
    """Append the codes of a key to packed words, in place (None: new ones); return whether a word was outside, too."""
    out = result_array(len(words), np.uint64) if packed is None else packed
    given = _Pack.partly(
        COUNT=len(words),
        LOW=np.ascontiguousarray(words),
        BASE=base,
        TOP=top,
        SHIFT=shift,
        BITS=bits,
        FIRST=int(packed is None),
        OUT_LOW=out,
    )
    _ALONE.run(_append_64 if words.itemsize == 8 else _append_32, given, 1)
    return out, bool(given[_Pack.OUTSIDE])


def append_ranges(
    packed: tuple[Array, Array] | None, low: Array, high: Array, base: int, top: int, shift: int, bits: int
) -> tuple[Array, Array]:
    """Append the codes of a key's closed ranges to packed ranges, in place (None: new ones). Others become empty."""
    out = (result_array(len(low), np.uint64), result_array(len(low), np.uint64)) if packed is None else packed
    lows, highs = np.ascontiguousarray(low), np.ascontiguousarray(high)
    given = _Pack.partly(
        COUNT=len(low),
        LOW=lows,
        HIGH=highs,
        BASE=base,
        TOP=top,
        SHIFT=shift,
        BITS=bits,
        FIRST=int(packed is None),
        OUT_LOW=out[0],
        OUT_HIGH=out[1],
    )
    _ALONE.run(_append_ends_64 if low.itemsize == 8 else _append_ends_32, given, 1)
    return out


class _Search(KernelArgs):
    """The arguments of the searching kernels."""

    HELD = auto()  # ascending words
    HELD_COUNT = auto()
    WORDS = auto()
    COUNT = auto()
    UPPER = auto()  # whether to count the words up to each one, not those below it
    OUT = auto()


@inline
def _search(given: int, like: Any) -> None:
    """Binary searches without branches, `LANES` at a time."""
    held, n = load(given, _Search.HELD), load(given, _Search.HELD_COUNT)
    words, count = load(given, _Search.WORDS), load(given, _Search.COUNT)
    upper, out = load(given, _Search.UPPER) != 0, load(given, _Search.OUT)
    for start in range(0, count, LANES):
        stop = min(start + LANES, count)
        for i in range(start, stop):
            store(out, i, 0)
        size = n
        while size > 0:
            half = (size + 1) >> 1
            for i in range(start, stop):
                at = load(out, i)
                last, word = load_as(held, at + half - 1, like), load_as(words, i, like)
                store(out, i, at + half if (last < word) | (upper & (last == word)) else at)
            size >>= 1


@share
def _search_32(given: int, part: int, parts: int) -> None:
    _search(given, np.uint32(0))


@share
def _search_64(given: int, part: int, parts: int) -> None:
    _search(given, np.uint64(0))


def ranks_among(held: Array, words: Array, upper: bool = False) -> Array:
    """Return how many ascending `held` words of the same type are below each word (`upper`: not above it)."""
    out, searched = result_array(len(words), np.uint64), np.ascontiguousarray(words)
    given = _Search.pack(HELD=held, HELD_COUNT=len(held), WORDS=searched, COUNT=len(words), UPPER=int(upper), OUT=out)
    _ALONE.run(_search_64 if held.itemsize == 8 else _search_32, given, 1)
    return out
