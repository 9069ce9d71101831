"""An array that grows at the end and shrinks at the front, addressed by positions that never change.

Position p stays p for the life of the stream, however much was dropped before it. Memory is at most about twice
what is held: the front is cut off in one move when more than half of the buffer is dead.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from millrace.host.words import Array

_LEAST = 64


class Sliding:
    """A sliding one-dimensional array of one dtype."""

    def __init__(self, dtype: np.dtype[Any] | type, start: int = 0) -> None:
        """An empty array whose first position will be `start`."""
        self._data: Array = np.empty(_LEAST, dtype)
        self._first = start
        self._from = 0
        self._to = 0

    @property
    def first(self) -> int:
        """The lowest position held."""
        return self._first

    @property
    def end(self) -> int:
        """One past the highest position held."""
        return self._first + self._to - self._from

    def __len__(self) -> int:
        """How many are held."""
        return self._to - self._from

    def append(self, values: Array) -> None:
        """Add values at the end."""
        held, new = len(self), len(values)
        if self._to + new > len(self._data):
            # Growing always leaves as much room as is held, so each value is moved a bounded number of times.
            data = np.empty(max(_LEAST, 2 * (held + new)), self._data.dtype)
            data[:held] = self._data[self._from : self._to]
            self._data, self._from, self._to = data, 0, held
        self._data[self._to : self._to + new] = values
        self._to += new

    def drop_before(self, position: int) -> None:
        """Forget everything below a position."""
        count = min(max(position - self._first, 0), len(self))
        self._first += count
        self._from += count
        if len(self._data) > _LEAST and len(self) * 4 < len(self._data):
            self._data = np.concatenate([self.view(), np.empty(max(_LEAST, len(self)), self._data.dtype)])
            self._to -= self._from
            self._from = 0

    def truncate(self, end: int) -> None:
        """Forget everything from a position on: undoes appends."""
        self._to -= max(self.end - end, 0)

    def view(self) -> Array:
        """What is held, from `first` on, without a copy; valid until the next change."""
        return self._data[self._from : self._to]

    def take(self, positions: Array) -> Array:
        """The values at these positions."""
        values: Array = self.view()[positions - self._first]
        return values
