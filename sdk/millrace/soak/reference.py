"""Brute force for the soak: joins of windows, nearest neighbours and merged sources, one row after the other.

It follows the contract literally and shares no code with the operators. Limits: one source per side of a join; keys are
integers, small enough that all arithmetic is exact.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

Longs = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]
Holds = Callable[[Longs, Longs], Mask]
"""Whether pairs match: r's columns and s's columns, x and y in rows 0 and 1."""
KINDS: dict[str, tuple[str, Holds]] = {
    "band": ("abs(r.x - s.x) <= 3", lambda r, s: np.abs(r[0] - s[0]) <= 3),
    "equal": ("r.x = s.x", lambda r, s: r[0] == s[0]),
    "inequality": ("r.x < s.x and r.y > s.y", lambda r, s: (r[0] < s[0]) & (r[1] > s[1])),
}
"""Conditions by name: the text and what it means."""


class GrowingRows:
    """Rows of integers that are appended and dropped from the front."""

    def __init__(self, width: int) -> None:
        """No rows."""
        self._data = np.zeros((width, 256), np.int64)
        self._first = self._end = 0

    def append(self, row: Sequence[int]) -> None:
        """Add a row."""
        if self._end == self._data.shape[1]:
            held = self.view().copy()
            self._data = np.zeros((len(row), max(2 * held.shape[1], 256)), np.int64)
            self._data[:, : held.shape[1]] = held
            self._first, self._end = 0, held.shape[1]
        self._data[:, self._end] = row
        self._end += 1

    def keep_last(self, count: int) -> None:
        """Drop all rows but the last `count`."""
        self._first = max(self._first, self._end - count)

    def view(self) -> Longs:
        """All rows, as columns."""
        return self._data[:, self._first : self._end]


@dataclass
class MergeOrder:
    """Rows of several sources in the order (time, source, seq), once no source can still come before."""

    sources: int
    lateness: int = 0
    late: int = 0
    _high: dict[int, int] = field(default_factory=dict)
    _floor: int | None = None
    _waiting: list[tuple[int, int, int]] = field(default_factory=list)
    _closed: set[int] = field(default_factory=set)

    def push(self, source: int, ts: int, seq: int) -> bool:
        """Add a row; false if it is late."""
        clock = self._clock(source)
        if clock is not None and ts < clock:
            self.late += 1
            return False
        self._high[source] = max(ts, self._high.get(source, ts))
        insort(self._waiting, (ts, source, seq))
        return True

    def advance(self, source: int, ts: int) -> None:
        """Move a clock."""
        self._high[source] = max(ts, self._high.get(source, ts))

    def flush(self) -> None:
        """Move every clock past the newest time."""
        if self._high:
            self._floor = max(self._high.values()) + 1

    def close(self, source: int) -> None:
        """A source that adds nothing more."""
        self._closed.add(source)

    def ready(self) -> Iterator[tuple[int, int, int]]:
        """The rows that are ready: time, source and seq."""
        while self._waiting and self._is_ready(self._waiting[0]):
            yield self._waiting.pop(0)

    def _clock(self, source: int) -> int | None:
        readings = [self._high[source] - self.lateness] if source in self._high else []
        return max([*readings, *([] if self._floor is None else [self._floor])], default=None)

    def _is_ready(self, row: tuple[int, int, int]) -> bool:
        ts, mine, _ = row
        for source in range(self.sources):
            clock = self._clock(source)
            if source not in self._closed and (clock is None or (clock, source) < (ts, mine)):
                return False
        return True


class ReferenceJoin:
    """A window join: source 0 is r, source 1 is s. `window` is a number of rows, or of ticks if it is `timed`."""

    def __init__(self, kind: str, window: int, timed: bool, lateness: int = 0) -> None:
        """No rows yet."""
        self._holds, self._window, self._timed = KINDS[kind][1], window, timed
        self._order = MergeOrder(2, lateness)
        self._rows: dict[tuple[int, int], Sequence[int]] = {}
        self._taken = (GrowingRows(4), GrowingRows(4))
        self._seqs = [0, 0]

    def push(self, side: int, rows: Longs) -> Longs:
        """Add rows (time, x, y) of a side; return the pairs that they complete."""
        found = []
        for ts, x, y in rows.T.tolist():
            seq, self._seqs[side] = self._seqs[side], self._seqs[side] + 1
            if not self._timed:
                found.append(self._take(side, seq, (0, x, y)))
            elif self._order.push(side, ts, seq):
                self._rows[side, seq] = (ts, x, y)
                found += self._take_ready()
        return _joined(found)

    def flush(self) -> Longs:
        """Take all rows."""
        self._order.flush()
        return _joined(self._take_ready())

    def _take_ready(self) -> list[Longs]:
        return [self._take(side, seq, self._rows.pop((side, seq))) for _, side, seq in self._order.ready()]

    def _take(self, side: int, seq: int, row: Sequence[int]) -> Longs:
        """The pairs of a new row with those taken before it, in their order."""
        other = self._taken[1 - side]
        if not self._timed:
            other.keep_last(self._window)
        held = other.view()
        if self._timed:
            held = held[:, held[1] >= row[0] - self._window]
            other.keep_last(held.shape[1])
        mine = np.array(row[1:], np.int64)[:, None]
        r, s = (mine, held[2:]) if side == 0 else (held[2:], mine)
        partners = held[0][self._holds(r, s)]
        self._taken[side].append((seq, *row))
        own = np.full(len(partners), seq)
        return np.stack([own, partners] if side == 0 else [partners, own])


class ReferenceNeighbours:
    """The k nearest of the last `window` rows of s, for each row of r: distance, then age."""

    def __init__(self, k: int, window: int) -> None:
        """No rows yet."""
        self._k, self._window = k, window
        self._s = GrowingRows(3)
        self._seqs = [0, 0]

    def push(self, side: int, rows: Longs) -> Longs:
        """Add rows (time, x, y) of a side; return r_seq, rank, s_seq and the squared distance of the neighbours."""
        found = []
        for _, x, y in rows.T.tolist():
            seq, self._seqs[side] = self._seqs[side], self._seqs[side] + 1
            if side == 1:
                self._s.append((seq, x, y))
                self._s.keep_last(self._window)
            else:
                found.append(nearest(seq, x, y, self._s.view(), self._k))
        return np.concatenate(found, axis=1) if found else np.zeros((4, 0), np.int64)


def nearest(seq: int, x: int, y: int, points: Longs, k: int) -> Longs:
    """The neighbours of one row among points (seq, x, y)."""
    squares = (points[1] - x) ** 2 + (points[2] - y) ** 2
    order = np.lexsort((points[0], squares))[:k]
    return np.stack([np.full(len(order), seq), np.arange(len(order)), points[0][order], squares[order]])


def _joined(found: list[Longs]) -> Longs:
    return np.concatenate(found, axis=1) if found else np.zeros((2, 0), np.int64)
