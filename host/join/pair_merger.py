"""The kernels that order the pairs of a block, in one pass over the tuples in the order they were taken.

In NumPy this takes a dozen passes over all pairs, as much time as finding them in a small window.
"""

from __future__ import annotations

from typing import Any

from millrace.host.runtime.jit import kernel

SLACK = 4
"""How many values after the last pair `repeat_numbers` may overwrite."""


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
    order: Any, counts_r: Any, counts_s: Any, partners_r: Any, partners_s: Any, r: int, s: int, out_r: Any, out_s: Any
) -> None:
    """Write the pairs of each tuple after those of earlier tuples. `r`, `s`: positions of the first new tuples."""
    i = j = a = b = at = 0
    for side in order:
        if side == 0:
            for _ in range(counts_r[i]):
                out_r[at] = r + i
                out_s[at] = partners_r[a]
                a += 1
                at += 1
            i += 1
        else:
            for _ in range(counts_s[j]):
                out_r[at] = partners_s[b]
                out_s[at] = s + j
                b += 1
                at += 1
            j += 1
