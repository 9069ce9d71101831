"""`SlidingArray` and `BatchedArray`: positions never change after drops and undos; memory follows the values held."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from millrace.host.data import sliding as module
from millrace.host.data.sliding import BatchedArray, SlidingArray

actions = st.lists(
    st.tuples(st.sampled_from(["append", "append", "drop", "truncate"]), st.integers(0, 300)), max_size=40
)


@settings(deadline=None)
@given(start=st.integers(0, 2**40), actions=actions)
def test_it_is_a_list_addressed_by_position(start: int, actions: list[tuple[str, int]]) -> None:
    sliding, first, held, serial = SlidingArray(np.int64, start), start, list[int](), 0
    for action, amount in actions:
        if action == "append":
            fresh = list(range(serial, serial + amount))
            serial += amount
            sliding.append(np.array(fresh, np.int64))
            held += fresh
        elif action == "drop":
            position = first + amount - 100
            gone = min(max(position - first, 0), len(held))
            sliding.drop_before(position)
            first, held = first + gone, held[gone:]
        else:
            end = first + max(len(held) - amount, 0)
            sliding.truncate(end)
            held = held[: end - first]
        assert (sliding.first, sliding.end, len(sliding)) == (first, first + len(held), len(held))
        assert sliding.view().tolist() == held
    at = np.arange(first, first + len(held))[::-1]
    assert sliding.take(at).tolist() == held[::-1]


def test_truncating_beyond_the_end_changes_nothing() -> None:
    sliding = SlidingArray(np.int64)
    sliding.append(np.arange(5))
    sliding.truncate(9)
    assert sliding.view().tolist() == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("batch", [1, 7, 1000])
def test_memory_follows_the_rows_held_not_the_rows_seen(batch: int) -> None:
    sliding, max_capacity = SlidingArray(np.int64), 0
    for start in range(0, 200 * batch, batch):
        sliding.append(np.arange(start, start + batch))
        sliding.drop_before(sliding.end - 3 * batch)
        max_capacity = max(max_capacity, len(sliding._data))
    assert len(sliding) == 3 * batch
    assert max_capacity <= max(64, 16 * batch)
    sliding.drop_before(sliding.end)
    assert len(sliding._data) <= 64 + 3 * batch


def test_the_memory_of_a_large_burst_is_freed() -> None:
    sliding = SlidingArray(np.float64)
    sliding.append(np.zeros(1_000_000))
    sliding.drop_before(999_990)
    assert len(sliding) == 10
    assert len(sliding._data) < 1000


def test_a_batch_no_larger_than_the_window_is_never_copied() -> None:
    large, window, batch = np.arange(20_000), 20_000, 300
    held = BatchedArray(np.int64)
    held.append(large)
    for end in range(window + batch, 2 * window, batch):
        held.append(np.arange(end - batch, end))
        held.drop_before(end - window)
        assert np.shares_memory(held._chunks[0][1], large)
    assert held.view().tolist() == list(range(held.first, held.end))


def test_a_batch_much_larger_than_the_window_is_freed() -> None:
    held = BatchedArray(np.int64)
    held.append(np.arange(100_000))
    held.drop_before(99_000)
    assert held.nbytes == 8 * 1000
    assert held.take(np.array([99_500])).tolist() == [99_500]


EDGES = [edge + d for edge in (1, module._SMALL, module._TAIL, module._MAX_MERGED) for d in (-1, 0, 1)]
batches = st.lists(
    st.tuples(st.sampled_from(["append"] * 6 + ["drop", "truncate"]), st.sampled_from([*EDGES, 5, 100, 2000])),
    min_size=3,
    max_size=12,
)


@settings(deadline=None)
@example([("append", 512), ("append", 2047), ("append", 5)])  # the large batch is merged with the small one before it
@given(batches)
def test_batches_of_all_sizes_are_one_array(actions: list[tuple[str, int]]) -> None:
    """Small batches are copied to shared memory, large ones are kept, neighbours are merged."""
    held, first, end = BatchedArray(np.int64), 0, 0
    for action, amount in actions:
        before = held.view()
        copy = before.copy()
        if action == "append":
            held.append(np.arange(end, end + amount))
            end += amount
        elif action == "drop":
            first = min(first + amount, end)
            held.drop_before(first)
        else:
            end = max(end - amount, first)
            held.truncate(end)
        assert (held.first, held.end) == (first, end)
        assert np.array_equal(held.view(), np.arange(first, end))
        assert np.array_equal(before, copy)
