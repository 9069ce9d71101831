"""Joins a table's rows with keyed rows (`keyed_rows.py`), and writes pairs with payload directly to result columns.

The probing rows are processed in their own order, which is the order of the result; each looks up its range of keys.
Nothing is sorted but the partners of one row. The number of pairs is estimated from a sample. Each part of the probing
rows writes to its own space in the result columns, which becomes a chunk of the result. A part that finds more pairs
than its space holds is joined again with enough space. The kernels are in `keyed_join_kernel.py`.

Limits: None instead of a result if rows compare more than `MAX_CANDIDATES` keyed rows on average, or if a row has more
than `MAX_PARTNERS` (kernel) partners; the caller then uses another index.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from millrace.host.base.types import Array
from millrace.host.join.direct import keyed_join_kernel as kk
from millrace.host.join.direct.keyed_rows import KeyedRows
from millrace.host.join.pair_memory import check_fits, fits
from millrace.host.runtime.allocator import allocate, free, result_array
from millrace.host.runtime.intrinsics import LINE, address
from millrace.host.runtime.team import Team

PART_ROWS = 1 << 16
"""The minimum number of rows of a part, if there are enough rows for `MIN_PARTS`."""
MIN_PARTS = 16
MAX_CANDIDATES = 16
"""The maximum number of keyed rows that a row compares, on average."""
SPACE_FACTOR = 1.125
"""Space in the result as a multiple of the pairs expected from the sample."""
MIN_SPACE = 1 << 10
"""Extra space of a part, in pairs."""


@dataclass(frozen=True)
class Ranges:
    """The range of words that each row looks up: from `(low ^ flip) - below` to `(high ^ flip) + above`.

    Both saturate at the limits of the word's type.
    """

    low: Array
    high: Array
    flip: int = 0
    below: int = 0
    above: int = 0

    def __len__(self) -> int:
        """The number of rows."""
        return len(self.low)


@dataclass(frozen=True)
class Chunk:
    """Pairs in order: row numbers of both sides, then the requested 64-bit columns."""

    rows: Array
    partners: Array
    r_columns: list[Array]
    s_columns: list[Array]
    s_key: Array | None


class KeyedJoin:
    """The join of some rows with keyed rows. With `key_flip`, the words of the key, XOR `key_flip`, become a column."""

    def __init__(
        self, ranges: Ranges, keyed: KeyedRows, r_columns: Sequence[Array], key_flip: int | None, team: Team
    ) -> None:
        """Set the kernels' arguments. `run` joins."""
        self._team, self._keyed, self._r_columns, self._key_flip = team, keyed, r_columns, key_flip
        self._ranges = ranges
        wide = ranges.low.itemsize == 8
        self._sample, self._join = (kk.sample_64, kk.join_64) if wide else (kk.sample_32, kk.join_32)
        if wide and keyed.width == 2:
            self._join = kk.join_64_2
        largest = (1 << (8 * ranges.low.itemsize)) - 1
        self._given = kk.Args.partly(
            *[0] * (2 * len(r_columns) + keyed.width - 1),
            WORDS_LOW=ranges.low,
            WORDS_HIGH=ranges.high,
            FLIP=ranges.flip,
            BELOW=min(ranges.below, largest),
            ABOVE=min(ranges.above, largest),
            LARGEST=largest,
            BASE=keyed.base,
            TOP=keyed.top,
            NUMBER_BITS=keyed.number_bits,
            SHIFT=keyed.shift,
            ROWS=keyed.rows,
            DIRECTORY=keyed.directory,
            R_COLUMNS=len(r_columns),
            S_COLUMNS=keyed.width - 1,
            KEY_FLIP=key_flip or 0,
            WIDTH=keyed.width,
        )

    def run(self) -> list[Chunk] | None:
        """All pairs, one chunk per part. None if rows compare too many keyed rows, or have too many pairs."""
        parts = _parts(len(self._ranges))
        local = allocate(len(parts) * kk.LOCAL_SIZE, np.uint8)
        self._given[kk.Args.LOCAL] = address(local)
        try:
            space = self._space(parts)
            row = 8 * (2 + len(self._r_columns) + self._keyed.width)
            if space is None or not fits(int(space.sum()), row):
                return None
            parts[:, kk.Part.SPACE] = space
            chunks = self._run(parts)
            overfull = np.flatnonzero(parts[:, kk.Part.FOUND] > parts[:, kk.Part.SPACE])
            if chunks is not None and len(overfull):
                again = parts[overfull]
                again[:, kk.Part.SPACE] = (again[:, kk.Part.FOUND] + LINE - 1) & -LINE
                check_fits(int(again[:, kk.Part.SPACE].sum()), bytes_per_pair=row)
                for i, chunk in zip(overfull, self._run(again) or [], strict=True):
                    chunks[i] = chunk
            return chunks
        finally:
            free(local)

    def _space(self, parts: Array) -> Array | None:
        """The space of each part in pairs, by a sample. None if rows compare too many keyed rows."""
        self._given[kk.Args.PARTS] = address(parts)
        self._team.run(self._sample, self._given, len(parts))
        sampled = int(np.minimum(parts[:, kk.Part.STOP] - parts[:, kk.Part.FIRST], kk.BLOCK).sum())
        if parts[:, kk.Part.SPACE].sum() > MAX_CANDIDATES * sampled:
            return None
        rate = SPACE_FACTOR * parts[:, kk.Part.FOUND].sum() / sampled
        space: Array = ((parts[:, kk.Part.STOP] - parts[:, kk.Part.FIRST]) * rate).astype(np.int64) + MIN_SPACE & -LINE
        return space

    def _run(self, parts: Array) -> list[Chunk] | None:
        """Join parts, each into its own space."""
        given, r_count, s_count = self._given, len(self._r_columns), self._keyed.width - 1
        parts[:, kk.Part.AT] = np.cumsum(parts[:, kk.Part.SPACE]) - parts[:, kk.Part.SPACE]
        size = int(parts[:, kk.Part.SPACE].sum())
        outs = [_aligned(size) for _ in range(2 + r_count + s_count)]
        key = None if self._key_flip is None else _aligned(size)
        given[[kk.Args.PARTS, kk.Args.R_SEQ, kk.Args.S_SEQ]] = address(parts), address(outs[0]), address(outs[1])
        given[kk.Args.S_KEY] = 0 if key is None else address(key)
        for c, (source, out) in enumerate(zip(self._r_columns, outs[2:], strict=False)):
            given[[kk.Args.COLUMNS + 2 * c, kk.Args.COLUMNS + 2 * c + 1]] = address(source), address(out)
        at_s = kk.Args.COLUMNS + 2 * r_count
        given[at_s : at_s + s_count] = [address(out) for out in outs[2 + r_count :]]
        self._team.run(self._join, given, len(parts))
        if (parts[:, kk.Part.FOUND] < 0).any():
            return None
        chunks = []
        for at, found in parts[:, [kk.Part.AT, kk.Part.FOUND]].tolist():
            mine = [out[at : at + found] for out in outs]
            own_key = None if key is None else key[at : at + found]
            chunks.append(Chunk(mine[0], mine[1], mine[2 : 2 + r_count], mine[2 + r_count :], own_key))
        return chunks


def _parts(rows: int) -> Array:
    """Divide rows into parts, with no pairs found yet."""
    count = max(rows // PART_ROWS, min(MIN_PARTS, -(-rows // kk.BLOCK)))
    bounds = np.arange(count + 1) * rows // count
    parts = np.zeros((count, kk.PART_SIZE), np.int64)
    parts[:, kk.Part.FIRST], parts[:, kk.Part.STOP] = bounds[:-1], bounds[1:]
    return parts


def _aligned(size: int) -> Array:
    """A result column that begins at a cache line."""
    out = result_array(size + LINE, np.int64)
    return out[-(address(out) // 8) % LINE :][:size]
