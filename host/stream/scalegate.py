"""The memory of a compiled ScaleGate (`scalegate_kernel.py`) and its calls from Python, one thread at a time.

Rings begin small, grow when a batch needs room, and shrink when a burst has been merged. Limits: all rings have the
same size, that of the source with most tuples waiting; moving them means that no other thread may use the gate
meanwhile, so a gate that compiled threads share is made with the rings that it needs.
"""

from __future__ import annotations

import numpy as np

from millrace.host.base.types import Array, Longs, Mask
from millrace.host.runtime.intrinsics import LINE, address
from millrace.host.stream import scalegate_kernel as kernels
from millrace.host.stream.scalegate_kernel import CLOSED, NO_CLOCK, SCRATCH_WORDS, GateWords, SourceWords

MIN_RING = 1 << 10
MIN_LOG = 1 << 14
SHRUNK_RING = 1 << 14
"""Rings of up to so many entries do not shrink."""


class Inbox:
    """Memory for tuples that a reader has read. It is filled in one step, so that no interrupt can lose tuples."""

    def __init__(self, limit: int) -> None:
        """Room for `limit` tuples."""
        self.limit = limit
        self.lines = np.empty((3, limit), np.int64)
        self._state = np.zeros(2, np.int64)

    @property
    def state(self) -> int:
        """The address of two words: how many tuples are held, and the number of the first in the gate's order."""
        return address(self._state)

    @property
    def first(self) -> int:
        """The number of the first tuple in the gate's order."""
        return int(self._state[1])

    def __len__(self) -> int:
        """The number of tuples held."""
        return int(self._state[0])

    @property
    def times(self) -> Longs:
        """Their times."""
        return self.lines[0, : len(self)]

    @property
    def sources(self) -> Longs:
        """Their sources."""
        return self.lines[1, : len(self)]

    @property
    def words(self) -> Longs:
        """Their words."""
        return self.lines[2, : len(self)]

    def clear(self) -> None:
        """Hold nothing."""
        self._state[0] = 0


