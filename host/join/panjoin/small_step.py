"""A step of few tuples of one side: one compiled call, from the words of the tuples to the positions of their partners.

The general path of a step makes a dozen arrays and objects and calls several kernels, which pays off for large batches.
A small step does the same with memory that is kept: it needs every subwindow of the other side as sorted words in
host memory (`Structure.sources`), which BI-Sort on the CPU has. Otherwise, for tuples of both sides at once and for
batches of more than `MAX_TUPLES`, the general path runs; results are the same. The kernel is in `small_step_kernel.py`.
"""

from __future__ import annotations

from struct import Struct

import numpy as np

from millrace.host.base.types import Array, Positions
from millrace.host.base.words import all_true
from millrace.host.join.contract import FewPairs, Matches, PlainTuples, SideProbes
from millrace.host.join.pair_memory import FEWER_ROWS, check_fits
from millrace.host.join.panjoin import small_step_kernel as sk
from millrace.host.join.panjoin.chain import Chain, SourceTable
from millrace.host.join.panjoin.insertion_buffer import InsertionBuffer
from millrace.host.join.panjoin.small_step_kernel import Args
from millrace.host.runtime.allocator import result_array
from millrace.host.runtime.intrinsics import address

MAX_TUPLES = 512
"""The most tuples of a small step."""
ROOM = 4
"""Partners per tuple for which there is room at first; results of more are allocated when their number is known."""
MIN_ROOM = 256
"""The least such room that is kept from step to step."""
_BUFFER_SIZE, _LONGEST, _TOTAL = int(Args.BUFFER_SIZE), int(Args.LONGEST), int(Args.TOTAL)
_PACKED = Struct(f"{len(Args)}q")


