"""RaP-Table: the adjustment of splitters (PanJoin, Algorithm 1 and Figure 10f) and what a first subwindow learns."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from millrace.host.base.types import Array
from millrace.host.join.panjoin.raptable import PARTITION, RapTable, adjusted, even
from tests.host.join.panjoin.test_llat import check_llat, make, put

TOP = {np.uint32: 2**32 - 1, np.uint64: 2**64 - 1}
CAPACITY = 1 << 16


def mean_error(count: Array) -> float:
    """The mean absolute error of partition sizes, normalised by the size they should have."""
    fair = count.sum() / len(count)
    return float(np.abs(count - fair).mean() / fair)


def histograms(words: Array, splitters: Array) -> tuple[Array, Array, Array]:
    """What a table with these splitters would hold, which never splits itself anew."""
    words = np.sort(words).astype(np.uint64)
    ends = np.append(np.searchsorted(words, splitters[1:]), len(words))
    starts = np.append(0, ends[:-1])
    last = len(words) - 1
    return ends - starts, words[np.minimum(starts, last)], words[np.maximum(ends - 1, 0)]


def evenly(rng: np.random.Generator) -> Array:
    """All words of 32 bits."""
    return rng.integers(0, 1 << 32, CAPACITY)


def corner(rng: np.random.Generator) -> Array:
    """A small part of the words of 32 bits."""
    return rng.integers(10**9, 10**9 + 10**7, CAPACITY)


def multimodal(rng: np.random.Generator) -> Array:
    """Eight normal distributions side by side."""
    centre = (rng.integers(0, 8, CAPACITY) + 0.5) * 2**29
    return np.clip(rng.normal(centre, 2**24), 0, 2**32 - 1)


def rank_size(rng: np.random.Generator) -> Array:
    """View counts: 99 % of the values in 1 % of their range, which is 1 % of the words of 32 bits."""
    return np.minimum(1000 * (rng.pareto(0.8, CAPACITY) + rng.random(CAPACITY)), 2**32 // 100)


@pytest.mark.parametrize("values", [evenly, corner, multimodal, rank_size])
def test_figure_10f_splitters_converge_in_three_adjustments(values: Callable[[np.random.Generator], Array]) -> None:
    rng = np.random.default_rng(10)
    partitions = CAPACITY // PARTITION
    splitters = even(partitions, np.dtype(np.uint32)).astype(np.uint64)
    errors = []
    for _ in range(6):
        count, least, most = histograms(values(rng).astype(np.uint32), splitters)
        errors.append(mean_error(count))
        splitters = adjusted(count, least, most, partitions)
        assert np.all(splitters[1:] >= splitters[:-1])
    # Chance alone spreads sizes of 38 by 0.13 (Poisson); what is left after three adjustments stays about the same.
    assert errors[3] < 0.45, errors
    assert errors[3] < 1.1 * min(errors[3:]) + 0.01, errors
    assert values is evenly or errors[0] > 1, "the even splitters should not have fitted"


def test_algorithm_1_by_hand() -> None:
    """Two partitions of 4 and 12 tuples; the printed formula, without the base, would give 13 and 26."""
    count, least, most = np.array([4, 12]), np.array([0, 60], np.uint64), np.array([30, 100], np.uint64)
    assert adjusted(count, least, most, 4).tolist() == [0, 30, 60 + 40 * 4 // 12, 60 + 40 * 8 // 12]


@pytest.mark.parametrize("word", TOP)
@pytest.mark.parametrize("case", ["empty", "one", "equal", "ends", "gaps", "heavy"])
@pytest.mark.parametrize("partitions", [1, 2, 7, 1000])
def test_adjusted_splitters_ascend(word: type[np.unsignedinteger], case: str, partitions: int) -> None:
    top = TOP[word]
    words = {
        "empty": [],
        "one": [5],
        "equal": [top] * 5000,
        "ends": [0, top] * 700,
        "gaps": [1, 2, 3, top // 2, top - 1, top] * 300,
        "heavy": [top // 3] * 4000 + list(range(400)),
    }[case]
    structure = make(RapTable, word, 4096)
    table = RapTable(structure.context, 0, even(structure.partitions, structure.context.word))
    put(table, np.array(words, word), 777)
    splitters = adjusted(*table.histograms(), partitions)
    assert len(splitters) == partitions
    assert splitters[0] == 0
    assert np.all(splitters[1:] >= splitters[:-1])
    assert int(splitters[-1]) <= top
    inside = [int(s) for s in splitters[1:]]
    assert not words or all(min(words) <= s <= max(words) for s in inside)


def test_even_splitters_span_all_words() -> None:
    assert even(4, np.dtype(np.uint64)).tolist() == [0, 1 << 62, 1 << 63, 3 << 62]
    assert even(1, np.dtype(np.uint32)).tolist() == [0]


@pytest.mark.parametrize("size", [1, 100, 5000])
def test_a_first_subwindow_learns_from_its_own_tuples(size: int) -> None:
    """Without a predecessor, keys of a small range would all fall into one partition."""
    words = np.random.default_rng(4).integers(1000, 60_000, 10_000).astype(np.uint64)
    table = make(RapTable, np.uint64, 10_000)
    put(table, words, size)
    check_llat(table, words, np.arange(len(words)))
    count, _, _ = table.histograms()
    assert count.max() < 6 * PARTITION


def test_a_successor_may_be_of_another_size() -> None:
    words = np.random.default_rng(4).integers(0, 1 << 20, 20_000).astype(np.uint32)
    table = make(RapTable, np.uint32, 20_000)
    put(table, words, 3000)
    small = make(RapTable, np.uint32, 5000).context
    next_one = table.successor(small, 20_000)
    assert next_one.partitions == 5000 // PARTITION
    put(next_one, words[:5000], 1000)
    assert mean_error(next_one.histograms()[0]) < 0.45
    check_llat(next_one, words[:5000], np.arange(5000))


def test_an_almost_empty_predecessor_teaches_nothing() -> None:
    table = make(RapTable, np.uint32, 10_000)
    put(table, np.arange(5, dtype=np.uint32), 5)
    assert table.successor(table.context, 5).splitters.tolist() == table.splitters.tolist()


def test_full_entries_are_counted() -> None:
    table = make(RapTable, np.uint32, 64)
    assert table.counters() == {"boundaries": 0}
    put(table, np.zeros(2 * table.llat.entry_capacity + 1, np.uint32), 10)
    assert table.counters() == {"boundaries": 2}


@pytest.mark.parametrize("step", [1, -1])
def test_drifting_keys_do_not_end_in_one_partition(step: int) -> None:
    """The next subwindow's splitters do not fit them at all; without a new split all would be in its first or last."""
    n = 50_000
    words = (10 * n + step * np.arange(2 * n)).astype(np.uint64)
    table = make(RapTable, np.uint64, n)
    put(table, words[:n], 500)
    table = table.successor(table.context, n)
    put(table, words[n:], 500)
    check_llat(table, words[n:], np.arange(n))
    count, _, _ = table.histograms()
    assert count.max() < n / 8
    assert np.median(count[count > 0]) < 4 * PARTITION


def test_a_heavy_hitter_is_not_split_again_and_again() -> None:
    n = 100_000
    rng = np.random.default_rng(8)
    words = np.where(rng.random(n) < 0.9, 1 << 20, rng.integers(0, 1 << 31, n)).astype(np.uint32)
    table = make(RapTable, np.uint32, n)
    splits: list[int] = []
    split = table._repartition

    def noted(words: Array, *around: list[int]) -> None:
        splits.append(len(words))
        split(words, *around)

    table._repartition = noted
    put(table, words, 500)
    check_llat(table, words, np.arange(n))
    assert len(splits) < 12