class Gate:
    """Merges the tuples of several sources, each ascending in time, into one order for several readers."""

    def __init__(self, sources: int, readers: int, ring: int = MIN_RING, log: int = MIN_LOG) -> None:
        """An empty gate; `ring` and `log` are the entries of each ring and of the log, powers of two."""
        self.sources, self.readers = sources, readers
        words = GateWords.SIZE + SourceWords.SIZE * sources + LINE * readers
        self._memory = np.zeros(words + LINE, np.int64)
        self.control = self._memory[-address(self._memory) // 8 % LINE :][:words]
        self._scratch = np.zeros(SCRATCH_WORDS * sources + 1, np.int64)
        self._log = np.zeros((3, log), np.int64)
        self._rings: list[Array] = []
        """The memory of the rings; two while they are moved."""
        for word, value in (
            (GateWords.SOURCES, sources),
            (GateWords.READERS, readers),
            (GateWords.LOG, log),
            (GateWords.LOG_TIMES, address(self._log[0])),
            (GateWords.LOG_WORDS, address(self._log[1])),
            (GateWords.LOG_SOURCES, address(self._log[2])),
            (GateWords.SCRATCH, address(self._scratch)),
        ):
            self.control[word] = value
        self._use_rings(np.zeros((2, sources, ring), np.int64))

    @property
    def address(self) -> int:
        """The address of the gate, for compiled threads; the caller keeps the gate alive."""
        return address(self.control)

    def _use_rings(self, rings: Array) -> None:
        """Use other memory; an interrupt may come between any two lines."""
        self._rings.append(rings)
        kernels.use_rings(self.address, rings.shape[2], address(rings[0]), address(rings[1]))
        self._rings = [rings]

    @property
    def ring_size(self) -> int:
        """The entries of each ring."""
        return int(self.control[GateWords.RING])

    def of_source(self, source: int) -> Longs:
        """A source's words; see `SourceWords`."""
        start = GateWords.SIZE + SourceWords.SIZE * source
        words: Longs = self.control[start : start + SourceWords.SIZE]
        return words

    def total(self, word: SourceWords) -> int:
        """The sum of one word over all sources."""
        return sum(int(self.of_source(source)[word]) for source in range(self.sources))

    @property
    def waiting(self) -> int:
        """Tuples that are in no reader's log yet."""
        return self.total(SourceWords.END) - self.total(SourceWords.BEGIN)

    def clock(self, source: int) -> int | None:
        """A source's clock; None before its first tuple or advance."""
        words = self.of_source(source)
        return None if words[SourceWords.STATE] == NO_CLOCK else int(words[SourceWords.CLOCK])

    def is_closed(self, source: int) -> bool:
        """Whether a source is closed."""
        return bool(self.of_source(source)[SourceWords.STATE] == CLOSED)

    def slowest_source(self) -> int | None:
        """The source that all others wait for; None if all are closed."""
        still = [source for source in range(self.sources) if not self.is_closed(source)]
        clocks = {source: self.clock(source) for source in still}
        return min(still, key=lambda q: (clocks[q] is not None, clocks[q] or 0, q), default=None)

    def screen(self, source: int, times: Longs, known: Mask | None) -> tuple[Array, int]:
        """Which rows `append` would keep (a byte each), and how many: those with a time that is not below the clock."""
        kept = np.empty(len(times), np.uint8)
        words = self.of_source(source)
        state, clock = int(words[SourceWords.STATE]), int(words[SourceWords.CLOCK])
        flags = 0 if known is None else address(known)
        return kept, kernels.screen(address(times), flags, len(times), state, clock, address(kept))

    def append(self, source: int, times: Longs, kept: Array, count: int, nulls: int) -> None:
        """Add the `count` rows that `screen` has marked, and count the others; `nulls` of them have no time.

        A tuple's word is its number among the tuples of its source.
        """
        words = self.of_source(source)
        held = int(words[SourceWords.END]) - int(words[SourceWords.BEGIN])
        if held + count > self.ring_size:
            self._resize(held + count)
        late = len(times) - nulls - count
        kernels.append_rows(self.address, source, address(times), address(kept), len(times), late, nulls)

    def shrink(self) -> None:
        """Give back the memory of large rings that are nearly empty."""
        if self.ring_size > SHRUNK_RING:
            held = max(int(w[SourceWords.END] - w[SourceWords.BEGIN]) for w in map(self.of_source, range(self.sources)))
            if 8 * held < self.ring_size:
                self._resize(max(2 * held, MIN_RING))

    def _resize(self, least: int) -> None:
        """Move the rings to memory with at least this many entries each."""
        old, size = self._current_rings(), self.ring_size
        rings = np.zeros((2, self.sources, 1 << (least - 1).bit_length()), np.int64)
        for source in range(self.sources):
            words = self.of_source(source)
            rows = np.arange(int(words[SourceWords.BEGIN]), int(words[SourceWords.END]))
            rings[:, source, rows & (rings.shape[2] - 1)] = old[:, source, rows & (size - 1)]
        self._use_rings(rings)

    def _current_rings(self) -> Array:
        """The memory in use; an interrupt may have left another one beside it."""
        return next(rings for rings in self._rings if address(rings[0]) == self.control[GateWords.RING_TIMES])

    def advance(self, source: int, time: int) -> None:
        """Move a source's clock forward to a time."""
        kernels.advance_clock(self.address, source, time)

    def close(self, source: int) -> None:
        """The source adds nothing more and holds nothing back."""
        kernels.close_one(self.address, source)

    def read(self, reader: int, inbox: Inbox) -> None:
        """Fill an empty inbox with tuples that are ready and that this reader has not read yet."""
        times, sources, words = (address(line) for line in inbox.lines)
        kernels.read_log(self.address, reader, inbox.limit, times, sources, words, inbox.state)
