"""`im`, `pim` and `chain` in larger windows than the conformance suite has: drift, many equal keys, many partners."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import millrace as mr
from millrace.host.base.types import Array

KINDS: list[tuple[Any, dict[str, Any]]] = [
    ("pim", {}),
    ("pim", {"subindexes": 5, "merge_ratio": 0.02, "task_rows": 3}),
    ("pim", {"subindexes": 1000, "merge_ratio": 1.0, "task_rows": 64}),
    ("im", {"merge_ratio": 0.3}),
    ("chain", {"variant": "b", "length": 3}),
    ("chain", {"variant": "ib", "length": 4, "task_rows": 1}),
]
every_kind = pytest.mark.parametrize(("index", "options"), KINDS, ids=str)
ROWS, WINDOW = 6000, 1500


def keys(spread: str, seed: int) -> Array:
    rng = np.random.default_rng(seed)
    if spread == "drift":
        return (np.arange(ROWS) * 5 + rng.integers(0, 300, ROWS)).astype(np.int32)
    if spread == "falling":
        return (-40 * np.arange(ROWS) + rng.integers(0, 300, ROWS)).astype(np.int32)
    return rng.integers(0, 5 if spread == "equal" else 10**6, ROWS).astype(np.int32)


def run(index: Any, options: dict[str, Any], spread: str, on: str) -> tuple[pa.Table, mr.WindowJoin]:
    join = mr.WindowJoin(
        on, window=(f"{WINDOW} rows", f"{WINDOW // 2} rows"), index=index, options=options, output="seqs"
    )
    r, s = (pa.table({"x": keys(spread, seed)}) for seed in (1, 2))
    arrival = np.random.default_rng(3).permutation(np.repeat([0, 1], ROWS)).astype(np.uint8)
    tables, at = [], {0: 0, 1: 0}
    for part in np.array_split(arrival, 4):
        take = {side: int((part == side).sum()) for side in (0, 1)}
        tables.append(join.push_both(r.slice(at[0], take[0]), s.slice(at[1], take[1]), part))
        at = {side: at[side] + take[side] for side in (0, 1)}
    return pa.concat_tables(tables), join


@every_kind
@pytest.mark.parametrize("spread", ["uniform", "drift", "falling"])
def test_pairs_equal_those_of_the_nested_loop(index: Any, options: dict[str, Any], spread: str) -> None:
    on = "abs(r.x - s.x) <= 200"
    wanted, _ = run("scan", {}, spread, on)
    found, join = run(index, options, spread, on)
    assert found.equals(wanted)
    assert len(wanted) > 1000
    assert join.stats["merges"] > 0


@every_kind
def test_equal_keys_span_many_leaves(index: Any, options: dict[str, Any]) -> None:
    wanted, _ = run("scan", {}, "equal", "r.x = s.x")
    assert run(index, options, "equal", "r.x = s.x")[0].equals(wanted)


def test_memory_follows_the_window() -> None:
    """Merges drop what has expired: 40 windows need no more memory than 5."""
    sizes = []
    join = mr.WindowJoin("abs(r.x - s.x) <= 1", window="500 rows", index="pim", output="count")
    for turn in range(40):
        batch = pa.table({"x": np.random.default_rng(turn).integers(0, 10**6, 500).astype(np.int32)})
        join.push_both(batch, batch, np.tile(np.array([0, 1], np.uint8), 500))
        matcher: Any = join._engine.matcher
        sizes.append(matcher._index.nbytes)
    assert max(sizes[5:]) <= 1.3 * max(sizes[:5])
