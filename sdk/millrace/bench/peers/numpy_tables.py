"""Peer `numpy-sorted` of `mr.join`: sorts both tables, searches s twice, expands and gathers the pairs."""

from __future__ import annotations

from typing import Any

import numpy as np

from millrace.bench.harness import Answer
from millrace.bench.peers.expand import expand
from millrace.bench.tables import COLUMNS, Tables


class NumpyTables:
    """Plain arrays."""

    def __init__(self, tables: Tables) -> None:
        """Use the arrays without conversion."""
        self._r, self._s = tables.sides
        self._eps = tables.workload.eps

    def run(self) -> dict[str, Any]:
        """Sort, search, expand, gather; keys are gathered from the sorted copies, which have better locality."""
        r_order, s_order = np.argsort(self._r.x, kind="stable"), np.argsort(self._s.x, kind="stable")
        r_x, s_x = self._r.x[r_order], self._s.x[s_order]
        begin = np.searchsorted(s_x, r_x - self._eps, "left")
        counts = np.searchsorted(s_x, r_x + self._eps, "right") - begin
        at = expand(begin, counts)
        r_seq, s_seq = np.repeat(r_order, counts), s_order[at]
        keys = {"r_x": np.repeat(r_x, counts), "s_x": s_x[at]}
        return {"r_seq": r_seq, "s_seq": s_seq, "r_v": self._r.v[r_seq], "s_v": self._s.v[s_seq], **keys}

    def answer(self, result: dict[str, Any]) -> Answer:
        """The columns in our order."""
        return {name: result[name] for name in COLUMNS}

    def close(self) -> None:
        """Nothing to release."""
