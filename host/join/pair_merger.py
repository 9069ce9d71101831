"""The kernels that put the pairs of a block in order: one pass over the tuples as they were taken.

Kernels because the same in NumPy takes a dozen passes over all pairs, as much time as finding them in a small window.
"""

from __future__ import annotations

from typing import Any

from millrace.host.runtime.jit import kernel

SLACK = 4
"""Places behind the last pair that `repeat_numbers` may write to."""


@kernel
def repeat_numbers(counts: Any, first: int, out: Any) -> None:
    """`first` as often as the first count says, then `first + 1`, …: four at once, since counts are mostly small."""
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
    """Write each tuple's pairs behind those of the tuples before it; `r` and `s` are the first newcomers' positions."""
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
