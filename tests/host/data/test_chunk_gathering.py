"""Payload gathered from a row store's chunks: the same rows as Arrow's own `take`, for all chunk sizes and types."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from millrace.host.data.chunk_gathering import gather_rows
from millrace.host.data.rowstore import RowStore
from millrace.host.kernels.gathering import MIN_ROWS
from millrace.host.runtime.team import Team

START = 1_000_003
"""The position of the first row: chunks rarely begin at 0."""


def rows_of(n: int, rng: np.random.Generator, nulls: bool = False) -> pa.Table:
    """Columns of all widths that the kernel gathers, and some that Arrow gathers."""
    return pa.table(
        {
            "long": rng.integers(-(2**60), 2**60, n),
            "int": pa.array(rng.integers(0, 2**31, n), pa.int32()),
            "short": pa.array(rng.integers(0, 2**15, n), pa.int16()),
            "byte": pa.array(rng.integers(0, 255, n), pa.uint8()),
            "double": rng.normal(size=n),
            "time": pa.array(rng.integers(0, 2**50, n), pa.timestamp("us", tz="UTC")),
            "text": [f"row {i}" for i in rng.integers(0, 1000, n)],
            "flag": rng.integers(0, 2, n).astype(bool),
            "gaps": pa.array([None if nulls and i % 3 == 0 else int(i) for i in range(n)], pa.int64()),
        }
    )


def store_of(lengths: list[int], rng: np.random.Generator, nulls: bool = False) -> RowStore:
    store, at = RowStore(), START
    for i, n in enumerate(lengths):
        # A slice: values may begin after the start of their buffer.
        store.append(at, rows_of(n + 5, rng, nulls and i == 1).slice(5))
        at += n
    return store


def gathered(store: RowStore, positions: np.ndarray, team: Team) -> pa.Table:
    team.acquire()
    try:
        return pa.Table.from_arrays(gather_rows(store, positions, team), schema=store.chunks[0].table.schema)
    finally:
        team.depth -= 1


@pytest.mark.parametrize("lengths", [[7], [1, 1, 1], [50_000, 3, 1, 20_000], [700] * 90, [1] * 40 + [100_000]])
@pytest.mark.parametrize("nulls", [False, True])
def test_rows_are_those_that_arrow_takes(lengths: list[int], nulls: bool) -> None:
    """Chunks of one row and of many, few rows and many, repeated, in no order, and the first and the last."""
    rng = np.random.default_rng(len(lengths))
    store, team = store_of(lengths, rng, nulls), Team(2)
    all_rows = pa.concat_tables([chunk.table for chunk in store.chunks])
    for n in (1, MIN_ROWS, 50_001):
        positions = rng.integers(0, sum(lengths), n)
        positions[0], positions[-1] = 0, sum(lengths) - 1
        found = gathered(store, positions + START, team)
        assert found.equals(all_rows.take(pa.array(positions)))
        found.validate(full=True)


def test_only_the_columns_that_are_not_plain_are_left_to_arrow(monkeypatch: pytest.MonkeyPatch) -> None:
    """Text, flags and columns with nulls, also a column with nulls in only one chunk."""
    rng = np.random.default_rng(5)
    store, team = store_of([9_000, 9_000], rng, nulls=True), Team(2)
    gathered_columns: list[list[str]] = []
    take = RowStore.gather

    def noted(self: RowStore, positions: np.ndarray, columns: list[int] | None = None) -> pa.Table:
        found = take(self, positions, columns)
        gathered_columns.append(found.column_names)
        return found

    monkeypatch.setattr(RowStore, "gather", noted)
    gathered(store, rng.integers(START, START + 18_000, MIN_ROWS), team)
    assert gathered_columns == [["text", "flag", "gaps"]]


def test_a_gathered_result_outlives_the_store() -> None:
    """The result shares no memory with the store or with the next result."""
    rng = np.random.default_rng(6)
    store, team = store_of([20_000], rng), Team(2)
    positions = rng.integers(START, START + 20_000, 20_000)
    first = gathered(store, positions, team)
    kept = first.column("long").to_pylist()
    del store
    other = gathered(store_of([20_000], rng), positions, team)
    assert first.column("long").to_pylist() == kept
    assert other.column("long").to_pylist() != kept
