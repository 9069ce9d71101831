"""Payload rows in Arrow, in immutable chunks addressed by position; checkpoints write the same chunks.

Small chunks are merged pairwise (each row is copied a logarithmic number of times). Expired chunks are dropped at the
front. A chunk is trimmed, by a copy of its live rows, when its expired rows outnumber all live ones: so memory is
bounded, and a chunk that is no larger than the window is never copied, which would stall a push. A chunk that a
checkpoint has written keeps the name of its stored run until it is merged, so unchanged rows are never written twice.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import field, replace

import numpy as np
import pyarrow as pa

from millrace.host.base.columns import column_of
from millrace.host.base.types import Array
from millrace.host.base.value_class import value_class
from millrace.host.data.chunk_map import ChunkMap
from millrace.host.kernels.gathering import gather

MERGE_ROWS = 1 << 16
TRIM_ROWS = 1 << 12
FEW_ROWS = 16
"""So few rows are gathered one by one."""


@value_class
class Chunk:
    """Rows from position `start` on. `run` is the name of the stored run, which begins at position `run_start`."""

    start: int
    table: pa.Table
    run: str | None = None
    run_start: int = 0
    origins: list[int | None] = field(default_factory=list)
    """See `chunk_map.py`."""

    @property
    def end(self) -> int:
        """One past the last position."""
        return self.start + int(self.table.num_rows)


class RowStore:
    """Chunks of rows, oldest first, without gaps."""

    def __init__(self) -> None:
        """Create an empty store."""
        self.chunks: list[Chunk] = []
        self.merges = 0
        self._map: ChunkMap | None = None

    def chunk_map(self) -> ChunkMap:
        """Return where the rows of all chunks are; the store must not be empty."""
        if self._map is None:
            self._map = ChunkMap(self.chunks[0].table.schema)
        self._map.update(self.chunks)
        return self._map

    def append(self, start: int, table: pa.Table, run: str | None = None) -> None:
        """Append rows; `start` is the position of the first."""
        if table.num_rows:
            self.chunks.append(Chunk(start, table, run, start))

    def truncate(self, end: int) -> None:
        """Undo appends from position `end` on. Chunks appended since the last `evict` are not merged yet."""
        self._map = None
        while self.chunks and self.chunks[-1].start >= end:
            self.chunks.pop()

    def gather(self, positions: Array, columns: Sequence[int] | None = None) -> pa.Table:
        """Return the rows at these positions, in this order: all columns, or the columns with these indices."""
        if 0 < len(positions) <= FEW_ROWS and len(self.chunks) > 1:
            return self._gather_few(positions, columns)
        parts = [c.table if columns is None else c.table.select(columns) for c in self.chunks]
        return gather(pa.concat_tables(parts), column_of(positions - self.chunks[0].start))

    def _gather_few(self, positions: Array, columns: Sequence[int] | None) -> pa.Table:
        """Gather row by row: Arrow's `take` from several chunks first copies all of them into one."""
        ends, parts = [chunk.end for chunk in self.chunks], []
        for position in positions.tolist():
            chunk = self.chunks[bisect_right(ends, position)]
            row = chunk.table.slice(position - chunk.start, 1)
            parts.append(row if columns is None else row.select(columns))
        return pa.concat_tables(parts).combine_chunks()

    def evict(self, first: int) -> None:
        """Drop rows below position `first`, then merge and trim chunks; called once a change is final."""
        self._map = None
        while self.chunks and self.chunks[0].end <= first:
            self.chunks.pop(0)
        if self.chunks:
            self.chunks[0] = _trimmed(self.chunks[0], first, self.chunks[-1].end - first)
        while len(self.chunks) > 1 and self._unbalanced():
            before, last = self.chunks[-2:]
            # The merged copy is built first: if this fails, no row is lost.
            table = pa.concat_tables([before.table, last.table]).combine_chunks()
            self.chunks[-2:] = [Chunk(before.start, table)]
            self.merges += 1

    def _unbalanced(self) -> bool:
        before, last = (int(c.table.num_rows) for c in self.chunks[-2:])
        return before <= 2 * last and before + last <= MERGE_ROWS

    def name_runs(self, first: int, stored: frozenset[str], write: Callable[[int, pa.Table], str]) -> None:
        """Write every chunk that is not among the `stored` runs; `write(start, rows)` returns the name of the run."""
        for i, chunk in enumerate(self.chunks):
            if chunk.run not in stored:
                start = max(chunk.start, first)
                name = write(start, chunk.table.slice(start - chunk.start))
                self.chunks[i] = replace(chunk, run=name, run_start=start)


def _trimmed(chunk: Chunk, first: int, live: int) -> Chunk:
    """The oldest chunk, without expired rows if there are more of these than `live` rows in all chunks."""
    dead = first - chunk.start
    if dead < max(TRIM_ROWS, live):
        return chunk
    rest = chunk.table.slice(dead)
    own = rest.take(column_of(np.arange(rest.num_rows)))  # a copy: a slice would keep the memory of the expired rows
    return Chunk(first, own, chunk.run, chunk.run_start)
