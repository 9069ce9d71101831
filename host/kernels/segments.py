"""Sorts the matches of one probe in memory: a short segment of positions, in ascending order, on one thread."""

from __future__ import annotations

import numpy as np

from millrace.host.runtime.intrinsics import load_as, store_as
from millrace.host.runtime.jit import inline

SHORT = 24
"""Segments up to this length are sorted by insertion."""
STACK = 64
"""Capacity of the stack of quicksort: the longer part is pushed, so the depth is at most the bits of a length."""


@inline
def _insert(where: int, begin: int, end: int) -> None:
    for i in range(begin + 1, end):
        value = load_as(where, i, 0)
        at = i
        while at > begin and load_as(where, at - 1, 0) > value:
            store_as(where, at, load_as(where, at - 1, 0))
            at -= 1
        store_as(where, at, value)


@inline
def _median(a: int, b: int, c: int) -> int:
    return max(min(a, b), min(max(a, b), c))


@inline
def _partition(where: int, begin: int, end: int) -> int:
    """Partition a range around a pivot; return where the right part begins. Neither part is empty."""
    pivot = _median(load_as(where, begin, 0), load_as(where, (begin + end) >> 1, 0), load_as(where, end - 1, 0))
    i, j = begin, end - 1
    while True:
        while load_as(where, i, 0) < pivot:
            i += 1
        while load_as(where, j, 0) > pivot:
            j -= 1
        if i >= j:
            return j + 1 if j + 1 < end else j
        left, right = load_as(where, i, 0), load_as(where, j, 0)
        store_as(where, i, right)
        store_as(where, j, left)
        i += 1
        j -= 1


@inline
def sort_segment(where: int, count: int) -> None:
    """Sort `count` distinct int64 at address `where` in ascending order (quicksort)."""
    if count <= SHORT:
        _insert(where, 0, count)
        return
    rising = True
    for i in range(1, count):
        rising &= load_as(where, i - 1, 0) < load_as(where, i, 0)
    if rising:
        return
    begins, ends = np.empty(STACK, np.int64), np.empty(STACK, np.int64)
    depth, begin, end = 0, 0, count
    while True:
        if end - begin <= SHORT:
            _insert(where, begin, end)
            if depth == 0:
                return
            depth -= 1
            begin, end = begins[depth], ends[depth]
            continue
        middle = _partition(where, begin, end)
        if middle - begin < end - middle:
            begins[depth], ends[depth] = middle, end
            end = middle
        else:
            begins[depth], ends[depth] = begin, middle
            begin = middle
        depth += 1
