"""The short way of a push of few plain rows: their key is read in place, and one compiled call finds the partners.

Most pushes of a live stream bring a table of a few rows without nulls, in a count window, with a condition such as
`abs(r.x - s.x) <= 5`. What such a push needs is bound once to the join's plan and index. The way ends in the windows,
the index and the results of every other push; whatever does not suit takes the general way, with the same result.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from millrace.host.base.types import Array, Side, other
from millrace.host.data.window import Window
from millrace.host.join.contract import PlainKey, PlainTuples
from millrace.host.join.matcher import Matcher
from millrace.host.join.panjoin.small_step import MAX_TUPLES
from millrace.host.kernels.gathering import plain_width
from millrace.host.stream.intake import Intake
from millrace.host.stream.window_bounds import WindowBounds


class PlainRows:
    """A table of few rows: where its columns are in memory, and its key."""

    def __init__(self, table: pa.Table, origins: list[int | None], values_at: int, values: Array) -> None:
        """`origins`: as in `Chunk`, for the position that the rows will get."""
        self.table, self.origins, self.values_at, self.values = table, origins, values_at, values


class ShortPush:
    """The short way of one side, bound to a matcher."""

    def __init__(self, side: Side, intake: Intake, bounds: WindowBounds, matcher: Matcher, key: PlainKey) -> None:
        """`key`: as the matcher gives it, of a side that reads one column."""
        self.side, self.matcher, self.lengths = side, matcher, bounds.lengths
        self._key, self._schema = key, intake.schema
        ((_, self._name), kind), *_ = intake.types.items()
        self._column, self._dtype = intake.schema.names.index(self._name), kind.stored
        self._widths = [plain_width(one) for one in intake.schema.types]
        self._most = min(MAX_TUPLES, self.lengths[side])

    @staticmethod
    def bind(side: Side, intake: Intake, bounds: WindowBounds, matcher: Matcher) -> ShortPush | None:
        """The short way, if the side's rows need nothing but the key, which the matcher can search so."""
        key = matcher.plain_key(side)
        if key is None or len(intake.types) != 1 or intake.filters or intake.as_s is not None or not bounds.counts:
            return None
        return ShortPush(side, intake, bounds, matcher, key)

    def read(self, batch: pa.Table, start: int) -> PlainRows | None:
        """The rows of a batch that will get the positions from `start` on; None if it does not suit."""
        rows = batch.num_rows
        if not 0 < rows <= self._most or not batch.schema.equals(self._schema, check_metadata=True):
            return None
        origins: list[int | None] = []
        values_at, values = 0, None
        for number, (column, width) in enumerate(zip(batch.columns, self._widths, strict=True)):
            if column.num_chunks != 1:
                return None
            if not width or column.null_count:
                if number == self._column:
                    return None
                origins.append(None)
                continue
            array = column.chunk(0)
            memory, offset = array.buffers()[1], width * array.offset
            first = memory.address + offset
            origins.append(first - width * start)
            if number == self._column:
                values_at, values = first, np.frombuffer(memory, self._dtype, rows, offset)
        assert values is not None
        return PlainRows(batch, origins, values_at, values)

    def append(self, window: Window, seq: int, rows: PlainRows) -> None:
        """Append the rows to the window of their side."""
        window.append_plain(seq, rows.table, rows.origins, {self._name: rows.values})

    def tuples(self, windows: dict[Side, Window], rows: PlainRows) -> tuple[PlainTuples, tuple[int, int]]:
        """The tuples of appended rows, and the oldest positions (r's, s's) that later ones can see."""
        lengths, side, partner = self.lengths, self.side, other(self.side)
        count, end = len(rows.values), windows[partner].end
        begin = max(end - lengths[partner], 0)
        new = PlainTuples(self._key, rows.values_at, count, windows[side].end - count, begin, end)
        oldest = max(windows[side].end - lengths[side], 0)
        return new, (oldest, begin) if side == "r" else (begin, oldest)
