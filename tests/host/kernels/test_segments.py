"""Sorting of segments of memory, for any length and order."""

from __future__ import annotations

import numpy as np
import pytest

from millrace.host.kernels.segments import SHORT, sort_segment
from millrace.host.runtime.intrinsics import address
from millrace.host.runtime.jit import kernel


@kernel
def _sort(where: int, count: int) -> None:
    sort_segment(where, count)


@pytest.mark.parametrize("count", [0, 1, 2, 3, SHORT, SHORT + 1, 100, 5000])
@pytest.mark.parametrize("order", ["random", "ascending", "descending", "two halves", "organ pipe"])
def test_a_segment_is_sorted_and_its_neighbours_are_unchanged(count: int, order: str) -> None:
    values = np.arange(count, dtype=np.int64) * 3 - 1000
    half = count // 2
    shuffled = {
        "random": np.random.default_rng(count).permutation(values),
        "ascending": values,
        "descending": values[::-1],
        "two halves": np.concatenate([values[half:], values[:half]]),
        "organ pipe": np.concatenate([values[::2], values[1::2][::-1]]),
    }[order]
    memory = np.concatenate([[7], shuffled, [8]]).astype(np.int64)
    _sort(address(memory) + 8, count)
    assert memory.tolist() == [7, *values.tolist(), 8]
