"""Compares new tuples with a stripe of a window, in vector code, and merges what the stripes have found.

ScaleJoin, section V: each of n threads sees every new tuple and stores every n-th, so all of them compare equally many
pairs, whatever the keys and rates. Stripe j holds the live tuples number j, j + n, j + 2n, … of a side, one array of
words per key. A tuple matches if for every key its word is in one of the tuple's ranges. A stripe is read in chunks
that fit in the L1 cache, each for a tile of new tuples. The merge is the paper's second gate: it puts the matches of
all stripes into one order, (new tuple, position), whatever the threads did.

Limits: `BLOCK` words beyond a stripe's end are read; the caller allocates them.
"""

from __future__ import annotations

from enum import auto
from typing import Any

import numpy as np

from millrace.host.runtime.intrinsics import (
    LINE,
    MASK_LANES,
    load,
    load_as,
    lowest_bit,
    mask_within,
    ones,
    store,
)
from millrace.host.runtime.jit import Share, inline, share
from millrace.host.runtime.kernel_args import KernelArgs

TILE = 8
"""New tuples that read a chunk of a stripe together."""
CHUNK = 1 << 11
"""Words of a chunk, for each key."""
BLOCK = MASK_LANES
"""Words compared at a time: one bit of a mask for each."""
TUPLE_BITS = 56
"""A match within a tile has the number of its new tuple above these bits, and its element below."""


class ScanArgs(KernelArgs):
    """What all stripes are given."""

    STRIPES = auto()
    KEYS = auto()
    RANGES = auto()  # of a tuple, over all keys
    LINES = auto()  # the number of ranges of each key
    WORDS = auto()  # for each stripe and key the address that element 0 would have
    TUPLES = auto()
    BEGIN = auto()  # the visible live tuples of each new tuple
    END = auto()
    LOW = auto()  # a line of words for each range, those of the first key first
    HIGH = auto()
    STRIPE = auto()  # a `StripeWords` for each stripe
    COUNTS = auto()  # for each stripe and new tuple
    WANTED = auto()  # 0: only counts


class StripeWords(KernelArgs):
    """A stripe's results. A stripe whose memory is full stops; it goes on with tuple `NEXT` when called again."""

    FOUND = auto()
    SCRATCH = auto()
    CAPACITY = auto()  # of both
    USED = auto()
    NEXT = auto()
    COMPARED = auto()
    SIZE = LINE


class MergeArgs(KernelArgs):
    """The arguments of `merge_matches`."""

    STRIPES = auto()
    TUPLES = auto()
    COUNTS = auto()
    STARTS = auto()  # for each stripe and new tuple: its first match in the stripe's results
    FOUND = auto()  # for each stripe the address of its results
    OFFSETS = auto()  # the first match of each new tuple in the merged results
    POSITIONS = auto()  # of live tuples
    FIRST = auto()  # the number of the first live tuple there
    OUT = auto()


@inline
def _signed(word: Any) -> Any:
    """The same bits as a signed word, which intrinsics take."""
    return np.int64(word)


@inline
def _matches(given: int, words: int, tuple_: int, element: int, like: Any) -> int:
    """Which of the next `BLOCK` elements match a new tuple in all keys, as bits."""
    tuples, lines = load(given, ScanArgs.TUPLES), load(given, ScanArgs.LINES)
    low, high = load(given, ScanArgs.LOW), load(given, ScanArgs.HIGH)
    found, line = -1, 0
    for key in range(load(given, ScanArgs.KEYS)):
        column, some = load(words, key), 0
        for _ in range(load(lines, key)):
            first, last = load_as(low, line * tuples + tuple_, like), load_as(high, line * tuples + tuple_, like)
            if first <= last:
                start, span = _signed(first), _signed(last - first)
                some |= mask_within(column, element, start, span, like)
            line += 1
        found &= some
        if found == 0:
            break
    return found


