"""The engine behind `mr.WindowJoin`: the windows, the device, and the matching of new tuples.

It has the index find the partners of new tuples, and builds the output. The windows are those of `held_windows.py`.
"""

from __future__ import annotations

from functools import partial

import numpy as np
import pyarrow as pa

from millrace.host.base.columns import empty_table
from millrace.host.base.errors import DeviceUnavailable, StateError
from millrace.host.base.types import SIDES, Positions, Side, other
from millrace.host.data.window import Window
from millrace.host.device.contract import Device
from millrace.host.expr.plan import Plan, search_shape
from millrace.host.join.matcher import STEP_ROWS, Matcher
from millrace.host.join.pair_memory import BYTES_PER_PAIR, FEWER_ROWS, check_fits
from millrace.host.join.pair_order import counts_in_order, pair_positions
from millrace.host.join.registry import ALL_PAIRS
from millrace.host.planner.rule import RecentSteps
from millrace.host.planner.tune import Arrival, HeldStream, TuneResult, candidates, measure
from millrace.host.runtime import first_use
from millrace.host.runtime.fork import ProcessMark
from millrace.host.stream.window_bounds import TakenTuples
from millrace.ingest.arguments import WindowArguments
from millrace.ingest.memory_limits import check_device_memory
from millrace.join_parts import output as out
from millrace.join_parts.batch_reader import Progress
from millrace.join_parts.held_windows import HeldWindows, after_extension
from millrace.join_parts.short_push import PlainRows, ShortPush
from millrace.join_parts.small_results import SmallResults
from millrace.state.join_state import Snapshot

WINDOW_JOIN = "window_join"
"""The name of the operator's kernels (`host/runtime/first_use.py`)."""
FEW_PAIRS = 1 << 10
"""The memory of results of up to so many pairs is not checked."""