class SmallSteps:
    """The memory of an index for small steps: arguments and scratch."""

    def __init__(self) -> None:
        """Nothing is allocated yet."""
        self._given = np.zeros(len(Args), np.int64)
        self._given_at = address(self._given)
        self._interval_at = self._given_at + 8 * Args.BEGIN_VALUE
        self._given_bytes = self._given.data.cast("B")
        self._scratch = np.zeros(0, np.int64)
        self._scratch_at = 0
        self._pairs = FewPairs()

    def step(self, part: SideProbes, own: Chain, others: Chain, want: bool) -> Matches | None:
        """Find the partners of new tuples and insert them; None if the general path must do that."""
        n, words, probe = len(part.live), part.words[0], part.probes[0]
        if probe.band is None and probe.low.dtype != words.dtype:
            return None  # the kernel takes both sides' keys as words of one width
        table = others.sources()
        buffer = None if table is None else own.room_for(part.first, n)
        if table is None or buffer is None:
            return None
        if words.strides != (words.itemsize,):
            words = np.ascontiguousarray(words)
        live = None if all_true(part.live) else np.ascontiguousarray(part.live)
        ranges = None if probe.band is not None else (np.ascontiguousarray(probe.low), np.ascontiguousarray(probe.high))
        lines = 1 if ranges is None else len(ranges[0])
        room = ROOM * n if want else 0
        # One array for counts, partners and own positions: taking an address costs as much as the array.
        results = np.empty(n + 2 * room, np.int64)
        results_at = address(results)
        begin, end = part.begin, part.end
        if begin.strides == (0,) and end.strides == (0,):
            values_at = self._given_at + 8 * Args.BEGIN_VALUE
            visible = (values_at, values_at + 8, 0, int(begin[0]), int(end[0]))
        else:
            begin, end = np.ascontiguousarray(begin), np.ascontiguousarray(end)
            visible = (address(begin), address(end), 1, 0, 0)
        below, above = probe.band or (0, 0)
        if above >> 63 or below >> 63:
            below, above = _signed(below), _signed(above)
        scratch = self._reserve(2 * n * lines * (table.sources + 1) + 3 * n)
        given = self._given
        given[:] = (
            *(address(words), 0, 0, 0 if live is None else address(live), n),
            *((0, 0) if ranges is None else map(address, ranges)),
            *(lines, below, above, table.where, table.sources, *visible),
            *(results_at, want, room, results_at + 8 * n, results_at + 8 * (n + room), part.first, scratch + 24 * n),
            *(buffer.words_at, buffer.ids_at, buffer.size, part.first - own.newest_first, scratch, 0, 0, 0),
        )
        candidates = (sk.step_64 if words.itemsize == 8 else sk.step_32)(self._given_at)
        own.filled(part.first + n, int(given[_BUFFER_SIZE]) - buffer.size)
        others.count_probes(n * lines)
        counts, out, own_positions = results[:n], results[n : n + room], results[n + room :]
        if not want:
            return Matches(counts, None)
        if candidates > room:
            check_fits(candidates, FEWER_ROWS)
            out, own_positions = result_array(candidates, np.int64), result_array(candidates, np.int64)
            given[Args.OUT], given[Args.OWN] = address(out), address(own_positions)
            sk.deliver(self._given_at)
        if given[_LONGEST] > sk.MAX_SORTED:
            _sort_long(out, counts)
        total = int(given[_TOTAL])
        return Matches(counts, out[:total], own_positions[:total])

    def plain_step(self, new: PlainTuples, buffer: InsertionBuffer, own: Chain, others: SourceTable) -> FewPairs:
        """Find the partners of plain tuples, insert them into the buffer, and return the pairs in order."""
        n, pairs, key = new.count, self._pairs, new.key
        room = max(ROOM * n, MIN_ROOM)
        if len(pairs.own) < room:
            pairs.hold(np.empty(room, np.int64), np.empty(room, np.int64))
        # Words, counts, and what the kernel needs for bounds and for the insertion.
        words = self._reserve(2 * n * (others.sources + 1) + 5 * n)
        scratch = words + 16 * n
        _PACKED.pack_into(
            *(self._given_bytes, 0, words, new.values, key.flip, 0, n, 0, 0, 1, key.below, key.above, others.where),
            *(others.sources, self._interval_at, self._interval_at + 8, 0, new.begin, new.end, words + 8 * n, 1, room),
            *(pairs.partners_at, pairs.own_at, new.first, scratch + 24 * n, buffer.words_at, buffer.ids_at),
            *(buffer.size, new.first - own.newest_first, scratch, 0, 0, 0),
        )
        candidates = (sk.step_64 if key.width == 8 else sk.step_32)(self._given_at)
        given = self._given
        own.filled(new.first + n, int(given[_BUFFER_SIZE]) - buffer.size)
        if candidates > room:
            check_fits(candidates, FEWER_ROWS)
            pairs.hold(result_array(candidates, np.int64), result_array(candidates, np.int64))
            given[Args.OUT], given[Args.OWN] = pairs.partners_at, pairs.own_at
            sk.deliver(self._given_at)
        if given[_LONGEST] > sk.MAX_SORTED:
            at = (words - self._scratch_at) // 8 + n
            _sort_long(pairs.partners, self._scratch[at : at + n])
        pairs.count = int(given[_TOTAL])
        return pairs

    def _reserve(self, words: int) -> int:
        """The address of scratch memory of so many 64-bit words."""
        if len(self._scratch) < words:
            self._scratch = np.zeros(words, np.int64)
            self._scratch_at = address(self._scratch)
        return self._scratch_at


def _signed(word: int) -> int:
    """An unsigned word as the signed one with the same bits."""
    return word - (1 << 64) if word >> 63 else word


def _sort_long(partners: Positions, counts: Array) -> None:
    """Sort the partners of the tuples that have too many for the kernel."""
    ends = np.cumsum(counts)
    for t in np.flatnonzero(counts > sk.MAX_SORTED).tolist():
        partners[ends[t] - counts[t] : ends[t]].sort()
