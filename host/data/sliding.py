"""An array that grows at the end and shrinks at the front, addressed by positions that never change.

Position p stays p for the life of the stream, however much was dropped before it. Memory is at most about twice
what is held: the front is cut off in one move when more than half of the buffer is dead.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import numpy as np

from millrace.host.base.types import Array
from millrace.host.runtime.jit import kernel

_LEAST = 64
_MERGE = 1 << 13
"""Batches are put together up to this size."""


@kernel
def count_from(values: Any, first: int) -> bool:
    """Whether values are `first`, `first + 1`, …"""
    same = True
    for i in range(values.shape[0]):
        same &= values[i] == first + i
    return same


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


class Kept(ABC):
    """A sliding array that stores little, or copies nothing, until somebody needs it whole; then a `Sliding`."""

    def __init__(self, dtype: np.dtype[Any] | type, start: int = 0) -> None:
        """Empty."""
        self._dtype = np.dtype(dtype)
        self._first = self._end = start
        self._whole: Sliding | None = None

    @property
    def first(self) -> int:
        """The lowest position held."""
        return self._first if self._whole is None else self._whole.first

    @property
    def end(self) -> int:
        """One past the highest position held."""
        return self._end if self._whole is None else self._whole.end

    def __len__(self) -> int:
        """How many are held."""
        return self.end - self.first

    @property
    def nbytes(self) -> int:
        """The memory in use."""
        return self._size() if self._whole is None else self._whole.nbytes

    def append(self, values: Array) -> None:
        """Add values at the end."""
        if self._whole is None and len(values):
            if self._add(values):
                self._end += len(values)
                return
            self._make_whole()
        if self._whole is not None:
            self._whole.append(values)

    def drop_before(self, position: int) -> None:
        """Forget everything below a position."""
        if self._whole is not None:
            self._whole.drop_before(position)
            return
        self._first = min(max(position, self._first), self._end)
        self._trim()

    def truncate(self, end: int) -> None:
        """Forget everything from a position on: undoes appends."""
        if self._whole is not None:
            self._whole.truncate(end)
            return
        self._end = min(self._end, max(end, self._first))
        self._trim()

    def view(self) -> Array:
        """What is held, from `first` on."""
        return self._values() if self._whole is None else self._whole.view()

    def take(self, positions: Array) -> Array:
        """The values at these positions."""
        values: Array = self.view()[positions - self.first]
        return values

    def _make_whole(self) -> Sliding:
        whole = Sliding(self._dtype, self._first)
        whole.append(self._values())
        self._whole = whole
        return whole

    @abstractmethod
    def _add(self, values: Array) -> bool:
        """Take values in; false where that can only be done by storing everything."""

    @abstractmethod
    def _values(self) -> Array:
        """What is held."""

    def _trim(self) -> None:  # noqa: B027 - what stores nothing has nothing to do
        """Let go of what is out of bounds now."""

    def _size(self) -> int:
        return 0


class Steady(Kept):
    """One value only, as yet: joins without time columns have no times, and most have one source per side."""

    _value: Any = None

    def _add(self, values: Array) -> bool:
        # An array without strides is one value, as often as it is long.
        steady = values.strides == (0,) and (self._value is None or values[0] == self._value)
        if steady:
            self._value = values[0]
        return steady

    def _values(self) -> Array:
        return np.broadcast_to(np.asarray(0 if self._value is None else self._value, self._dtype), (len(self),))


class Numbered(Kept):
    """Each position itself, as yet: the seqs of a source that no row was dropped from."""

    def _add(self, values: Array) -> bool:
        return bool(count_from(values, self._end))

    def _values(self) -> Array:
        return np.arange(self._first, self._end, dtype=self._dtype)

    def take(self, positions: Array) -> Array:
        """The positions themselves, without a copy."""
        return positions if self._whole is None else super().take(positions)


class Deferred(Kept):
    """Batches as they came, without a copy, until single values are asked for; small ones are put together."""

    def __init__(self, dtype: np.dtype[Any] | type, start: int = 0) -> None:
        """No batches."""
        super().__init__(dtype, start)
        self._chunks: list[tuple[int, Array]] = []

    def _add(self, values: Array) -> bool:
        if values.dtype != self._dtype:
            return False
        self._chunks.append((self._end, values))
        while len(self._chunks) > 1 and self._unbalanced():
            (start, before), (_, last) = self._chunks[-2:]
            self._chunks[-2:] = [(start, np.concatenate([before, last]))]
        return True

    def _unbalanced(self) -> bool:
        before, last = (len(values) for _, values in self._chunks[-2:])
        return before <= 2 * last and before + last <= _MERGE

    def _values(self) -> Array:
        parts = [values[max(self._first - start, 0) : self._end - start] for start, values in self._chunks]
        if len(parts) == 1:
            return parts[0]
        return np.concatenate(parts) if parts else np.empty(0, self._dtype)

    def take(self, positions: Array) -> Array:
        """The values at these positions; from now on all are kept in one piece."""
        if self._whole is None:
            self._make_whole()
        return super().take(positions)

    def _make_whole(self) -> Sliding:
        whole = super()._make_whole()
        self._chunks = []
        return whole

    def _trim(self) -> None:
        chunks = self._chunks
        while chunks and chunks[-1][0] >= self._end:
            chunks.pop()
        while chunks and chunks[0][0] + len(chunks[0][1]) <= self._first:
            chunks.pop(0)
        if chunks:
            start, values = chunks[-1]
            chunks[-1] = start, values[: self._end - start]
            start, values = chunks[0]
            dead = self._first - start
            if dead >= _LEAST and 2 * dead >= len(values):
                chunks[0] = self._first, values[dead:].copy()

    def _size(self) -> int:
        return sum(values.nbytes for _, values in self._chunks)
