"""Peer `numpy`: micro-batches in plain NumPy.

Each side's window is kept sorted by a stable argsort of window and batch. A batch is searched with two `searchsorted`,
and the ranges found are expanded into pairs. `numpy-sorted` sorts the batch before the search, which is faster.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from millrace.bench.harness import Answer
from millrace.bench.peers.expand import expand
from millrace.bench.peers.windows import SIDES, pushed_side
from millrace.bench.workload import Rows, Turn, Workload, answer_columns


class _SortedWindow:
    """The last `window` rows of a side, sorted by key; `v` is stored only if the output includes payload."""

    def __init__(self, window: int, payload: bool) -> None:
        self._window = window
        self._payload = payload
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
        if self._payload:
            self.v = np.concatenate([self.v[keep], rows.v[fresh]])[order]


class NumpySession:
    """Two sorted windows."""

    def __init__(self, workload: Workload, sort_batch: bool) -> None:
        """The windows are empty."""
        self._eps = workload.eps
        self._output = workload.output
        self._sort_batch = sort_batch
        payload = workload.output == "pairs"
        self._windows = _SortedWindow(workload.window, payload), _SortedWindow(workload.window, payload)

    def fill(self, r: Rows, s: Rows) -> None:
        """Sort each window once."""
        self._windows[0].append(r)
        self._windows[1].append(s)

    def prepare(self, turn: Turn) -> tuple[int, Rows]:
        """The batch without conversion."""
        return pushed_side(turn)

    def push(self, prepared: tuple[int, Rows]) -> dict[str, Any]:
        """Search the other window, expand the ranges (or count), insert the batch."""
        side, rows = prepared
        own, other = self._windows[side], self._windows[1 - side]
        probers = np.argsort(rows.x, kind="stable") if self._sort_batch else np.arange(len(rows))
        x = rows.x[probers] if self._sort_batch else rows.x
        begin = np.searchsorted(other.x, x - self._eps, "left")
        counts = np.searchsorted(other.x, x + self._eps, "right") - begin
        if self._output == "count":
            columns: dict[str, Any] = {"seq": own.end + np.arange(len(rows)), "count": np.empty_like(counts)}
            columns["count"][probers] = counts
        else:
            probe_rows, partner_rows = np.repeat(probers, counts), expand(begin, counts)
            columns = {f"{SIDES[side]}_seq": own.end + probe_rows, f"{SIDES[1 - side]}_seq": other.seq[partner_rows]}
            if self._output == "pairs":
                columns |= {f"{SIDES[side]}_x": rows.x[probe_rows], f"{SIDES[side]}_v": rows.v[probe_rows]}
                columns |= {
                    f"{SIDES[1 - side]}_x": other.x[partner_rows],
                    f"{SIDES[1 - side]}_v": other.v[partner_rows],
                }
        own.append(rows)
        return columns

    def answer(self, result: dict[str, Any]) -> Answer:
        """The columns in our order."""
        return {name: result[name] for name in answer_columns(self._output)}

    def close(self) -> None:
        """Nothing to release."""
