"""The executable specification of `mr.OrderedIndex` in pure Python: a dictionary for lookups, a sorted list for ranges.

It imports nothing of Millrace, NumPy or Arrow. Keys and queries are `int`, `float` (a float32 already widened), `None`,
or an `Instant` for dates and timestamps (not in `nearest`). Python compares ints with floats exactly, so a query that
the key type cannot represent is not in the dictionary. NaN is null; `-0.0` equals `0.0`.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from fractions import Fraction
from math import inf, isinf
from typing import Any


def _usable(key: Any) -> bool:
    return key is not None and key == key


def _distance(low: Any, high: Any) -> Any:
    """`high - low`, exactly."""
    if low == high:
        return 0
    return inf if isinf(low) or isinf(high) else Fraction(high) - Fraction(low)


class Index:
    """Rows by key, in input order."""

    def __init__(self, keys: Sequence[Any], values: Sequence[Any] | None, duplicates: str) -> None:
        self._is_numbered = values is None
        self._values: list[Any] = []
        self._pick = -1 if duplicates == "last" else 0
        self._rows: dict[Any, list[int]] = {}
        self.nulls = 0
        for key, row in self._new_rows(keys, values):
            self._rows.setdefault(key, []).append(row)
        self._sort()

    def _new_rows(self, keys: Sequence[Any], values: Sequence[Any] | None) -> list[tuple[Any, int]]:
        """Number the new rows after the existing ones, and leave out rows without a key."""
        first = len(self._values)
        self._values += range(first, first + len(keys)) if values is None else values
        self.nulls += sum(not _usable(key) for key in keys)
        return [(key, first + row) for row, key in enumerate(keys) if _usable(key)]

    def _sort(self) -> None:
        self._sorted = sorted((key, row) for key, rows in self._rows.items() for row in rows)
        self._keys = [key for key, _ in self._sorted]

    def update(self, keys: Sequence[Any], values: Sequence[Any] | None, deletes: Sequence[Any]) -> None:
        """Apply the deletes; then each upsert replaces all rows of its key."""
        for key in deletes:
            if _usable(key):
                self._rows.pop(key, None)
        for key, row in self._new_rows(keys, None if self._is_numbered else values):
            self._rows[key] = [row]
        self._sort()

    @property
    def has_duplicates(self) -> bool:
        return len(self._rows) < len(self._sorted)

    def __len__(self) -> int:
        return len(self._sorted)

    def lookup(self, queries: Sequence[Any]) -> list[Any]:
        found = (self._rows.get(query) if _usable(query) else None for query in queries)
        return [None if rows is None else self._values[rows[self._pick]] for rows in found]

    def in_order(self) -> list[Any]:
        return self._keys

    def floor(self, queries: Sequence[Any]) -> list[Any]:
        """The value of the largest key that is not above each query."""
        return self.lookup([self._floor(query) for query in queries])

    def ceil(self, queries: Sequence[Any]) -> list[Any]:
        """The value of the smallest key that is not below each query."""
        return self.lookup([self._ceil(query) for query in queries])

    def nearest(self, queries: Sequence[Any]) -> list[Any]:
        """The value of the key with the smallest distance to each query; of two, the smaller."""
        return self.lookup([self._nearest(query) for query in queries])

    def _floor(self, query: Any) -> Any:
        at = bisect_right(self._keys, query) if _usable(query) else 0
        return self._keys[at - 1] if at else None

    def _ceil(self, query: Any) -> Any:
        at = bisect_left(self._keys, query) if _usable(query) else len(self._keys)
        return self._keys[at] if at < len(self._keys) else None

    def _nearest(self, query: Any) -> Any:
        low, high = self._floor(query), self._ceil(query)
        if low is None or high is None:
            return high if low is None else low
        return low if _distance(low, query) <= _distance(query, high) else high

    def range(self, low: Sequence[Any], high: Sequence[Any]) -> list[list[Any] | None]:
        return [self._one_range(a, b) for a, b in zip(low, high, strict=True)]

    def _one_range(self, low: Any, high: Any) -> list[Any] | None:
        if not (_usable(low) and _usable(high)):
            return None
        rows = self._sorted[bisect_left(self._keys, low) : bisect_right(self._keys, high)]
        return [self._values[row] for _, row in rows]
