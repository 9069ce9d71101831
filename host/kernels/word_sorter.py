"""Sorts a batch by its words: a stable radix sort in which each thread sorts a range of values, so no merge is needed.

A 64-bit key holds the word's distance from the smallest word and its row number. Radix passes sort only the leading
digits, enough to tell most words apart; insertion sort finishes the nearly sorted keys. If too many words have equal
leading digits, radix passes sort all digits. PanJoin's manager sorts each batch before the batch is inserted or probes
the index (III-A, step 2). Limit: 2^31 words.
"""

from __future__ import annotations

from enum import auto
from typing import Any

import numpy as np
import numpy.typing as npt

from millrace.host.base.types import Array
from millrace.host.runtime.allocator import SPARE, allocate, free
from millrace.host.runtime.intrinsics import load, load_as, store_as
from millrace.host.runtime.jit import inline, kernel, share
from millrace.host.runtime.kernel_args import KernelArgs
from millrace.host.runtime.team import Team

DIGIT = 8
"""Bits per radix pass: 256 write streams still fit in the L1 cache."""
BUCKETS = 1 << DIGIT
MAX_PASSES = 8
MIN_SHARED = 1 << 12
"""Smaller batches are sorted by one thread."""
MIN_RADIX = 48
"""Smaller batches are sorted by insertion sort alone."""
_SPARE_BITS = 7
"""Leading bits to sort by, in addition to log2 of the batch size: makes collisions rare."""
_MOVES = 4
"""Insertion sort gives up after this many moves per word."""
_SAMPLE = 256
_U64 = np.uint64


class _Args(KernelArgs):
    """The arguments of a sort."""

    WORDS = auto()
    N = auto()
    LEAST = auto()
    PIVOTS = auto()
    FIRSTS = auto()
    A = auto()
    B = auto()
    OUT = auto()
    ORDER = auto()
    HISTOGRAMS = auto()
    NUMBER_BITS = auto()
    KEPT = auto()
    DROPPED = auto()
    PASSES = auto()
    FAILED = auto()


@kernel
def _extent(words: Any) -> Any:
    """Return the smallest and the largest word."""
    least = largest = words[0]
    for i in range(words.shape[0]):
        least, largest = min(least, words[i]), max(largest, words[i])
    return least, largest


@inline
def _in_part(value: Any, low: Any, high: Any, last: Any) -> Any:
    """Return whether a value is in the half-open range of a part; the last part has no upper end."""
    return (value >= low) & ((value < high) | last)


@inline
def _count_part(given: int, part: int, parts: int, like: Any) -> None:
    """Count the words of a part."""
    words, least = load(given, _Args.WORDS), load_as(given, _Args.LEAST, _U64(0))
    pivots, last = load(given, _Args.PIVOTS), part == parts - 1
    low, high = load_as(pivots, part, _U64(0)), load_as(pivots, part + 1, _U64(0))
    total = 0
    for i in range(load(given, _Args.N)):
        total += _in_part(_U64(load_as(words, i, like)) - least, low, high, last)
    store_as(load(given, _Args.FIRSTS), part + 1, total)


@share
def _count_part_32(given: int, part: int, parts: int) -> None:
    _count_part(given, part, parts, np.uint32(0))


@share
def _count_part_64(given: int, part: int, parts: int) -> None:
    _count_part(given, part, parts, np.uint64(0))


@inline
def _collect(given: int, part: int, parts: int, keys: int, like: Any) -> None:
    """Write the keys of a part: the kept bits of a word's distance in the high bits, its row number in the low bits."""
    words, least = load(given, _Args.WORDS), load_as(given, _Args.LEAST, _U64(0))
    pivots, last = load(given, _Args.PIVOTS), part == parts - 1
    low, high = load_as(pivots, part, _U64(0)), load_as(pivots, part + 1, _U64(0))
    up, down = load_as(given, _Args.NUMBER_BITS, _U64(0)), load_as(given, _Args.DROPPED, _U64(0))
    at = 0
    for i in range(load(given, _Args.N)):
        value = _U64(load_as(words, i, like)) - least
        store_as(keys, at, ((value >> down) << up) | _U64(i))
        at += _in_part(value, low, high, last)


