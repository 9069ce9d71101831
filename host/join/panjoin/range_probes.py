"""Makes the sorted range probes of a step's new tuples: the ranges they look up, in ascending order.

A side's words are sorted for insertion. In a band of constant width the ranges ascend in the same order, so they are
not sorted again. Other ranges (`s.x BETWEEN r.lo AND r.hi`) are sorted separately.
"""

from __future__ import annotations

from enum import auto
from typing import Any

import numpy as np

from millrace.host.base.types import Array, Ids
from millrace.host.base.value_class import value_class
from millrace.host.join.contract import SideProbes
from millrace.host.join.panjoin.subwindow import SMALL_BATCH, RangeProbes, VisibleIntervals
from millrace.host.kernels.word_sorter import sort_words
from millrace.host.runtime.allocator import allocate, free
from millrace.host.runtime.intrinsics import load, load_as, load_id, store_as
from millrace.host.runtime.jit import inline, share
from millrace.host.runtime.kernel_args import KernelArgs
from millrace.host.runtime.team import Team

SLICE = 1 << 14
"""About how many ranges one thread gathers at a time."""
EMPTY, UNSORTED, FALLING = range(3)
"""Flags set while gathering: a range is empty, lows are not ascending, highs are not ascending."""
_U32 = np.uint32


@value_class
class SortedTuples:
    """Live tuples sorted by their own words: the words, and the tuples' numbers among all."""

    words: Array
    order: Ids


class _Gather(KernelArgs):
    """The arguments of `_gather`."""

    LOW = auto()
    HIGH = auto()
    ORDER = auto()
    N = auto()
    OUT_LOW = auto()
    OUT_HIGH = auto()
    FLAGS = auto()


class _Spread(KernelArgs):
    """The arguments of `_spread`."""

    WORDS = auto()
    N = auto()
    OUT_LOW = auto()
    OUT_HIGH = auto()
    BELOW = auto()
    ABOVE = auto()


@inline
def _gather(given: int, part: int, parts: int, like: Any) -> None:
    low, high = load(given, _Gather.LOW), load(given, _Gather.HIGH)
    order, n, flags = load(given, _Gather.ORDER), load(given, _Gather.N), load(given, _Gather.FLAGS)
    out_low, out_high = load(given, _Gather.OUT_LOW), load(given, _Gather.OUT_HIGH)
    first, stop = n * part // parts, n * (part + 1) // parts
    empty = unsorted = falling = False
    before = load_id(order, max(first - 1, 0))
    low_before, high_before = load_as(low, before, like), load_as(high, before, like)
    for i in range(first, stop):
        number = load_id(order, i)
        a, b = load_as(low, number, like), load_as(high, number, like)
        store_as(out_low, i, a)
        store_as(out_high, i, b)
        empty |= a > b
        unsorted |= (a < low_before) & (i > 0)
        falling |= (b < high_before) & (i > 0)
        low_before, high_before = a, b
    if empty:
        store_as(flags, EMPTY, 1)
    if unsorted:
        store_as(flags, UNSORTED, 1)
    if falling:
        store_as(flags, FALLING, 1)


@share
def _gather_32(given: int, part: int, parts: int) -> None:
    _gather(given, part, parts, np.uint32(0))


@share
def _gather_64(given: int, part: int, parts: int) -> None:
    _gather(given, part, parts, np.uint64(0))


