"""`SlidingArray` and `BatchedArray`: positions never change after drops and undos; memory follows the values held."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

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


def test_a_small_batch_after_a_merge_of_small_and_large_ones() -> None:
    """The merged chunk begins where the memory for small batches did, but is not in it."""
    rng = np.random.default_rng(4)
    for sizes in [(400, 600, 100), *rng.choice([1, 50, 400, 512, 513, 600, 1500, 5000], (50, 12)).tolist()]:
        held, values, first = BatchedArray(np.int64), np.zeros(0, np.int64), 0
        for size in sizes:
            values = np.concatenate([values, rng.integers(0, 1 << 40, size)])
            held.append(values[len(values) - size :])
            if rng.random() < 0.2:
                values = values[: len(values) - size // 3]
                held.truncate(len(values))
            if rng.random() < 0.3:
                first = max(first, len(values) - 700)
                held.drop_before(first)
            assert np.array_equal(held.view(), values[first:])
