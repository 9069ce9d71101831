"""The kernels that order the pairs of a block, in one pass over the tuples in the order they were taken.

In NumPy this takes a dozen passes over all pairs, as much time as finding them in a small window.
"""

from __future__ import annotations

from enum import auto
from typing import Any

from millrace.host.runtime.intrinsics import load, load_byte, store
from millrace.host.runtime.jit import kernel, share
from millrace.host.runtime.kernel_args import KernelArgs

SLACK = 4
"""Values that are written at once: `repeat_numbers` may overwrite as many after the last pair."""


@kernel
def repeat_numbers(counts: Any, first: int, out: Any) -> None:
    """Write `first` `counts[0]` times, `first + 1` `counts[1]` times, …; four at once, as most counts are small."""
    at = 0
    for i in range(counts.shape[0]):
        for k in range(SLACK):
            out[at + k] = first + i
        for k in range(SLACK, counts[i]):
            out[at + k] = first + i
        at += counts[i]


class PairMerge(KernelArgs):
    """The pairs of two streams' tuples, to be brought into the order in which the tuples were taken."""

    ORDER = auto()
    COUNTS_R = auto()
    COUNTS_S = auto()
    PARTNERS_R = auto()
    PARTNERS_S = auto()
    PAIRS_R = auto()  # how many partners r's and s's tuples have
    PAIRS_S = auto()
    R = auto()  # the positions of the first new tuples
    S = auto()
    TO_R = auto()
    TO_S = auto()
    PARTS = auto()  # per part, and at the end: tuples before it, r's and s's among them, and their pairs


PART_WORDS = 5


@share
def merge_pairs(merge: int, part: int, parts: int) -> None:
    """Write the pairs of each tuple of a part after those of earlier tuples.

    Nothing depends on the side or on a small count by a branch, which would be mispredicted.
    """
    begin = load(merge, PairMerge.PARTS) + 8 * PART_WORDS * part
    first, stop, i, j = load(begin, 0), load(begin, PART_WORDS), load(begin, 1), load(begin, 2)
    order, at = load(merge, PairMerge.ORDER), load(begin, 3) + load(begin, 4)
    pairs_r, pairs_s = load(merge, PairMerge.PAIRS_R), load(merge, PairMerge.PAIRS_S)
    to_r, to_s = load(merge, PairMerge.TO_R), load(merge, PairMerge.TO_S)
    counts_r, counts_s = load(merge, PairMerge.COUNTS_R) + 8 * i, load(merge, PairMerge.COUNTS_S) + 8 * j
    r, s = load(merge, PairMerge.R) + i, load(merge, PairMerge.S) + j
    found_r, found_s = load(merge, PairMerge.PARTNERS_R), load(merge, PairMerge.PARTNERS_S)
    last_r, last_s = found_r + 8 * (pairs_r - SLACK), found_s + 8 * (pairs_s - SLACK)
    found_r, found_s = found_r + 8 * load(begin, 3), found_s + 8 * load(begin, 4)
    # The pairs after a part's own belong to the next part, or are beyond the end.
    end = load(begin, PART_WORDS + 3) + load(begin, PART_WORDS + 4)
    for t in range(first, stop):
        of_s = load_byte(order, t) != 0
        found, last, own = (found_s, last_s, s) if of_s else (found_r, last_r, r)
        own_to, partner_to = (to_s, to_r) if of_s else (to_r, to_s)
        count, done = load(counts_s if of_s else counts_r, 0), 0
        if (at + SLACK <= end) & (found <= last):
            done = SLACK
            for k in range(SLACK):
                store(own_to, at + k, own)
                store(partner_to, at + k, load(found, k))
        for k in range(done, count):
            store(own_to, at + k, own)
            store(partner_to, at + k, load(found, k))
        at += count
        if of_s:
            found_s, counts_s, s = found_s + 8 * count, counts_s + 8, s + 1
        else:
            found_r, counts_r, r = found_r + 8 * count, counts_r + 8, r + 1
