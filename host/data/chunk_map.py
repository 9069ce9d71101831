"""Where the rows of a store's chunks are in memory: the end of each chunk, and the address of each column's values.

Kernels gather rows by it (`chunk_gathering.py`). Limits: only fixed-width numbers and times without nulls have an
address; a column is *plain* while that holds in every chunk.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np
import pyarrow as pa

from millrace.host.base.types import Longs
from millrace.host.kernels.gathering import plain_width
from millrace.host.runtime.intrinsics import address

_MIN_CHUNKS = 32


class MappedChunk(Protocol):
    """What the map reads of a chunk."""

    @property
    def start(self) -> int:
        """The position of the first row."""

    @property
    def table(self) -> pa.Table:
        """The rows."""

    @property
    def origins(self) -> list[int | None]:
        """The address that each column's value at position 0 would have; filled by the map when it first needs it."""


class ChunkMap:
    """The chunks of one store, in order; chunks can only be added."""

    def __init__(self, schema: pa.Schema) -> None:
        """A map without chunks, for rows of this schema."""
        self.widths = [plain_width(field.type) for field in schema]
        """Bytes per value of each column; 0 if its values have no fixed width."""
        self.types = [field.type for field in schema]
        self.plain = [i for i, width in enumerate(self.widths) if width]
        """The columns that are plain in all chunks."""
        self.count = 0
        self.first = 0
        self._hold(np.empty(_MIN_CHUNKS, np.int64), np.empty((len(schema), _MIN_CHUNKS), np.int64))

    def _hold(self, ends: Longs, origins: Longs) -> None:
        """Use these arrays of ends and origins, and keep their addresses for kernels."""
        self.ends, self.origins = ends, origins
        self.ends_address, first = address(ends), address(origins)
        self.origin_addresses = [first + origins.strides[0] * i for i in range(len(origins))]

    def update(self, chunks: Sequence[MappedChunk]) -> None:
        """Add the chunks after those that are known."""
        if self.count < len(chunks):
            self.first = chunks[0].start
        for number in range(self.count, len(chunks)):
            self._add(chunks[number])

    def _add(self, chunk: MappedChunk) -> None:
        if self.count == len(self.ends):
            more = len(self.ends)
            self._hold(
                np.concatenate([self.ends, np.empty(more, np.int64)]),
                np.hstack([self.origins, np.empty((len(self.origins), more), np.int64)]),
            )
        if not chunk.origins:
            chunk.origins.extend(self._origins(chunk))
        if None in chunk.origins:
            self.plain = [i for i in self.plain if chunk.origins[i] is not None]
        self.ends[self.count] = chunk.start + chunk.table.num_rows
        self.origins[:, self.count] = [origin or 0 for origin in chunk.origins]
        self.count += 1

    def _origins(self, chunk: MappedChunk) -> list[int | None]:
        found: list[int | None] = []
        for i, width in enumerate(self.widths):
            column = chunk.table.column(i) if width else None
            if column is None or column.num_chunks != 1 or column.null_count:
                found.append(None)
            else:
                values = column.chunk(0)
                found.append(values.buffers()[1].address + width * (values.offset - chunk.start))
        return found
