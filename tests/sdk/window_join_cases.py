"""Short notations for tests of `mr.WindowJoin`: rows to push, and pairs and counts as lists."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

import millrace as mr

INDEXES = ["scan", "btree", "pim", "chain"]
every_index = pytest.mark.parametrize("index", INDEXES)


def xs(*values: Any) -> pa.Table:
    return pa.table({"x": pa.array(values, pa.int64())})


def timed(*rows: tuple[Any, Any]) -> pa.Table:
    """Rows of (time, x) with integer times."""
    return pa.table({"ts": pa.array([t for t, _ in rows], pa.int64()), "x": pa.array([x for _, x in rows], pa.int64())})


def pairs(table: pa.Table) -> list[tuple[int, int]]:
    return list(zip(table["r_seq"].to_pylist(), table["s_seq"].to_pylist(), strict=True))


def everything(j: mr.WindowJoin, *pushes: tuple[str, Any]) -> list[tuple[int, int]]:
    """All pairs of some pushes and of closing the join after them."""
    found = [j.push(side, batch) for side, batch in pushes]
    return [p for table in [*found, j.close()] for p in pairs(table)]


def counts(table: pa.Table) -> list[tuple[str, int, int, int]]:
    return [tuple(row.values()) for row in table.to_pylist()]
