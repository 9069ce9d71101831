"""Refuses results that do not fit in memory, before any of it is allocated: counts are known before pairs."""

from __future__ import annotations

from millrace.host.base.errors import ArgumentError
from millrace.host.base.memory import memory, size_text

BYTES_PER_PAIR = 16
"""Two positions."""


def fits(pairs: int) -> bool:
    """Whether so many pairs can be in memory."""
    return pairs * BYTES_PER_PAIR <= memory()


def check_fits(pairs: int, in_parts: str = "take it in parts with batch_rows=") -> None:
    """Raise an error with the arithmetic if so many pairs cannot be in memory. `in_parts`: how to get fewer at once."""
    if not fits(pairs):
        raise ArgumentError(
            f"the result does not fit in memory: {pairs:,} pairs of {BYTES_PER_PAIR} bytes are "
            f"{size_text(pairs * BYTES_PER_PAIR)}, and there are {size_text(memory())}; {in_parts}, "
            "count the pairs with output='count', or narrow the condition"
        )
