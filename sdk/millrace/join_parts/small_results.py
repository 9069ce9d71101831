"""Tables of few pairs: rows of a block that is built once, instead of a new Arrow array per column and call.

Making an Arrow array from Python costs more than a small step. So a block of rows has its arrays and its table made
once; a call writes its pairs behind those of the calls before and returns a slice of the table. Rows are written once,
so a result never changes. Limits: columns of fixed-width numbers and times without nulls, one source per side; a result
keeps its block alive, `BLOCK_BYTES` and its columns' names.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from millrace.host.base.types import SIDES, Array, Positions, Side
from millrace.host.data.chunk_gathering import FewRows, gather_few
from millrace.host.data.window import Window
from millrace.host.kernels.gathering import plain_width
from millrace.host.runtime.allocator import result_array
from millrace.host.runtime.intrinsics import address

BLOCK_BYTES = 1 << 17
SHARE = 4
"""A result of more than one part in so many of a block gets its own arrays."""


class SmallResults:
    """The current block of one join's results."""

    def __init__(self, schema: pa.Schema, several: bool) -> None:
        """No block yet. `schema`: two sequence numbers, then r's and s's columns. `several`: sources on a side."""
        self.schema = schema
        self._types = schema.types
        self._widths = [plain_width(kind) for kind in self._types]
        plain = all(self._widths) and not several
        self._rows = BLOCK_BYTES // sum(self._widths) if plain else 0
        self._used = self._rows
        self._gathers: tuple[FewRows, FewRows] | None = None
        self.limit = self._rows // SHARE
        """The most pairs of a result in a block; 0 if the columns do not suit."""

    def table(
        self, windows: dict[Side, Window], positions: dict[Side, Positions], at: dict[Side, int] | None = None
    ) -> pa.Table | None:
        """The pairs at these positions of the windows; None if they need arrays of their own.

        `at`: the addresses of the positions, if they are known.
        """
        pairs = len(positions["r"])
        maps = [windows[side].rows.chunk_map() for side in SIDES] if len(self._widths) > 2 else []
        if any(len(one.plain) < len(one.widths) for one in maps):
            return None
        if self._used + pairs > self._rows:
            self._begin()
        start, self._used = self._used, self._used + pairs
        for seqs, side in zip(self._seqs, SIDES, strict=True):
            seqs[start : start + pairs] = windows[side].seq_at(positions[side])
        if maps:
            if at is None:
                positions = {side: np.ascontiguousarray(positions[side]) for side in SIDES}
                at = {side: address(positions[side]) for side in SIDES}
            if self._gathers is None:
                r_columns = len(maps[0].widths)
                self._gathers = FewRows(self._outs[:r_columns]), FewRows(self._outs[r_columns:])
            r, s = self._gathers
            gather_few(r.at(maps[0], at["r"], pairs, start), s.at(maps[1], at["s"], pairs, start))
        return self._table.slice(start, pairs)

    def _begin(self) -> None:
        """Make a new block; the old one belongs to its results."""
        rows, starts = self._rows, [0]
        for width in self._widths:
            starts.append(starts[-1] + -(-width * rows // 64) * 64)
        block: Array = result_array(starts[-1] // 8, np.int64)
        memory, first = pa.py_buffer(block), address(block)
        arrays = [
            pa.Array.from_buffers(kind, rows, [None, memory.slice(start, width * rows)], null_count=0)
            for kind, width, start in zip(self._types, self._widths, starts, strict=False)
        ]
        table = pa.Table.from_arrays(arrays, schema=self.schema)
        seqs = [block[start // 8 : start // 8 + rows] for start in starts[:2]]
        outs = [first + start for start in starts[2:-1]]
        # One step, in which no signal comes.
        self._table, self._seqs, self._outs, self._gathers, self._used = table, seqs, outs, None, 0