class WindowEngine(HeldWindows):
    """The two windows of a `mr.WindowJoin`, and the device and index that match new tuples against them."""

    def __init__(self, args: WindowArguments) -> None:
        """Open the device; there are no windows yet."""
        super().__init__(args, SIDES)
        self._args: WindowArguments = args
        self._past_counters: dict[str, int] = {}
        self._past_fallback: str | None = None
        self._past_strategy = ""
        self._empty_table: tuple[pa.Schema, pa.Table] | None = None
        self._small: SmallResults | None = None
        self._short: dict[Side, tuple[Matcher, ShortPush | None]] = {}
        self._compiled: bool | None = None
        """Whether the index has kernels; None until the first match."""
        self._tuned: str | None = None
        self._recent = RecentSteps()
        self._mixed = False
        """Whether the latest call brought tuples of both sides."""
        self._open()

    def _open(self) -> None:
        """Open the devices in this process; the first match creates the index."""
        opened = self._args.engine.open()
        try:
            check_device_memory(self._args.window, self._args.given.window, opened.device)
        except DeviceUnavailable:
            opened.close()
            raise
        mark = ProcessMark()
        self.index, self.device, self._spare, self.team = opened.index, opened.device, opened.spare, opened.team
        self.index = self._tuned or self.index
        self.matcher: Matcher | None = None
        self._opened_in = mark  # with the lines above one step, in which no signal comes

    def load(self, windows: dict[Side, Window], snapshot: Snapshot) -> None:
        """Continue with stored windows and counters; after a stored fallback, on the fallback device."""
        self.windows = windows
        self._past_counters = snapshot.counters
        self._past_fallback = snapshot.fallback
        self._past_strategy = snapshot.strategy if self.index == "auto" else ""
        failed = (snapshot.fallback or "").partition(" -> ")[0]
        if self._spare is not None and failed == self.device.name:
            self.device, self._spare = self._spare, None

    def close(self) -> None:
        """Close the devices; their counters stay in the stats."""
        self._save_stats()
        used = self.current_device
        for device in {id(d): d for d in (self.device, self._spare, used) if d is not None}.values():
            device.close()
        self.team.close()
        self.device, self.matcher = used, None

    def discard_index(self) -> None:
        """Drop the index after an undo: the next match builds it from the windows."""
        if self.matcher is not None:
            self.matcher.discard_index()

    def _save_stats(self) -> None:
        """Keep the stats of the current matcher, which is about to be dropped."""
        self._past_counters, self._past_fallback = self.counters(), self.fallback()
        self._past_strategy = self.strategy()

    @property
    def current_device(self) -> Device:
        """The device in use: after a fault, the fallback device."""
        return self.device if self.matcher is None else self.matcher.device

    def fallback(self) -> str | None:
        """From which device the join fell back to which, and why; None if it did not."""
        now = None if self.matcher is None else self.matcher.fallback
        return now or self._past_fallback

    def strategy(self) -> str:
        """Which structure `auto` or which index `tune` chose last, and why; empty if the user named an index."""
        # The index that `tune` chose may have a reason of its own for how it works, as `spo` has.
        now = "" if self.matcher is None or self._tuned else self.matcher.reason()
        return now or self._past_strategy

    def counters(self) -> dict[str, int]:
        """Counters of device and index, including those before a restore or a fork."""
        return dict(self._past_counters) if self.matcher is None else self.matcher.counters()

    # --- matching ---

    def results(self, progress: Progress, taken: TakenTuples | None) -> tuple[pa.Table, int]:
        """The output for the taken tuples, and the number of pairs."""
        counting = self._args.output == "count"
        schema = out.COUNT_SCHEMA if counting else progress.pair_schema
        if taken is None:
            return self._empty(schema), 0
        if progress.plan is None:
            counts = np.zeros(len(taken.order), np.int64)
            return (out.counts_table(taken, counts) if counting else self._empty(schema)), 0
        self._recent.add_batch(min(len(taken.order), STEP_ROWS))
        self._mixed = taken.only is None
        bounds = self.bounds(progress)
        new = bounds.new_tuples(self.windows, taken)
        keep = bounds.oldest_needed_after(self.windows, taken)
        matcher = self._matcher_for(_plan_of(progress))
        team = self.team
        team.acquire(len(taken.order))
        try:
            found = []
            pairs = 0
            for block in matcher.match(self.windows, new, taken.order, keep, want_pairs=not counting):
                found.append(block)
                pairs += block.pairs(counting)
                if not counting:
                    check_fits(pairs, FEWER_ROWS)
            if counting:
                return out.counts_table(taken, counts_in_order(taken, found)), pairs
            if pairs == 0:
                return self._empty(schema), 0
            self._check_memory(schema, pairs)
            positions = pair_positions(taken, new, found, team)
            return self._pairs_table(schema, positions, pairs), pairs
        finally:
            team.depth -= 1

    def short_push(self, progress: Progress, side: Side) -> ShortPush | None:
        """The short way for few rows of a side; None as long as there is none, or if the join was forked."""
        matcher = self.matcher
        if matcher is None or matcher.plan is not progress.plan or not self._compiled or not self._opened_in.is_here:
            return None
        bound = self._short.get(side)
        if bound is None or bound[0] is not matcher:
            suits = self._args.output != "count" and self._args.time is None and not self._args.self_join
            intake, bounds = progress.intakes[side], self.bounds(progress)
            bound = matcher, ShortPush.bind(side, intake, bounds, matcher) if suits else None
            self._short[side] = bound
        return bound[1]

    def push_few(self, progress: Progress, way: ShortPush, rows: PlainRows, seq: int) -> tuple[pa.Table, int]:
        """Append few rows, numbered from `seq` on; return the output and the number of pairs."""
        windows, schema = self.windows, progress.pair_schema
        way.append(windows[way.side], seq, rows)
        after_extension()
        self._recent.add_batch(len(rows.values))
        self._mixed = False
        new, keep = way.tuples(windows, rows)
        found = way.matcher.match_few(way.side, new, keep)
        pairs = found.count
        if not pairs:
            return self._empty(schema), 0
        small, partner = self._small_results(schema), other(way.side)
        if pairs <= small.limit:
            some = {way.side: found.own[:pairs], partner: found.partners[:pairs]}
            made = small.table(windows, some, {way.side: found.own_at, partner: found.partners_at})
            if made is not None:
                return made, pairs
        self._check_memory(schema, pairs)
        own, partners = found.take()
        return self._pairs_table(schema, {way.side: own, partner: partners}, pairs), pairs

    def _check_memory(self, schema: pa.Schema, pairs: int) -> None:
        """Raise an error if there is no memory for the pairs, ordered, and then in one piece."""
        if pairs > FEW_PAIRS:
            check_fits(pairs, FEWER_ROWS, out.row_bytes(schema) + 2 * BYTES_PER_PAIR)

    def _pairs_table(self, schema: pa.Schema, positions: dict[Side, Positions], pairs: int) -> pa.Table:
        """The table of pairs at these positions."""
        if self._compiled:
            small = self._small_results(schema)
            made = small.table(self.windows, positions) if pairs <= small.limit else None
            if made is not None:
                return made
        return out.pairs_table(schema, self.windows, positions, self._args.several, self.team, bool(self._compiled))

    def _small_results(self, schema: pa.Schema) -> SmallResults:
        """The block of small results."""
        if self._small is None or self._small.schema is not schema:
            self._small = SmallResults(schema, self._args.several)
        return self._small

    def _empty(self, schema: pa.Schema) -> pa.Table:
        """The table without pairs; made once, since most small batches complete none."""
        if self._empty_table is None or self._empty_table[0] is not schema:
            self._empty_table = schema, empty_table(schema)
        return self._empty_table[1]

    def _matcher_for(self, plan: Plan) -> Matcher:
        """The matcher; created when both sides are known, and again in a forked process."""
        if not self._opened_in.is_here:
            self._save_stats()
            self._open()
        if not self._compiled and self.matcher is not None and not self._may_wait():
            self._save_stats()
            self._compiled, self.matcher = True, None
        if self.matcher is None or self.matcher.plan is not plan:
            # The plan differs if a first push failed after planning and the next one has other columns.
            index = ALL_PAIRS if self._compiled is None and self._may_wait() else self.index
            made = self._new_matcher(plan, index, self.device, self._spare)
            made.start_counters(self._past_counters)
            self.matcher, self._compiled = made, index != ALL_PAIRS
        return self.matcher

    def _may_wait(self) -> bool:
        """Whether small windows are matched without kernels, until these are compiled and loaded."""
        if self._args.given.index != "auto" or not self.device.shares_host_memory:
            return False
        rows = max(len(window) for window in self.windows.values())
        return rows <= first_use.MAX_ROWS and first_use.without_kernels(WINDOW_JOIN, rows * rows)

    def _new_matcher(self, plan: Plan, index: str, device: Device, spare: Device | None) -> Matcher:
        window = self._args.window
        rows: dict[Side, int] = {"r": window.r.length, "s": window.s.length} if window.counts else {}
        options = self._args.engine.options if index == self._args.given.index else None
        return Matcher(plan, index, device, spare, self.team, rows, options=options)

    # --- tuning ---

    def tune(self, progress: Progress, seconds: float) -> TuneResult:
        """Measure every index that can run this join on its device, and go on with the fastest."""
        self._check_tunable(progress)
        plan = _plan_of(progress)
        matcher = self._matcher_for(plan)
        device, spare = matcher.device, None if matcher.fallback else self._spare
        counters = matcher.counters()
        rows = max(len(window) for window in self.windows.values())
        names = candidates(search_shape(self._args.condition), device, self.index, rows)
        stream = self._held_stream(progress)
        new_matcher = partial(self._new_matcher, plan, device=device, spare=None)
        try:
            result = measure(stream, names, new_matcher, self._args.output == "count", seconds)
            chosen = self._new_matcher(plan, result.index, device, spare)
            chosen.build_index(self.windows)
            chosen.start_counters(counters)
            self._save_stats()
            matcher.discard_index()
        except BaseException:
            matcher.start_counters(counters)
            raise
        self.matcher, self.index, self._tuned, self._past_strategy = chosen, result.index, result.index, result.reason
        self._compiled = True
        return result

    def _held_stream(self, progress: Progress) -> HeldStream:
        """What `tune` replays: the windows, and how tuples arrived lately."""
        timed, batch = self._args.time is not None, max(1, round(self._recent.batch))
        arrival: Arrival = "interleaved" if self._mixed else "alternating"
        if self._args.self_join:
            arrival, batch = "self-join", batch + batch % 2  # each tuple is taken twice
        elif timed:
            arrival = "by time"
        return HeldStream(self.windows, self.bounds(progress), arrival, timed, batch)

    def _check_tunable(self, progress: Progress) -> None:
        empty = [side for side in SIDES if side not in self.windows or not len(self.windows[side])]
        if empty or progress.plan is None:
            raise StateError(
                f"tune() measures with the rows that the windows hold, but the window of {' and of '.join(empty)} is "
                f"empty: push rows first"
            )
        if not self._recent.steps:
            raise StateError("tune() replays batches of the recent size, but none was pushed yet: push a batch first")


def _plan_of(progress: Progress) -> Plan:
    assert isinstance(progress.plan, Plan)
    return progress.plan
