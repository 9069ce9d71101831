"""Stores values that cannot be inline: an append-only Arrow column, read by row number.

New rows are appended as chunks; small chunks are merged with those before them, so that there are never many. Limit:
rows without a reference stay until the index is rebuilt. (Not in the paper.)
"""

from __future__ import annotations

import pyarrow as pa

from millrace.host.base.types import Array, Mask
from millrace.host.kernels.gathered_memory import check_gathered

_MAX_JOINED = 1 << 30
"""Maximum bytes of a merged chunk: some Arrow types hold at most 2 GiB per chunk."""


class ValueStore:
    """Rows by number; immutable: `grown` returns a new store."""

    def __init__(self, chunks: list[pa.Array], kind: pa.DataType) -> None:
        """Rows are numbered across all chunks."""
        self.chunks, self.type = chunks, kind
        self._column = pa.chunked_array(chunks, kind)

    def __len__(self) -> int:
        """Number of rows, including those without a reference."""
        return len(self._column)

    @property
    def nbytes(self) -> int:
        """Bytes of all rows."""
        return int(self._column.nbytes)

    def grown(self, rows: pa.Array) -> ValueStore:
        """A store with more rows at the end."""
        chunks = [chunk for chunk in (*self.chunks, rows) if len(chunk)]
        while len(chunks) > 1 and len(chunks[-2]) <= 2 * len(chunks[-1]):
            if chunks[-2].nbytes + chunks[-1].nbytes > _MAX_JOINED:
                break
            chunks[-2:] = [pa.concat_arrays(chunks[-2:])]
        return ValueStore(chunks, self.type)

    def take(self, numbers: Array, absent: Mask | None = None) -> pa.Array:
        """Rows by number, null where absent."""
        rows = pa.array(numbers, mask=absent)
        check_gathered(self._column, rows)
        taken = self._column.take(rows)
        if taken.num_chunks == 1:
            return taken.chunk(0)
        return pa.concat_arrays(taken.chunks) if taken.num_chunks else pa.nulls(0, self.type)

    def combined(self) -> pa.Array:
        """All rows in one array."""
        return self.chunks[0] if len(self.chunks) == 1 else pa.concat_arrays([pa.nulls(0, self.type), *self.chunks])
