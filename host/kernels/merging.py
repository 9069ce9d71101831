"""Splits the merge of two sorted runs, so that threads write parts of the result independently (merge path)."""

from __future__ import annotations

from typing import Any

from millrace.host.runtime.intrinsics import load_as
from millrace.host.runtime.jit import inline


@inline
def split_merge(a: int, a_n: int, b: int, b_n: int, at: int, like: Any) -> int:
    """How many of the first `at` words of the result come from run a; of equal words, those of a come first."""
    low, high = max(0, at - b_n), min(at, a_n)
    while low < high:
        middle = (low + high) >> 1
        if load_as(a, middle, like) <= load_as(b, at - 1 - middle, like):
            low = middle + 1
        else:
            high = middle
    return low
