"""Peer `polars`: micro-batches; each batch is joined with the other window by `join_where` on two inequalities."""

from __future__ import annotations

from typing import TYPE_CHECKING

from millrace.bench.harness import Answer, PeerMissing
from millrace.bench.peers.windows import SIDES, ArrivalWindow, newcomer
from millrace.bench.workload import Rows, Turn, Workload

if TYPE_CHECKING:
    import polars as pl


class PolarsSession:
    """Polars with all cores."""

    def __init__(self, workload: Workload) -> None:
        """Windows are empty."""
        try:
            import polars as pl
        except ImportError as error:
            raise PeerMissing("polars is not installed: pip install 'millrace[bench]'") from error
        self._pl = pl
        self._eps = workload.eps
        self._payload = workload.output == "pairs"
        self._windows = ArrivalWindow(workload.window), ArrivalWindow(workload.window)

    def fill(self, r: Rows, s: Rows) -> None:
        """Keep the rows."""
        self._windows[0].append(r)
        self._windows[1].append(s)

    def prepare(self, turn: Turn) -> tuple[int, Rows]:
        """The batch as it is."""
        return newcomer(turn)

    def push(self, prepared: tuple[int, Rows]) -> pl.DataFrame:
        """One join, then the batch goes into its window."""
        side, rows = prepared
        own, other = self._windows[side], self._windows[1 - side]
        batch = ArrivalWindow(len(rows))
        batch.first = own.end
        batch.rows = rows
        new, old = SIDES[side], SIDES[1 - side]
        col = self._pl.col
        probes = self._frame(batch, new).with_columns(low=col(f"{new}_x") - self._eps, high=col(f"{new}_x") + self._eps)
        held = self._frame(other, old)
        joined = probes.join_where(held, col("low") <= col(f"{old}_x"), col("high") >= col(f"{old}_x"))
        names = ["r_seq", "s_seq"] + (["r_x", "r_v", "s_x", "s_v"] if self._payload else [])
        own.append(rows)
        return joined.select(names)

    def answer(self, result: pl.DataFrame) -> Answer:
        """All columns."""
        return {name: result[name].to_numpy() for name in result.columns}

    def close(self) -> None:
        """Nothing to give back."""

    def _frame(self, window: ArrivalWindow, side: str) -> pl.DataFrame:
        columns = {f"{side}_seq": window.seqs(), f"{side}_x": window.rows.x}
        return self._pl.DataFrame(columns | ({f"{side}_v": window.rows.v} if self._payload else {}))
