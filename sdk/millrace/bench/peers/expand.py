"""Shared by the NumPy peers: expands ranges into single positions."""

from __future__ import annotations

import numpy as np

from millrace.bench.workload import Longs


def expand(begin: Longs, counts: Longs) -> Longs:
    """`begin[i], begin[i] + 1, …` for each i, `counts[i]` of them."""
    starts = np.cumsum(counts) - counts
    within: Longs = np.arange(int(counts.sum()), dtype=np.int64) + np.repeat(begin - starts, counts)
    return within
