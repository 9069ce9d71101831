"""Peer `duckdb`: micro-batches; each batch is joined with the other window by a range predicate (IEJoin).

`duckdb-buckets` uses a hash join on parts of the domain. The window is an Arrow table that DuckDB scans in place: as
fast as a DuckDB table, and expired rows need no deletion.
"""

from __future__ import annotations

import pyarrow as pa

from millrace.bench.harness import Answer
from millrace.bench.peers.duckdb_band import band_query, import_duckdb
from millrace.bench.peers.windows import ArrivalWindow, pushed_side
from millrace.bench.workload import Rows, Turn, Workload, answer_columns


class DuckdbSession:
    """An in-memory DuckDB that uses all cores."""

    def __init__(self, workload: Workload, buckets: bool = False) -> None:
        """Connect; the windows are empty."""
        self._payload = workload.output == "pairs"
        columns = answer_columns(workload.output)
        # One query per side of the new batch.
        self._queries = tuple(
            band_query(tables, columns, workload.eps, buckets) for tables in (("batch", "held"), ("held", "batch"))
        )
        self._windows = ArrivalWindow(workload.window), ArrivalWindow(workload.window)
        self._connection = import_duckdb().connect(":memory:")

    def fill(self, r: Rows, s: Rows) -> None:
        """Store the rows."""
        self._windows[0].append(r)
        self._windows[1].append(s)

    def prepare(self, turn: Turn) -> tuple[int, Rows]:
        """The batch without conversion."""
        return pushed_side(turn)

    def push(self, prepared: tuple[int, Rows]) -> pa.Table:
        """Run one SQL join, then append the batch to its window."""
        side, rows = prepared
        own, other = self._windows[side], self._windows[1 - side]
        self._connection.register("batch", self._table(own.next_batch(rows)))
        self._connection.register("held", self._table(other))
        result = self._connection.sql(self._queries[side]).to_arrow_table()
        own.append(rows)
        return result

    def answer(self, result: pa.Table) -> Answer:
        """The selected columns."""
        return {name: result.column(name).to_numpy() for name in result.column_names}

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()

    def _table(self, window: ArrivalWindow) -> pa.Table:
        columns = {"seq": window.seqs(), "x": window.rows.x}
        return pa.table(columns | ({"v": window.rows.v} if self._payload else {}))
