"""Refuses results that do not fit in memory, with the arithmetic, before they are allocated.

Every index knows the number of pairs of a step before it makes their arrays. A join that adds the results of several
steps checks the sum as it grows. Small results are not checked: they cost less than the check.
"""

from __future__ import annotations

from millrace.host.base.errors import ArgumentError
from millrace.host.base.memory import memory, size_text

BYTES_PER_PAIR = 16
"""Two positions."""
SMALL = 1 << 20
"""Results of fewer bytes are not checked."""
FEWER_ROWS = "push fewer rows at a time"


def fits(pairs: int, bytes_per_pair: int = BYTES_PER_PAIR) -> bool:
    """Whether so many pairs can be in memory."""
    return pairs * bytes_per_pair <= SMALL or pairs * bytes_per_pair <= memory()


def check_fits(
    pairs: int,
    in_parts: str = "take it in parts with batch_rows=",
    bytes_per_pair: int = BYTES_PER_PAIR,
    advice: str = "count the pairs with output='count', or narrow the condition",
) -> None:
    """Raise an error with the arithmetic if so many pairs cannot be in memory. `in_parts`: how to get fewer at once."""
    if not fits(pairs, bytes_per_pair):
        raise ArgumentError(
            f"the result does not fit in memory: {pairs:,} pairs of {bytes_per_pair} bytes are "
            f"{size_text(pairs * bytes_per_pair)}, and there are {size_text(memory())}; {in_parts}, "
            f"{advice}"
        )
