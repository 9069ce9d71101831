"""The `scan_prober` unit on the CPU: finds partners by comparing each tuple with every word of its interval.

Buffers: the words to search, begin and end of each probing tuple's interval in them, low and high words (one line per
range), counts (out), offsets, found (out). Scalars: number of probing tuples, number of ranges, mode (0 counts, 1
writes the partners from `offsets` on). The unit reports the probing tuples as rows. It is what other devices than the
CPU may offer for `index="scan"`, in plain code; on the CPU that is ScaleJoin (`scalejoin/index.py`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from millrace.host.base.types import Array
from millrace.host.runtime.jit import inline, kernel
from millrace.host.runtime.team import Team

BLOCK = 64
"""Words compared together: only a block with a partner is processed word by word."""


@inline
def _hits(words: Any, lo: Any, hi: Any) -> int:
    """How many words are in a range that is not empty: one unsigned comparison each, in vector code."""
    total = np.uint64(0)
    span = hi - lo
    for p in range(words.shape[0]):
        total += np.uint64(words[p] - lo <= span)
    return int(total)


@kernel
def _count(words: Any, begin: Any, end: Any, low: Any, high: Any, ranges: int, probers: int, counts: Any) -> None:
    for i in range(probers):
        total = 0
        for k in range(ranges):
            lo, hi = low[k * probers + i], high[k * probers + i]
            if lo <= hi:
                total += _hits(words[begin[i] : end[i]], lo, hi)
        counts[i] = total


@kernel
def _find(
    words: Any,
    begin: Any,
    end: Any,
    low: Any,
    high: Any,
    ranges: int,
    probers: int,
    offsets: Any,
    found: Any,
) -> None:
    for i in range(probers):
        at = offsets[i]
        for first in range(begin[i], end[i], BLOCK):
            block = words[first : min(first + BLOCK, end[i])]
            hits = 0
            for k in range(ranges):
                lo, hi = low[k * probers + i], high[k * probers + i]
                if lo <= hi:
                    hits += _hits(block, lo, hi)
            if hits > 0:
                for p in range(block.shape[0]):
                    for k in range(ranges):
                        if (block[p] >= low[k * probers + i]) & (block[p] <= high[k * probers + i]):
                            found[at] = first + p
                            at += 1
                            break


def scan_prober(arrays: Sequence[Array], scalars: Sequence[int], team: Team) -> int:
    """Count or find partners, on the calling thread."""
    words, begin, end, low, high, counts, offsets, found = arrays
    probers, ranges, mode = scalars
    if mode == 0:
        _count(words, begin, end, low, high, ranges, probers, counts)
    else:
        _find(words, begin, end, low, high, ranges, probers, offsets, found)
    return probers
