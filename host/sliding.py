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

    @property
    def nbytes(self) -> int:
        """The memory in use."""
        return int(self._data.nbytes)

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


class Steady:
    """A sliding array that has held one value only: nothing is stored until another comes.

    Joins without time columns have no times, and most have one source per side.
    """

    def __init__(self, dtype: np.dtype[Any] | type, start: int = 0) -> None:
        """Empty."""
        self._dtype = np.dtype(dtype)
        self._first = self._end = start
        self._value: Any = None
        self._stored: Sliding | None = None

    @property
    def first(self) -> int:
        """The lowest position held."""
        return self._first if self._stored is None else self._stored.first

    @property
    def end(self) -> int:
        """One past the highest position held."""
        return self._end if self._stored is None else self._stored.end

    def __len__(self) -> int:
        """How many are held."""
        return self.end - self.first

    @property
    def nbytes(self) -> int:
        """The memory in use."""
        return 0 if self._stored is None else self._stored.nbytes

    def append(self, values: Array) -> None:
        """Add values at the end; an array without strides is one value, as often as it is long."""
        if self._stored is None and len(values):
            if values.strides == (0,) and (self._value is None or values[0] == self._value):
                self._value = values[0]
            else:
                stored = Sliding(self._dtype, self._first)
                stored.append(self.view())
                self._stored = stored
        if self._stored is None:
            self._end += len(values)
        else:
            self._stored.append(values)

    def drop_before(self, position: int) -> None:
        """Forget everything below a position."""
        if self._stored is None:
            self._first = min(max(position, self._first), self._end)
        else:
            self._stored.drop_before(position)

    def truncate(self, end: int) -> None:
        """Forget everything from a position on: undoes appends."""
        if self._stored is None:
            self._end = min(self._end, end)
        else:
            self._stored.truncate(end)

    def view(self) -> Array:
        """What is held, from `first` on."""
        if self._stored is not None:
            return self._stored.view()
        return np.broadcast_to(np.asarray(0 if self._value is None else self._value, self._dtype), (len(self),))

    def take(self, positions: Array) -> Array:
        """The values at these positions."""
        values: Array = self.view()[positions - self.first]
        return values
