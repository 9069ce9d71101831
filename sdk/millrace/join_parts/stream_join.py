"""What joins of streams have in common: calls that push rows, move clocks, take what is ready, and store the state.

A call reads its rows (`batch_reader.py`), takes those that no source can still precede, and matches them (the join's
engine). `mr.WindowJoin` and `mr.KnnJoin` derive from `StreamJoin`.

Every call is atomic, whatever error or signal handler ends it. It works on a copy of the small state. Before it changes
the windows it leaves marks (`_undo_to`); its last step adopts the new state, drops the marks and keeps the result, in
one line without a call, where no signal can come. A call that finds marks first undoes what an earlier one left. The
result is kept (`_unreturned`) until it is returned, again without a call between; `recover` returns it if a signal
handler has raised before that. See "Signals" in docs/architecture.md.
"""

from __future__ import annotations

import warnings
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from types import TracebackType
from typing import Any, NoReturn, Self

import numpy as np
import pyarrow as pa

from millrace.host.base.errors import ArgumentError, StateError
from millrace.host.base.html import html_table
from millrace.host.base.log import log
from millrace.host.base.types import Order, Side
from millrace.host.data.tuples import Tuples
from millrace.host.expr.exact import INT64_MAX, INT64_MIN
from millrace.host.planner.explanation import Explanation
from millrace.host.planner.tune import TuneResult
from millrace.host.runtime.call_lock import CallLock
from millrace.ingest.arguments import StreamArguments, describe_arguments
from millrace.ingest.casts import fitted
from millrace.ingest.instants import parse_instant
from millrace.ingest.tables import as_schema
from millrace.join_parts.batch_reader import BatchReader, Progress
from millrace.join_parts.held_windows import HeldWindows, WindowMarks
from millrace.join_parts.reporting import join_stats
from millrace.join_parts.snapshots import load_snapshot, take_snapshot
from millrace.state.join_state import StateDelta, StateWriter, read_state
from millrace.stats import JoinStats


