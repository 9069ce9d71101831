"""`mr.trim`: returns memory to the system that the library keeps for its next calls."""

from __future__ import annotations

from millrace.host.runtime import allocator


def trim() -> int:
    """Return the memory of dropped results and finished work to the system now; returns the number of bytes.

    The library keeps such memory, because new memory costs more time than most joins. It returns it by itself after 30
    seconds without a call, and the system can take most of it earlier if it needs it. Results that are still referenced
    and windows of open joins stay.

    >>> import millrace as mr
    >>> mr.trim() >= 0
    True
    """
    return allocator.trim()
