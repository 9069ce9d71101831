"""Our own `WindowJoin` as a session, used as a user would: tables in, a table of pairs out."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from millrace.bench.harness import Answer
from millrace.bench.workload import Rows, Turn, Workload, answer_columns
from millrace.window_join import WindowJoin


class OurSession:
    """A `WindowJoin` with a given index on a given device."""

    def __init__(self, workload: Workload, index: str, device: str) -> None:
        """Nothing pushed yet."""
        self._output = workload.output
        self._join = WindowJoin(
            on=workload.on,
            window=f"{workload.window} rows",
            index=index,
            device=device,
            output=workload.output,
        )

    def fill(self, r: Rows, s: Rows) -> None:
        """Push both windows; the pairs are dropped."""
        self._join.push("r", self._table(r))
        self._join.push("s", self._table(s))

    def prepare(self, turn: Turn) -> tuple[pa.Table, pa.Table, Any]:
        """Arrow tables over the same memory."""
        return self._table(turn.r), self._table(turn.s), turn.order

    def push(self, prepared: tuple[pa.Table, pa.Table, Any]) -> pa.Table:
        """A batch of one side by `push`, tuples of both by `push_both`."""
        r, s, order = prepared
        if not s.num_rows:
            return self._join.push("r", r)
        if not r.num_rows:
            return self._join.push("s", s)
        return self._join.push_both(r, s, order)

    def answer(self, result: pa.Table) -> Answer:
        """All columns; of counts, those that a batch of one side needs."""
        return {name: result.column(name).to_numpy() for name in answer_columns(self._output)}

    def close(self) -> None:
        """End the join."""
        self._join.close()

    def _table(self, rows: Rows) -> pa.Table:
        return pa.table({"x": rows.x, "v": rows.v} if self._output == "pairs" else {"x": rows.x})
