"""Peer `polars` of bench `inequality_join`: two frames, one lazy `join_where`, collected or counted."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from millrace.bench.harness import Answer
from millrace.bench.inequality_workload import Readings
from millrace.bench.peers.polars_band import check_polars
from millrace.bench.peers.windows import SIDES

if TYPE_CHECKING:
    import polars as pl


class PolarsInequality:
    """Polars, using all cores; `join_where` joins on two inequalities by IEJoin."""

    def __init__(self, given: Readings) -> None:
        """Create frames from the rows."""
        check_polars()
        import polars as pl

        r, s = (
            pl.DataFrame({f"{side}_{name}": column for name, column in {"seq": np.arange(given.rows), **rows}.items()})
            for side, rows in zip(SIDES, given.sides, strict=True)
        )
        terms = [pl.col("r_power") < pl.col("s_power"), pl.col("r_cool") > pl.col("s_cool")]
        if given.groups > 1:
            terms.insert(0, pl.col("r_site") == pl.col("s_site"))
        pairs = r.lazy().join_where(s.lazy(), *terms)
        counting = given.output == "count"
        self._query = pairs.select(total=pl.len()) if counting else pairs.select("r_seq", "s_seq")

    def plan(self) -> str:
        """The optimised plan."""
        return self._query.explain()

    def run(self) -> pl.DataFrame:
        """Collect the query."""
        return self._query.collect()

    def answer(self, result: pl.DataFrame) -> Answer:
        """The pairs, or their number."""
        return {name: result[name].to_numpy() for name in result.columns}

    def close(self) -> None:
        """Nothing to release."""
