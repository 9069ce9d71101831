"""The kernels that order the pairs of a block, in one pass over the tuples in the order they were taken.

In NumPy this takes a dozen passes over all pairs, as much time as finding them in a small window.
"""

from __future__ import annotations

from typing import Any

from millrace.host.runtime.intrinsics import address, load, store
from millrace.host.runtime.jit import kernel

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


@kernel
def merge_pairs(
    order: Any, counts_r: int, counts_s: int, partners_r: int, partners_s: int, sizes: Any, r: int, s: int, to: Any
) -> None:
    """Write the pairs of each tuple after those of earlier tuples. `r`, `s`: positions of the first new tuples.

    `sizes`: how many partners r's and s's tuples have; `to`: the outputs of r and s. The other numbers are addresses of
    64-bit words. Nothing depends on the side or a small count by a branch, which would be mispredicted.
    """
    at, pairs, to_r, to_s = 0, sizes[0] + sizes[1], address(to[0]), address(to[1])
    last_r, last_s = partners_r + 8 * (sizes[0] - SLACK), partners_s + 8 * (sizes[1] - SLACK)
    for side in order:
        of_s = side != 0
        found, last, own = (partners_s, last_s, s) if of_s else (partners_r, last_r, r)
        own_to, partner_to = (to_s, to_r) if of_s else (to_r, to_s)
        count, first = load(counts_s if of_s else counts_r, 0), 0
        if (at + SLACK <= pairs) & (found <= last):  # not at the ends of the arrays
            first = SLACK
            for k in range(SLACK):
                store(own_to, at + k, own)
                store(partner_to, at + k, load(found, k))
        for k in range(first, count):
            store(own_to, at + k, own)
            store(partner_to, at + k, load(found, k))
        at += count
        if of_s:
            partners_s, counts_s, s = partners_s + 8 * count, counts_s + 8, s + 1
        else:
            partners_r, counts_r, r = partners_r + 8 * count, counts_r + 8, r + 1
