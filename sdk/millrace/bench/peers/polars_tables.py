"""Peer `polars` of `mr.join`: two frames, one lazy join, collected."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from millrace.bench.harness import Answer
from millrace.bench.peers.polars_band import band_join, check_polars
from millrace.bench.peers.windows import SIDES
from millrace.bench.tables import COLUMNS, Tables

if TYPE_CHECKING:
    import polars as pl


class PolarsTables:
    """Polars, using all cores."""

    def __init__(self, tables: Tables, buckets: bool = False) -> None:
        """Create frames from the rows."""
        check_polars()
        import polars as pl

        r, s = (
            pl.DataFrame({f"{side}_seq": np.arange(len(rows)), f"{side}_x": rows.x, f"{side}_v": rows.v})
            for side, rows in zip(SIDES, tables.sides, strict=True)
        )
        self._query = band_join(r.lazy(), s.lazy(), ("r_x", "s_x"), tables.workload.eps, buckets).select(COLUMNS)

    def run(self) -> pl.DataFrame:
        """Collect the query."""
        return self._query.collect()

    def answer(self, result: pl.DataFrame) -> Answer:
        """All columns."""
        return {name: result[name].to_numpy() for name in COLUMNS}

    def close(self) -> None:
        """Nothing to release."""
