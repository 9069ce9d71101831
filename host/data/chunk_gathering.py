"""Gathers payload rows of a window by position, on all threads, from the chunks of its row store.

Arrow's `take` on many chunks finds each row's chunk by binary search, on one thread. Here a table maps each segment of
positions to the chunk in which the segment begins. One table access, rarely followed by a step, finds the chunk. Rows
are prefetched one block at a time before any row is read. Few rows need no table: a search begins at the first chunk.
Limits: only fixed-width numbers and times without nulls; Arrow gathers columns of other types.
"""

from __future__ import annotations

from enum import auto
from itertools import accumulate
from typing import Any

import numpy as np
import pyarrow as pa

from millrace.host.base.faults import ARMED, fault_point
from millrace.host.base.types import Array, Positions
from millrace.host.data.chunk_map import ChunkMap
from millrace.host.data.rowstore import RowStore
from millrace.host.kernels.gathering import MIN_ROWS, SLICE
from millrace.host.runtime.allocator import result_array
from millrace.host.runtime.intrinsics import address, load, load_as, load_id, prefetch, stack_words, store_as
from millrace.host.runtime.jit import inline, kernel, share
from millrace.host.runtime.kernel_args import KernelArgs
from millrace.host.runtime.team import Team

BLOCK = 64
"""Rows whose chunks are looked up and whose values are prefetched before any value is read."""
SEGMENTS = 1 << 10
"""Entries of the chunk table: segments of the position range."""
_ONE_SEGMENT, _NO_CHUNKS = 62, np.zeros(1, np.uint32)
"""The segments for few rows: a single one, so that every search begins at the first chunk."""
_NO_CHUNKS_AT = _NO_CHUNKS.ctypes.data  # not by `address`: nothing is compiled at import


class _Args(KernelArgs):
    """The arguments of a gather."""

    ROWS = auto()  # positions of the wanted rows
    N = auto()
    FIRST = auto()  # the first position
    BITS = auto()  # log2 of the segment length
    CHUNK_OF = auto()  # the chunk of each segment
    ENDS = auto()  # the end of each chunk
    AT = auto()  # the number of the first result row
    COLUMNS = auto()
    COLUMN = auto()  # then per column: width in bytes, the address of position 0 in each chunk, result


_COLUMN = int(_Args.COLUMN)


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


@inline
def _gather_part(given: int, part: int, parts: int) -> None:
    rows, n, first = load(given, _Args.ROWS), load(given, _Args.N), load(given, _Args.FIRST)
    bits = load(given, _Args.BITS)
    chunk_of, ends, columns = load(given, _Args.CHUNK_OF), load(given, _Args.ENDS), load(given, _Args.COLUMNS)
    chunks, stop, shift = stack_words(BLOCK), n * (part + 1) // parts, load(given, _Args.AT)
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
                _gather_block(block, count, chunks, origins, out, shift + at, 8, np.uint64(0))
            elif size == 4:
                _gather_block(block, count, chunks, origins, out, shift + at, 4, np.uint32(0))
            elif size == 2:
                _gather_block(block, count, chunks, origins, out, shift + at, 2, np.uint16(0))
            else:
                _gather_block(block, count, chunks, origins, out, shift + at, 1, np.uint8(0))


@share
def _gather(given: int, part: int, parts: int) -> None:
    _gather_part(given, part, parts)


@kernel
def _gather_few(first: int, second: int) -> None:
    """The same in one part, for the rows of two stores, called directly."""
    _gather_part(first, 0, 1)
    _gather_part(second, 0, 1)


def _gather_point() -> None:
    fault_point("output.gather")


def gather_rows(store: RowStore, positions: Positions, team: Team) -> list[pa.Array | pa.ChunkedArray]:
    """Return the store's columns at these positions, in this order; the caller has acquired the team."""
    rows = len(positions)
    if rows == 0:
        return list(store.gather(positions).columns)
    if ARMED:
        _gather_point()
    chunks = store.chunk_map()
    if not chunks.plain:
        return list(store.gather(positions).columns)
    plain = _gather_plain(chunks, np.ascontiguousarray(positions), team)
    if len(plain) == len(chunks.widths):
        return list(plain.values())
    others = [i for i in range(len(chunks.widths)) if i not in plain]
    gathered = iter(store.gather(positions, others).columns)
    return [plain[i] if i in plain else next(gathered) for i in range(len(chunks.widths))]


class FewRows:
    """The arguments that gather few rows of a store again and again, into the same columns of memory."""

    def __init__(self, outs: list[int]) -> None:
        """`outs`: the address of each column; all columns are plain."""
        self._outs = outs
        self._given = np.zeros(_Args.COLUMN + 3 * len(outs), np.int64)
        self._where = address(self._given)
        self._origins: list[int] | None = None

    def at(self, chunks: ChunkMap, positions: int, rows: int, start: int) -> int:
        """Return where the arguments are, to gather the rows at these positions (an address) from row `start` on."""
        given = self._given
        if self._origins is not chunks.origin_addresses:
            for i, (width, origin, out) in enumerate(
                zip(chunks.widths, chunks.origin_addresses, self._outs, strict=True)
            ):
                column = _COLUMN + 3 * i
                given[column : column + 3] = width, origin, out
            self._origins = chunks.origin_addresses
        header = positions, rows, chunks.first, _ONE_SEGMENT, _NO_CHUNKS_AT, chunks.ends_address, start, len(self._outs)
        given[:_COLUMN] = header
        return self._where


def gather_few(first: int, second: int) -> None:
    """Gather few rows of two stores, as two `FewRows.at` say."""
    if ARMED:
        _gather_point()
    _gather_few(first, second)


def _gather_plain(chunks: ChunkMap, positions: Positions, team: Team) -> dict[int, pa.Array]:
    """Gather the plain columns into one block of memory."""
    rows, sizes = len(positions), [chunks.widths[i] for i in chunks.plain]
    ends = list(accumulate(-(-size * rows // 8) * 8 for size in sizes))
    block = result_array(ends[-1] // 8, np.int64)
    table, first, stride = address(chunks.origins), address(block), chunks.origins.strides[0]
    starts, columns = [0, *ends[:-1]], []
    for i, size, start in zip(chunks.plain, sizes, starts, strict=True):
        columns += [size, table + stride * i, first + start]
    bits, chunk_of = _segments(chunks, rows)
    header = [address(positions), rows, chunks.first, bits, address(chunk_of), address(chunks.ends), 0, len(sizes)]
    given = np.array(header + columns, np.int64)  # as `_Args` names them
    team.run(_gather, given, -(-rows // SLICE))
    memory = pa.py_buffer(block)
    return {
        i: pa.Array.from_buffers(chunks.types[i], rows, [None, memory.slice(start, size * rows)])
        for i, size, start in zip(chunks.plain, sizes, starts, strict=True)
    }


def _segments(chunks: ChunkMap, rows: int) -> tuple[int, Array]:
    """Return log2 of a segment's length, and the chunk in which each segment begins. Few rows: one segment."""
    if rows < MIN_ROWS:
        return _ONE_SEGMENT, _NO_CHUNKS
    ends = chunks.ends[: chunks.count]
    bits = max((int(ends[-1]) - chunks.first).bit_length() - (SEGMENTS.bit_length() - 1), 0)
    chunk_of = np.empty(SEGMENTS + 1, np.uint32)
    _chunks_of(ends, chunks.first, bits, chunk_of)
    return bits, chunk_of
