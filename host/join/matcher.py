"""Finds the matching pairs of new tuples: forms steps, calls the index, and rechecks what the index cannot decide.

The matcher owns the index and can always rebuild it from the windows: after a failed step, after a restore, and on the
CPU when a device fails and the user allowed that (`fallback="cpu"`). It changes no window.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial

import numpy as np

from millrace.host.base.errors import DeviceFault
from millrace.host.base.faults import ARMED, fault_point
from millrace.host.base.log import log
from millrace.host.base.types import SIDES, Array, Mask, Order, Positions, Side, other
from millrace.host.base.value_class import value_class
from millrace.host.base.words import all_true
from millrace.host.data.tuples import Tuples
from millrace.host.data.window import Window
from millrace.host.device.contract import Device
from millrace.host.expr.evaluate import Types
from millrace.host.expr.grouped_keys import is_grouped, laid_out
from millrace.host.expr.plan import Conjunctions, KeySearch, Plan
from millrace.host.expr.word_layout import LayoutOutgrown
from millrace.host.join.contract import (
    FewPairs,
    IndexContext,
    JoinIndex,
    KeyProbe,
    Matches,
    OptionValue,
    PlainKey,
    PlainTuples,
    ProbeBatch,
    SideProbes,
)
from millrace.host.join.registry import load_index
from millrace.host.runtime.team import Team
from millrace.host.stream.window_bounds import NewTuples

STEP_ROWS = 1 << 16
"""The maximum number of tuples of a step."""
STATIC_STEP_ROWS = 1 << 20
"""The same for static windows: this many sorted tuples search the other table in long sequential ranges."""
STEP_CANDIDATES = 1 << 22
"""About the maximum number of candidate pairs of a step whose candidates are rechecked. Bounds their memory."""
Columns = dict[tuple[Side, str], Array]
_NO_POSITIONS = np.zeros(0, np.int64)


@value_class
class PairBlock:
    """The pairs of a block of new tuples: the count of each tuple, and its partners' positions, tuple by tuple.

    The block contains a side's new tuples from number `first` on. If only counts were wanted, there are no partners.
    """

    first: dict[Side, int]
    counts: dict[Side, Positions]
    partner: dict[Side, Positions]
    own_positions: dict[Side, Positions | None]
    """The new tuples' own positions, one for each partner, if the index returned them and all partners were kept."""

    def pairs(self, counting: bool) -> int:
        """The number of pairs; if only counts were wanted (`counting`), by summing those."""
        if counting:
            return int(self.counts["r"].sum()) + int(self.counts["s"].sum())
        return len(self.partner["r"]) + len(self.partner["s"])

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
        team: Team,
        rows: Mapping[Side, int] | None = None,
        static: bool = False,
        options: Mapping[str, OptionValue] | None = None,
        searched: Sequence[Side] = SIDES,
    ) -> None:
        """`spare`: the device used after a `DeviceFault`, if the user allowed it. Others: see `IndexContext`.

        `searched`: the sides that tuples of the other side search; in a join of tables, the held one.
        """
        self.plan = plan
        self.index_name = index
        self._load_point, self._step_point = f"{index}.load", f"{index}.step"
        self.device = device
        self.team = team
        self.fallback: str | None = None
        self._spare = spare
        self._index_class = load_index(index)
        self._searched = searched
        self._keys = self._index_class.keys_on(device)
        self._use(plan)
        self._grouped_sides = [side for side in SIDES if self._keys and is_grouped(plan, side)]
        self._rows, self._static = rows or {}, static
        defaults = {name: option.default for name, option in self._index_class.options.items()}
        self._options = {**defaults, **(options or {})}
        self._max_rows = STATIC_STEP_ROWS if static else STEP_ROWS
        self._index: JoinIndex | None = None
        self._offset: dict[str, int] = {}

    def _use(self, plan: Plan) -> None:
        """Search by a plan that differs from the first one in the layouts of grouped keys at most."""
        keys = self._keys
        searches = {side: plan.searches[side][:keys] for side in SIDES}
        bands = {side: [plan.band(side, i) for i in range(len(searches[other(side)]))] for side in SIDES}
        none = {side: _empty_probes(searches, side) for side in SIDES}
        rechecks = {side: plan.recheck_of(side, keys) for side in SIDES}
        checks = any(rechecks[side] for side in self._searched)
        plain = {side: None if checks else _plain_key(searches, bands, side) for side in SIDES}
        # One step, in which no signal comes.
        self._laid_plan, self._searches, self._bands = plan, searches, bands
        self._no_probes, self._rechecks, self._checks_pairs, self._plain_keys = none, rechecks, checks, plain

    def _lay_out(self, windows: dict[Side, Window]) -> None:
        """Make layouts of the grouped keys for all tuples in the windows; an index of other layouts is dropped."""
        self.discard_index()
        plan = self.plan
        for side in self._grouped_sides:
            live, columns = windows[side].live.view(), windows[side].held_columns()
            rows = slice(None) if all_true(live) else np.flatnonzero(live)
            cells = {(side, name): c[rows] for name, c in columns.items()}
            plan = laid_out(plan, side, cells, self._static, self._index_class.numbers_rows)
        self._use(plan)

    @property
    def checks_pairs(self) -> bool:
        """Whether candidates are rechecked: then a block has about `STEP_CANDIDATES` of them at most."""
        return self._checks_pairs

    def reason(self) -> str:
        """Which structure the index has chosen, and why. Empty if the user chose it."""
        return "" if self._index is None else self._index.reason()

    def build_index(self, windows: dict[Side, Window]) -> None:
        """Build the index of all tuples held now, so that the next match does not have to."""
        if self._grouped_sides:
            self._lay_out(windows)
        self._index = self._build(windows, {side: window.end for side, window in windows.items()})

    def discard_index(self) -> None:
        """Drop the index and free what it holds on the device; it is rebuilt from the windows when next needed."""
        index = self._index
        if index is not None:
            offset = self._shifted(index.counters(), +1)
            self._index, self._offset = None, offset
            with suppress(DeviceFault):  # a device that failed may refuse to free: nothing more can be done
                index.close()

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

    def _shifted(self, amounts: dict[str, int], sign: int) -> dict[str, int]:
        """The offset of the counters, with amounts added or subtracted."""
        return self._offset | {name: self._offset.get(name, 0) + sign * amount for name, amount in amounts.items()}

    def match(
        self,
        windows: dict[Side, Window],
        new: dict[Side, NewTuples],
        order: Order,
        keep: Callable[[int], tuple[int, int]],
        want_pairs: bool,
    ) -> Iterator[PairBlock]:
        """The partners of all new tuples, block by block in the order they were taken.

        `keep(n)` returns the oldest positions (r's, s's) visible to tuples after the n-th. Exhaust the iterator, or
        call `discard_index`: the index has seen the tuples of every block that was returned.
        """
        if self._grouped_sides and self._laid_plan is self.plan:
            self._lay_out(windows)
        size = self._first_block(windows)
        old = {side: new[side].first for side in SIDES}
        stop, total = 0, len(order)
        taken: dict[Side, int] = {"r": 0, "s": 0}
        while stop < total:
            start, stop = stop, min(stop + size, total)
            block = order if stop - start == total else order[start:stop]
            part = _next_part(new, block, taken)
            try:
                batch = self._probe_batch(new, part, block, keep(stop))
            except LayoutOutgrown:
                self._lay_out(windows)
                batch = self._probe_batch(new, part, block, keep(stop))
            raw = self._step(windows, old, batch, want_pairs or self._checks_pairs)
            taken = {"r": part["r"].stop, "s": part["s"].stop}
            old = {"r": new["r"].first + taken["r"], "s": new["s"].first + taken["s"]}
            if self._checks_pairs:
                size = _next_block(size, sum(int(found.counts.sum()) for found in raw), self._max_rows)
            yield self._checked(windows, new, part, {"r": raw[0], "s": raw[1]}, want_pairs)

    def plain_key(self, side: Side) -> PlainKey | None:
        """What a step of few plain tuples of a side searches; None if there is no such step for the condition."""
        return None if self._grouped_sides else self._plain_keys[side]

    def is_ready_for_few(self, side: Side, tuples: int) -> bool:
        """Whether `match_few` can take the next step; it needs an index, and no device to fall back to."""
        return self._index is not None and self._spare is None and self._index.is_ready_for_few(side, tuples)

    def match_few(self, side: Side, new: PlainTuples, keep: tuple[int, int]) -> FewPairs:
        """The pairs of few plain tuples of one side. After a failure the index must be discarded."""
        assert self._index is not None
        if ARMED:
            fault_point(self._step_point)
        return self._index.step_few(side, new, keep)

    def _first_block(self, windows: dict[Side, Window]) -> int:
        """The size of the first block: small enough even if each tuple matches its entire window."""
        if not self._checks_pairs:
            return self._max_rows
        return min(self._max_rows, _even(STEP_CANDIDATES // max(1, *(len(w) for w in windows.values()))))

    def _probe_batch(
        self, new: dict[Side, NewTuples], part: dict[Side, slice], order: Order, keep: tuple[int, int]
    ) -> ProbeBatch:
        r, s = (self._side_probes(side, new[side], part[side]) for side in SIDES)
        return ProbeBatch(r, s, order, keep)

    def _side_probes(self, side: Side, new: NewTuples, part: slice) -> SideProbes:
        """Words of the new tuples' own keys, and ranges of the other side's keys, computed for live tuples only."""
        n = part.stop - part.start
        if n == 0:
            none = self._no_probes[side]
            return SideProbes(new.first + part.start, none.live, none.begin, none.end, none.words, none.probes)
        live, begin, end, columns = new.tuples.live, new.begin, new.end, new.tuples.columns
        if n < len(begin):
            live, begin, end = live[part], begin[part], end[part]
            columns = {name: c[part] for name, c in columns.items()}
        cells: Columns = {(side, name): c for name, c in columns.items()}
        words, known = self._words_of(side, cells, live)
        probes = tuple(
            KeyProbe(search.shape, partial(_ranges, search, cells, self.plan.types, live), band)
            for search, band in zip(self._searches[other(side)], self._bands[side], strict=True)
        )
        return SideProbes(new.first + part.start, known, begin, end, words, probes)

    def _step(
        self, windows: dict[Side, Window], old: dict[Side, int], batch: ProbeBatch, want: bool
    ) -> tuple[Matches, Matches]:
        """Run one step of the index; after a fault, again on the spare device. Any failure drops the index."""
        try:
            if self._index is None:
                self._index = self._build(windows, old)
            if ARMED:
                fault_point(self._step_point)
            return self._index.step(batch, want)
        except BaseException as failure:
            self.discard_index()
            if self._spare is None or not isinstance(failure, DeviceFault):
                raise
            text = f"{self.device.name} -> {self._spare.name}: {failure}"
            offset = self._shifted(self.device.counters(), +1)
            self.fallback, self._offset, self.device, self._spare = text, offset, self._spare, None
            log.warning("join: fell back %s", text)
            return self._step(windows, old, batch, want)

    def _build(self, windows: dict[Side, Window], old: dict[Side, int]) -> JoinIndex:
        """Build an index of the windows' tuples below positions `old`. Building it does not change the counters."""
        before = self.device.counters()
        try:
            index = self._loaded(windows, old)
        finally:
            self._offset = self._shifted(before, +1)
            self._offset = self._shifted(self.device.counters(), -1)
        self._offset = self._shifted(index.counters(), -1)
        return index

    def _loaded(self, windows: dict[Side, Window], old: dict[Side, int]) -> JoinIndex:
        index = self._index_class(
            IndexContext(self._laid_plan, self.device, self.team, self._rows, self._static, self._options)
        )
        try:
            for side, window in windows.items():
                held = max(old[side] - window.first, 0)
                live = window.live.view()[:held]
                columns: Columns = {(side, n): c[:held] for n, c in window.held_columns().items()}
                fault_point(self._load_point)
                self.team.acquire(held)
                try:
                    index.load(side, window.first, *self._words_of(side, columns, live))
                finally:
                    self.team.depth -= 1
        except BaseException:
            with suppress(DeviceFault):
                index.close()
            raise
        return index

    def _words_of(self, side: Side, columns: Columns, live: Mask) -> tuple[tuple[Array, ...], Mask]:
        """Words of a side's keys, computed for live tuples only, and which tuples have all of them."""
        searches = self._searches[side]
        if not searches:
            return (), live
        rows = None if all_true(live) else np.flatnonzero(live)
        some = columns if rows is None else {name: c[rows] for name, c in columns.items()}
        words: list[Array] = []
        usable = live
        for one in searches:
            found, known = one.key.words(some, self.plan.types)
            if rows is not None:
                spread = np.zeros(len(live), one.key.kind.word)
                spread[rows] = found
                found = spread
                if known is not None:
                    known, unknown = live.copy(), rows[~known]
                    known[unknown] = False
            words.append(found)
            usable = usable if known is None else usable & known
        return tuple(words), usable

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
        own_positions: dict[Side, Positions | None] = {}
        for side in SIDES:
            found, terms = raw[side], self._rechecks[other(side)]
            positions, own = found.positions, found.own_positions
            counts[side] = found.counts
            if terms and positions is not None and len(positions):
                probe_tuple = np.repeat(np.arange(part[side].start, part[side].stop), found.counts)
                keep = self._true(terms, side, new[side].tuples, windows[other(side)], probe_tuple, positions)
                positions, own = positions[keep], probe_tuple[keep] + new[side].first
                counts[side] = np.bincount(probe_tuple[keep] - part[side].start, minlength=len(found.counts))
            partner[side] = positions if want_pairs and positions is not None else _NO_POSITIONS
            own_positions[side] = own
        return PairBlock({"r": part["r"].start, "s": part["s"].start}, counts, partner, own_positions)

    def _true(
        self,
        terms: Conjunctions,
        side: Side,
        tuples: Tuples,
        window: Window,
        probe_tuple: Positions,
        partner: Positions,
    ) -> Mask:
        columns: Columns = {(side, name): c[probe_tuple] for name, c in tuples.columns.items()}
        for name, values in window.columns_at(partner).items():
            columns[other(side), name] = values
        return self.plan.matches(terms, columns, len(probe_tuple))


def _empty_probes(searches: Mapping[Side, Sequence[KeySearch]], side: Side) -> SideProbes:
    """The part of a probe batch of a side without new tuples."""
    longs, none = np.zeros(0, np.int64), np.zeros((1, 0), np.uint64)
    words = tuple(np.zeros(0, one.key.kind.word) for one in searches[side])
    probes = tuple(KeyProbe.of(none, none, one.shape) for one in searches[other(side)])
    return SideProbes(0, np.zeros(0, np.bool_), longs, longs, words, probes)


def _plain_key(
    searches: Mapping[Side, Sequence[KeySearch]], bands: Mapping[Side, Sequence[tuple[int, int] | None]], side: Side
) -> PlainKey | None:
    """What plain tuples of a side search: one key, a column of integers as wide as its words, in a band around it."""
    band = bands[side][0] if len(searches[side]) == len(bands[side]) == 1 else None
    if band is None:
        return None
    key, dtype = searches[side][0].key, searches[side][0].key.kind.dtype
    if key.grouped or key.column is None or key.kind.domain == "code" or dtype.kind not in "iu":
        return None
    if key.kind.stored != dtype:
        return None
    bits = 8 * dtype.itemsize
    flip = 1 << (bits - 1) if dtype.kind == "i" else 0
    return PlainKey(dtype.itemsize, *(_signed(word) for word in (flip, *band)))


def _signed(word: int) -> int:
    """A word as the signed number of 64 bits with the same bits."""
    return word - (1 << 64) if word >> 63 else word


def _next_block(size: int, candidates: int, max_rows: int) -> int:
    """The size of the next block, by the number of candidates of the last one; at most `max_rows`."""
    if candidates > STEP_CANDIDATES:
        return _even(size * STEP_CANDIDATES // candidates)
    return min(max_rows, size * min(8, STEP_CANDIDATES // max(1, candidates)))


def _even(size: int) -> int:
    """A block's size: both tuples of a row of a self-join are in one block, where their pairs are ordered together."""
    return max(2, size & ~1)


def _next_part(new: dict[Side, NewTuples], order: Order, taken: dict[Side, int]) -> dict[Side, slice]:
    """Which of each side's new tuples are next."""
    n, r, s = len(order), taken["r"], taken["s"]
    if not len(new["s"].begin):
        of_s = 0
    elif not len(new["r"].begin):
        of_s = n
    else:
        of_s = int(np.count_nonzero(order))
    return {"r": slice(r, r + n - of_s), "s": slice(s, s + of_s)}


def _ranges(searched: KeySearch, columns: Columns, types: Types, live: Mask) -> tuple[Array, Array]:
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
