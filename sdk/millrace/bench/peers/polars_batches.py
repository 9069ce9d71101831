"""Peer `polars`: micro-batches; each batch is joined with the other window by `join_where` on two inequalities.

`polars-buckets` does the same with an equality join on parts of the domain.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from millrace.bench.harness import Answer
from millrace.bench.peers.polars_band import band_join, check_polars
from millrace.bench.peers.windows import SIDES, ArrivalWindow, pushed_side
from millrace.bench.workload import Rows, Turn, Workload, answer_columns

if TYPE_CHECKING:
    import polars as pl


class PolarsSession:
    """Polars, using all cores."""

    def __init__(self, workload: Workload, buckets: bool = False) -> None:
        """The windows are empty."""
        check_polars()
        self._eps = workload.eps
        self._output = workload.output
        self._buckets = buckets
        self._windows = ArrivalWindow(workload.window), ArrivalWindow(workload.window)

    def fill(self, r: Rows, s: Rows) -> None:
        """Store the rows."""
        self._windows[0].append(r)
        self._windows[1].append(s)

    def prepare(self, turn: Turn) -> tuple[int, Rows]:
        """The batch without conversion."""
        return pushed_side(turn)

    def push(self, prepared: tuple[int, Rows]) -> pl.DataFrame:
        """Run one join, then append the batch to its window."""
        side, rows = prepared
        own, other = self._windows[side], self._windows[1 - side]
        new, old = SIDES[side], SIDES[1 - side]
        frames = self._frame(own.next_batch(rows), new), self._frame(other, old)
        joined = band_join(*frames, (f"{new}_x", f"{old}_x"), self._eps, self._buckets)
        result = joined.select(answer_columns(self._output)).collect()
        own.append(rows)
        return result

    def answer(self, result: pl.DataFrame) -> Answer:
        """All columns."""
        return {name: result[name].to_numpy() for name in result.columns}

    def close(self) -> None:
        """Nothing to release."""

    def _frame(self, window: ArrivalWindow, side: str) -> pl.LazyFrame:
        import polars as pl

        columns = {f"{side}_seq": window.seqs(), f"{side}_x": window.rows.x}
        return pl.LazyFrame(columns | ({f"{side}_v": window.rows.v} if self._output == "pairs" else {}))
