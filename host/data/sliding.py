"""Arrays that grow at the end and shrink at the front, addressed by positions that never change.

Position p stays p for the life of the stream, however many values are dropped before it. Memory is bounded by a small
multiple of the values held: the array is copied to a smaller buffer when less than a quarter of the buffer is in use.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import numpy as np

from millrace.host.base.types import Array
from millrace.host.base.words import repeated
from millrace.host.runtime.jit import kernel

_MIN_CAPACITY = 64
FEW = 4
"""So few values are compared one by one: that costs no more than the call of a kernel."""
_MAX_MERGED = 1 << 13
"""Adjacent batches are merged up to this many values."""
_TAIL = 1 << 12
"""Values of the memory that small batches are copied into."""
_SMALL = 1 << 9
"""A batch of up to so many values is copied."""


@kernel
def is_consecutive(values: Any, first: int) -> bool:
    """Return whether values are `first`, `first + 1`, …"""
    differences = 0
    for i in range(values.shape[0]):
        differences |= values[i] ^ (first + i)
    return differences == 0


class SlidingArray:
    """A sliding one-dimensional array of one dtype."""

    def __init__(self, dtype: np.dtype[Any] | type, start: int = 0) -> None:
        """Create an empty array whose first position will be `start`."""
        self._data: Array = np.empty(_MIN_CAPACITY, dtype)
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
        """Return the number of values held."""
        return self._to - self._from

    @property
    def nbytes(self) -> int:
        """The memory in use, in bytes."""
        return int(self._data.nbytes)

    def append(self, values: Array) -> None:
        """Append values."""
        held, new = len(self), len(values)
        if self._to + new > len(self._data):
            # Growing doubles the capacity, so each value is moved a bounded number of times.
            data = np.empty(max(_MIN_CAPACITY, 2 * (held + new)), self._data.dtype)
            data[:held] = self._data[self._from : self._to]
            self._data, self._from, self._to = data, 0, held
        self._data[self._to : self._to + new] = values
        self._to += new

    def drop_before(self, position: int) -> None:
        """Drop all values below a position."""
        count = min(max(position - self._first, 0), len(self))
        self._first += count
        self._from += count
        if len(self._data) > _MIN_CAPACITY and len(self) * 4 < len(self._data):
            self._data = np.concatenate([self.view(), np.empty(max(_MIN_CAPACITY, len(self)), self._data.dtype)])
            self._to -= self._from
            self._from = 0

    def truncate(self, end: int) -> None:
        """Drop all values from position `end` on: undoes appends."""
        self._to -= max(self.end - end, 0)

    def view(self) -> Array:
        """Return all values from `first` on, without a copy; valid until the next change."""
        return self._data[self._from : self._to]

    def take(self, positions: Array) -> Array:
        """Return the values at these positions."""
        values: Array = self.view()[positions - self._first]
        return values


class LazySlidingArray(ABC):
    """A sliding array in a compact form; it becomes a stored `SlidingArray` once the values do not fit that form."""

    def __init__(self, dtype: np.dtype[Any] | type, start: int = 0) -> None:
        """Create an empty array whose first position will be `start`."""
        self._dtype = np.dtype(dtype)
        self._first = self._end = start
        self._stored: SlidingArray | None = None

    @property
    def first(self) -> int:
        """The lowest position held."""
        return self._first if self._stored is None else self._stored.first

    @property
    def end(self) -> int:
        """One past the highest position held."""
        return self._end if self._stored is None else self._stored.end

    def __len__(self) -> int:
        """Return the number of values held."""
        return self.end - self.first

    @property
    def nbytes(self) -> int:
        """The memory in use, in bytes."""
        return self._size() if self._stored is None else self._stored.nbytes

    def append(self, values: Array) -> None:
        """Append values."""
        rows = len(values)
        if self._stored is None and rows:
            if self._add(values):
                self._end += rows
                return
            self._materialize()
        if self._stored is not None:
            self._stored.append(values)

    def drop_before(self, position: int) -> None:
        """Drop all values below a position."""
        if self._stored is not None:
            self._stored.drop_before(position)
            return
        self._first = min(max(position, self._first), self._end)
        self._trim()

    def truncate(self, end: int) -> None:
        """Drop all values from position `end` on: undoes appends."""
        if self._stored is not None:
            self._stored.truncate(end)
            return
        self._end = min(self._end, max(end, self._first))
        self._trim()

    def view(self) -> Array:
        """Return all values from `first` on."""
        return self._values() if self._stored is None else self._stored.view()

    def take(self, positions: Array) -> Array:
        """Return the values at these positions."""
        values: Array = self.view()[positions - self.first]
        return values

    def _materialize(self) -> SlidingArray:
        stored = SlidingArray(self._dtype, self._first)
        stored.append(self._values())
        self._stored = stored
        return stored

    @abstractmethod
    def _add(self, values: Array) -> bool:
        """Append values in the compact form; return False if they do not fit it."""

    @abstractmethod
    def _values(self) -> Array:
        """Return all values."""

    def _trim(self) -> None:  # noqa: B027 - subclasses without storage need no override
        """Free storage outside the current bounds."""

    def _size(self) -> int:
        return 0


class ConstantArray(LazySlidingArray):
    """The same value at all positions: joins without time columns, and sides with a single source."""

    _value: Any = None
    _last: Array | None = None
    """The latest array: those of `constant` are shared, so it often comes again."""

    def repeat(self, value: Any, rows: int) -> None:
        """Append a value several times."""
        if self._stored is None and self._value is not None and self._value == value:
            self._end += rows
        else:
            self.append(repeated(value, rows, self._dtype.type))

    def _add(self, values: Array) -> bool:
        if values is self._last:
            return True
        # An array with stride 0 repeats one value.
        steady = values.strides == (0,) and (self._value is None or values[0] == self._value)
        if steady:
            self._value, self._last = values[0], values
        return steady

    def _values(self) -> Array:
        return np.broadcast_to(np.asarray(0 if self._value is None else self._value, self._dtype), (len(self),))


class PositionArray(LazySlidingArray):
    """Values equal to their positions: the seqs of a source from which no row was dropped."""

    def count_on(self, first: int, rows: int) -> None:
        """Append `first`, `first + 1`, …"""
        if self._stored is None and first == self._end:
            self._end += rows
        else:
            self.append(np.arange(first, first + rows, dtype=self._dtype))

    def _add(self, values: Array) -> bool:
        if len(values) <= FEW:
            return bool(values.tolist() == list(range(self._end, self._end + len(values))))
        return bool(is_consecutive(values, self._end))

    def _values(self) -> Array:
        return np.arange(self._first, self._end, dtype=self._dtype)

    def take(self, positions: Array) -> Array:
        """Return the positions themselves, without a copy."""
        return positions if self._stored is None else super().take(positions)


class BatchedArray(LazySlidingArray):
    """Appended batches; large ones are not copied until single values are read, small adjacent ones are merged."""

    def __init__(self, dtype: np.dtype[Any] | type, start: int = 0) -> None:
        """Create an empty array whose first position will be `start`."""
        super().__init__(dtype, start)
        self._chunks: list[tuple[int, Array]] = []
        self._tail: Array | None = None
        """Memory of the last chunk, if more small batches can be copied behind it; begins at `_tail_start`."""
        self._tail_start = 0

    def _add(self, values: Array) -> bool:
        if values.dtype != self._dtype:
            return False
        if len(values) <= _SMALL:
            self._copy(values)
            return True
        self._chunks.append((self._end, values))
        self._merge()
        return True

    def _copy(self, values: Array) -> None:
        """Copy a small batch behind the last one. Values are written once: views of them never change."""
        tail, chunks, at = self._tail, self._chunks, self._end - self._tail_start
        to = at + len(values)
        if tail is None or to > len(tail) or not chunks or chunks[-1][0] != self._tail_start:
            self._merge()
            tail, at, to = np.empty(_TAIL, self._dtype), 0, len(values)
            chunks.append((self._end, tail[:0]))
            self._tail, self._tail_start = tail, self._end
        tail[at:to] = values
        chunks[-1] = self._tail_start, tail[:to]

    def truncate(self, end: int) -> None:
        """Drop all values from position `end` on; the next small batch begins new memory."""
        self._tail = None
        super().truncate(end)

    def _merge(self) -> None:
        while len(self._chunks) > 1 and self._unbalanced():
            (start, before), (_, last) = self._chunks[-2:]
            self._tail = None  # the merged chunk is other memory, even if it begins where the tail did
            self._chunks[-2:] = [(start, np.concatenate([before, last]))]

    def _unbalanced(self) -> bool:
        before, last = len(self._chunks[-2][1]), len(self._chunks[-1][1])
        return before <= 2 * last and before + last <= _MAX_MERGED

    def _values(self) -> Array:
        parts = [values[max(self._first - start, 0) : self._end - start] for start, values in self._chunks]
        if len(parts) == 1:
            return parts[0]
        return np.concatenate(parts) if parts else np.empty(0, self._dtype)

    def take(self, positions: Array) -> Array:
        """Return the values at these positions; the first call copies all batches into one array."""
        if self._stored is None:
            self._materialize()
        return super().take(positions)

    def _materialize(self) -> SlidingArray:
        stored = super()._materialize()
        self._chunks = []
        return stored

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
            # Not by half: a batch that is no larger than the window is never copied, which would stall a push.
            if dead >= max(_MIN_CAPACITY, len(self)):
                chunks[0] = self._first, values[dead:].copy()

    def _size(self) -> int:
        return sum(values.nbytes for _, values in self._chunks)