class StreamJoin(ABC):
    """A join of streams. Calls from several threads are serialised."""

    _args: StreamArguments
    _engine: HeldWindows

    def __init__(
        self,
        args: StreamArguments,
        reader: BatchReader[Any],
        engine: HeldWindows,
        schemas: Mapping[str, Any] | None,
    ) -> None:
        """Start with an open engine."""
        self._args, self._reader, self._engine = args, reader, engine
        self._calls = CallLock("join")
        self._progress = reader.initial_progress()
        self._undo_to: WindowMarks | None = None
        self._unreturned: pa.Table | StateDelta | TuneResult | None = None
        self._engine_open = True
        self._counters: dict[str, int] = {}
        self._working = False
        self._writer = StateWriter()
        try:
            self._given_schemas = self._fix_schemas(schemas)
        except BaseException:
            engine.close()
            raise

    @abstractmethod
    def explain(self) -> Explanation:
        """The logical plan, the index and the device in use, and the reasons for them."""

    def _fix_schemas(self, schemas: Mapping[str, Any] | None) -> dict[Side, pa.Schema]:
        """Apply the `schemas` argument; return the schemas in Arrow."""
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
                progress = self._reader.add_schema(self._progress, side, fixed[side])
                self._commit(progress, {})
        self._unreturned = None
        return fixed

    def push(self, side: str, batch: Any, source: int = 0) -> pa.Table:
        """Add rows of one side; return the pairs that they complete, in order.

        Args:
            side: `"r"` or `"s"`; in a self-join `"r"`.
            batch (pyarrow.Table or the like): The rows to add.
            source: The number of the side's source, from 0.

        Returns:
            The pairs completed, possibly none.

        Raises:
            ArgumentError: `side` or `source` is unknown, or `batch` is no table.
            SchemaError: The columns or types differ from the side's earlier batches.
            KeyTypeError: A column of the condition has a type that cannot be compared so.
            StateError: The join is closed, or more than `max_pending` rows would wait; the message names the source.
            DeviceFault: The device failed, and `fallback` is None.
        """
        with self._calls.exclusive():
            known = self._begin(side, source)
            short = self._push_few(known, batch)
            result = self._push(known, batch, source) if short is None else short
        if self._unreturned is result:
            self._unreturned = None
        return result

    def _push(self, side: Side, batch: Any, source: int) -> pa.Table:
        """Read a batch and match it."""
        table = self._fitted(side, self._reader.as_table(self._progress, side, batch))
        team = self._engine.team
        team.acquire(table.num_rows)  # early: helper threads wake while the rows are read
        try:
            progress, fresh = self._reader.read(self._progress, side, table, source)
            if self._args.time is None:
                return self._commit(progress, {side: fresh})
            return self._take(progress.with_waiting(progress.waiting.push(side, fresh)))
        finally:
            team.depth -= 1

    def _push_few(self, side: Side, batch: Any) -> pa.Table | None:
        """The same for few rows that need less, if the join has a way for them; None if it has not."""
        return None

    def _fitted(self, side: Side, table: pa.Table) -> pa.Table:
        """A batch in the types that the `schemas` argument fixed, if it did."""
        schema = self._given_schemas.get(side)
        return table if schema is None else fitted(table, schema, side)

    def advance(self, side: str, ts: Any, source: int = 0) -> pa.Table:
        """Declare that a source pushes nothing older than `ts` minus the lateness; return the pairs completed.

        Args:
            side: `"r"` or `"s"`; in a self-join `"r"`.
            ts (datetime | int | pyarrow.Scalar): The time, of the same kind as the time column.
            source: The number of the side's source, from 0.

        Raises:
            ArgumentError: The join has no `time=`, or `ts` is no time of its kind.
            StateError: The join is closed.
        """
        with self._calls.exclusive():
            result = self._take(self._advanced(self._begin(side, source), ts, source))
        if self._unreturned is result:
            self._unreturned = None
        return result

    def flush(self) -> pa.Table:
        """Move every clock one tick past the newest timestamp, so that no row waits; return the pairs completed."""
        with self._calls.exclusive():
            self._begin("r", 0)
            result = self._take(replace(self._progress, clocks=self._progress.clocks.flush()))
        if self._unreturned is result:
            self._unreturned = None
        return result

    def close(self) -> pa.Table:
        """Flush and free the devices; later calls raise a `StateError`."""
        with self._calls.exclusive():
            self._begin("r", 0)
            result = self._take(replace(self._progress, clocks=self._progress.clocks.flush(), closed=True))
            self._repair()
        if self._unreturned is result:
            self._unreturned = None
        return result

    def recover(self) -> pa.Table | StateDelta | TuneResult | None:
        """Return the result of a call that was complete when a signal handler raised in it, once; None otherwise.

        Such a call has changed nothing, or it is complete; then its result can be had here until the next call. The
        same in a `with` block that has ended.

        >>> import millrace as mr
        >>> mr.WindowJoin("r.x = s.x", window="10 rows").recover() is None
        True
        """
        with self._calls.exclusive():
            self._repair()
            result = self._unreturned
        if self._unreturned is result:
            self._unreturned = None
        return result

    def run(self, batches: Iterable[tuple[Any, ...]]) -> Iterator[pa.Table]:
        """Push every `(side, batch)` or `(side, batch, source)`; yield the tables of pairs, then those of `close()`.

        Tables without rows are left out. An error, or an iterator that is not exhausted, leaves the join open.

        >>> import millrace as mr, pyarrow as pa
        >>> j = mr.WindowJoin("r.x = s.x", window="10 rows")
        >>> batches = [("r", pa.table({"x": [1, 2]})), ("s", pa.table({"x": [2]})), ("s", pa.table({"x": [1]}))]
        >>> [pairs.to_pydict()["r_seq"] for pairs in j.run(batches)]
        [[1], [0]]

        Args:
            batches: Pairs `(side, batch)`, or triples with the source.

        Raises:
            ArgumentError: An item is no such pair; and all that `push` raises.
            StateError: The join is closed.
        """
        self._check("r", 0)
        if not hasattr(batches, "__iter__") and not hasattr(batches, "__getitem__"):
            kind = type(batches).__name__
            raise ArgumentError(f"batches is a {kind}: must be an iterable of (side, batch) or (side, batch, source)")
        return self._run(batches)

    def _run(self, batches: Iterable[tuple[Any, ...]]) -> Iterator[pa.Table]:
        for number, item in enumerate(batches):
            if not isinstance(item, tuple | list) or len(item) not in (2, 3):
                raise ArgumentError(f"item {number} of batches is {item!r:.80}: must be (side, batch[, source])")
            # Not `*item`: Python may run a signal handler between the end of such a call and the next line.
            pairs = self.push(item[0], item[1], item[2] if len(item) == 3 else 0)
            if pairs.num_rows:
                yield pairs
        pairs = self.close()
        if pairs.num_rows:
            yield pairs

    def __enter__(self) -> Self:
        """Use the join in a `with` statement; its end frees the devices without flushing."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Free the devices; rows that still wait are dropped, with a `ResourceWarning`. Call `close()` to keep them."""
        with self._calls.exclusive():
            self._repair()
            waiting = 0 if self._progress.closed else len(self._progress.waiting)
            self._end()
        if waiting:
            warnings.warn(
                f"the join was left with {waiting} rows that waited for a source: call close() for the last pairs",
                ResourceWarning,
                stacklevel=2,
            )

    def _end(self) -> None:
        """Free the devices without flushing."""
        self._progress = replace(self._progress, closed=True)
        self._repair()

    @property
    def stats(self) -> JoinStats:
        """Rows, pairs, dropped, waiting and held rows so far; index, device, plan, fallback; the device's counters.

        Reading it changes nothing and waits for no other call. While a call is at work in another thread, the stats are
        those before it, and the counters those of the last time that `stats` was read between calls.
        """
        if not self._working:
            self._counters = {"boundaries": 0, **self._engine.counters()}
        return replace(join_stats(self._args, self._engine, self._progress), counters=self._counters)

    def state(self) -> StateDelta:
        """Return what must be stored so that `restore` can continue from this point: see `StateDelta`."""
        with self._calls.exclusive():
            self._begin("r", 0)
            self._engine.evict(self._progress)
            snapshot = take_snapshot(self._arguments(), self._progress, self._engine)
            writer, waiting, result = self._writer.delta(snapshot, self._engine.windows, self._progress.waiting)
            if isinstance(self._unreturned, StateDelta):  # an interrupt has kept the last one from its caller
                result = self._unreturned.followed_by(result)
            progress = self._progress.with_waiting(waiting)
            self._writer, self._progress, self._unreturned = writer, progress, result
        if self._unreturned is result:
            self._unreturned = None
        return result

    @classmethod
    def restore(cls, manifest: bytes, runs: Mapping[str, bytes], **arguments: Any) -> Self:
        """Continue from a stored state; output, clocks and stats are as without a stop.

        The arguments must be the same, except `index`, `device`, `threads`, `fallback` and `options`.

        Args:
            manifest: The last manifest that `state()` gave.
            runs: The runs that it names, by name; others are ignored.
            arguments (Any): The arguments of the join, as when it was made.

        Raises:
            StateError: A run is missing or altered, an argument differs, or the state is of another version.
        """
        join = cls(**arguments)
        try:
            join._load(manifest, runs)
        except BaseException:
            join._engine.close()
            raise
        return join

    def __reduce__(self) -> NoReturn:
        """Refuse to be pickled or copied, and say what to do instead."""
        name = type(self).__name__
        raise StateError(f"a {name} cannot be pickled or copied: store what state() gives and use {name}.restore")

    @abstractmethod
    def _title(self) -> str:
        """What is joined, in one line."""

    def _repr_html_(self) -> str:
        return html_table(self.stats.to_dict().items(), caption=self._title())

    def _arguments(self) -> dict[str, str]:
        """The arguments that decide the output, as text; a restored join must have the same."""
        return describe_arguments(self._args, self._given_schemas)

    def _begin(self, side: Any, source: Any) -> Side:
        """Repair what an earlier call left, and check the arguments; the first step of a call."""
        if self._undo_to is not None or self._progress.closed:
            self._repair()
        return self._check(side, source)

    def _repair(self) -> None:
        """Undo a call that did not end, and free the devices of a closed join. A signal may end this at any point."""
        marks = self._undo_to
        if marks is not None:
            self._engine.undo(marks)
            self._undo_to = None
        if self._progress.closed and self._engine_open:
            self._engine.close()
            self._engine_open = False

    def _check(self, side: Any, source: Any) -> Side:
        """Check that the join is open, and the `side` and `source` arguments."""
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

    def _advanced(self, side: Side, ts: Any, source: int) -> Progress:
        """The progress after `advance`."""
        if self._args.time is None:
            raise ArgumentError("advance moves a source's clock: it needs a join with time=")
        value, domain, zoned = parse_instant(ts)
        scale = self._progress.scale.with_instant(value, domain, zoned, "the timestamp given to advance")
        progress = self._reader.rescaled(self._progress, scale)
        self._reader.check_measures(domain == "time", "the timestamp given to advance")
        at = scale.ticks(value) if domain == "time" else value
        if not INT64_MIN <= at <= INT64_MAX:
            raise ArgumentError("the timestamp given to advance is outside the range of 64-bit times")
        return replace(progress, clocks=progress.clocks.moved(self._reader.ranks.index((side, source)), at))

    def _take(self, progress: Progress) -> pa.Table:
        """Take every waiting row that no source can still precede, and match it."""
        frontier = progress.clocks.frontier()
        if frontier is None or self._args.time is None:
            return self._commit(progress, {})
        rows, waiting = progress.waiting.take(frontier, self._reader.first_rank())
        fresh = {side: tuples for side, tuples in rows.items() if tuples is not None}
        return self._commit(progress.with_waiting(waiting), fresh, self._reader.interleaved(fresh))

    def _commit(self, progress: Progress, fresh: dict[Side, Tuples], order: Order | None = None) -> pa.Table:
        """Match the taken tuples and adopt the new progress; on any error restore the previous state."""
        if self._args.time is not None:  # otherwise no row waits
            self._check_pending(progress)
        codes = self._reader.codes
        due = codes.due
        self._working = True
        try:
            self._engine.evict(self._progress, always=due)
            if due:
                self._engine.sweep(codes, progress, fresh)
            return self._match(progress, fresh, order)
        finally:
            self._working = False

    def _match(self, progress: Progress, fresh: dict[Side, Tuples], order: Order | None) -> pa.Table:
        before = self._progress
        marks = self._engine.marks()
        self._undo_to = marks
        try:
            taken = self._engine.extend(progress, before.scale, fresh, order)
            result, pairs = self._engine.results(progress, taken)
            totals = progress.totals.plus(pairs=pairs) if pairs else progress.totals
            extents = None if self._args.time is None else self._engine.extents()
            adopted = progress.after_batch(progress.clocks, progress.seqs, totals, extents)
            self._progress, self._undo_to, self._unreturned = adopted, None, result
        except BaseException:
            self._repair()
            raise
        if totals.late != before.totals.late:
            log.info("join: dropped %s late rows in one call", totals.late - before.totals.late)
        return result

    def _check_pending(self, progress: Progress) -> None:
        """Raise a `StateError` if more than `max_pending` rows would wait."""
        waiting = len(progress.waiting)
        if waiting > self._args.max_pending:
            side, source = self._reader.ranks[progress.clocks.slowest_source()]
            raise StateError(
                f"{waiting} rows would wait for source {source} of side {side!r}, which is behind all others; "
                f"max_pending={self._args.max_pending}: push to it, or advance({side!r}, ts, source={source})"
            )

    def _load(self, manifest: bytes, runs: Mapping[str, bytes]) -> None:
        """Load a stored state into a new join."""
        stored = read_state(manifest, runs, self._arguments())
        self._progress = load_snapshot(stored, self._reader, self._engine, self._progress)
        self._writer = StateWriter(stored.names())
