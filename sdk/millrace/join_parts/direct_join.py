"""The direct strategy of `mr.join`: produces pairs in r's order together with their payload.

It stores s ordered by key, each key next to its payload (`direct/keyed_rows.py`), and looks up the partners of r's rows
one by one (`direct/keyed_join.py`). So r is never sorted, and no payload is gathered afterwards. Limits: inner joins by
one exact range of a key (a band or an equality) on the CPU, no null keys, keys spread fairly evenly, few partners per
row. All other joins use `table_probe.py`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from millrace.host.base.faults import fault_point
from millrace.host.base.types import SIDES, Array, Side
from millrace.host.base.words import all_true
from millrace.host.data.tuples import Tuples
from millrace.host.expr.evaluate import Columns
from millrace.host.expr.grouped_keys import is_grouped, laid_out
from millrace.host.expr.plan import Plan
from millrace.host.join.direct.keyed_join import Chunk, KeyedJoin, Ranges
from millrace.host.join.direct.keyed_rows import KeyedRows
from millrace.host.kernels.gathering import plain_values
from millrace.host.planner.selectivity import table_plan
from millrace.host.runtime.team import Team
from millrace.ingest.arguments import OpenedEngine

INDEXES = ("bisort", "auto")
MIN_ROWS = 1 << 13
"""If either table has fewer rows, the direct strategy is not used."""
MAX_ROWS = (1 << 31) - 1
MAX_PAYLOAD_COLUMNS = 7
"""Maximum number of payload columns of s stored next to the key."""


@dataclass(frozen=True)
class DirectBlock:
    """A chunk of the result: row numbers, and the payload columns produced so far, by side and column number."""

    rows: pa.Array
    partners: pa.Array
    columns: dict[tuple[Side, int], pa.Array]


def direct_blocks(
    plan: Plan, opened: OpenedEngine, tables: Mapping[Side, pa.Table], tuples: dict[Side, Tuples], payload: bool
) -> list[DirectBlock] | None:
    """All pairs, or None if this strategy does not apply."""
    sizes = [tables[side].num_rows for side in SIDES]
    if (
        not opened.device.shares_host_memory
        or opened.index not in INDEXES
        or min(sizes) < MIN_ROWS
        or max(sizes) > MAX_ROWS
    ):
        return None
    if not all(all_true(tuples[side].live) for side in SIDES):
        return None
    plan = table_plan(plan, tuples, "s")
    if is_grouped(plan, "s"):
        plan = laid_out(plan, "s", {("s", name): c for name, c in tuples["s"].columns.items()}, static=True)
    if not plan.searchable or len(plan.searches["s"][0].ranges) > 1 or plan.recheck_of("s"):
        return None
    return _DirectJoin(plan, tuples, tables, payload, opened.team).blocks()


@dataclass(frozen=True)
class _DirectJoin:
    """One direct join, for which `direct_blocks` has checked the condition."""

    plan: Plan
    tuples: dict[Side, Tuples]
    tables: Mapping[Side, pa.Table]
    payload: bool
    team: Team

    def blocks(self) -> list[DirectBlock] | None:
        """All pairs, or None if the keys do not suit."""
        words = self._words("s")
        if words is None:
            return None
        plain = {side: self._plain(side) for side in SIDES}
        key, key_flip = self._key(words, plain["s"])
        payload_columns = [i for i in plain["s"] if i != key][:MAX_PAYLOAD_COLUMNS]
        self.team.acquire()
        try:
            fault_point("direct.build")
            keyed = KeyedRows.of(*words, [plain["s"][i] for i in payload_columns], self.team)
            if keyed is None:
                return None
            try:
                fault_point("direct.probe")
                chunks = KeyedJoin(self._ranges(), keyed, list(plain["r"].values()), key_flip, self.team).run()
            finally:
                keyed.release(self.team)
        finally:
            self.team.depth -= 1
        return None if chunks is None else [self._block(one, list(plain["r"]), payload_columns, key) for one in chunks]

    def _words(self, side: Side) -> tuple[Array, int] | None:
        """A side's key words: a column and the bits to flip in it; None if some row has no key."""
        key, tuples = self.plan.searches[side][0].key, self.tuples[side]
        if key.column is not None:
            values = tuples.columns[key.column.name]
            if values.dtype.kind in "iu" and values.dtype.itemsize == key.kind.word.itemsize:
                flip = 1 << (8 * values.itemsize - 1) if values.dtype.kind == "i" else 0
                return np.ascontiguousarray(values), flip
        words, known = key.words({(side, name): c for name, c in tuples.columns.items()}, self.plan.types)
        return None if known is not None else (np.ascontiguousarray(words), 0)

    def _ranges(self) -> Ranges:
        """The key ranges in which r's rows search."""
        band, words = self.plan.band("r"), self._words("r")
        if band is not None and words is not None:
            return Ranges(words[0], words[0], words[1], *band)
        columns: Columns = {("r", name): c for name, c in self.tuples["r"].columns.items()}
        low, high = self.plan.searches["s"][0].word_ranges(columns, self.plan.types, len(self.tuples["r"]))
        return Ranges(np.ascontiguousarray(low[0]), np.ascontiguousarray(high[0]))

    def _plain(self, side: Side) -> dict[int, Array]:
        """A side's 64-bit columns without nulls, by column number."""
        if not self.payload:
            return {}
        values = {i: plain_values(column) for i, column in enumerate(self.tables[side].columns)}
        return {i: v.view(np.int64) for i, v in values.items() if v is not None and v.itemsize == 8}

    @staticmethod
    def _key(words: tuple[Array, int], plain: dict[int, Array]) -> tuple[int | None, int | None]:
        """The number of the column that the key words are made of, and the bits to flip to get its values back."""
        for i, values in plain.items():
            if words[0].itemsize == 8 and values.ctypes.data == words[0].ctypes.data:
                return i, words[1]
        return None, None

    def _block(self, chunk: Chunk, r_columns: Sequence[int], s_columns: Sequence[int], key: int | None) -> DirectBlock:
        found: dict[tuple[Side, int], Array] = {("r", i): c for i, c in zip(r_columns, chunk.r_columns, strict=True)}
        found |= {("s", i): c for i, c in zip(s_columns, chunk.s_columns, strict=True)}
        if key is not None and chunk.s_key is not None:
            found["s", key] = chunk.s_key
        columns = {
            (side, i): pa.Array.from_buffers(self.tables[side].schema.field(i).type, len(c), [None, pa.py_buffer(c)])
            for (side, i), c in found.items()
        }
        return DirectBlock(pa.array(chunk.rows), pa.array(chunk.partners), columns)
