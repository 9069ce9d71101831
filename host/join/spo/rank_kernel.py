"""Kernels that replace words by ranks: inverts a sorted order, and finds sorted bounds in sorted words by merging."""

from __future__ import annotations

from enum import auto
from typing import Any

import numpy as np

from millrace.host.runtime.intrinsics import load, load_as, load_id, store_as
from millrace.host.runtime.jit import inline, share
from millrace.host.runtime.kernel_args import KernelArgs

SPARSE = 16
"""With fewer than one bound for so many words, each bound is searched: a merge would read all words."""
_U32 = np.uint32


class InvertArgs(KernelArgs):
    """The arguments of `invert`."""

    ORDER = auto()
    N = auto()
    RANKS = auto()


@share
def invert(given: int, part: int, parts: int) -> None:
    """Write `ranks[order[i]] = i`."""
    order, n, ranks = load(given, InvertArgs.ORDER), load(given, InvertArgs.N), load(given, InvertArgs.RANKS)
    for i in range(n * part // parts, n * (part + 1) // parts):
        store_as(ranks, load_id(order, i), _U32(i))


class ValueArgs(KernelArgs):
    """The arguments of `gather_values`."""

    ORDER = auto()
    N = auto()
    RANKS = auto()
    OUT = auto()


@share
def gather_values(given: int, part: int, parts: int) -> None:
    """Write `out[i] = ranks[order[i]]`."""
    order, n = load(given, ValueArgs.ORDER), load(given, ValueArgs.N)
    ranks, out = load(given, ValueArgs.RANKS), load(given, ValueArgs.OUT)
    for i in range(n * part // parts, n * (part + 1) // parts):
        store_as(out, i, _U32(load_id(ranks, load_id(order, i))))


class BoundArgs(KernelArgs):
    """The arguments of `find_bounds`: ascending bounds with their rows, and ascending words."""

    BOUNDS = auto()
    ROWS = auto()
    M = auto()
    WORDS = auto()
    N = auto()
    UPPER = auto()  # whether to count the words up to a bound, not those below it
    SORTED = auto()  # the rank of each bound in ascending order
    RANKS = auto()  # the rank of each row's bound


@inline
def _before(words: int, at: int, bound: Any, upper: int, like: Any) -> bool:
    word = load_as(words, at, like)
    return word < bound or (upper != 0 and word == bound)


@inline
def _search(words: int, low: int, high: int, bound: Any, upper: int, like: Any) -> int:
    """The number of words before a bound, which is between `low` and `high`."""
    while low < high:
        middle = (low + high) >> 1
        if _before(words, middle, bound, upper, like):
            low = middle + 1
        else:
            high = middle
    return low


@inline
def _find_bounds(given: int, part: int, parts: int, like: Any) -> None:
    bounds, rows, m = load(given, BoundArgs.BOUNDS), load(given, BoundArgs.ROWS), load(given, BoundArgs.M)
    words, n, upper = load(given, BoundArgs.WORDS), load(given, BoundArgs.N), load(given, BoundArgs.UPPER)
    ascending, ranks = load(given, BoundArgs.SORTED), load(given, BoundArgs.RANKS)
    first, stop = m * part // parts, m * (part + 1) // parts
    at = 0
    if first < stop:
        at = _search(words, 0, n, load_as(bounds, first, like), upper, like)
    sparse = m * SPARSE < n
    for j in range(first, stop):
        bound = load_as(bounds, j, like)
        if sparse:
            at = _search(words, at, n, bound, upper, like)
        else:
            while at < n and _before(words, at, bound, upper, like):
                at += 1
        store_as(ascending, j, _U32(at))
        store_as(ranks, load_id(rows, j), _U32(at))


@share
def find_bounds_32(given: int, part: int, parts: int) -> None:
    _find_bounds(given, part, parts, np.uint32(0))


@share
def find_bounds_64(given: int, part: int, parts: int) -> None:
    _find_bounds(given, part, parts, np.uint64(0))
