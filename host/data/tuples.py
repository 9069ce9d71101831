"""A batch of tuples of one side: who they are, when they are, what the condition reads of them, and their payload.

All parts have one entry per tuple, in the same order. The payload stays in Arrow and is only sliced, taken and
concatenated; the columns that the condition reads are held as native arrays beside it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from millrace.host.base.types import Array, Longs, Mask
from millrace.host.data.timescale import rescaled


@dataclass(frozen=True)
class Tuples:
    """Tuples of one side. `time` is in the join's own ticks (zeros where there is no time column).

    `live`: can match, that is no null in the condition's columns and all one-sided terms hold.
    """

    seq: Longs
    source: npt.NDArray[np.int32]
    time: Longs
    live: Mask
    columns: dict[str, Array]
    payload: pa.Table

    def __len__(self) -> int:
        """How many tuples."""
        return len(self.seq)

    def take(self, rows: Array) -> Tuples:
        """These rows, in this order."""
        columns = {name: c[rows] for name, c in self.columns.items()}
        payload = self.payload.take(pa.array(rows))
        return Tuples(self.seq[rows], self.source[rows], self.time[rows], self.live[rows], columns, payload)

    def slice(self, start: int, stop: int) -> Tuples:
        """A run of rows, without a copy."""
        columns = {name: c[start:stop] for name, c in self.columns.items()}
        payload = self.payload.slice(start, stop - start)
        part = slice(start, stop)
        return Tuples(self.seq[part], self.source[part], self.time[part], self.live[part], columns, payload)

    def compact(self) -> Tuples:
        """The same tuples with their payload in as few pieces as Arrow allows."""
        return replace(self, payload=self.payload.combine_chunks())

    def rescaled(self, factor: int) -> Tuples:
        """The same tuples with times in a unit `factor` times finer."""
        return replace(self, time=rescaled(self.time, factor))


def concat(parts: Sequence[Tuples]) -> Tuples:
    """One batch of several (at least one), in order."""
    if len(parts) == 1:
        return parts[0]
    names = parts[0].columns
    return Tuples(
        np.concatenate([p.seq for p in parts]),
        np.concatenate([p.source for p in parts]),
        np.concatenate([p.time for p in parts]),
        np.concatenate([p.live for p in parts]),
        {name: np.concatenate([p.columns[name] for p in parts]) for name in names},
        pa.concat_tables([p.payload for p in parts]),
    )


def in_order(tuples: Tuples) -> Tuples:
    """Sorted by (time, source, seq); the same object if it is already."""
    t, q = tuples.time, tuples.source
    if len(t) < 2:
        return tuples
    # Within a source seq ascends by construction of every batch, so a stable sort by (time, source) is enough.
    key_ok = (t[1:] > t[:-1]) | ((t[1:] == t[:-1]) & (q[1:] >= q[:-1]))
    if key_ok.all():
        return tuples
    return tuples.take(np.lexsort((tuples.seq, q, t)))
