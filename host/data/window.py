"""One side's window: the processed ("taken") tuples that later tuples may still match, by position.

Positions number a side's taken tuples from 0, in the order in which they were taken. The window does not know how long
a tuple stays in it: the caller passes the first position to keep (`evict`).
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from millrace.host.base.faults import ARMED, fault_point
from millrace.host.base.types import Array
from millrace.host.base.words import repeated
from millrace.host.data.chunk_gathering import gather_rows
from millrace.host.data.rowstore import Chunk, RowStore
from millrace.host.data.sliding import BatchedArray, ConstantArray, LazySlidingArray, PositionArray, SlidingArray
from millrace.host.data.timescale import rescaled
from millrace.host.data.tuples import Tuples
from millrace.host.runtime.team import Team

EVICT_BATCHES, EVICT_SHARE = 16, 16
"""A window is due for eviction after this many batches, or once a 16th of what it held has been appended."""


class Window:
    """Sequence number, source, time, condition columns and payload of each tuple held."""

    def __init__(self, dtypes: dict[str, np.dtype[Any]], start: int = 0) -> None:
        """Create an empty window; `dtypes` are those of the columns that the condition reads."""
        self.seq = PositionArray(np.int64, start)
        self.source = ConstantArray(np.int32, start)
        self.time: SlidingArray | LazySlidingArray = ConstantArray(np.int64, start)
        self.live = ConstantArray(np.bool_, start)
        self.columns = {name: BatchedArray(dtype, start) for name, dtype in dtypes.items()}
        self.rows = RowStore()
        self._appended = self._batches = self._kept = 0
        self._evicted = start
        """What the last eviction began to drop up to."""

    @property
    def eviction_due(self) -> bool:
        """Whether rows or batches since the last eviction are enough for another one to pay; bounds what is held."""
        return self._batches >= EVICT_BATCHES or EVICT_SHARE * self._appended > self._kept

    @property
    def first(self) -> int:
        """The oldest position held."""
        return self.seq.first

    @property
    def end(self) -> int:
        """The position that the next tuple will get."""
        return self.seq.end

    def __len__(self) -> int:
        """Return the number of tuples held."""
        return len(self.seq)

    def append(self, tuples: Tuples, run: str | None = None) -> None:
        """Append tuples; `run` names the stored run that they were restored from."""
        self.rows.append(self.seq.end, tuples.payload, run)
        self._appended += len(tuples.seq)
        self._batches += 1
        self.seq.append(tuples.seq)
        self.source.append(tuples.source)
        self.time.append(tuples.time)
        self.live.append(tuples.live)
        for name, column in self.columns.items():
            column.append(tuples.columns[name])

    def append_plain(self, seq: int, payload: pa.Table, origins: list[int | None], values: dict[str, Array]) -> None:
        """Append live rows without time and of source 0, numbered from `seq` on.

        `origins`: as in `Chunk`; `values`: the columns that the condition reads.
        """
        rows = payload.num_rows
        self.rows.chunks.append(Chunk(self.seq.end, payload, None, self.seq.end, origins))
        self._appended += rows
        self._batches += 1
        self.seq.count_on(seq, rows)
        self.source.repeat(0, rows)
        if isinstance(self.time, ConstantArray):
            self.time.repeat(0, rows)
        else:
            self.time.append(repeated(0, rows))
        self.live.repeat(True, rows)
        for name, column in self.columns.items():
            column.append(values[name])

    def truncate(self, end: int) -> None:
        """Undo appends from position `end` on."""
        self.rows.truncate(end)
        for part in self._parts():
            part.truncate(end)

    def evict(self, keep: int) -> None:
        """Drop tuples below position `keep`."""
        if keep > self.first:
            self._evicted = keep
            self._drop_evicted()
        self.rows.evict(self.first)
        self._appended, self._batches, self._kept = 0, 0, len(self)

    def finish_eviction(self) -> None:
        """Finish an eviction that an error or an interrupt has cut off between two columns."""
        if self._evicted > self.first:
            self._drop_evicted()

    def _drop_evicted(self) -> None:
        # `seq` is last: it says what the window holds, so that an unfinished eviction shows.
        for part in reversed(self._parts()):
            if ARMED:
                fault_point("window.evict")
            part.drop_before(self._evicted)

    def rescale(self, factor: int) -> None:
        """Convert times to a unit `factor` times finer."""
        times = rescaled(self.time.view(), factor)
        self.time = SlidingArray(np.int64, self.first)
        self.time.append(times)

    def held_columns(self) -> dict[str, Array]:
        """Return the condition's columns of all tuples held."""
        return {name: column.view() for name, column in self.columns.items()}

    def columns_at(self, positions: Array) -> dict[str, Array]:
        """Return the condition's columns at these positions."""
        return {name: column.take(positions) for name, column in self.columns.items()}

    def seq_at(self, positions: Array) -> Array:
        """Return the seqs at these positions: the positions themselves if no row was dropped or reordered."""
        return self.seq.take(positions)

    def payload_at(self, positions: Array, team: Team) -> list[pa.Array | pa.ChunkedArray]:
        """Return the payload columns at these positions, gathered by an acquired team."""
        return gather_rows(self.rows, positions, team)

    def _parts(self) -> list[SlidingArray | LazySlidingArray]:
        return [self.seq, self.source, self.time, self.live, *self.columns.values()]
