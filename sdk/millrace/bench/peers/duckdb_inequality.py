"""Peer `duckdb` of bench `inequality_join`: two DuckDB tables, one SQL join, counted or as an Arrow table."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from millrace.bench.harness import Answer
from millrace.bench.inequality_workload import Readings
from millrace.bench.peers.duckdb_band import import_duckdb


class DuckdbInequality:
    """An in-memory DuckDB that uses all cores; it joins on inequalities by IEJoin."""

    def __init__(self, given: Readings) -> None:
        """Copy the rows into DuckDB."""
        self._duckdb = import_duckdb()
        self._connection = self._duckdb.connect(":memory:")
        self._counting = given.output == "count"
        wanted = "count(*) AS total" if self._counting else "r.seq AS r_seq, s.seq AS s_seq"
        self._query = f"SELECT {wanted} FROM r_rows r JOIN s_rows s ON {given.on}"
        for name, columns in zip(("r_rows", "s_rows"), given.sides, strict=True):
            self._connection.register("given", pa.table({"seq": np.arange(given.rows), **columns}))
            self._connection.execute(f"CREATE TABLE {name} AS FROM given")
            self._connection.unregister("given")

    def plan(self) -> str:
        """The text of EXPLAIN."""
        ((_, text),) = self._connection.execute(f"EXPLAIN {self._query}").fetchall()
        return str(text)

    def run(self) -> pa.Table:
        """Run the query."""
        try:
            return self._connection.sql(self._query).to_arrow_table()
        except self._duckdb.OutOfMemoryException as error:
            raise MemoryError(str(error)) from error

    def answer(self, result: pa.Table) -> Answer:
        """The pairs, or their number."""
        return {name: result.column(name).to_numpy() for name in result.column_names}

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()
