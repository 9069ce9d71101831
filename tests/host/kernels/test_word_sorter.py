"""Sorting a batch: the same as a stable argsort, for every kind of data and any number of threads."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from millrace.host.kernels.word_sorter import MIN_RADIX, MIN_SHARED, sort_words
from millrace.host.runtime.team import Team

WORDS = [np.dtype(np.uint32), np.dtype(np.uint64)]
SIZES = [0, 1, 2, MIN_RADIX - 1, MIN_RADIX, 1000, MIN_SHARED, 3 * MIN_SHARED + 1]
Make = Callable[[np.random.Generator, int, Any], Any]


def top(word: Any) -> int:
    return int(np.iinfo(word).max)


DATA: dict[str, Make] = {
    "uniform": lambda rng, n, word: rng.integers(0, top(word), n, word, endpoint=True),
    "few values": lambda rng, n, word: rng.integers(0, 3, n, word),
    "all equal": lambda rng, n, word: np.full(n, 7, word),
    "largest word": lambda rng, n, word: rng.choice(np.array([top(word), top(word) - 1, 0], word), n),
    "ascending": lambda rng, n, word: np.arange(n, dtype=word),
    "descending": lambda rng, n, word: np.arange(n, dtype=word)[::-1],
    "alike in their leading bits": lambda rng, n, word: (
        rng.integers(0, 2, n, word) * word.type(top(word) // 2 + 1) + rng.integers(0, 1000, n, word)
    ),
    "a heavy hitter": lambda rng, n, word: np.where(
        rng.random(n) < 0.9, word.type(5), rng.integers(0, top(word), n, word, endpoint=True)
    ),
}


@pytest.mark.parametrize("threads", [1, 2, 3])
@pytest.mark.parametrize("name", DATA)
@pytest.mark.parametrize("word", WORDS, ids=str)
def test_it_is_a_stable_sort(word: Any, name: str, threads: int) -> None:
    team, rng = Team(threads), np.random.default_rng(threads)
    team.acquire()
    for size in SIZES:
        words = DATA[name](rng, size, word)
        before = words.copy()
        found, order = sort_words(words, team)
        wanted = np.argsort(words, kind="stable")
        np.testing.assert_array_equal(order, wanted)
        np.testing.assert_array_equal(found, words[wanted])
        np.testing.assert_array_equal(words, before)
    team.depth -= 1
