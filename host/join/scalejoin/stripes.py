"""One side of a ScaleJoin: its live tuples in stripes, one for each thread, and the search of all stripes.

Live tuples are numbered from 0; tuple i is in stripe i modulo n. Words are 32-bit if those of all keys are, else
64-bit. Memory is bounded by a small multiple of the words held.
"""

from __future__ import annotations

import numpy as np

from millrace.host.base.types import Array, Mask, Positions
from millrace.host.data.sliding import SlidingArray
from millrace.host.join.contract import Matches, SideProbes
from millrace.host.join.pair_memory import FEWER_ROWS, check_fits
from millrace.host.join.scalejoin.scan_kernel import BLOCK, CHUNK, SCAN, MergeArgs, ScanArgs, StripeWords, merge_matches
from millrace.host.runtime.allocator import allocate, result_array
from millrace.host.runtime.intrinsics import address
from millrace.host.runtime.team import Team

MIN_CAPACITY = 1024
COMPARISONS_PER_ROW = 256
"""So many comparisons take about as long as other work on one row: decides whether helper threads are worth waking."""
MAX_KEPT = 1 << 20
"""Memory for so many matches of a stripe is kept for the next step."""
MERGED_TUPLES = 1 << 10
"""New tuples in a part of the merge."""


class Stripes:
    """The live tuples of one side."""

    def __init__(self, words: tuple[np.dtype[np.unsignedinteger], ...], team: Team) -> None:
        """No tuples. `words`: the word type of each key."""
        self._team, self._stripes, self._keys = team, team.threads, len(words)
        self._word = np.dtype(np.uint32 if all(word.itemsize == 4 for word in words) else np.uint64)
        self._data = [[self._memory(MIN_CAPACITY) for _ in words] for _ in range(self._stripes)]
        self._base = [0] * self._stripes
        """The element at the start of each stripe's memory."""
        self._positions = SlidingArray(np.int64)
        self._state = np.zeros((self._stripes, StripeWords.SIZE), np.int64)
        self._results: list[tuple[Array, Array]] = [(_NONE, _NONE)] * self._stripes
        self.moves = 0

    def _memory(self, size: int) -> Array:
        return allocate(size + BLOCK, self._word)

    @property
    def compared(self) -> list[int]:
        """How many pairs each stripe has compared."""
        return [int(n) for n in self._state[:, StripeWords.COMPARED]]

    def append(self, first: int, words: tuple[Array, ...], live: Mask) -> None:
        """Append tuples, from position `first` on; only live ones are held."""
        rows = np.flatnonzero(live)
        start = self._positions.end
        self._positions.append(rows + first)
        fresh = words if len(rows) == len(live) else tuple(one[rows] for one in words)
        for stripe in range(self._stripes):
            skip = (stripe - start) % self._stripes
            self._append(stripe, (start + skip) // self._stripes, [one[skip :: self._stripes] for one in fresh])

    def _append(self, stripe: int, element: int, words: list[Array]) -> None:
        """Append words to a stripe; the first becomes this element."""
        count = len(words[0])
        if element + count - self._base[stripe] > len(self._data[stripe][0]) - BLOCK:
            self._move(stripe, element, count)
        at = element - self._base[stripe]
        for column, fresh in zip(self._data[stripe], words, strict=True):
            column[at : at + count] = fresh

    def _move(self, stripe: int, end: int, more: int) -> None:
        """Move a stripe's words below element `end` to memory with room for more."""
        oldest = min(-((stripe - self._positions.first) // self._stripes), end)
        held, skip = end - oldest, oldest - self._base[stripe]
        moved = []
        for column in self._data[stripe]:
            memory = self._memory(max(MIN_CAPACITY, 2 * (held + more)))
            memory[:held] = column[skip : skip + held]
            moved.append(memory)
        self._data[stripe], self._base[stripe] = moved, oldest
        self.moves += 1

    def drop_before(self, position: int) -> None:
        """Forget tuples below a position."""
        gone = int(np.searchsorted(self._positions.view(), position))
        self._positions.drop_before(self._positions.first + gone)

    def probe(self, part: SideProbes, want_positions: bool) -> Matches:
        """Find the partners of the other side's new tuples."""
        tuples = len(part)
        if tuples == 0:
            return Matches(np.zeros(0, np.int64), np.zeros(0, np.int64) if want_positions else None)
        held, shift = self._positions.view(), self._positions.first
        begin, end = (np.searchsorted(held, one) + shift for one in (part.begin, part.end))
        end = np.where(part.live, np.maximum(begin, end), begin)
        rows = int((end - begin).sum()) // COMPARISONS_PER_ROW
        self._team.acquire(rows)
        try:
            counts = self._scan(part, begin, end, want_positions)
            return self._merged(counts) if want_positions else Matches(counts.sum(axis=0), None)
        finally:
            self._team.depth -= 1

    def _scan(self, part: SideProbes, begin: Positions, end: Positions, want_positions: bool) -> Positions:
        """Run all stripes until each has seen all tuples; return their counts, a line for each stripe."""
        tuples, word, state = len(part), self._word, self._state
        low = np.ascontiguousarray(np.concatenate([one.low for one in part.probes]), word)
        high = np.ascontiguousarray(np.concatenate([one.high for one in part.probes]), word)
        lines = np.array([len(one.low) for one in part.probes], np.int64)
        columns = np.array(
            [
                address(column) - word.itemsize * base
                for base, stripe in zip(self._base, self._data, strict=True)
                for column in stripe
            ],
            np.int64,
        )
        counts = np.zeros((self._stripes, tuples), np.int64)
        state[:, StripeWords.USED] = state[:, StripeWords.NEXT] = 0
        given = ScanArgs.pack(
            STRIPES=self._stripes,
            KEYS=self._keys,
            RANGES=len(low),
            LINES=lines,
            WORDS=columns,
            TUPLES=tuples,
            BEGIN=begin,
            END=end,
            LOW=low,
            HIGH=high,
            STRIPE=state,
            COUNTS=counts,
            WANTED=int(want_positions),
        )
        while True:
            self._team.run(SCAN[word.itemsize], given, self._stripes)
            full = np.flatnonzero(state[:, StripeWords.NEXT] < tuples).tolist()
            if not full:
                return counts
            for stripe in full:
                self._grow(stripe)

    def _grow(self, stripe: int) -> None:
        """Give a stripe that has stopped twice the memory for results."""
        state, (found, _) = self._state[stripe], self._results[stripe]
        used = int(state[StripeWords.USED])
        check_fits(len(found), FEWER_ROWS)
        larger, scratch = (allocate(max(2 * len(found), 4 * CHUNK), np.int64) for _ in range(2))
        larger[:used] = found[:used]
        self._results[stripe] = larger, scratch
        state[StripeWords.FOUND], state[StripeWords.SCRATCH] = address(larger), address(scratch)
        state[StripeWords.CAPACITY] = len(larger)

    def _merged(self, counts: Positions) -> Matches:
        """The matches of all stripes in order."""
        tuples = counts.shape[1]
        totals = counts.sum(axis=0)
        offsets, starts = np.cumsum(totals) - totals, np.cumsum(counts, axis=1) - counts
        check_fits(int(totals.sum()), FEWER_ROWS)
        out = result_array(int(totals.sum()), np.int64)
        found = np.array([address(one) for one, _ in self._results], np.int64)
        held = self._positions.view()
        given = MergeArgs.pack(
            STRIPES=self._stripes,
            TUPLES=tuples,
            COUNTS=counts,
            STARTS=starts,
            FOUND=found,
            OFFSETS=offsets,
            POSITIONS=held,
            FIRST=self._positions.first,
            OUT=out,
        )
        self._team.run(merge_matches, given, -(-tuples // MERGED_TUPLES))
        for stripe, (memory, _) in enumerate(self._results):
            if len(memory) > MAX_KEPT:
                self._results[stripe] = _NONE, _NONE
                self._state[stripe, StripeWords.CAPACITY] = 0
        return Matches(totals, out)


_NONE = np.zeros(0, np.int64)
