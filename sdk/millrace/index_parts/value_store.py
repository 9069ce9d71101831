"""Values that cannot lie beside their words: rows of an Arrow column that only grows, taken by row number.

New rows come as new chunks; small chunks are put together with those before them, so that there are never many. Rows
that nothing refers to any more stay until the index is built anew.
"""

from __future__ import annotations

import pyarrow as pa

from millrace.host.base.types import Array, Mask

_MOST_JOINED = 1 << 30
"""Bytes up to which chunks are put together: some types hold no more than 2 GiB in one."""


class ValueStore:
    """Rows by number; it never changes, `grown` gives another one."""

    def __init__(self, chunks: list[pa.Array], kind: pa.DataType) -> None:
        """Rows of all chunks are numbered through."""
        self.chunks, self.type = chunks, kind
        self._column = pa.chunked_array(chunks, kind)

    def __len__(self) -> int:
        """Rows, whether anything refers to them or not."""
        return len(self._column)

    @property
    def nbytes(self) -> int:
        """Bytes of all rows."""
        return int(self._column.nbytes)

    def grown(self, rows: pa.Array) -> ValueStore:
        """With more rows at the end."""
        chunks = [chunk for chunk in (*self.chunks, rows) if len(chunk)]
        while len(chunks) > 1 and len(chunks[-2]) <= 2 * len(chunks[-1]):
            if chunks[-2].nbytes + chunks[-1].nbytes > _MOST_JOINED:
                break
            chunks[-2:] = [pa.concat_arrays(chunks[-2:])]
        return ValueStore(chunks, self.type)

    def take(self, numbers: Array, absent: Mask | None = None) -> pa.Array:
        """Rows by number, null where absent."""
        taken = self._column.take(pa.array(numbers, mask=absent))
        if taken.num_chunks == 1:
            return taken.chunk(0)
        return pa.concat_arrays(taken.chunks) if taken.num_chunks else pa.nulls(0, self.type)

    def whole(self) -> pa.Array:
        """All rows in one piece."""
        return self.chunks[0] if len(self.chunks) == 1 else pa.concat_arrays([pa.nulls(0, self.type), *self.chunks])