@inline
def _radix_passes(a: int, b: int, count: int, histogram: int, first_bit: int, passes: int) -> int:
    """Sort keys by digits from `first_bit` up, alternating between `a` and `b`; return the buffer with the result."""
    for i in range(passes * BUCKETS):
        store_as(histogram, i, np.int32(0))
    for i in range(count):
        key = load_as(a, i, _U64(0)) >> _U64(first_bit)
        for p in range(passes):
            digit = np.int64((key >> _U64(p * DIGIT)) & _U64(BUCKETS - 1)) + p * BUCKETS
            store_as(histogram, digit, np.int32(load_as(histogram, digit, np.int32(0)) + 1))
    for p in range(passes):
        offsets = histogram + 4 * p * BUCKETS
        if _counts_to_offsets(offsets, count):
            _scatter(a, b, count, offsets, _U64(first_bit + p * DIGIT))
            a, b = b, a
    return a


@inline
def _counts_to_offsets(histogram: int, count: int) -> bool:
    """Turn bucket counts into bucket offsets; return false if all keys are in one bucket (the pass can be skipped)."""
    at = 0
    for d in range(BUCKETS):
        n = load_as(histogram, d, np.int32(0))
        if n == count:
            return False
        store_as(histogram, d, np.int32(at))
        at += n
    return True


@inline
def _scatter(a: int, b: int, count: int, offsets: int, shift: Any) -> None:
    for i in range(count):
        key = load_as(a, i, _U64(0))
        digit = np.int64((key >> shift) & _U64(BUCKETS - 1))
        slot = load_as(offsets, digit, np.int32(0))
        store_as(offsets, digit, np.int32(slot + 1))
        store_as(b, slot, key)


@inline
def _finish_by_insertion(keys: int, count: int) -> bool:
    """Sort nearly sorted keys by insertion; give up and return false if they are not (no key is lost)."""
    moves = _MOVES * count
    for i in range(1, count):
        key = load_as(keys, i, _U64(0))
        at = i
        while at > 0 and load_as(keys, at - 1, _U64(0)) > key:
            store_as(keys, at, load_as(keys, at - 1, _U64(0)))
            at -= 1
        store_as(keys, at, key)
        moves -= i - at
        if moves < 0:
            return False
    return True


@inline
def _write_result(given: int, first: int, count: int, keys: int, like: Any) -> None:
    """Write words and row numbers. If bits were dropped, sort words with equal kept bits by insertion."""
    words, out, order = load(given, _Args.WORDS), load(given, _Args.OUT), load(given, _Args.ORDER)
    up, least = load_as(given, _Args.NUMBER_BITS, _U64(0)), load_as(given, _Args.LEAST, _U64(0))
    numbers = (_U64(1) << up) - _U64(1)
    if load(given, _Args.DROPPED) == 0:
        for i in range(first, first + count):
            key = load_as(keys, i - first, _U64(0))
            store_as(out, i, type(like)(least + (key >> up)))
            store_as(order, i, np.uint32(key & numbers))
        return
    moves = _MOVES * count
    for i in range(first, first + count):
        number = np.int64(load_as(keys, i - first, _U64(0)) & numbers)
        word = load_as(words, number, like)
        at = i
        while at > first and load_as(out, at - 1, like) > word and moves > 0:
            store_as(out, at, load_as(out, at - 1, like))
            store_as(order, at, load_as(order, at - 1, np.uint32(0)))
            at -= 1
            moves -= 1
        store_as(out, at, word)
        store_as(order, at, np.uint32(number))
    if moves <= 0:
        store_as(load(given, _Args.FAILED), 0, 1)


@inline
def _sort_part(given: int, part: int, parts: int, like: Any) -> None:
    firsts = load(given, _Args.FIRSTS)
    first = load_as(firsts, part, 0)
    count = load_as(firsts, part + 1, 0) - first
    # Each part has one more slot than words: `_collect` writes a key before it knows whether it belongs to the part.
    a, b = load(given, _Args.A) + 8 * (first + part), load(given, _Args.B) + 8 * (first + part)
    histogram = load(given, _Args.HISTOGRAMS) + 4 * part * MAX_PASSES * BUCKETS
    low_bit, kept, passes = load(given, _Args.NUMBER_BITS), load(given, _Args.KEPT), load(given, _Args.PASSES)
    _collect(given, part, parts, a, like)
    all_digits = (kept + DIGIT - 1) // DIGIT
    keys = _radix_passes(a, b, count, histogram, low_bit + max(kept - passes * DIGIT, 0), passes)
    if passes < all_digits and not _finish_by_insertion(keys, count):
        keys = _radix_passes(keys, a if keys == b else b, count, histogram, low_bit, all_digits)
    _write_result(given, first, count, keys, like)


