"""The nested loop on a device: each tuple is compared with its entire window. Serves every condition.

If the condition has a key, the device's `scan_prober` unit compares words. If not, every live tuple of the window is a
candidate, and the matcher checks the pairs. Each side's live words stay on the device in one buffer that grows at the
end. It is rewritten from the host's copy only when it is full. `index="scan"` is `scalejoin/index.py`, which uses this
on devices other than the CPU.
"""

from __future__ import annotations

import numpy as np

from millrace.host.base.types import SIDES, Array, Mask, Positions, Side
from millrace.host.data.sliding import SlidingArray
from millrace.host.device.contract import Buffer, Device
from millrace.host.join.contract import IndexContext, JoinIndex, Matches, ProbeBatch, SideProbes
from millrace.host.join.pair_memory import FEWER_ROWS, check_fits

_MIN_CAPACITY = 1024


class _LiveTuples:
    """One side's live tuples: words on device and host, and their positions (ascending)."""

    def __init__(self, device: Device, word: np.dtype[np.unsignedinteger]) -> None:
        self._device = device
        self.words = SlidingArray(word)
        self.positions = SlidingArray(np.int64)
        self._buffer: Buffer = device.alloc(_MIN_CAPACITY, np.dtype(word))
        self._base = 0  # the element of `words` at the buffer's start
        self.moves = 0

    def append(self, first: int, words: Array, live: Mask) -> None:
        at = self.words.end
        fresh = words[live]
        self.words.append(fresh)
        self.positions.append(np.flatnonzero(live) + first)
        if self.words.end - self._base > self._buffer.size:
            self._move()
        else:
            self._device.write(self._buffer, at - self._base, fresh)

    def _move(self) -> None:
        self._device.free(self._buffer)
        self._buffer = self._device.alloc(max(_MIN_CAPACITY, 2 * len(self.words)), self._buffer.dtype)
        self._device.write(self._buffer, 0, self.words.view())
        self._base = self.words.first
        self.moves += 1

    def drop_before(self, position: int) -> None:
        gone = int(np.searchsorted(self.positions.view(), position))
        self.words.drop_before(self.words.first + gone)
        self.positions.drop_before(self.positions.first + gone)

    def interval(self, begin: Positions, end: Positions) -> tuple[Positions, Positions]:
        """Convert stream positions to elements of the buffer."""
        held, shift = self.positions.view(), self.words.first - self._base
        return np.searchsorted(held, begin) + shift, np.searchsorted(held, end) + shift

    def probe(self, part: SideProbes, want_positions: bool) -> Matches:
        """Find the words in the ranges of the other side's tuples, on the device."""
        live = np.flatnonzero(part.live)
        counts = np.zeros(len(part), np.int64)
        begin, end = self.interval(part.begin[live], part.end[live])
        low, high = part.probes[0].low[:, live], part.probes[0].high[:, live]
        counts[live], found = self._launch(begin, end, low, high, want_positions)
        if found is None:
            return Matches(counts, None)
        return Matches(counts, self.positions.view()[found - (self.words.first - self._base)])

    def _launch(
        self, begin: Positions, end: Positions, low: Array, high: Array, want: bool
    ) -> tuple[Positions, Positions | None]:
        device, probers = self._device, len(begin)
        scalars = (probers, len(low))
        inputs = [self._buffer, *(_send(device, a) for a in (begin, end, low.ravel(), high.ravel()))]
        counts = device.alloc(probers, np.dtype(np.int64))
        none = device.alloc(0, np.dtype(np.int64))
        device.wait(device.launch("scan_prober", [*inputs, counts, none, none], (*scalars, 0)))
        counted = device.read(counts, 0, probers)
        found = None
        if want:
            total = int(counted.sum())
            offsets = _send(device, np.cumsum(counted) - counted)
            out = device.alloc(total, np.dtype(np.int64))
            device.wait(device.launch("scan_prober", [*inputs, counts, offsets, out], (*scalars, 1)))
            found = device.read(out, 0, total)
            device.free(offsets)
            device.free(out)
        for buffer in (*inputs[1:], counts, none):
            device.free(buffer)
        return counted, found


def _send(device: Device, data: Array) -> Buffer:
    buffer = device.alloc(len(data), data.dtype)
    device.write(buffer, 0, data)
    return buffer


class ScanIndex(JoinIndex):
    """Compares each new tuple with every live tuple visible to it."""

    needs = frozenset({"scan_prober"})

    def __init__(self, context: IndexContext) -> None:
        """Two empty sides."""
        super().__init__(context)
        searches = context.plan.searches
        words = {side: searches[side][0].key.kind.word if searches[side] else np.dtype(np.uint64) for side in SIDES}
        self._live = {side: _LiveTuples(context.device, words[side]) for side in SIDES}

    def load(self, side: Side, first: int, words: tuple[Array, ...], live: Mask) -> None:
        """Append earlier tuples."""
        self._live[side].append(first, _words(words, live), live)

    def step(self, batch: ProbeBatch, want_positions: bool) -> tuple[Matches, Matches]:
        """Append both sides, then probe each with the other. The intervals exclude later tuples."""
        r, s = self._live["r"], self._live["s"]
        for side, part in ((r, batch.r), (s, batch.s)):
            side.append(part.first, _words(part.words, part.live), part.live)
        if self.context.plan.searchable:
            found = s.probe(batch.r, want_positions), r.probe(batch.s, want_positions)
        else:
            found = _all_visible(s, batch.r), _all_visible(r, batch.s)
        r.drop_before(batch.keep[0])
        s.drop_before(batch.keep[1])
        return found

    def counters(self) -> dict[str, int]:
        """How often a side moved to another buffer."""
        return {"boundaries": self._live["r"].moves + self._live["s"].moves}


def _words(words: tuple[Array, ...], live: Mask) -> Array:
    """The words of the first key; zeros for a condition without a key."""
    return words[0] if words else np.zeros(len(live), np.uint64)


def _all_visible(run: _LiveTuples, part: SideProbes) -> Matches:
    """All live tuples in each live tuple's interval: the candidates of a condition without a key."""
    held = run.positions.view()
    begin = np.searchsorted(held, part.begin)
    counts = np.where(part.live, np.searchsorted(held, part.end) - begin, 0)
    check_fits(int(counts.sum()), FEWER_ROWS)
    starts = np.cumsum(counts) - counts
    within = np.arange(int(counts.sum())) - np.repeat(starts, counts)
    return Matches(counts, held[np.repeat(begin, counts) + within])
