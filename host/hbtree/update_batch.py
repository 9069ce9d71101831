"""Prepares a batch of deletes and upserts: sorted by word, one change per word, the last one wins.

Deletes come before upserts, so a word in both is upserted (contract of `OrderedIndex.update`; thesis, appendix A, 5.6).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from millrace.host.base.types import Array
from millrace.host.hbtree.editor import Changes
from millrace.host.hbtree.plain import sort_rows
from millrace.host.runtime.team import Team


@dataclass(frozen=True)
class ChangeBatch:
    """Sorted, distinct words; 1 for an upsert, 0 for a delete; the row number among the upserts (deletes: 0)."""

    words: Array
    upserts: npt.NDArray[np.uint8]
    rows: npt.NDArray[np.uint32]

    def __len__(self) -> int:
        """Number of changes."""
        return len(self.words)

    def changes(self, values: Array) -> Changes:
        """The changes with the values of the upserts."""
        held = values if len(values) else np.zeros(1, values.dtype)
        return Changes(self.words, self.upserts, self.rows, np.ascontiguousarray(held))


def make_batch(deletes: Array, upserts: Array, team: Team) -> ChangeBatch:
    """Make a batch of the words to delete and to upsert, in input order."""
    words = np.concatenate([deletes, upserts]) if len(deletes) else upserts
    ordered, order = sort_rows(words, team)
    last = np.empty(len(words), np.bool_)
    last[-1:] = True
    np.not_equal(ordered[1:], ordered[:-1], out=last[:-1])
    if not last.all():
        ordered, order = ordered[last], order[last]
    if not len(deletes):
        return ChangeBatch(ordered, np.ones(len(ordered), np.uint8), order)
    kinds = order >= len(deletes)
    rows = np.where(kinds, order - np.uint32(len(deletes)), np.uint32(0))
    return ChangeBatch(ordered, kinds.view(np.uint8), rows)


def split_largest(changes: Changes) -> tuple[Changes, Changes]:
    """Split into the changes of other words and the change of the largest word, if any."""
    count = len(changes)
    most = np.iinfo(changes.words.dtype).max
    cut = count - 1 if count and int(changes.words[-1]) == int(most) else count
    return changes.part(0, cut), changes.part(cut, count)