@inline
def _keep(found: int, element: int, stop: int, to: int, count: int, label: int) -> int:
    """Write the matches of a block that are below `stop`, or count them if there is no memory; return the new count."""
    left = stop - element
    if left < BLOCK:
        found &= (1 << left) - 1
    if to == 0:
        return count + ones(found)
    while found != 0:
        store(to, count, label | (element + lowest_bit(found)))
        count += 1
        found &= found - 1
    return count


@inline
def _scan_chunk(given: int, words: int, tuple_: int, first: int, stop: int, to: int, number: int, like: Any) -> int:
    """Write the matches of one new tuple in a chunk, or count them if there is no memory; return how many."""
    count, label, ranges = 0, number << TUPLE_BITS, load(given, ScanArgs.RANGES)
    tuples, keys = load(given, ScanArgs.TUPLES), load(given, ScanArgs.KEYS)
    low, high = load(given, ScanArgs.LOW), load(given, ScanArgs.HIGH)
    if ranges > 2 or ranges > keys:
        for element in range(first, stop, BLOCK):
            found = _matches(given, words, tuple_, element, like)
            if found != 0:
                count = _keep(found, element, stop, to, count, label)
        return count
    # One or two keys with a range each, which stay in registers.
    base, last = load_as(low, tuple_, like), load_as(high, tuple_, like)
    other = (ranges - 1) * tuples + tuple_
    second, end = load_as(low, other, like), load_as(high, other, like)
    if base > last or second > end:
        return 0
    start, span = _signed(base), _signed(last - base)
    start_2, span_2 = _signed(second), _signed(end - second)
    column, column_2 = load(words, 0), load(words, ranges - 1)
    if ranges == 1:
        for element in range(first, stop, BLOCK):
            found = mask_within(column, element, start, span, like)
            if found != 0:
                count = _keep(found, element, stop, to, count, label)
    else:
        for element in range(first, stop, BLOCK):
            found = mask_within(column, element, start, span, like)
            found &= mask_within(column_2, element, start_2, span_2, like)
            if found != 0:
                count = _keep(found, element, stop, to, count, label)
    return count


@inline
def _first_element(live: int, stripe: int, stripes: int) -> int:
    """The first element of a stripe that is not before a live tuple."""
    return (live - stripe + stripes - 1) // stripes


@inline
def _scan_tile(given: int, stripe: int, words: int, first: int, stop: int, like: Any) -> int:
    """Scan the stripe for a tile; return the number of matches, or -1 if the memory is full. Counts each tuple's."""
    stripes, wanted = load(given, ScanArgs.STRIPES), load(given, ScanArgs.WANTED)
    begin, end = load(given, ScanArgs.BEGIN), load(given, ScanArgs.END)
    own = load(given, ScanArgs.STRIPE) + 8 * StripeWords.SIZE * stripe
    counts = load(given, ScanArgs.COUNTS) + 8 * stripe * load(given, ScanArgs.TUPLES)
    room, scratch = load(own, StripeWords.CAPACITY) - load(own, StripeWords.USED), load(own, StripeWords.SCRATCH)
    low, high = _first_element(load(begin, first), stripe, stripes), _first_element(load(end, first), stripe, stripes)
    for tuple_ in range(first, stop):
        store(counts, tuple_, 0)
        low = min(low, _first_element(load(begin, tuple_), stripe, stripes))
        high = max(high, _first_element(load(end, tuple_), stripe, stripes))
    total = 0
    for chunk in range(low, high, CHUNK):
        for tuple_ in range(first, stop):
            start = max(chunk, _first_element(load(begin, tuple_), stripe, stripes))
            last = min(chunk + CHUNK, _first_element(load(end, tuple_), stripe, stripes))
            if start >= last:
                continue
            if wanted != 0 and total + CHUNK > room:
                return -1
            to = scratch + 8 * total if wanted != 0 else 0
            count = _scan_chunk(given, words, tuple_, start, last, to, tuple_ - first, like)
            store(counts, tuple_, load(counts, tuple_) + count)
            total += count
    return total


