"""Finds the matching pairs of new tuples: forms steps, calls the index, and rechecks what the index cannot decide.

The matcher owns the index and can always rebuild it from the windows: after a failed step, after a restore, and on the
CPU when a device fails and the user allowed that (`fallback="cpu"`). It changes no window.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial

import numpy as np
import numpy.typing as npt

from millrace.host.base.errors import DeviceFault
from millrace.host.base.types import SIDES, Array, Mask, Positions, Side, other
from millrace.host.base.words import all_true
from millrace.host.data.tuples import Tuples
from millrace.host.data.window import Window
from millrace.host.device.contract import Device
from millrace.host.expr.condition import Comparison
from millrace.host.expr.evaluate import Types
from millrace.host.expr.plan import Plan, Probe
from millrace.host.join.contract import IndexContext, JoinIndex, Matches, SideStep, Step, load_index
from millrace.host.runtime.pool import cores
from millrace.host.runtime.team import Team
from millrace.host.stream.window_bounds import NewTuples

STEP_ROWS = 1 << 16
"""The maximum number of tuples of a step."""
STATIC_STEP_ROWS = 1 << 20
"""The same for static windows: this many sorted tuples search the other table in long sequential ranges."""
STEP_CANDIDATES = 1 << 22
"""About the maximum number of candidate pairs of a step whose candidates are rechecked. Bounds their memory."""
Columns = dict[tuple[Side, str], Array]


@dataclass(frozen=True)
class PairBlock:
    """The pairs of a block of new tuples: the count of each tuple, and its partners' positions, tuple by tuple.

    The block contains a side's new tuples from number `first` on. If only counts were wanted, there are no partners.
    """

    first: dict[Side, int]
    counts: dict[Side, Positions]
    partner: dict[Side, Positions]
    own_positions: dict[Side, Positions | None]
    """The new tuples' own positions, one for each partner, if the index returned them and all partners were kept."""

    def pairs(self) -> int:
        """The number of pairs."""
        return sum(len(p) if len(p) else int(self.counts[side].sum()) for side, p in self.partner.items())

    def tuple_numbers(self, side: Side) -> Positions:
        """For each partner of a side's new tuples, the number of the new tuple."""
        counts, first = self.counts[side], self.first[side]
        return np.repeat(np.arange(first, first + len(counts)), counts)


