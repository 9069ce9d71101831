"""Refuses to gather rows whose values of variable length do not fit in memory, with the arithmetic.

A pair takes some bytes, but the texts of its rows may take any number: a row with many partners is copied as often.
Exact sizes are only computed if the longest value, gathered every time, would not fit. Limit: rows of nested types
count with their average size.
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from millrace.host.base.errors import ArgumentError
from millrace.host.base.memory import free_bytes, size_text

SMALL = 1 << 28
"""Fewer bytes are not checked."""
_LENGTHS = (pa.types.is_string, pa.types.is_large_string, pa.types.is_binary, pa.types.is_large_binary)


def check_gathered(given: pa.Table | pa.ChunkedArray | pa.Array, rows: pa.Array) -> None:
    """Raise an `ArgumentError` if the values at these rows do not fit in memory."""
    count = len(rows)
    if count * given.get_total_buffer_size() <= SMALL:
        return
    columns = given.columns if isinstance(given, pa.Table) else [given]
    size = sum(longest_bytes(column) for column in columns) * count
    if size <= SMALL or size <= free_bytes():
        return
    size = sum(_gathered_bytes(column, rows) for column in columns)
    if size > SMALL and size > free_bytes():
        raise ArgumentError(
            f"the result does not fit in memory: the values of {count:,} rows take {size_text(size)}, and there are "
            f"{size_text(free_bytes())}; ask for fewer rows at a time (batch_rows= where there is one), leave out "
            f"columns with long values, or use output='seqs'"
        )


def longest_bytes(column: pa.ChunkedArray | pa.Array) -> int:
    """The bytes of the longest value; of types without a length, an average."""
    if any(test(column.type) for test in _LENGTHS):
        return int(pc.max(pc.binary_length(column)).as_py() or 0) + 4
    return int(column.nbytes) // max(len(column), 1) + 1


def _gathered_bytes(column: pa.ChunkedArray | pa.Array, rows: pa.Array) -> int:
    if any(test(column.type) for test in _LENGTHS):
        lengths = pc.binary_length(column).take(rows)
        return int(pc.sum(lengths.cast(pa.int64())).as_py() or 0) + 4 * len(rows)
    return longest_bytes(column) * len(rows)
