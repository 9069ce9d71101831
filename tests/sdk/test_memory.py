"""`mr.trim`: memory of dropped results goes back to the system, memory in use stays."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

import millrace as mr


def _pairs() -> pa.Table:
    table = pa.table({"a": np.arange(1500), "b": np.zeros(1500, np.int64)})
    return mr.join(table, table, on="r.a <= s.a AND r.b >= s.b", index="spo", output="seqs")


def test_trim_returns_the_memory_of_dropped_results_alone() -> None:
    held, dropped = _pairs(), _pairs()
    expected = pa.table(held.to_pydict())
    mr.trim()
    size = dropped.nbytes
    del dropped
    assert mr.trim() >= size > 1 << 23
    assert mr.trim() == 0
    assert held.equals(expected)
    assert _pairs().equals(expected)
