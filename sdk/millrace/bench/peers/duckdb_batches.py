"""Peer `duckdb`: micro-batches; each batch is joined with the other window by a range predicate (it takes its IEJoin).

The window is an Arrow table that DuckDB scans in place: as fast as a table of its own, and nothing is to be deleted.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from millrace.bench.harness import Answer, PeerMissing
from millrace.bench.peers.windows import SIDES, ArrivalWindow, newcomer
from millrace.bench.workload import Rows, Turn, Workload


class DuckdbSession:
    """An in-memory DuckDB with all cores."""

    def __init__(self, workload: Workload) -> None:
        """Connects; windows are empty."""
        try:
            import duckdb
        except ImportError as error:
            raise PeerMissing("duckdb is not installed: pip install 'millrace[bench]'") from error
        self._eps = workload.eps
        self._payload = workload.output == "pairs"
        self._windows = ArrivalWindow(workload.window), ArrivalWindow(workload.window)
        self._connection = duckdb.connect(":memory:")

    def fill(self, r: Rows, s: Rows) -> None:
        """Keep the rows."""
        self._windows[0].append(r)
        self._windows[1].append(s)

    def prepare(self, turn: Turn) -> tuple[int, Rows]:
        """The batch as it is."""
        return newcomer(turn)

    def push(self, prepared: tuple[int, Rows]) -> dict[str, Any]:
        """One SQL join, then the batch goes into its window."""
        side, rows = prepared
        own, other = self._windows[side], self._windows[1 - side]
        batch = ArrivalWindow(len(rows))
        batch.first = own.end
        batch.rows = rows
        self._connection.register("batch", _table(batch))
        self._connection.register("held", _table(other))
        result: dict[str, Any] = self._connection.execute(self._query(side)).fetchnumpy()
        own.append(rows)
        return result

    def answer(self, result: dict[str, Any]) -> Answer:
        """The columns as selected."""
        return result

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()

    def _query(self, side: int) -> str:
        tables = ("batch", "held") if side == 0 else ("held", "batch")
        names = ["r_seq", "s_seq"] + (["r_x", "r_v", "s_x", "s_v"] if self._payload else [])
        columns = (f"{tables[SIDES.index(n[0])]}.{n[2:]} AS {n}" for n in names)
        band = f"held.x BETWEEN batch.x - {self._eps} AND batch.x + {self._eps}"
        return f"SELECT {', '.join(columns)} FROM batch JOIN held ON {band}"


def _table(window: ArrivalWindow) -> pa.Table:
    return pa.table({"seq": window.seqs(), "x": window.rows.x, "v": window.rows.v})
