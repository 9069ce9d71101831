"""The numbers that `OrderedIndex.stats` reports, kept so that reading them takes no lock.

Each change makes a new mapping and replaces the old one, under a lock that is held for a few instructions. A reader
copies one complete mapping, so it sees the rows and the counts of the same state, whatever other threads do.
"""

from __future__ import annotations

from collections.abc import Mapping

from millrace.host.runtime.rwlock import ForkSafeLock
from millrace.index_parts.implicit_rows import ImplicitRows
from millrace.index_parts.regular_rows import RegularRows

COUNTS = ("lookups", "ranges", "queries", "updates", "changes")


class IndexStatus:
    """Counts of calls, and the size of the rows; `current` is replaced, never changed."""

    def __init__(self) -> None:
        """All zero."""
        self.current: Mapping[str, int] = dict.fromkeys(COUNTS, 0)
        self._lock = ForkSafeLock()

    def count(self, **amounts: int) -> None:
        """Add amounts to counts by name; exact when several threads count. Called by readers and writers of the index.

        So a signal handler that interrupts it cannot come here again: the index refuses to be entered twice.
        """
        with self._lock.mutex:
            current = self.current
            self.current = {**current, **{name: current[name] + amount for name, amount in amounts.items()}}

    def set_rows(self, rows: ImplicitRows | RegularRows, **amounts: int) -> None:
        """Report the size of other rows; with amounts, count them at the same moment."""
        size = {
            "rows": len(rows),
            "null_keys": rows.null_keys,
            "levels": rows.tree.levels,
            "nbytes": rows.nbytes,
            "inner_nbytes": rows.inner_nbytes,
        }
        with self._lock.mutex:
            current = self.current
            self.current = {**current, **size, **{name: current[name] + amount for name, amount in amounts.items()}}
