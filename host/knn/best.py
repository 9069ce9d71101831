"""The k best candidates of a query: their squared distances, tie keys and positions, in a kernel's scratch memory.

Up to `MAX_SORTED` they are a sorted list, beyond that a heap with the worst on top, which `sort_best` sorts at the end.
The order is (squared distance, tie key).
"""

from __future__ import annotations

from typing import Any

from millrace.host.runtime.intrinsics import load, load_as, store, store_as
from millrace.host.runtime.jit import inline

MAX_SORTED = 64
"""The largest k with a sorted list: inserting into a longer one costs more than a heap."""
LISTS = 3
"""Squares, tie keys and positions, one list of `stride` words behind the other."""


@inline
def _after(a: float, a_tie: int, b: float, b_tie: int) -> bool:
    """Return whether candidate a comes after b."""
    return (a > b) | ((a == b) & (a_tie > b_tie))


@inline
def _put(best: int, stride: int, at: int, square: float, tie: int, position: int) -> None:
    store_as(best, at, square)
    store(best, stride + at, tie)
    store(best, 2 * stride + at, position)


@inline
def _move(best: int, stride: int, source: int, to: int) -> None:
    _put(best, stride, to, load_as(best, source, 0.0), load(best, stride + source), load(best, 2 * stride + source))


@inline
def worst_at(k: int) -> int:
    """Return the index of the worst candidate in a full list."""
    return k - 1 if k <= MAX_SORTED else 0


@inline
def offer(best: int, stride: int, count: int, k: int, square: float, tie: int, position: int) -> int:
    """Keep a candidate if it is among the k best; return how many there are. `square` is at most the worst's."""
    if count == k:
        at = worst_at(k)
        if not _after(load_as(best, at, 0.0), load(best, stride + at), square, tie):
            return count
    if k <= MAX_SORTED:
        at = min(count, k - 1)
        while at > 0 and _after(load_as(best, at - 1, 0.0), load(best, stride + at - 1), square, tie):
            _move(best, stride, at - 1, at)
            at -= 1
        _put(best, stride, at, square, tie, position)
        return min(count + 1, k)
    if count < k:
        _sift_up(best, stride, count, square, tie, position)
        return count + 1
    _sift_down(best, stride, k, square, tie, position)
    return count


@inline
def _sift_up(best: int, stride: int, at: int, square: float, tie: int, position: int) -> None:
    """Put a candidate into the heap, whose free slot is `at`."""
    while at > 0 and _after(square, tie, load_as(best, (at - 1) // 2, 0.0), load(best, stride + (at - 1) // 2)):
        _move(best, stride, (at - 1) // 2, at)
        at = (at - 1) // 2
    _put(best, stride, at, square, tie, position)


@inline
def _sift_down(best: int, stride: int, count: int, square: float, tie: int, position: int) -> None:
    """Put a candidate in the position of the heap's top."""
    at = 0
    while 2 * at + 1 < count:
        child = 2 * at + 1
        if child + 1 < count and _after(
            *(load_as(best, child + 1, 0.0), load(best, stride + child + 1)),
            *(load_as(best, child, 0.0), load(best, stride + child)),
        ):
            child += 1
        if not _after(load_as(best, child, 0.0), load(best, stride + child), square, tie):
            break
        _move(best, stride, child, at)
        at = child
    _put(best, stride, at, square, tie, position)


@inline
def sort_best(best: int, stride: int, count: int, k: int) -> None:
    """Bring the candidates into order."""
    if k <= MAX_SORTED:
        return
    for last in range(count - 1, 0, -1):
        square, tie, position = load_as(best, last, 0.0), load(best, stride + last), load(best, 2 * stride + last)
        _move(best, stride, 0, last)
        _sift_down(best, stride, last, square, tie, position)


__all__: list[Any] = ["LISTS", "MAX_SORTED", "offer", "sort_best", "worst_at"]
