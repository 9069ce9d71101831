"""The kernel that puts the pairs of a block in order: one pass over the tuples as they were taken.

A kernel because the same in NumPy takes a dozen passes over all pairs, as much time as finding them in a small window.
"""

from __future__ import annotations

from typing import Any

from millrace.host.jit import kernel


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
