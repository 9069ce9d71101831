"""Peer `numpy`: micro-batches on NumPy alone.

Each side's window is kept sorted by a stable argsort of window and batch; a batch is searched with two `searchsorted`,
and the runs found are expanded into pairs. `numpy-sorted` sorts the batch before it searches, which NumPy rewards.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from millrace.bench.harness import Answer
from millrace.bench.peers.windows import SIDES, newcomer
from millrace.bench.workload import Longs, Rows, Turn, Workload


class _SortedWindow:
    """The last `window` rows of a side, sorted by key."""

    def __init__(self, window: int) -> None:
        self._window = window
        self.end = 0
        self.seq = np.zeros(0, np.int64)
        self.x = np.zeros(0, np.int64)
        self.v = np.zeros(0)

    def append(self, rows: Rows) -> None:
        seq = np.arange(self.end, self.end + len(rows))
        self.end += len(rows)
        keep = self.seq >= self.end - self._window
        fresh = slice(max(0, len(rows) - self._window), None)
        x = np.concatenate([self.x[keep], rows.x[fresh]])
        order = np.argsort(x, kind="stable")
        self.x = x[order]
        self.seq = np.concatenate([self.seq[keep], seq[fresh]])[order]
        self.v = np.concatenate([self.v[keep], rows.v[fresh]])[order]


class NumpySession:
    """Two sorted windows."""

    def __init__(self, workload: Workload, sort_batch: bool) -> None:
        """Both empty."""
        self._eps = workload.eps
        self._payload = workload.output == "pairs"
        self._sort_batch = sort_batch
        self._windows = _SortedWindow(workload.window), _SortedWindow(workload.window)

    def fill(self, r: Rows, s: Rows) -> None:
        """Sort each window once."""
        self._windows[0].append(r)
        self._windows[1].append(s)

    def prepare(self, turn: Turn) -> tuple[int, Rows]:
        """The batch as it is."""
        return newcomer(turn)

    def push(self, prepared: tuple[int, Rows]) -> dict[str, Any]:
        """Search the other window, expand, insert."""
        side, rows = prepared
        own, other = self._windows[side], self._windows[1 - side]
        probers = np.argsort(rows.x, kind="stable") if self._sort_batch else np.arange(len(rows))
        x = rows.x[probers] if self._sort_batch else rows.x
        begin = np.searchsorted(other.x, x - self._eps, "left")
        counts = np.searchsorted(other.x, x + self._eps, "right") - begin
        who, whom = np.repeat(probers, counts), _expand(begin, counts)
        columns: dict[str, Any] = {f"{SIDES[side]}_seq": own.end + who, f"{SIDES[1 - side]}_seq": other.seq[whom]}
        if self._payload:
            columns |= {f"{SIDES[side]}_x": rows.x[who], f"{SIDES[side]}_v": rows.v[who]}
            columns |= {f"{SIDES[1 - side]}_x": other.x[whom], f"{SIDES[1 - side]}_v": other.v[whom]}
        own.append(rows)
        return columns

    def answer(self, result: dict[str, Any]) -> Answer:
        """The columns, in our order."""
        names = ["r_seq", "s_seq"] + (["r_x", "r_v", "s_x", "s_v"] if self._payload else [])
        return {name: result[name] for name in names}

    def close(self) -> None:
        """Nothing to give back."""


def _expand(begin: Longs, counts: Longs) -> Longs:
    """`begin[i], begin[i] + 1, …` for each i, `counts[i]` of them."""
    starts = np.cumsum(counts) - counts
    within: Longs = np.arange(int(counts.sum()), dtype=np.int64) + np.repeat(begin - starts, counts)
    return within
