"""BI-Sort's insertion buffer (PanJoin, III-D): the newest tuples, sorted in a small array on the host.

The paper leaves the buffer unsorted and scans it. Here it is sorted: inserting a few tuples moves some hundred others,
and a probe takes two binary searches. The buffer is too small to use a device for it.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from millrace.host.base.types import Array, Ids
from millrace.host.join.panjoin.subwindow import ID_PADDING, InsertBatch, RangeProbes
from millrace.host.runtime.intrinsics import LANES, address
from millrace.host.runtime.jit import kernel

BUFFER = 1 << 10
"""Capacity of the insertion buffer in tuples, as in the paper (V-A3)."""
_WORD_PADDING = 2 * LANES
"""Words that can be read beyond the last one."""


@kernel
def _merge_in(words: Any, ids: Any, size: int, new_words: Any, new_ids: Any) -> None:
    """Merge sorted tuples into the first `size` of a larger array, from the back. Equal words: older first."""
    i, j, at = size - 1, len(new_words) - 1, size + len(new_words) - 1
    while j >= 0:
        if i >= 0 and words[i] > new_words[j]:
            words[at], ids[at] = words[i], ids[i]
            i -= 1
        else:
            words[at], ids[at] = new_words[j], new_ids[j]
            j -= 1
        at -= 1


@kernel
def _search(words: Any, low: Any, high: Any, starts: Any, ends: Any) -> None:
    """Find starts and ends of the probes by binary search."""
    for q in range(low.shape[0]):
        starts[q] = np.searchsorted(words, low[q])
        ends[q] = np.searchsorted(words, high[q], "right")


class InsertionBuffer:
    """Up to `BUFFER` tuples."""

    def __init__(self, word: np.dtype[np.unsignedinteger]) -> None:
        """Empty."""
        self.words: Array = np.empty(BUFFER + _WORD_PADDING, word)
        self.ids: Ids = np.empty(BUFFER + ID_PADDING, np.uint32)
        self.sizes = np.zeros(1, np.int64)
        """The number of tuples, where kernels can read it."""
        self.words_at, self.ids_at = address(self.words), address(self.ids)

    @property
    def size(self) -> int:
        """The number of tuples."""
        return int(self.sizes[0])

    def insert(self, batch: InsertBatch) -> None:
        """Merge a few tuples in. The caller ensures that they fit."""
        _merge_in(self.words, self.ids, self.size, batch.words, batch.ids)
        self.sizes[0] += len(batch)

    def drain(self) -> tuple[Array, Ids]:
        """Remove and return all tuples."""
        n = self.size
        self.sizes[0] = 0
        return self.words[: n + _WORD_PADDING].copy()[:n], self.ids[: n + ID_PADDING].copy()[:n]

    def probe(self, probes: RangeProbes) -> tuple[Ids, Ids]:
        """Starts and ends of the probes' partners."""
        starts, ends = np.empty(len(probes), np.uint32), np.empty(len(probes), np.uint32)
        _search(self.words[: self.size], probes.low, probes.high, starts, ends)
        return starts, ends
