"""The statistics of joins and indexes: read-only mappings whose known entries are attributes too, with types.

    >>> stats = IndexStats(rows=3, counters={"cpu_rows": 7})
    >>> stats["rows"], stats.rows, stats["cpu_rows"], len(stats) == len(dict(stats))
    (3, 3, 7, True)

A device's counters follow the named entries. `to_dict()` gives plain values, which can be written as JSON.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields
from functools import cache
from typing import Any

from millrace.host.base.html import html_table


@cache
def _names_of(kind: type[Stats]) -> tuple[str, ...]:
    """The entries that are attributes."""
    return tuple(one.name for one in fields(kind) if one.name != "counters")


@dataclass(frozen=True, eq=False, kw_only=True)
class Stats(Mapping[str, Any]):
    """Named entries, then the counters of the device and the index."""

    counters: Mapping[str, int] = field(default_factory=dict)

    def __getitem__(self, name: str) -> Any:
        """An entry by its name."""
        if name in _names_of(type(self)):
            return getattr(self, name)
        return self.counters[name]

    def __iter__(self) -> Iterator[str]:
        """The names of all entries."""
        names = _names_of(type(self))
        yield from names
        yield from (name for name in self.counters if name not in names)

    def __len__(self) -> int:
        """The number of entries."""
        return sum(1 for _ in self)

    def to_dict(self) -> dict[str, Any]:
        """The entries as a dictionary of plain values."""
        return {name: dict(value) if isinstance(value, Mapping) else value for name, value in self.items()}

    def __repr__(self) -> str:
        """All entries."""
        return f"{type(self).__name__}({self.to_dict()})"

    def _repr_html_(self) -> str:
        return html_table(self.to_dict().items(), caption=type(self).__name__)


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class JoinStats(Stats):
    """Statistics of a `WindowJoin` or `KnnJoin`. Counters may be those before a call that is still at work."""

    rows: Mapping[str, int]
    """Rows pushed, per side."""
    late: int = 0
    null_times: int = 0
    null_keys: int = 0
    pending: int = 0
    """Rows that wait for a source that is behind."""
    held: int = 0
    """Rows in the windows."""
    pairs: int = 0
    device: str = ""
    index: str = ""
    strategy: str = ""
    """What `index="auto"` or `tune()` chose last, and why."""
    plan: str = ""
    fallback: str | None = None
    """From which device the join fell back to which, and why."""


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class LiveStats(JoinStats):
    """Statistics of a `LiveJoin`: those of its join, as of the last finished step, and of its queue."""

    arrived: int = 0
    """Rows put so far, over both sides."""
    queued: int = 0
    """Rows put that are not matched yet; in a join with `time`, they then may be `pending`."""
    unpolled: int = 0
    """Rows of results that were not polled yet."""
    capacity: int = 0
    latency: Mapping[str, float] = field(default_factory=dict)
    """Percentiles of the microseconds from `put` to the results, over the latest puts: p50, p90, p99, p999, max."""


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class GateStats(Stats):
    """Statistics of a `ScaleGate`."""

    rows: int = 0
    """Rows added, also those dropped."""
    late: int = 0
    null_times: int = 0
    pending: int = 0
    """Rows that wait for a source that is behind."""
    held: int = 0
    """Rows that the slowest reader has not got yet, pending ones included."""
    read: tuple[int, ...] = ()
    """Rows that each reader has got."""
    open_sources: int = 0
    slowest_source: int | None = None
    """The source that all others wait for; None if all are closed."""


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class IndexStats(Stats):
    """Statistics of an `OrderedIndex`."""

    rows: int = 0
    null_keys: int = 0
    key_type: str = ""
    value_type: str = ""
    layout: str = ""
    levels: int = 0
    fanout: int = 0
    nbytes: int = 0
    inner_nbytes: int = 0
    lookups: int = 0
    ranges: int = 0
    queries: int = 0
    updates: int = 0
    changes: int = 0
    device: str = ""
    fallback: str | None = None
    """From which device the index fell back to which, and why."""
    last_update: Mapping[str, Any] | None = None
    retuned: int = 0
    strategy: str = ""
    """Says so while a small index is searched without kernels."""
    last_run: Mapping[str, Any] | None = None
    """What the pipeline did in the latest call on a device."""