@inline
def _spread(given: int, part: int, parts: int, like: Any) -> None:
    """Compute the bounds of a band around each word, saturating."""
    words, n = load(given, _Spread.WORDS), load(given, _Spread.N)
    out_low, out_high = load(given, _Spread.OUT_LOW), load(given, _Spread.OUT_HIGH)
    below = type(like)(load_as(given, _Spread.BELOW, np.uint64(0)))
    above = type(like)(load_as(given, _Spread.ABOVE, np.uint64(0)))
    largest = type(like)(~type(like)(0))
    for i in range(n * part // parts, n * (part + 1) // parts):
        word = load_as(words, i, like)
        store_as(out_low, i, type(like)(word - min(word, below)))
        store_as(out_high, i, type(like)(word + min(type(like)(largest - word), above)))


@share
def _spread_32(given: int, part: int, parts: int) -> None:
    _spread(given, part, parts, np.uint32(0))


@share
def _spread_64(given: int, part: int, parts: int) -> None:
    _spread(given, part, parts, np.uint64(0))


def make_probes(part: SideProbes, sorted_tuples: SortedTuples | None, team: Team, keys: bool = False) -> RangeProbes:
    """The ranges of all live tuples, ascending. `sorted_tuples`: the live tuples by their own words, if known.

    With `keys`, the probes of a band include the words. Arrays come from the allocator where possible.
    """
    probe = part.probes[0]
    if sorted_tuples is not None and len(sorted_tuples.order):
        if probe.band is not None and len(sorted_tuples.order) <= SMALL_BATCH and not keys:
            return _small_band(sorted_tuples, probe.band)
        if probe.band is not None:
            return _band(sorted_tuples, probe.band, team, keys)
        given = _in_order(probe.low[0], probe.high[0], sorted_tuples.order, team) if len(probe.low) == 1 else None
        if given is not None:
            return given
    lines, probe_tuple = np.nonzero(part.live & (probe.low <= probe.high))
    low, number = sort_words(probe.low[lines, probe_tuple], team)
    high = probe.high[lines, probe_tuple][number]
    slot = (lines * len(part) + probe_tuple)[number].astype(np.uint32)
    rising = bool((high[1:] >= high[:-1]).all())
    return RangeProbes(low, high, probe_tuple[number].astype(np.uint32), rising, slot, len(probe.low))


def _small_band(sorted_tuples: SortedTuples, band: tuple[int, int]) -> RangeProbes:
    """The same as `_band` for few tuples, for which a few NumPy operations cost less than a kernel's arguments."""
    words, order = sorted_tuples.words, sorted_tuples.order
    below, above = (words.dtype.type(distance) for distance in band)
    low, high = words - np.minimum(words, below), words + np.minimum(~words, above)
    return RangeProbes(low, high, order, True, order)


def _band(sorted_tuples: SortedTuples, band: tuple[int, int], team: Team, keys: bool) -> RangeProbes:
    """The probes of a band: ranges of constant width are in the order of the words."""
    n, word = len(sorted_tuples.order), sorted_tuples.words.dtype
    low, high = allocate(n, word), allocate(n, word)
    given = _Spread.pack(WORDS=sorted_tuples.words, N=n, OUT_LOW=low, OUT_HIGH=high, BELOW=band[0], ABOVE=band[1])
    team.run(_spread_64 if word == np.uint64 else _spread_32, given, -(-n // SLICE))
    # A copy: the words themselves are inserted into a structure, which may reuse their memory.
    kept = sorted_tuples.words.copy() if keys else None
    return RangeProbes(
        low, high, sorted_tuples.order, True, sorted_tuples.order, keys=kept, band=band if keys else None
    )


def _in_order(low: Array, high: Array, order: Ids, team: Team) -> RangeProbes | None:
    """The ranges in a given order of the tuples, or None if they are not ascending in it."""
    n = len(order)
    low, high = np.ascontiguousarray(low), np.ascontiguousarray(high)
    out_low, out_high = allocate(n, low.dtype), allocate(n, high.dtype)
    flags = np.zeros(3, np.int64)
    gather = _gather_64 if low.dtype == np.uint64 else _gather_32
    given = _Gather.pack(LOW=low, HIGH=high, ORDER=order, N=n, OUT_LOW=out_low, OUT_HIGH=out_high, FLAGS=flags)
    team.run(gather, given, -(-n // SLICE))
    if flags[EMPTY] or flags[UNSORTED]:
        free(out_low)
        free(out_high)
        return None
    return RangeProbes(out_low, out_high, order, not flags[FALLING], order)


def visible_intervals(part: SideProbes) -> VisibleIntervals:
    """The positions visible to each tuple, as one entry if they are the same for all."""
    begin, end = part.begin, part.end
    if len(begin) and begin[0] == begin[-1] and end[0] == end[-1]:
        begin, end = begin[:1], end[:1]
    return VisibleIntervals(np.ascontiguousarray(begin), np.ascontiguousarray(end))


def free_probes(probes: RangeProbes) -> None:
    """Return the arrays to the allocator."""
    if len(probes) <= SMALL_BATCH:
        return  # not worth reusing
    for array in (probes.low, probes.high, probes.probe_tuple):
        free(array)
