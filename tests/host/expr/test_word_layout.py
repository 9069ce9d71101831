"""Layouts of combined words: a range of combined words holds the right rows, and only those if all slots are exact."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millrace.host.base.types import Array
from millrace.host.expr.word_layout import HASH_BITS, Layout, LayoutOutgrown, stream_layout, table_layout

ROWS = 40


def pool(dtype: Any, spread: str, rng: np.random.Generator) -> Array:
    """A few words: near each other, at the ends of the type, or anywhere."""
    top = int(np.iinfo(dtype).max)
    if spread == "ends":
        return np.array([0, 1, top // 2, top // 2 + 1, top - 1, top], dtype)
    if spread == "near":
        return np.arange(top // 3, top // 3 + 7, dtype=dtype)
    return rng.integers(0, top, 12, dtype, endpoint=True)


@st.composite
def cases(draw: st.DrawFn) -> tuple[list[Array], list[tuple[Array, Array]]]:
    """Words of rows, and ranges to search: one word of each key but the last, or none."""
    rng = np.random.default_rng(draw(st.integers(0, 10**6)))
    kinds = st.tuples(st.sampled_from([np.uint32, np.uint64]), st.sampled_from(["near", "ends", "anywhere"]))
    pools = [pool(*one, rng) for one in draw(st.lists(kinds, min_size=2, max_size=4))]
    rows = draw(st.sampled_from([ROWS, ROWS, 1, 0]))
    keys = [rng.choice(one, rows) for one in pools]
    ranges = [(low := rng.choice(one, ROWS), low) for one in pools[:-1]]
    ranges = [(np.where(empty := rng.random(ROWS) < 0.1, 1, low), np.where(empty, 0, high)) for low, high in ranges]
    ranges = [(low.astype(one.dtype), high.astype(one.dtype)) for (low, high), one in zip(ranges, pools, strict=False)]
    return keys, [*ranges, (rng.choice(pools[-1], ROWS), rng.choice(pools[-1], ROWS))]


def found(layout: Layout, keys: list[Array], ranges: list[tuple[Array, Array]]) -> Any:
    """Which rows the ranges of combined words hold."""
    words, (low, high) = layout.words(keys), layout.ranges(ranges)
    assert words.dtype == low.dtype == high.dtype == np.uint64
    return (low[:, None] <= words) & (words <= high[:, None])


def expected(keys: list[Array], ranges: list[tuple[Array, Array]]) -> Any:
    inside = [(low[:, None] <= key) & (key <= high[:, None]) for key, (low, high) in zip(keys, ranges, strict=True)]
    return np.logical_and.reduce(inside)


@settings(max_examples=300, deadline=None)
@given(cases())
def test_a_layout_of_a_table_finds_exactly_the_matching_rows(
    case: tuple[list[Array], list[tuple[Array, Array]]],
) -> None:
    for numbered in (True, False):
        layout = table_layout(case[0], numbered)
        assert all(slot.exact for slot in layout.slots)
        assert (found(layout, *case) == expected(*case)).all()


@settings(max_examples=100, deadline=None)
@given(cases())
def test_groups_of_a_table_without_row_numbers_can_be_counted(
    case: tuple[list[Array], list[tuple[Array, Array]]],
) -> None:
    layout = table_layout(case[0], numbered=False)
    assert layout.group_bits <= len(case[0][0]).bit_length() + 3
    groups = layout.words(case[0]) >> np.uint64(layout.slots[-1].bits)
    assert (groups < 1 << layout.group_bits).all()
    same = np.logical_and.reduce([key[:, None] == key for key in case[0][:-1]])
    assert ((groups[:, None] == groups) == same).all()


@settings(max_examples=300, deadline=None)
@given(cases())
def test_a_layout_of_a_stream_misses_no_row(case: tuple[list[Array], list[tuple[Array, Array]]]) -> None:
    layout = stream_layout(case[0])
    ours, wanted = found(layout, *case), expected(*case)
    assert (ours | ~wanted).all()
    if all(slot.exact for slot in layout.slots):
        assert (ours == wanted).all()


def test_words_of_32_bits_are_never_outgrown() -> None:
    layout = stream_layout([np.array([5], np.uint32), np.array([7], np.uint32)])
    ends = np.array([0, 2**32 - 1], np.uint32)
    assert layout.words([ends, ends]).tolist() == [0, 2**64 - 1]
    assert all(slot.exact for slot in layout.slots)


@pytest.mark.parametrize("key", [0, 1])
def test_a_stream_has_room_for_later_words_and_says_when_it_has_none(key: int) -> None:
    start = np.uint64(2**63)
    keys = [np.arange(100, dtype=np.uint64) + start, np.arange(5000, 5100, dtype=np.uint64) + start]
    layout = stream_layout(keys)
    assert all(slot.exact for slot in layout.slots)
    near = [one.copy() for one in keys]
    near[key] += np.uint64(10**6)
    assert layout.words(near).max() > 0
    near[key] += np.uint64(2**60)
    with pytest.raises(LayoutOutgrown):
        layout.words(near)


def test_groups_that_do_not_fit_are_hashed_and_the_order_key_loses_low_bits() -> None:
    rng = np.random.default_rng(1)
    words = [rng.integers(0, 2**64 - 1, 1000, np.uint64) for _ in range(2)]
    group, order = stream_layout(words).slots
    assert (group.hashed, group.bits, order.bits) == (True, HASH_BITS, 64 - HASH_BITS)
    assert order.shift
    assert not group.exact
    assert not order.exact
    near = stream_layout([words[0] >> np.uint64(50), words[1]]).slots[0]
    assert near.exact
