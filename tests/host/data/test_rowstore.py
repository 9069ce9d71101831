"""`RowStore`: rows are found by position, chunks stay few and bounded, and a stored chunk is not written twice."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millrace.host.data import rowstore
from millrace.host.data.rowstore import RowStore


def rows(start: int, count: int) -> pa.Table:
    numbers = range(start, start + count)
    return pa.table({"n": pa.array(numbers, pa.int64()), "text": [f"row {n}" for n in numbers]})


def covered(store: RowStore) -> tuple[int, int]:
    for before, after in zip(store.chunks, store.chunks[1:], strict=False):
        assert before.end == after.start, "a gap between chunks"
    return store.chunks[0].start, store.chunks[-1].end


class Disk:
    """Writes runs as `state` does, and records what was written."""

    def __init__(self) -> None:
        self.written: list[tuple[int, int]] = []

    @property
    def stored(self) -> frozenset[str]:
        return frozenset(f"{start}+{count}" for start, count in self.written)

    def write(self, start: int, table: pa.Table) -> str:
        assert table["n"].to_pylist() == list(range(start, start + table.num_rows))
        self.written.append((start, table.num_rows))
        return f"{start}+{table.num_rows}"


@settings(deadline=None, max_examples=60)
@given(st.lists(st.tuples(st.integers(0, 40), st.integers(0, 60)), min_size=1, max_size=30), st.booleans())
def test_rows_are_found_by_position(steps: list[tuple[int, int]], write: bool) -> None:
    store, first, end, disk = RowStore(), 0, 0, Disk()
    for count, dropped in steps:
        store.append(end, rows(end, count))
        end += count
        first = min(first + dropped, end)
        store.evict(first)
        if write:
            store.name_runs(first, disk.stored, disk.write)
        if first == end:
            continue
        low, high = covered(store)
        assert low <= first
        assert high == end
        wanted = np.random.default_rng(end).integers(first, end, 20)
        assert store.gather(wanted)["n"].to_pylist() == wanted.tolist()


def test_an_interrupted_merge_loses_no_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    store = RowStore()
    for start in range(0, 40, 10):
        store.append(start, rows(start, 10))

    def interrupted(tables: list[pa.Table]) -> pa.Table:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(pa, "concat_tables", interrupted)
        with pytest.raises(KeyboardInterrupt):
            store.evict(0)
    store.evict(0)
    assert covered(store) == (0, 40)
    assert store.gather(np.arange(40))["n"].to_pylist() == list(range(40))


def test_undoing_appends_leaves_what_was_there() -> None:
    store = RowStore()
    store.append(0, rows(0, 10))
    store.evict(0)
    store.append(10, rows(10, 5))
    store.append(15, rows(15, 5))
    store.truncate(10)
    assert covered(store) == (0, 10)
    assert store.gather(np.array([9, 0]))["n"].to_pylist() == [9, 0]


def test_no_rows_make_no_chunk() -> None:
    store = RowStore()
    store.append(0, rows(0, 0))
    assert store.chunks == []
    store.evict(0)


@pytest.mark.parametrize("batch", [1, 10, 500])
def test_chunks_stay_few_and_memory_flat_over_many_appends(batch: int) -> None:
    store, window, max_chunks, max_rows = RowStore(), 50 * batch, 0, 0
    for start in range(0, 600 * batch, batch):
        store.append(start, rows(start, batch))
        store.evict(start + batch - window)
        max_chunks = max(max_chunks, len(store.chunks))
        max_rows = max(max_rows, sum(c.table.num_rows for c in store.chunks))
    assert max_chunks <= 2 * int(np.log2(window)) + 2
    assert max_rows <= 3 * window + 2 * rowstore.TRIM_ROWS


def test_a_mostly_dead_chunk_frees_its_memory() -> None:
    store, count = RowStore(), 20 * rowstore.TRIM_ROWS
    store.append(0, rows(0, count))
    before = store.chunks[0].table.get_total_buffer_size()
    store.evict(count - 10)
    assert covered(store)[1] == count
    assert store.chunks[0].table.get_total_buffer_size() < before / 100
    assert store.gather(np.array([count - 1]))["text"].to_pylist() == [f"row {count - 1}"]


def test_a_chunk_no_larger_than_the_window_is_never_copied() -> None:
    """Copying half of a large push at once would stall the push that does it."""
    window, batch = 16 * rowstore.TRIM_ROWS, 1000
    store = RowStore()
    store.append(0, rows(0, window))
    large = store.chunks[0].table["n"].chunk(0).buffers()[1].address
    for end in range(window + batch, 2 * window, batch):
        store.append(end - batch, rows(end - batch, batch))
        store.evict(end - window)
        assert store.chunks[0].table["n"].chunk(0).buffers()[1].address == large
    store.evict(window)
    assert covered(store)[0] == window


def test_each_row_is_merged_a_logarithmic_number_of_times() -> None:
    store = RowStore()
    for start in range(4096):
        store.append(start, rows(start, 1))
        store.evict(0)
    assert store.merges <= 4096


def test_a_stored_chunk_is_not_written_again_until_it_is_merged() -> None:
    store, disk = RowStore(), Disk()
    store.append(0, rows(0, 100))
    store.evict(0)
    store.name_runs(0, disk.stored, disk.write)
    store.name_runs(0, disk.stored, disk.write)
    assert disk.written == [(0, 100)]
    store.append(100, rows(100, 1))
    store.evict(0)
    store.name_runs(0, disk.stored, disk.write)
    assert disk.written == [(0, 100), (100, 1)]
    assert [(c.run, c.run_start) for c in store.chunks] == [("0+100", 0), ("100+1", 100)]


def test_a_chunk_that_was_named_but_never_stored_is_written_again() -> None:
    store, lost, disk = RowStore(), Disk(), Disk()
    store.append(0, rows(0, 10))
    store.name_runs(0, frozenset(), lost.write)
    store.name_runs(0, disk.stored, disk.write)
    assert disk.written == [(0, 10)]


def test_only_live_rows_are_written() -> None:
    store, disk = RowStore(), Disk()
    store.append(0, rows(0, 100))
    store.evict(90)
    store.name_runs(90, disk.stored, disk.write)
    assert disk.written == [(90, 10)]
    assert store.chunks[0].run_start == 90


@pytest.mark.parametrize("chunked", [False, True])
def test_columns_of_every_kind_are_merged_and_gathered(chunked: bool) -> None:
    store = RowStore()
    pieces = []
    for i in range(5):
        piece = pa.table(
            {
                "category": pa.array([f"c{i}", "shared"]).dictionary_encode(),
                "list": [[i], None],
                "struct": [{"a": i}, {"a": None}],
                "nothing": pa.nulls(2),
            }
        )
        pieces.append(piece)
        store.append(2 * i, piece)
        if not chunked:
            store.evict(0)
    found = store.gather(np.arange(10))
    assert found.to_pylist() == [row for piece in pieces for row in piece.to_pylist()]
