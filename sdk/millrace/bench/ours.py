"""Our own `WindowJoin` as a session, called through the public API: tables in, a table of pairs out."""

from __future__ import annotations

from typing import Any, cast

import pyarrow as pa

from millrace.bench.harness import Answer
from millrace.bench.workload import Rows, Turn, Workload, answer_columns
from millrace.ingest.choices import IndexName
from millrace.window_join import WindowJoin


class OurSession:
    """A `WindowJoin` with a given index on a given device."""

    def __init__(self, workload: Workload, index: str, device: str) -> None:
        """Create the join; nothing is pushed yet."""
        self._output = workload.output
        self._join = WindowJoin(
            on=workload.on,
            window=f"{workload.window} rows",
            index=cast(IndexName, index),
            device=device,
            output=workload.output,
        )

    def fill(self, r: Rows, s: Rows) -> None:
        """Push a full window of each side; the pairs are dropped."""
        self._join.push("r", self._table(r))
        self._join.push("s", self._table(s))

    def prepare(self, turn: Turn) -> tuple[pa.Table, pa.Table, Any]:
        """Arrow tables that share the arrays' memory."""
        return self._table(turn.r), self._table(turn.s), turn.order

    def push(self, prepared: tuple[pa.Table, pa.Table, Any]) -> pa.Table:
        """Call `push` for a batch of one side, `push_both` for tuples of both."""
        r, s, order = prepared
        if not s.num_rows:
            return self._join.push("r", r)
        if not r.num_rows:
            return self._join.push("s", s)
        return self._join.push_both(r, s, order)

    def answer(self, result: pa.Table) -> Answer:
        """All result columns; for counts, only those of a batch of one side."""
        return {name: result.column(name).to_numpy() for name in answer_columns(self._output)}

    def close(self) -> None:
        """Close the join."""
        self._join.close()

    def _table(self, rows: Rows) -> pa.Table:
        return pa.table({"x": rows.x, "v": rows.v} if self._output == "pairs" else {"x": rows.x})
