"""Peer `duckdb` of `mr.join`: two DuckDB tables, one SQL join, the result as an Arrow table."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from millrace.bench.harness import Answer
from millrace.bench.peers.duckdb_band import band_query, import_duckdb
from millrace.bench.tables import COLUMNS, Tables


class DuckdbTables:
    """An in-memory DuckDB that uses all cores."""

    def __init__(self, tables: Tables, buckets: bool = False) -> None:
        """Copy the rows into DuckDB."""
        self._duckdb = import_duckdb()
        self._connection = self._duckdb.connect(":memory:")
        self._query = band_query(("r_rows", "s_rows"), COLUMNS, tables.workload.eps, buckets)
        for name, rows in zip(("r_rows", "s_rows"), tables.sides, strict=True):
            self._connection.register("given", pa.table({"seq": np.arange(len(rows)), "x": rows.x, "v": rows.v}))
            self._connection.execute(f"CREATE TABLE {name} AS FROM given")
            self._connection.unregister("given")

    def run(self) -> pa.Table:
        """Run the query."""
        try:
            return self._connection.sql(self._query).to_arrow_table()
        except self._duckdb.OutOfMemoryException as error:
            raise MemoryError(str(error)) from error

    def answer(self, result: pa.Table) -> Answer:
        """The selected columns."""
        return {name: result.column(name).to_numpy() for name in COLUMNS}

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()
