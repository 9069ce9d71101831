"""A batch of tuples of one side: sequence numbers, sources, times, the condition's columns and the payload.

All parts have one entry per tuple, in the same order. The payload stays in Arrow and is only sliced, gathered and
concatenated. The columns that the condition reads are also held as native arrays.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from millrace.host.base.columns import column_of
from millrace.host.base.types import Array, Longs, Mask
from millrace.host.base.value_class import value_class
from millrace.host.data.timescale import rescaled


@value_class
class Tuples:
    """Tuples of one side. `time` is in ticks of the join's time scale (zeros without a time column).

    `live`: the tuple can match, that is, the condition's columns are not null and all one-sided terms hold. In a
    self-join, `live_as_s` says the same of the tuple in its role as s, and `columns` are those of both roles.
    """

    seq: Longs
    source: npt.NDArray[np.int32]
    time: Longs
    live: Mask
    columns: dict[str, Array]
    payload: pa.Table
    live_as_s: Mask | None = None

    def __len__(self) -> int:
        """Return the number of tuples."""
        return len(self.seq)

    def take(self, rows: Array) -> Tuples:
        """Return these rows, in this order."""
        return self._part(rows, self.payload.take(column_of(rows)))

    def slice(self, start: int, stop: int) -> Tuples:
        """Return consecutive rows, without a copy."""
        return self._part(slice(start, stop), self.payload.slice(start, stop - start))

    def _part(self, rows: Any, payload: pa.Table) -> Tuples:
        """The rows at these numbers, or in this slice."""
        columns = {name: c[rows] for name, c in self.columns.items()}
        as_s = None if self.live_as_s is None else self.live_as_s[rows]
        return Tuples(self.seq[rows], self.source[rows], self.time[rows], self.live[rows], columns, payload, as_s)

    def as_s(self) -> Tuples:
        """Return the tuples of a self-join in their role as s."""
        assert self.live_as_s is not None
        return Tuples(self.seq, self.source, self.time, self.live_as_s, self.columns, self.payload)

    def compact(self) -> Tuples:
        """Return the same tuples with the payload in as few chunks as Arrow allows."""
        return replace(self, payload=self.payload.combine_chunks())

    def rescaled(self, factor: int) -> Tuples:
        """Return the same tuples with times in a unit `factor` times finer."""
        return replace(self, time=rescaled(self.time, factor))


def concat(parts: Sequence[Tuples]) -> Tuples:
    """Concatenate batches (at least one), in order."""
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
        None if parts[0].live_as_s is None else np.concatenate([p.live_as_s for p in parts if p.live_as_s is not None]),
    )


def in_order(tuples: Tuples) -> Tuples:
    """Sort by (time, source, seq); return the same object if it is sorted already."""
    t, q = tuples.time, tuples.source
    if len(t) < 2:
        return tuples
    # Within a source, seq ascends in every batch, so (time, source) decides whether the batch is sorted.
    key_ok = (t[1:] > t[:-1]) | ((t[1:] == t[:-1]) & (q[1:] >= q[:-1]))
    if key_ok.all():
        return tuples
    return tuples.take(np.lexsort((tuples.seq, q, t)))


_NOTHING = np.zeros(0, np.int64)
NO_TUPLES = Tuples(_NOTHING, np.zeros(0, np.int32), _NOTHING, np.zeros(0, np.bool_), {}, pa.table({}))
"""No tuples of a side, whose columns may not be known yet."""
