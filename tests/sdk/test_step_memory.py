"""Compiled code that finds no memory for its results, in the indexes that make them as they go: nothing has changed."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import millrace as mr
from millrace.host.join import pair_memory
from millrace.host.join.pimtree import index as pim_index
from millrace.host.join.pimtree import range_step, results
from millrace.host.join.pimtree.index import MIN_PARALLEL_ROWS

CASES = [("pim", 1, 300), ("pim", 2, 9000), ("im", 1, 300), ("chain", 1, 300)]
FEW = 200
"""Partners for which there is memory."""


def rows(first: int, count: int, distinct: int) -> pa.Table:
    return pa.table({"x": (np.arange(first, first + count) * 7919) % distinct})


def pushes(count: int) -> list[tuple[Any, pa.Table]]:
    """Few partners, then more than there is memory for, then a few again."""
    return [("r", rows(0, count, 100)), ("s", rows(0, 5, 100)), ("s", rows(5, count, 100)), ("r", rows(count, 9, 100))]


def limit(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (results, range_step):
        monkeypatch.setattr(module, "most_results", lambda: FEW)


@pytest.mark.parametrize(("index", "threads", "count"), CASES)
@pytest.mark.parametrize("kind", [MemoryError, mr.ArgumentError])
def test_a_step_without_memory_changes_nothing(
    index: Any, threads: int, count: int, kind: type[Exception], monkeypatch: pytest.MonkeyPatch
) -> None:
    arguments: dict[str, Any] = {"on": "r.x = s.x", "window": "400 rows", "output": "seqs"}
    monkeypatch.setattr(pim_index, "MIN_PARALLEL_ROWS", 1 if threads > 1 else MIN_PARALLEL_ROWS)
    join = mr.WindowJoin(index=index, threads=threads, **arguments)
    plain = mr.WindowJoin(index="btree", threads=1, **arguments)
    for number, (side, table) in enumerate(pushes(count)):
        if number == 2:
            before = join.stats.to_dict()
            with monkeypatch.context() as patch:
                limit(patch)
                if kind is mr.ArgumentError:
                    patch.setattr(pair_memory, "free_bytes", lambda: FEW)
                    patch.setattr(pair_memory, "SMALL", 0)
                for _ in range(2):
                    with pytest.raises(kind, match="push fewer rows at a time"):
                        join.push(side, table)
            after = join.stats.to_dict()
            assert after["rows"] == before["rows"]
            delta = join.state()
            join = mr.WindowJoin.restore(delta.manifest, delta.added, index=index, threads=threads, **arguments)
        assert join.push(side, table).equals(plain.push(side, table))
