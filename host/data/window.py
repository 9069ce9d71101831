"""One side's window: the taken tuples that later ones may still meet, by position.

Positions number a side's taken tuples from 0 in the order they were taken. The window knows nothing of how long a
tuple lives: the layer above says from which position on tuples are kept.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from millrace.host.base.types import Array
from millrace.host.data.chunk_gathering import gather_rows
from millrace.host.data.rowstore import RowStore
from millrace.host.data.sliding import Deferred, Kept, Numbered, Sliding, Steady
from millrace.host.data.timescale import rescaled
from millrace.host.data.tuples import Tuples
from millrace.host.runtime.team import Team


class Window:
    """Who, when and what of each held tuple, and its payload."""

    def __init__(self, dtypes: dict[str, np.dtype[Any]], start: int = 0) -> None:
        """Empty; `dtypes` are those of the columns that the condition reads."""
        self.seq = Numbered(np.int64, start)
        self.source = Steady(np.int32, start)
        self.time: Sliding | Kept = Steady(np.int64, start)
        self.live = Steady(np.bool_, start)
        self.columns = {name: Deferred(dtype, start) for name, dtype in dtypes.items()}
        self.rows = RowStore()

    @property
    def first(self) -> int:
        """The oldest position held."""
        return self.seq.first

    @property
    def end(self) -> int:
        """The position that the next tuple will get."""
        return self.seq.end

    def __len__(self) -> int:
        """How many tuples are held."""
        return len(self.seq)

    def append(self, tuples: Tuples, run: str | None = None) -> None:
        """Take tuples in; `run` names the stored run that they came from."""
        self.rows.append(self.end, tuples.payload, run)
        self.seq.append(tuples.seq)
        self.source.append(tuples.source)
        self.time.append(tuples.time)
        self.live.append(tuples.live)
        for name, column in self.columns.items():
            column.append(tuples.columns[name])

    def truncate(self, end: int) -> None:
        """Undo appends from a position on."""
        self.rows.truncate(end)
        for part in self._parts():
            part.truncate(end)

    def settle(self, keep: int) -> None:
        """Forget what is below position `keep`."""
        if keep > self.first:
            for part in self._parts():
                part.drop_before(keep)
        self.rows.settle(self.first)

    def rescale(self, factor: int) -> None:
        """Times in a unit `factor` times finer."""
        times = rescaled(self.time.view(), factor)
        self.time = Sliding(np.int64, self.first)
        self.time.append(times)

    def held_columns(self) -> dict[str, Array]:
        """The condition's columns of all held tuples."""
        return {name: column.view() for name, column in self.columns.items()}

    def columns_at(self, positions: Array) -> dict[str, Array]:
        """The condition's columns at positions."""
        return {name: column.take(positions) for name, column in self.columns.items()}

    def seq_at(self, positions: Array) -> Array:
        """Seqs at positions: the positions themselves where every row was taken as it came."""
        return self.seq.take(positions)

    def payload_at(self, positions: Array, team: Team) -> list[pa.Array | pa.ChunkedArray]:
        """Payload columns at positions, gathered by a team that has been roused."""
        return gather_rows(self.rows, positions, team)

    def _parts(self) -> list[Sliding | Kept]:
        return [self.seq, self.source, self.time, self.live, *self.columns.values()]
