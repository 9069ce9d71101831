"""Refuses results that do not fit in memory, with the arithmetic, before they are allocated.

Every index knows the number of pairs of a step before it makes their arrays. A join that adds the results of several
steps checks the sum as it grows. What counts is the memory that is free: systems promise more, and end the process that
uses it. Small results are not checked: they cost less than the check.
"""

from __future__ import annotations

from millrace.host.base.errors import ArgumentError
from millrace.host.base.memory import free_bytes, size_text

BYTES_PER_PAIR = 16
"""Two positions."""
SMALL = 1 << 24
"""Results of fewer bytes are not checked."""
FEWER_ROWS = "push fewer rows at a time"


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
    if not fits(pairs, bytes_per_pair):
        raise ArgumentError(
            f"the result does not fit in memory: {pairs:,} pairs of {bytes_per_pair} bytes are "
            f"{size_text(pairs * bytes_per_pair)}, and there are {size_text(free_bytes())}; {in_parts}, "
            f"{advice}"
        )