class Matcher:
    """Finds the partners of new tuples with one index on one device."""

    def __init__(
        self,
        plan: Plan,
        index: str,
        device: Device,
        spare: Device | None,
        rows: Mapping[Side, int] | None = None,
        static: bool = False,
    ) -> None:
        """`spare`: the device used after a `DeviceFault`, if the user allowed it. Others: see `IndexContext`."""
        self.plan = plan
        self.index_name = index
        self.device = device
        self.fell_back: str | None = None
        self._spare = spare
        self._bands = {side: plan.band(side) for side in SIDES}
        self._rechecks = any(plan.recheck_of(side) for side in SIDES)
        self._rows, self._static = rows or {}, static
        self._max_rows = STATIC_STEP_ROWS if static else STEP_ROWS
        self._index: JoinIndex | None = None
        self._offset: dict[str, int] = {}
        self._team = Team(cores())

    @property
    def team(self) -> Team:
        """The threads for work on the host: those of the device if it shares host memory."""
        return self.device.team or self._team

    def reason(self) -> str:
        """Which structure the index has chosen, and why. Empty if the user chose it."""
        return "" if self._index is None else self._index.reason()

    def forget(self) -> None:
        """Drop the index: it is rebuilt from the windows when next needed."""
        if self._index is not None:
            self._shift(self._index.counters(), +1)
            self._index.release()
            self._index = None

    def close(self) -> None:
        """Free the index's memory. No more steps follow."""
        if self._index is not None:
            self._index.close()
        self.forget()

    def counters(self) -> dict[str, int]:
        """The counters of device and index, over all devices and rebuilds of the index."""
        raw = self._raw()
        return {name: raw.get(name, 0) + self._offset.get(name, 0) for name in {**self._offset, **raw}}

    def start_counters(self, past: dict[str, int]) -> None:
        """Continue from the counters of a restored state."""
        raw = self._raw()
        self._offset = {name: past.get(name, 0) - raw.get(name, 0) for name in {**past, **raw}}

    def _raw(self) -> dict[str, int]:
        return self.device.counters() | ({} if self._index is None else self._index.counters())

    def _shift(self, amounts: dict[str, int], sign: int) -> None:
        for name, amount in amounts.items():
            self._offset[name] = self._offset.get(name, 0) + sign * amount

    def match(
        self,
        windows: dict[Side, Window],
        new: dict[Side, NewTuples],
        order: npt.NDArray[np.uint8],
        keep: Callable[[int], tuple[int, int]],
        want_pairs: bool,
    ) -> Iterator[PairBlock]:
        """The partners of all new tuples, block by block in the order they were taken.

        `keep(n)` returns the oldest positions (r's, s's) visible to tuples after the n-th.
        """
        size = self._first_block(windows)
        old = {side: new[side].first for side in SIDES}
        stop, taken = 0, dict.fromkeys(SIDES, 0)
        while stop < len(order):
            start, stop = stop, min(stop + size, len(order))
            part = _next_part(new, order[start:stop], taken)
            taken = {side: part[side].stop for side in SIDES}
            step = Step(
                self._side_step("r", new["r"], part["r"]),
                self._side_step("s", new["s"], part["s"]),
                order[start:stop],
                keep(stop),
            )
            first, last = self._step(windows, old, step, want_pairs)
            old = {side: new[side].first + part[side].stop for side in SIDES}
            if self._rechecks:
                size = _next_block(size, int(first.counts.sum() + last.counts.sum()), self._max_rows)
            yield self._checked(windows, new, part, {"r": first, "s": last}, want_pairs)

    def acquire(self, rows: int) -> None:
        """Announce work on `rows` rows, so that the index may wake its threads."""
        if self._index is not None:
            self._index.acquire(rows)

    def release(self) -> None:
        """End the announced work: the index may release its threads."""
        if self._index is not None:
            self._index.release()

    def _first_block(self, windows: dict[Side, Window]) -> int:
        """The size of the first block: small enough even if each tuple matches its entire window."""
        if not self._rechecks:
            return self._max_rows
        return min(self._max_rows, max(1, STEP_CANDIDATES // max(1, *(len(w) for w in windows.values()))))

    def _side_step(self, side: Side, new: NewTuples, part: slice) -> SideStep:
        """Words of the new tuples' own key, and ranges of the other side's key, computed for live tuples only."""
        live = new.tuples.live[part]
        begin, end = new.begin[part], new.end[part]
        probes, n, first = self.plan.probes, len(live), new.first + part.start
        if probes is None or n == 0:
            none = np.zeros((0, n), np.uint64)
            return SideStep(first, np.zeros(n, np.uint64), live, begin, end, lambda: (none, none))
        searched = probes[other(side)]
        columns: Columns = {(side, name): c[part] for name, c in new.tuples.columns.items()}
        words, known = self._words_of(side, columns, live)
        ranges = partial(_ranges, searched, columns, self.plan.types, live)
        return SideStep(first, words, known, begin, end, ranges, self._bands[side])

    def _step(
        self, windows: dict[Side, Window], old: dict[Side, int], step: Step, want_pairs: bool
    ) -> tuple[Matches, Matches]:
        """Run one step of the index. After a fault, run it again on the spare device."""
        want = want_pairs or self._rechecks
        try:
            if self._index is None:
                self._index = self._build(windows, old)
            self._index.acquire(len(step.order))
            try:
                return self._index.step(step, want)
            finally:
                self._index.release()
        except DeviceFault as fault:
            self.forget()
            if self._spare is None:
                raise
            self.fell_back = f"{self.device.name} -> {self._spare.name}: {fault}"
            self._shift(self.device.counters(), +1)
            self.device, self._spare = self._spare, None
            return self._step(windows, old, step, want_pairs)

    def _build(self, windows: dict[Side, Window], old: dict[Side, int]) -> JoinIndex:
        """Build an index of the windows' tuples below positions `old`. Building it does not change the counters."""
        before = self.device.counters()
        try:
            index = self._loaded(windows, old)
        finally:
            self._shift(before, +1)
            self._shift(self.device.counters(), -1)
        self._shift(index.counters(), -1)
        return index

    def _loaded(self, windows: dict[Side, Window], old: dict[Side, int]) -> JoinIndex:
        index = load_index(self.index_name)(IndexContext(self.plan, self.device, self._rows, self._static))
        for side, window in windows.items():
            held = max(old[side] - window.first, 0)
            live = window.live.view()[:held]
            columns: Columns = {(side, n): c[:held] for n, c in window.held_columns().items()}
            index.load(side, window.first, *self._words_of(side, columns, live))
        return index

    def _words_of(self, side: Side, columns: Columns, live: Mask) -> tuple[Array, Mask]:
        """Words of a side's key, computed for live tuples only, and which tuples have one."""
        if self.plan.probes is None:
            return np.zeros(len(live), np.uint64), live
        key = self.plan.probes[side].key
        if all_true(live):
            words, known = key.words(columns, self.plan.types)
            return words, live if known is None else known
        rows = np.flatnonzero(live)
        words = np.zeros(len(live), key.kind.word)
        words[rows], known = key.words({name: c[rows] for name, c in columns.items()}, self.plan.types)
        if known is not None:
            live = live.copy()
            live[rows[~known]] = False
        return words, live

    def _checked(
        self,
        windows: dict[Side, Window],
        new: dict[Side, NewTuples],
        part: dict[Side, slice],
        raw: dict[Side, Matches],
        want_pairs: bool,
    ) -> PairBlock:
        """Drop the candidates that fail the comparisons the index cannot decide. Keep pairs only if wanted."""
        counts: dict[Side, Positions] = {}
        partner: dict[Side, Positions] = {}
        own_positions: dict[Side, Positions | None] = {side: raw[side].own_positions for side in SIDES}
        for side in SIDES:
            counts[side], positions = raw[side].counts, raw[side].positions
            terms = self.plan.recheck_of(other(side))
            if positions is not None and len(positions) and terms:
                probe_tuple = np.repeat(np.arange(part[side].start, part[side].stop), counts[side])
                keep = self._true(terms, side, new[side].tuples, windows[other(side)], probe_tuple, positions)
                positions, own_positions[side] = positions[keep], None
                counts[side] = np.bincount(probe_tuple[keep] - part[side].start, minlength=len(counts[side]))
            partner[side] = positions if want_pairs and positions is not None else np.zeros(0, np.int64)
        return PairBlock({side: part[side].start for side in SIDES}, counts, partner, own_positions)

    def _true(
        self,
        terms: tuple[tuple[Comparison, ...], ...],
        side: Side,
        tuples: Tuples,
        window: Window,
        probe_tuple: Positions,
        partner: Positions,
    ) -> npt.NDArray[np.bool_]:
        columns: Columns = {(side, name): c[probe_tuple] for name, c in tuples.columns.items()}
        for name, values in window.columns_at(partner).items():
            columns[other(side), name] = values
        return self.plan.matches(terms, columns, len(probe_tuple))


def _next_block(size: int, candidates: int, max_rows: int) -> int:
    """The size of the next block, by the number of candidates of the last one; at most `max_rows`."""
    if candidates > STEP_CANDIDATES:
        return max(1, size * STEP_CANDIDATES // candidates)
    return min(max_rows, size * min(8, STEP_CANDIDATES // max(1, candidates)))


def _next_part(new: dict[Side, NewTuples], order: npt.NDArray[np.uint8], taken: dict[Side, int]) -> dict[Side, slice]:
    """Which of each side's new tuples are next."""
    if not len(new["s"].tuples):
        s = 0
    elif not len(new["r"].tuples):
        s = len(order)
    else:
        s = int(np.count_nonzero(order))
    return {"r": slice(taken["r"], taken["r"] + len(order) - s), "s": slice(taken["s"], taken["s"] + s)}


def _ranges(searched: Probe, columns: Columns, types: Types, live: Mask) -> tuple[Array, Array]:
    """Ranges of words to search, computed for live tuples only. Other tuples have empty ranges."""
    if all_true(live):
        return searched.word_ranges(columns, types, len(live))
    rows = np.flatnonzero(live)
    low = np.ones((len(searched.ranges), len(live)), searched.key.kind.word)
    high = np.zeros_like(low)
    if len(rows):
        some = {name: c[rows] for name, c in columns.items()}
        low[:, rows], high[:, rows] = searched.word_ranges(some, types, len(rows))
    return low, high
