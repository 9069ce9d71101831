"""Shared by the micro-batch peers: a side's window as arrays in order of arrival, and the side of a batch."""

from __future__ import annotations

import numpy as np

from millrace.bench.workload import Longs, Rows, Turn

SIDES = ("r", "s")


class ArrivalWindow:
    """The last `window` rows of a side; `first` is the seq of the oldest."""

    def __init__(self, window: int) -> None:
        """The window is empty."""
        self.window = window
        self.first = 0
        self.rows = Rows(np.zeros(0, np.int64), np.zeros(0))

    @property
    def end(self) -> int:
        """The seq of the next row."""
        return self.first + len(self.rows)

    def seqs(self) -> Longs:
        """The seq of each row."""
        return np.arange(self.first, self.end)

    def next_batch(self, rows: Rows) -> ArrivalWindow:
        """The next rows with their seqs, not appended."""
        batch = ArrivalWindow(len(rows))
        batch.first, batch.rows = self.end, rows
        return batch

    def append(self, rows: Rows) -> None:
        """Append rows and drop expired ones."""
        end = self.end + len(rows)
        x = np.concatenate([self.rows.x, rows.x])[-self.window :]
        v = np.concatenate([self.rows.v, rows.v])[-self.window :]
        self.rows, self.first = Rows(x, v), end - len(x)


def pushed_side(turn: Turn) -> tuple[int, Rows]:
    """The side of a micro-batch (0 for r, 1 for s) and its rows."""
    if len(turn.r) and len(turn.s):
        raise ValueError("a micro-batch has rows of one side only")
    return (1, turn.s) if len(turn.s) else (0, turn.r)
