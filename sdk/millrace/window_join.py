"""`mr.WindowJoin`: two streams, joined on any condition of order within a sliding window.

What it means is in this file and below it in `host` (`timeline`: who is taken when; `window`: who can still be met;
`matcher`: who matches); how partners are found is an index's business. Every call is all or nothing: it works on a
copy of the small state, undoes what it appended if anything fails, and only then makes the change final.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, NoReturn

import numpy as np
import pyarrow as pa

from millrace.host.base.errors import ArgumentError, DeviceUnavailable, SchemaError, StateError
from millrace.host.base.types import SIDES, Order, Side
from millrace.host.base.words import all_true, both, count_true
from millrace.host.data.sliding import Kept, Sliding
from millrace.host.data.timescale import TimeScale
from millrace.host.data.tuples import Tuples
from millrace.host.data.window import Window
from millrace.host.expr.exact import INT64_MAX, INT64_MIN
from millrace.host.expr.plan import Plan, bind
from millrace.host.join.matcher import Matcher
from millrace.host.join.pair_order import counts_in_order, pair_positions
from millrace.host.stream.intake import Intake, make_intake
from millrace.host.stream.timeline import Clocks, Waiting
from millrace.host.stream.visible import Reach, Taken, arrival_order, time_order
from millrace.ingest.arguments import MAX_PENDING, WindowArguments, describe_arguments, parse_window_arguments
from millrace.ingest.instants import parse_instant
from millrace.ingest.memory_limits import check_device_room
from millrace.ingest.tables import as_schema, as_table, check_schema
from millrace.join_parts import output as out
from millrace.state.join_state import Snapshot, StateDelta, StateWriter, Totals, read_state


@dataclass(frozen=True)
class _Progress:
    """Everything that a call changes, except the windows: replaced as a whole when the call has succeeded."""

    scale: TimeScale
    clocks: Clocks
    waiting: Waiting = field(default_factory=Waiting)
    intakes: dict[Side, Intake] = field(default_factory=dict)
    plan: Plan | None = None
    pair_schema: pa.Schema = field(default_factory=lambda: pa.schema([]))
    seqs: dict[tuple[Side, int], int] = field(default_factory=dict)
    totals: Totals = field(default_factory=Totals)
    closed: bool = False


class WindowJoin:
    """A stream join on a condition of order, within a sliding window.

    >>> import millrace as mr, pyarrow as pa
    >>> j = mr.WindowJoin(on="abs(r.x - s.x) <= 5", window="1000 rows")
    >>> j.push("r", pa.table({"x": [10, 50]})).num_rows
    0
    >>> j.push("s", pa.table({"x": [12, 99, 46]})).to_pydict()
    {'r_seq': [0, 1], 's_seq': [0, 2], 'r_x': [10, 50], 's_x': [12, 46]}

    Arguments are those of the contract: `on` (a SQL condition over r and s), `window` (`"N rows"`, `"T unit"`, or a
    pair), `time` (the time column, or a pair), `lateness`, `sources` (how many per side), `self_join`, `index`,
    `device`, `threads`, `output` (`"pairs"`, `"seqs"` or `"count"`), `max_pending`, `schemas` and `fallback`
    (`"cpu"`: go on there after a device fault). One thread at a time may call; calls from several threads wait for
    each other.
    """

    def __init__(
        self,
        on: str,
        window: Any,
        time: str | tuple[str, str] | None = None,
        lateness: Any = 0,
        sources: Mapping[str, int] | None = None,
        self_join: bool = False,
        index: str = "auto",
        device: str = "auto",
        threads: int | None = None,
        output: str = "pairs",
        max_pending: int = MAX_PENDING,
        schemas: Mapping[str, Any] | None = None,
        fallback: str | None = None,
    ) -> None:
        """Check all arguments and open the device; no data is needed yet."""
        given = {k: v for k, v in locals().items() if k not in ("self", "schemas")}
        self._args: WindowArguments = parse_window_arguments(given)
        self._lock_of = os.getpid(), threading.RLock()
        self._ranks: list[tuple[Side, int]] = [
            (side, i) for side in self._args.sides for i in range(self._args.sources[side])
        ]
        self._windows: dict[Side, Window] = {}
        self._past_counters: dict[str, int] = {}
        self._past_fallback: str | None = None
        self._past_strategy = ""
        self._progress = self._beginning()
        self._writer = StateWriter()
        self._open_engine()
        try:
            self._given_schemas = self._fix_schemas(schemas)
        except BaseException:
            self._release()
            raise

    def _beginning(self) -> _Progress:
        scale = TimeScale()
        for span in (self._args.window.r, self._args.window.s, self._args.lateness):
            if span.measure == "ns":
                scale = scale.with_length(span.length)
        clocks = Clocks((None,) * len(self._ranks))
        schema = out.pair_schema({}, self._args.output, self._args.several)
        return _Progress(scale, clocks, pair_schema=schema, seqs=dict.fromkeys(self._ranks, 0))

    def _open_engine(self) -> None:
        """Open the devices in this process; the index follows with the first match."""
        opened = self._args.engine.open()
        try:
            check_device_room(self._args.window, self._args.given["window"], opened.device)
        except DeviceUnavailable:
            opened.close()
            raise
        self._index, self._device, self._spare = opened.index, opened.device, opened.spare
        self._pid = os.getpid()
        self._matcher: Matcher | None = None

    def _fix_schemas(self, schemas: Mapping[str, Any] | None) -> dict[Side, pa.Schema]:
        if schemas is None:
            return {}
        if not isinstance(schemas, Mapping) or not set(schemas) <= set(self._args.sides):
            raise ArgumentError(
                f"schemas={schemas!r}: allowed is a mapping from {' or '.join(self._args.sides)} to a schema"
            )
        fixed: dict[Side, pa.Schema] = {}
        for side in self._args.sides:
            if side in schemas:
                fixed[side] = as_schema(schemas[side], f"schemas[{side!r}]")
                progress = self._learn(self._progress, side, fixed[side])
                self._commit(progress, {})
        return fixed

    # --- what users call ---

    def push(self, side: str, batch: Any, source: int = 0) -> pa.Table:
        """Add rows of one side; the pairs that they complete, in order."""
        with self._lock:
            known = self._check(side, source)
            table = as_table(batch, f"the batch pushed to {side!r}")
            with self._roused(table.num_rows):
                progress, fresh = self._read(self._progress, known, table, source)
                if self._args.time is None:
                    return self._commit(progress, {known: fresh})
                waiting = progress.waiting.push(known, fresh)
                return self._take(replace(progress, waiting=waiting))

    @contextmanager
    def _roused(self, rows: int) -> Iterator[None]:
        """Wake the index's threads early, while the rows are still being read; let them go whatever happens."""
        matcher = self._matcher
        if matcher is None:
            yield
            return
        try:
            matcher.rouse(rows)
            yield
        finally:
            matcher.rest()

    def push_both(self, r_batch: Any, s_batch: Any, arrival: Any) -> pa.Table:
        """Add rows of both sides, as one-row pushes in the order of `arrival` (0: next r row, 1: next s row)."""
        with self._lock:
            self._check("r", 0)
            if self._args.self_join:
                raise ArgumentError("push_both is for two streams; a self-join has one: use push('r', batch)")
            tables = {"r": as_table(r_batch, "r_batch"), "s": as_table(s_batch, "s_batch")}
            order = _arrival(arrival, tables["r"].num_rows, tables["s"].num_rows)
            progress, r = self._read(self._progress, "r", tables["r"], 0)
            if self._args.time is None:
                progress, s = self._read(progress, "s", tables["s"], 0)
                return self._commit(progress, {"r": r, "s": s}, order)
            # r's rows wait before s is read: a finer unit of s then reaches them too.
            progress = replace(progress, waiting=progress.waiting.push("r", r))
            progress, s = self._read(progress, "s", tables["s"], 0)
            return self._take(replace(progress, waiting=progress.waiting.push("s", s)))

    def advance(self, side: str, ts: Any, source: int = 0) -> pa.Table:
        """Tell that a source will push nothing older than `ts` (minus the lateness); the pairs that this completes."""
        with self._lock:
            known = self._check(side, source)
            if self._args.time is None:
                raise ArgumentError("advance moves a source's clock: it needs a join with time=")
            value, domain, zoned = parse_instant(ts)
            scale = self._progress.scale.with_instant(value, domain, zoned, "the timestamp given to advance")
            progress = self._rescaled(self._progress, scale)
            self._check_measures(domain == "time", "the timestamp given to advance")
            at = scale.ticks(value) if domain == "time" else value
            if not INT64_MIN <= at <= INT64_MAX:
                raise ArgumentError("the timestamp given to advance is outside the range of 64-bit times")
            clocks = progress.clocks.moved(self._ranks.index((known, source)), at)
            return self._take(replace(progress, clocks=clocks))

    def flush(self) -> pa.Table:
        """Move every clock one tick past the newest timestamp, so that no row waits; the pairs that this completes."""
        with self._lock:
            self._check("r", 0)
            return self._take(replace(self._progress, clocks=self._progress.clocks.flush()))

    def close(self) -> pa.Table:
        """Flush, and take no more calls."""
        with self._lock:
            result = self.flush()
            self._progress = replace(self._progress, closed=True)
            self._release()
            return result

    def _release(self) -> None:
        """Give the devices back; what they counted is kept."""
        self._remember()
        used = self._device if self._matcher is None else self._matcher.device
        for device in {id(d): d for d in (self._device, self._spare, used) if d is not None}.values():
            device.close()
        self._device, self._matcher = used, None

    def _remember(self) -> None:
        """Keep for the stats what goes with the matcher."""
        self._past_counters, self._past_fallback = self._counters(), self._fell_back()
        self._past_strategy = self._strategy()

    @property
    def stats(self) -> dict[str, Any]:
        """What has happened so far; see the contract for the names."""
        with self._lock:
            self._settle()
            p = self._progress
            rows = {side: sum(n for (of, _), n in p.seqs.items() if of == side) for side in SIDES}
            device = self._device if self._matcher is None else self._matcher.device
            held = [len(w) for w in self._windows.values()]
            return {
                "rows": rows,
                "late": p.totals.late,
                "null_times": p.totals.null_times,
                "null_keys": p.totals.null_keys,
                "pending": len(p.waiting),
                "held": max(held, default=0) if self._args.self_join else sum(held),
                "pairs": p.totals.pairs,
                "device": device.name,
                "index": self._index,
                "strategy": self._strategy(),
                "plan": "" if p.plan is None else p.plan.describe(),
                "fallback": self._fell_back(),
                "boundaries": 0,
                **self._counters(),
            }

    def _fell_back(self) -> str | None:
        """From which device the join fell back to which, and why; nothing if it did not."""
        now = None if self._matcher is None else self._matcher.fell_back
        return now or self._past_fallback

    def _strategy(self) -> str:
        """Which structure `auto` chose last, and why; empty where the user chose."""
        now = "" if self._matcher is None else self._matcher.reason()
        return now or self._past_strategy

    def _counters(self) -> dict[str, int]:
        """What device and index have counted, in this life and in those before it."""
        return dict(self._past_counters) if self._matcher is None else self._matcher.counters()

    def state(self) -> StateDelta:
        """What must be stored so that `restore` can go on from here: see `StateDelta`."""
        with self._lock:
            self._check("r", 0)
            self._settle()
            waiting, delta = self._writer.delta(self._snapshot(), self._windows, self._progress.waiting)
            self._progress = replace(self._progress, waiting=waiting)
            return delta

    @classmethod
    def restore(cls, manifest: bytes, runs: Mapping[str, bytes], **arguments: Any) -> WindowJoin:
        """Go on from a stored state, with the same arguments; output, clocks and stats are as if never stopped."""
        join = cls(**arguments)
        try:
            join._load(manifest, runs)
        except BaseException:
            join._release()
            raise
        return join

    def __reduce__(self) -> NoReturn:
        """Refuse to be pickled or copied, and say what to do instead."""
        raise StateError(
            "a WindowJoin cannot be pickled or copied: store what state() gives and use WindowJoin.restore"
        )

    def __repr__(self) -> str:
        """What is joined, how far it is, and where it runs."""
        a, s = self._args, self.stats
        window = str(a.window.r) if a.window.r == a.window.s else f"({a.window.r}, {a.window.s})"
        return (
            f"<millrace WindowJoin on {a.condition.text!r}, window {window}, index {s['index']}, device {s['device']}: "
            f"{s['rows']['r']} r rows, {s['rows']['s']} s rows, {s['held']} held, {s['pairs']} pairs>"
        )

    @property
    def _lock(self) -> threading.RLock:
        """Calls take turns. A forked child gets its own: the parent's may be held by a thread that is not there."""
        if self._lock_of[0] != os.getpid():
            self._lock_of = os.getpid(), threading.RLock()
        return self._lock_of[1]

    # --- reading rows ---

    def _check(self, side: Any, source: Any) -> Side:
        if self._progress.closed:
            raise StateError("the join is closed: make a new one to push more rows")
        if not isinstance(side, str) or side not in self._args.sides:
            hint = " (a self-join has one stream, r)" if self._args.self_join else ""
            raise ArgumentError(f"side={side!r} is unknown; allowed are {', '.join(map(repr, self._args.sides))}{hint}")
        known: Side = side
        number = self._args.sources[known]
        if isinstance(source, bool) or not isinstance(source, int | np.integer) or not 0 <= source < number:
            raise ArgumentError(f"source={source!r}: side {side} has {number} source(s), numbered from 0")
        return known

    def _read(self, progress: _Progress, side: Side, table: pa.Table, source: int) -> tuple[_Progress, Tuples]:
        """The rows of a batch that are not dropped, and the progress after them."""
        if side in progress.intakes:
            check_schema(table, progress.intakes[side].schema, side)
        else:
            progress = self._learn(progress, side, table.schema)
        first = progress.seqs[side, source]
        seq = np.arange(first, first + table.num_rows, dtype=np.int64)
        reading = progress.intakes[side].read(table, seq, source, progress.scale)
        known_keys = reading.known_keys
        if self._args.self_join:
            known_keys = both(known_keys, progress.intakes["s"].read(table, seq, source, progress.scale).known_keys)
        fresh, known = reading.tuples, reading.known_time
        kept, clocks = known, progress.clocks
        if self._args.time is not None:
            rank = self._ranks.index((side, source))
            kept = known & ~clocks.late(rank, fresh.time, known)
            if known.any():
                clocks = clocks.moved(rank, int(fresh.time[known].max()))
        late, nulls = count_true(known) - count_true(kept), len(known) - count_true(known)
        progress = replace(
            progress,
            clocks=clocks,
            seqs={**progress.seqs, (side, source): first + table.num_rows},
            totals=progress.totals.plus(late, nulls, len(known_keys) - count_true(known_keys)),
        )
        return progress, fresh if all_true(kept) else fresh.take(np.flatnonzero(kept))

    def _learn(self, progress: _Progress, side: Side, schema: pa.Schema) -> _Progress:
        """Know a side's schema (in a self-join, both sides'), and with both known, the plan."""
        sides: tuple[Side, ...] = SIDES if self._args.self_join else (side,)
        intakes, scale = dict(progress.intakes), progress.scale
        for one in sides:
            time = None if self._args.time is None else self._args.time[one]
            intakes[one] = make_intake(one, self._args.condition, schema, time)
            timed = intakes[one].time
            if timed is not None:
                scale = scale.with_column(timed[1], f"{one}.{timed[0]}")
                self._check_measures(timed[1].domain == "time", f"{one}.{timed[0]}")
        schemas = {s: i.schema for s, i in intakes.items()}
        pairs = out.pair_schema(schemas, self._args.output, self._args.several)
        plan = bind(self._args.condition, schemas) if len(schemas) == 2 else None
        return replace(self._rescaled(progress, scale), intakes=intakes, plan=plan, pair_schema=pairs)

    def _check_measures(self, is_time: bool, label: str) -> None:
        """A window or lateness must be of the kind of the time column."""
        window = self._args.window
        for name, span in (("window", window.r), ("lateness", self._args.lateness)):
            if span.measure == "rows" or (span.length == 0 and name == "lateness"):
                continue
            if is_time != (span.measure == "ns"):
                kind = "timestamps" if span.measure == "ns" else "integer times"
                what = "a timestamp" if is_time else "an integer"
                hint = f"'{span.length} seconds'" if is_time else "a plain number such as '1000'"
                given = self._args.given[name]
                raise SchemaError(f"{name}={given!r} is for {kind}, but {label} is {what}: write {hint}")

    def _rescaled(self, progress: _Progress, scale: TimeScale) -> _Progress:
        """The same progress on a finer scale."""
        factor = scale.factor_from(progress.scale)
        lateness = self._args.lateness
        late = scale.ticks(lateness.length) if lateness.measure == "ns" else lateness.length
        clocks = progress.clocks.rescaled(factor, scale.step(), late)
        waiting = progress.waiting if factor == 1 else progress.waiting.rescaled(factor)
        return replace(progress, scale=scale, clocks=clocks, waiting=waiting)

    # --- taking tuples ---

    def _take(self, progress: _Progress) -> pa.Table:
        """Take every waiting row that no source can still come before."""
        frontier = progress.clocks.frontier()
        if frontier is None or self._args.time is None:
            return self._commit(progress, {})
        rows, waiting = progress.waiting.take(frontier, self._first_rank())
        fresh = {side: tuples for side, tuples in rows.items() if tuples is not None}
        order = time_order(*(fresh[s].time if s in fresh else np.zeros(0, np.int64) for s in SIDES))
        return self._commit(replace(progress, waiting=waiting), fresh, order)

    def _commit(self, progress: _Progress, fresh: dict[Side, Tuples], order: Order | None = None) -> pa.Table:
        """Match the taken tuples and make the change final, or leave everything as it was."""
        self._check_pending(progress)
        self._settle()
        marks = {side: (w, w.end, w.time) for side, w in self._windows.items()}
        before = self._progress
        try:
            taken = self._extend(progress, fresh, order)
            result, pairs = self._results(progress, taken)
            self._progress = replace(progress, totals=progress.totals.plus(pairs=pairs))
        except BaseException:
            if self._progress is before:  # else the change was made, and only then somebody interrupted
                self._undo(marks)
            raise
        return result

    def _first_rank(self) -> dict[Side, int]:
        """Where each side's sources begin in the order of all sources."""
        return {"r": 0, "s": self._args.sources["r"]}

    def _check_pending(self, progress: _Progress) -> None:
        waiting = len(progress.waiting)
        if waiting > self._args.max_pending:
            side, source = self._ranks[progress.clocks.silent()]
            raise StateError(
                f"{waiting} rows would wait for source {source} of side {side!r}, which is behind all others; "
                f"max_pending={self._args.max_pending}: push to it, or advance({side!r}, ts, source={source})"
            )

    def _extend(self, progress: _Progress, fresh: dict[Side, Tuples], order: Order | None) -> Taken | None:
        """Put taken tuples into the windows (made here when a side's columns become known)."""
        factor = progress.scale.factor_from(self._progress.scale)
        for side, intake in progress.intakes.items():
            if side not in self._windows:
                self._windows[side] = Window({name: t.dtype for (_, name), t in intake.types.items()})
            elif factor != 1:
                self._windows[side].rescale(factor)
        if self._args.self_join and "r" in fresh:
            r = fresh["r"]
            s = progress.intakes["s"].read(r.payload, r.seq, r.source, progress.scale).tuples
            fresh, order = {"r": r, "s": s}, np.tile(np.array([0, 1], np.uint8), len(r))
        for side, tuples in fresh.items():
            self._windows[side].append(tuples)
        if not any(len(tuples) for tuples in fresh.values()):
            return None
        sides = {side: fresh[side] if side in fresh else self._nothing(progress, side) for side in SIDES}
        if order is None:
            order = arrival_order(len(sides["r"]), len(sides["s"]))
        return Taken(sides, order, self._args.self_join)

    def _nothing(self, progress: _Progress, side: Side) -> Tuples:
        """No tuples of a side (whose columns may not be known yet)."""
        known = progress.intakes.get(side)
        types = {} if known is None else {name: t.dtype for (_, name), t in known.types.items()}
        longs, flags = np.zeros(0, np.int64), np.zeros(0, np.bool_)
        columns = {name: np.zeros(0, dtype) for name, dtype in types.items()}
        return Tuples(longs, np.zeros(0, np.int32), longs, flags, columns, pa.table({}))

    def _undo(self, marks: dict[Side, tuple[Window, int, Sliding | Kept]]) -> None:
        self._windows = {side: window for side, (window, _, _) in marks.items()}
        for window, end, time in marks.values():
            window.time = time
            window.truncate(end)
        if self._matcher is not None:
            self._matcher.forget()

    def _settle(self) -> None:
        """Forget what no later tuple can meet: done before the next change, so that it cannot spoil a finished one."""
        frontier = self._progress.clocks.frontier()
        reach = self._reach(self._progress)
        for side, window in self._windows.items():
            window.settle(reach.oldest_needed(side, window, None if frontier is None else frontier[0]))

    def _reach(self, progress: _Progress) -> Reach:
        spans = {"r": self._args.window.r, "s": self._args.window.s}
        lengths: dict[Side, int] = {}
        for side in SIDES:
            span = spans[side]
            lengths[side] = progress.scale.ticks(span.length) if span.measure == "ns" else span.length
        return Reach(self._args.window.counts, lengths)

    # --- matching ---

    def _results(self, progress: _Progress, taken: Taken | None) -> tuple[pa.Table, int]:
        """The output for the taken tuples, and how many pairs they complete."""
        counting = self._args.output == "count"
        schema = out.COUNT_SCHEMA if counting else progress.pair_schema
        if taken is None:
            return schema.empty_table(), 0
        if progress.plan is None:
            counts = np.zeros(len(taken.order), np.int64)
            return (out.counts_table(taken, counts) if counting else schema.empty_table()), 0
        reach = self._reach(progress)
        new = reach.newcomers(self._windows, taken)
        keep = reach.keeper(self._windows, taken)
        matcher = self._matcher_for(progress.plan)
        found = list(matcher.match(self._windows, new, taken.order, keep, want_pairs=not counting))
        pairs = sum(block.pairs() for block in found)
        if counting:
            return out.counts_table(taken, counts_in_order(taken, found)), pairs
        if pairs == 0:
            return schema.empty_table(), 0
        positions = pair_positions(taken, new, found)
        return out.pairs_table(schema, self._windows, positions, self._args.several, matcher.team), pairs

    def _matcher_for(self, plan: Plan) -> Matcher:
        """The matcher, made when both sides are known, and anew in a forked process."""
        if self._pid != os.getpid():
            self._remember()
            self._open_engine()
        if self._matcher is None or self._matcher.plan is not plan:
            # The plan differs where a first push failed after it was planned and the next one has other columns.
            window = self._args.window
            rows: dict[Side, int] = {"r": window.r.length, "s": window.s.length} if window.counts else {}
            self._matcher = Matcher(plan, self._index, self._device, self._spare, rows)
            self._matcher.start_counters(self._past_counters)
        return self._matcher

    # --- state ---

    def _snapshot(self) -> Snapshot:
        p = self._progress
        return Snapshot(
            arguments=describe_arguments(self._args, self._given_schemas),
            schemas={side: intake.schema for side, intake in p.intakes.items()},
            scale=p.scale,
            clocks=p.clocks,
            seqs={f"{side}{source}": n for (side, source), n in p.seqs.items()},
            totals=p.totals,
            counters=self._counters(),
            fell_back=self._fell_back(),
            strategy=self._strategy(),
        )

    def _load(self, manifest: bytes, runs: Mapping[str, bytes]) -> None:
        """Take over a stored state; called on a join that has not been used."""
        stored = read_state(manifest, runs, describe_arguments(self._args, self._given_schemas))
        snapshot = stored.snapshot
        progress = self._progress
        for side in self._args.sides:
            if side in snapshot.schemas and side not in progress.intakes:
                progress = self._learn(progress, side, snapshot.schemas[side])
        seqs = {(side, source): snapshot.seqs[f"{side}{source}"] for side, source in self._ranks}
        progress = replace(progress, scale=snapshot.scale, clocks=snapshot.clocks, seqs=seqs, totals=snapshot.totals)
        windows: dict[Side, Window] = {}
        for side, intake in progress.intakes.items():
            windows[side] = stored.window(side, intake, snapshot.scale)
        frontier = progress.clocks.frontier()
        first_rank = self._first_rank()
        waiting = {side: stored.waiting(side, progress.intakes.get(side), frontier, first_rank[side]) for side in SIDES}
        self._windows = windows
        self._progress = replace(progress, waiting=Waiting(waiting))
        self._past_counters = snapshot.counters
        self._past_fallback = snapshot.fell_back
        self._past_strategy = snapshot.strategy
        if snapshot.fell_back is not None and self._spare is not None:
            self._device, self._spare = self._spare, None
        self._writer = StateWriter(stored.names())


def _arrival(given: Any, r_rows: int, s_rows: int) -> Order:
    """The `arrival` argument: one 0 for each r row and one 1 for each s row."""
    try:
        order = np.asarray(given)
    except (TypeError, ValueError) as error:
        raise ArgumentError(f"arrival cannot be read as an array: {error}") from error
    numeric = order.ndim == 1 and (order.dtype.kind in "iub" or len(order) == 0)
    if not numeric or not ((order == 0) | (order == 1)).all():
        raise ArgumentError("arrival must be a one-dimensional array of 0 (next r row) and 1 (next s row)")
    ones = int((order == 1).sum())
    if (len(order) - ones, ones) != (r_rows, s_rows):
        raise ArgumentError(
            f"arrival has {len(order) - ones} zeros and {ones} ones, but there are {r_rows} r rows and {s_rows} s rows"
        )
    return order.astype(np.uint8)
