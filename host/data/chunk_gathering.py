"""Gathers payload rows of a window by position, on all threads, from the chunks of its row store.

Arrow's `take` on many chunks finds each row's chunk by binary search, on one thread. Here a table maps each segment of
positions to the chunk in which the segment begins. One table access, rarely followed by a step, finds the chunk. Rows
are prefetched one block at a time before any row is read. Limits: only fixed-width numbers and times without nulls;
Arrow gathers columns of other types and results with few rows.
"""

from __future__ import annotations

from enum import auto
from typing import Any

import numpy as np
import pyarrow as pa

from millrace.host.base.types import Array, Positions
from millrace.host.data.rowstore import Chunk, RowStore
from millrace.host.kernels.gathering import MIN_ROWS, SLICE
from millrace.host.runtime.allocator import result_array
from millrace.host.runtime.intrinsics import load, load_as, load_id, prefetch, stack_words, store_as
from millrace.host.runtime.jit import inline, kernel, share
from millrace.host.runtime.kernel_args import KernelArgs
from millrace.host.runtime.team import Team

BLOCK = 64
"""Rows whose chunks are looked up and whose values are prefetched before any value is read."""
SEGMENTS = 1 << 10
"""Entries of the chunk table: segments of the position range."""


class _Args(KernelArgs):
    """The arguments of a gather."""

    ROWS = auto()  # positions of the wanted rows
    N = auto()
    FIRST = auto()  # the first position
    BITS = auto()  # log2 of the segment length
    CHUNK_OF = auto()  # the chunk of each segment
    ENDS = auto()  # the end of each chunk
    COLUMNS = auto()
    COLUMN = auto()  # then per column: width in bytes, the address of position 0 in each chunk, result


@kernel
def _chunks_of(ends: Any, first: int, bits: int, chunk_of: Any) -> None:
    """Compute the chunk in which each segment of positions begins."""
    chunk = 0
    for k in range(chunk_of.shape[0]):
        while chunk < ends.shape[0] - 1 and first + (k << bits) >= ends[chunk]:
            chunk += 1
        chunk_of[k] = chunk


@inline
def _gather_block(rows: int, count: int, chunks: int, origins: int, out: int, at: int, size: int, like: Any) -> None:
    """Gather one column's values for a block of rows whose chunks are known."""
    for j in range(count):
        prefetch(load_as(origins, load_as(chunks, j, 0), 0) + size * load_as(rows, j, 0))
    for j in range(count):
        origin = load_as(origins, load_as(chunks, j, 0), 0)
        store_as(out, at + j, load_as(origin, load_as(rows, j, 0), like))


@share
def _gather(given: int, part: int, parts: int) -> None:
    rows, n, first = load(given, _Args.ROWS), load(given, _Args.N), load(given, _Args.FIRST)
    bits = load(given, _Args.BITS)
    chunk_of, ends, columns = load(given, _Args.CHUNK_OF), load(given, _Args.ENDS), load(given, _Args.COLUMNS)
    chunks, stop = stack_words(BLOCK), n * (part + 1) // parts
    for at in range(n * part // parts, stop, BLOCK):
        count, block = min(BLOCK, stop - at), rows + 8 * at
        for j in range(count):
            position = load_as(block, j, 0)
            chunk = load_id(chunk_of, (position - first) >> bits)
            while position >= load_as(ends, chunk, 0):
                chunk += 1
            store_as(chunks, j, chunk)
        for c in range(columns):
            column = given + 8 * (_Args.COLUMN + 3 * c)
            size, origins, out = load_as(column, 0, 0), load_as(column, 1, 0), load_as(column, 2, 0)
            if size == 8:
                _gather_block(block, count, chunks, origins, out, at, 8, np.uint64(0))
            elif size == 4:
                _gather_block(block, count, chunks, origins, out, at, 4, np.uint32(0))
            elif size == 2:
                _gather_block(block, count, chunks, origins, out, at, 2, np.uint16(0))
            else:
                _gather_block(block, count, chunks, origins, out, at, 1, np.uint8(0))


def gather_rows(store: RowStore, positions: Positions, team: Team) -> list[pa.Array | pa.ChunkedArray]:
    """Return the store's columns at these positions, in this order; the caller has acquired the team."""
    if len(positions) < MIN_ROWS:
        return list(store.gather(positions).columns)
    origins = list(zip(*(chunk.origins for chunk in store.chunks), strict=True))
    plain = [i for i, column in enumerate(origins) if None not in column]
    if not plain:
        return list(store.gather(positions).columns)
    schema, positions = store.chunks[0].table.schema, np.ascontiguousarray(positions)
    out = {i: result_array(len(positions), np.dtype(f"u{schema.field(i).type.bit_width // 8}")) for i in plain}
    columns = [(values.itemsize, np.array(origins[i], np.int64), values) for i, values in out.items()]
    mapping = _position_arguments(store.chunks, positions)
    given = _Args.pack(*(entry for column in columns for entry in column), **mapping, COLUMNS=len(plain))
    team.run(_gather, given, -(-len(positions) // SLICE))
    others = [i for i in range(len(schema)) if i not in out]
    remaining = iter(store.gather(positions, others).columns if others else ())
    return [_as_arrow(field.type, out[i]) if i in out else next(remaining) for i, field in enumerate(schema)]


def _position_arguments(chunks: list[Chunk], positions: Positions) -> dict[str, int | Array]:
    """Return the kernel arguments that map positions to chunks."""
    first, ends = chunks[0].start, np.array([chunk.end for chunk in chunks], np.int64)
    bits = max((chunks[-1].end - first).bit_length() - (SEGMENTS.bit_length() - 1), 0)
    chunk_of = np.empty(SEGMENTS + 1, np.uint32)
    _chunks_of(ends, first, bits, chunk_of)
    return {"ROWS": positions, "N": len(positions), "FIRST": first, "BITS": bits, "CHUNK_OF": chunk_of, "ENDS": ends}


def _as_arrow(kind: pa.DataType, values: Array) -> pa.Array:
    return pa.Array.from_buffers(kind, len(values), [None, pa.py_buffer(values)])