@inline
def _sort_tile(given: int, stripe: int, first: int, stop: int, total: int) -> None:
    """Append a tile's matches to the results, tuple by tuple: within one, they are in order already."""
    stripes, own = load(given, ScanArgs.STRIPES), load(given, ScanArgs.STRIPE) + 8 * StripeWords.SIZE * stripe
    counts = load(given, ScanArgs.COUNTS) + 8 * stripe * load(given, ScanArgs.TUPLES)
    scratch, used = load(own, StripeWords.SCRATCH), load(own, StripeWords.USED)
    found = load(own, StripeWords.FOUND) + 8 * used
    # The tuples' counts become the ends of their matches while these are written.
    before = 0
    for tuple_ in range(first, stop):
        count = load(counts, tuple_)
        store(counts, tuple_, before)
        before += count
    for i in range(total):
        match = load(scratch, i)
        tuple_ = first + (match >> TUPLE_BITS)
        at = load(counts, tuple_)
        store(found, at, (match & ((1 << TUPLE_BITS) - 1)) * stripes + stripe)
        store(counts, tuple_, at + 1)
    for tuple_ in range(stop - 1, first, -1):
        store(counts, tuple_, load(counts, tuple_) - load(counts, tuple_ - 1))
    store(own, StripeWords.USED, used + total)


@inline
def _scan(given: int, stripe: int, like: Any) -> None:
    tuples, stripes = load(given, ScanArgs.TUPLES), load(given, ScanArgs.STRIPES)
    begin, end = load(given, ScanArgs.BEGIN), load(given, ScanArgs.END)
    own = load(given, ScanArgs.STRIPE) + 8 * StripeWords.SIZE * stripe
    words = load(given, ScanArgs.WORDS) + 8 * load(given, ScanArgs.KEYS) * stripe
    compared = 0
    while load(own, StripeWords.NEXT) < tuples:
        first = load(own, StripeWords.NEXT)
        stop = min(first + TILE, tuples)
        total = _scan_tile(given, stripe, words, first, stop, like)
        if total < 0:
            break
        if load(given, ScanArgs.WANTED) != 0:
            _sort_tile(given, stripe, first, stop, total)
        for tuple_ in range(first, stop):
            some = _first_element(load(end, tuple_), stripe, stripes)
            compared += max(some - _first_element(load(begin, tuple_), stripe, stripes), 0)
        store(own, StripeWords.NEXT, stop)
    store(own, StripeWords.COMPARED, load(own, StripeWords.COMPARED) + compared)


@share
def _scan_32(given: int, part: int, parts: int) -> None:
    _scan(given, part, np.uint32(0))


@share
def _scan_64(given: int, part: int, parts: int) -> None:
    _scan(given, part, np.uint64(0))


SCAN: dict[int, Share] = {4: _scan_32, 8: _scan_64}
"""Scans the stripe with the number of the part, by the bytes of a word."""


@share
def merge_matches(given: int, part: int, parts: int) -> None:
    """Merge the stripes' matches of a part of the new tuples, and write their positions."""
    stripes, tuples = load(given, MergeArgs.STRIPES), load(given, MergeArgs.TUPLES)
    counts, starts = load(given, MergeArgs.COUNTS), load(given, MergeArgs.STARTS)
    found, out = load(given, MergeArgs.FOUND), load(given, MergeArgs.OUT)
    positions = load(given, MergeArgs.POSITIONS) - 8 * load(given, MergeArgs.FIRST)
    for tuple_ in range(tuples * part // parts, tuples * (part + 1) // parts):
        at, left = load(load(given, MergeArgs.OFFSETS), tuple_), 0
        for stripe in range(stripes):
            left += load(counts, stripe * tuples + tuple_)
        while left > 0:
            # Stripes are few, so the next match is found by looking at all of them.
            least, which = -1, 0
            for stripe in range(stripes):
                entry = stripe * tuples + tuple_
                if load(counts, entry) > 0:
                    match = load(load(found, stripe), load(starts, entry))
                    if least < 0 or match < least:
                        least, which = match, entry
            store(counts, which, load(counts, which) - 1)
            store(starts, which, load(starts, which) + 1)
            store(out, at, load(positions, least))
            at, left = at + 1, left - 1
