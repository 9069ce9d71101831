"""`mr.limits()`: how large windows, results, indexes and texts may be on this machine.

Each number that depends on memory comes with the estimate that a check uses before work starts; a call beyond it is an
`ArgumentError` with the same arithmetic. The estimates are minimums: payload takes more.
"""

from __future__ import annotations

from dataclasses import dataclass, fields

from millrace.host.base.html import html_table
from millrace.host.base.memory import memory, size_text
from millrace.host.hbtree.layout import MAX_KEYS
from millrace.host.join.pair_memory import BYTES_PER_PAIR
from millrace.index_parts.results import MAX_VALUES
from millrace.ingest.arguments import MAX_PENDING
from millrace.ingest.checks import MAX_THREADS
from millrace.ingest.memory_limits import BYTES_PER_KEY, BYTES_PER_ROW, BYTES_PER_SOURCE, MAX_SOURCES, max_sources
from millrace.predicate import MAX_TEXT


@dataclass(frozen=True)
class Limits:
    """Limits on this machine; `str(limits)` is a table with the arithmetic.

    >>> import millrace as mr
    >>> mr.limits().index_keys <= 2**31, mr.limits().threads
    (True, 1024)
    """

    memory: int
    """The bytes that this process may use: those of the machine, or of its control groups."""
    window_rows: int
    """Rows of a count window of each side."""
    sources: int
    """Sources of a join, both sides together."""
    result_pairs: int
    """Pairs of row numbers in one result."""
    index_keys: int
    """Keys of an `OrderedIndex`."""
    range_values: int
    """Values that one call of `OrderedIndex.range` returns."""
    pending_rows: int
    """Rows that may wait for a silent source, unless `max_pending` is given."""
    threads: int
    """The largest `threads` argument."""
    condition_characters: int
    """The length of a condition."""

    def arithmetic(self) -> dict[str, str]:
        """How each limit follows from the memory, or that it is fixed."""
        all_of = size_text(self.memory)
        return {
            "memory": all_of,
            "window_rows": f"{all_of} / {BYTES_PER_ROW} bytes a row / 2 sides",
            "sources": f"{all_of} / {BYTES_PER_SOURCE} bytes a source, at most {MAX_SOURCES:,}",
            "result_pairs": f"{all_of} / {BYTES_PER_PAIR} bytes a pair (more with payload), less what is in use",
            "index_keys": f"{all_of} / {BYTES_PER_KEY} bytes a key of 64 bits, at most {MAX_KEYS:,}",
            "range_values": f"{all_of} / 8 bytes a value, less what is in use, at most {MAX_VALUES:,}",
            "pending_rows": "fixed; max_pending= changes it",
            "threads": "fixed",
            "condition_characters": "fixed",
        }

    def __repr__(self) -> str:
        """A line for each limit."""
        why = self.arithmetic()
        lines = [f"  {one.name:<21}{getattr(self, one.name):>20,}  {why[one.name]}" for one in fields(self)]
        return "\n".join(["Limits of this process:", *lines])

    def _repr_html_(self) -> str:
        why = self.arithmetic()
        rows = [(one.name, f"{getattr(self, one.name):,}", why[one.name]) for one in fields(self)]
        return html_table(rows, ("", "limit", "from"), "Limits of this process")


def limits() -> Limits:
    """The limits of windows, results, indexes and texts on this machine, and the arithmetic behind them."""
    available = memory()
    return Limits(
        memory=available,
        window_rows=available // BYTES_PER_ROW // 2,
        sources=max_sources(),
        result_pairs=available // BYTES_PER_PAIR,
        index_keys=min(MAX_KEYS, available // BYTES_PER_KEY),
        range_values=min(MAX_VALUES, available // 8),
        pending_rows=MAX_PENDING,
        threads=MAX_THREADS,
        condition_characters=MAX_TEXT,
    )