@share
def _sort_part_32(given: int, part: int, parts: int) -> None:
    _sort_part(given, part, parts, np.uint32(0))


@share
def _sort_part_64(given: int, part: int, parts: int) -> None:
    _sort_part(given, part, parts, np.uint64(0))


@kernel
def _insertion(words: Any, out: Any, order: Any) -> None:
    """Sort a small batch by insertion."""
    for i in range(words.shape[0]):
        word = words[i]
        at = i
        while at > 0 and out[at - 1] > word:
            out[at] = out[at - 1]
            order[at] = order[at - 1]
            at -= 1
        out[at] = word
        order[at] = i


def sort_words(words: Array, team: Team) -> tuple[Array, npt.NDArray[np.uint32]]:
    """Return the words in ascending order, and the row number of each; equal words keep their order.

    Both arrays come from the allocator, or are as long: `SPARE` bytes beyond their end can be read.
    """
    n = len(words)
    words = np.ascontiguousarray(words)
    if n < MIN_RADIX:
        out = np.empty(n + SPARE // words.itemsize, words.dtype)[:n]
        order = np.empty(n + SPARE // 4, np.uint32)[:n]
        _insertion(words, out, order)
        return out, order
    out, order = allocate(n, words.dtype), allocate(n, np.uint32)
    if not _radix(words, out, order, team):
        order[:] = np.argsort(words, kind="stable")
        np.take(words, order, out=out)
    return out, order


def _radix(words: Array, out: Array, order: Array, team: Team) -> bool:
    """Sort into `out` and `order`; return false if too many words have equal kept bits."""
    n, wide = len(words), words.dtype == np.uint64
    least, largest = map(int, _extent(words))
    bits, number_bits = max((largest - least).bit_length(), 1), (n - 1).bit_length()
    kept = min(bits, 64 - number_bits)
    leading = -(-(number_bits + _SPARE_BITS) // DIGIT)
    parts = team.threads if n >= MIN_SHARED else 1
    pivots, firsts = _pivots(words, least, parts), np.zeros(parts + 1, np.int64)
    # One block for keys, keys and histograms: an allocation costs as much as sorting hundreds of words.
    scratch = allocate(2 * (n + parts) + parts * MAX_PASSES * BUCKETS // 2, np.uint64)
    a, b, histograms = scratch[: n + parts], scratch[n + parts : 2 * (n + parts)], scratch[2 * (n + parts) :]
    failed = np.zeros(1, np.int64)
    given = _Args.pack(
        WORDS=words,
        N=n,
        LEAST=least,
        PIVOTS=pivots,
        FIRSTS=firsts,
        A=a,
        B=b,
        OUT=out,
        ORDER=order,
        HISTOGRAMS=histograms,
        NUMBER_BITS=number_bits,
        KEPT=kept,
        DROPPED=bits - kept,
        PASSES=min(leading, -(-kept // DIGIT)),
        FAILED=failed,
    )
    firsts[1] = n
    if parts > 1:
        team.run(_count_part_64 if wide else _count_part_32, given, parts)
        np.cumsum(firsts, out=firsts)
    team.run(_sort_part_64 if wide else _sort_part_32, given, parts)
    free(scratch)
    return not failed[0]


def _pivots(words: Array, least: int, parts: int) -> npt.NDArray[np.uint64]:
    """Return the lower ends of the parts' ranges, from a sample; has one entry more than there are parts."""
    pivots = np.zeros(parts + 1, np.uint64)
    if parts > 1:
        sample = np.sort(words[:: max(len(words) // _SAMPLE, 1)].astype(np.uint64) - np.uint64(least))
        pivots[1:parts] = sample[len(sample) * np.arange(1, parts) // parts]
    return pivots
