"""BI-Sort's insertion buffer (PanJoin, III-D): the newest tuples, kept sorted in a small array of the host.

The paper leaves it unsorted and scans it; sorted, a batch of a few tuples is put in by moving some hundred others, and
a question is answered by two binary searches. No device is asked for so few.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from millrace.host.base.types import Array, Ids
from millrace.host.join.panjoin.subwindow import PAD, Batch, Questions
from millrace.host.runtime.intrinsics import LANES
from millrace.host.runtime.jit import kernel

BUFFER = 1 << 10
"""Tuples of the insertion buffer, as in the paper (V-A3)."""
_BEHIND = 2 * LANES
"""Words that can be read behind the last one."""


@kernel
def _merge_in(words: Any, ids: Any, size: int, new_words: Any, new_ids: Any) -> None:
    """Merge sorted tuples into the first `size` of an array that has room, from the back; equal words: older first."""
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
    """Records of bounds, each by binary search."""
    for q in range(low.shape[0]):
        starts[q] = np.searchsorted(words, low[q])
        ends[q] = np.searchsorted(words, high[q], "right")


class InsertionBuffer:
    """Up to `BUFFER` tuples."""

    def __init__(self, word: np.dtype[np.unsignedinteger]) -> None:
        """Empty."""
        self._words: Array = np.empty(BUFFER + _BEHIND, word)
        self.ids: Ids = np.empty(BUFFER + PAD, np.uint32)
        self.size = 0

    def insert(self, batch: Batch) -> None:
        """Merge a few tuples in; the caller knows that there is room."""
        _merge_in(self._words, self.ids, self.size, batch.words, batch.ids)
        self.size += len(batch)

    def empty(self) -> tuple[Array, Ids]:
        """What was in it."""
        n, self.size = self.size, 0
        return self._words[: n + _BEHIND].copy()[:n], self.ids[: n + PAD].copy()[:n]

    def probe(self, questions: Questions) -> tuple[Ids, Ids]:
        """Starts and ends of the questions' partners."""
        starts, ends = np.empty(len(questions), np.uint32), np.empty(len(questions), np.uint32)
        _search(self._words[: self.size], questions.low, questions.high, starts, ends)
        return starts, ends
