"""Refuses results that do not fit in memory, with the arithmetic, before they are allocated.

Every index knows the number of pairs of a step before it makes their arrays. A join that adds the results of several
steps checks the sum as it grows. What counts is the memory that is free: systems promise more, and end the process that
uses it. Small results are not checked: they cost less than the check. A caller that can take pairs in parts sets a
limit of its own (`at_most`), and searches with fewer rows after a `TooManyPairs`.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from millrace.host.base.errors import ArgumentError
from millrace.host.base.memory import free_bytes, size_text

BYTES_PER_PAIR = 16
"""Two positions."""
SMALL = 1 << 24
"""Results of fewer bytes are not checked."""
FEWER_ROWS = "push fewer rows at a time (join tables in parts with batch_rows=)"


class TooManyPairs(Exception):
    """A step has more pairs than `at_most` allows; never raised to users."""


class _Limit(threading.local):
    """The limit of the thread that runs a step."""

    pairs: int | None = None


_limit = _Limit()


@contextmanager
def at_most(pairs: int) -> Iterator[None]:
    """Inside this block, a step with more pairs raises `TooManyPairs` before it allocates them."""
    before, _limit.pairs = _limit.pairs, pairs
    try:
        yield
    finally:
        _limit.pairs = before


def fits(pairs: int, bytes_per_pair: int = BYTES_PER_PAIR) -> bool:
    """Whether there is memory for so many pairs."""
    return pairs * bytes_per_pair <= SMALL or pairs * bytes_per_pair <= free_bytes()


def check_fits(
    pairs: int,
    in_parts: str = "take it in parts with batch_rows=",
    bytes_per_pair: int = BYTES_PER_PAIR,
    advice: str = "count the pairs with output='count', or narrow the condition",
) -> None:
    """Raise an error with the arithmetic if so many do not fit in memory. `in_parts`: how to get fewer at once."""
    if _limit.pairs is not None and pairs > _limit.pairs:
        raise TooManyPairs
    if not fits(pairs, bytes_per_pair):
        raise ArgumentError(
            f"the result does not fit in memory: {pairs:,} pairs of {bytes_per_pair} bytes are "
            f"{size_text(pairs * bytes_per_pair)}, and there are {size_text(free_bytes())}; {in_parts}, "
            f"{advice}"
        )
