"""`mr.LiveJoin`: joins streams whose rows come one by one or in batches, from several threads, and are polled for.

Callers put rows into a queue (`host/live/task_queue.py`). A worker thread takes all that wait, as one step, and pushes
them into a window join; a few rows that find it idle are pushed by the caller itself. So the output is that of a
`WindowJoin` which gets the rows in the order in which `put` took them, and steps grow with the load: few rows give low
latency, many give throughput.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields, replace
from functools import partial
from types import TracebackType
from typing import Any, NoReturn

import numpy as np
import pyarrow as pa

from millrace.host.base.errors import ArgumentError, DeviceUnavailable, StateError
from millrace.host.base.html import html_table
from millrace.host.base.types import Side
from millrace.host.live.task_queue import Task, TaskQueue, is_main
from millrace.host.live.worker import FEW_ROWS, LiveWorker
from millrace.host.planner.explanation import Explanation
from millrace.ingest.arguments import MAX_PENDING
from millrace.ingest.checks import integer_at_least
from millrace.ingest.choices import Fallback, IndexName, Output
from millrace.ingest.rows import RowReader
from millrace.join_parts import output as out
from millrace.state.join_state import StateDelta
from millrace.state.live_state import LiveStateWriter, StoredLiveState, read_live_state
from millrace.stats import JoinStats, LiveStats
from millrace.window_join import WindowJoin

CAPACITY = 1 << 20
CLOSED = "the live join is closed: make a new one to put more rows"
LEFT = "the live join was left: make a new one to put more rows"
PERCENTILES = {"p50": 50.0, "p90": 90.0, "p99": 99.0, "p999": 99.9, "max": 100.0}
Rows = tuple[Side, int, pa.Table]
"""Side, source and rows of one `put`."""


class LiveJoin:
    """A stream join that is fed and polled at any time, from any thread.

    >>> import millrace as mr, pyarrow as pa
    >>> schema = pa.schema([("x", pa.int64())])
    >>> live = mr.LiveJoin("abs(r.x - s.x) <= 5", window="1000 rows", schemas={"r": schema, "s": schema})
    >>> live.put("r", {"x": 10}), live.put("s", pa.table({"x": [99, 12]}))
    (0, 1)
    >>> live.flush().to_pydict()
    {'r_seq': [0], 's_seq': [1], 'r_x': [10], 's_x': [12]}
    >>> live.close().num_rows
    0

    Args:
        on: A SQL condition over r and s, such as `"abs(r.x - s.x) <= 5 AND r.site = s.site"`.
        window (str | timedelta | int | tuple): What a new row meets: `"N rows"`, a length of time such as `"10
            minutes"`, or a pair of either (r's window, s's window).
        schemas (Mapping[str, pyarrow.Schema]): The schema of every side. Rows are cast where no value changes.
        time (str | tuple[str, str] | None): The time column, or a pair (r's, s's): a timestamp, a date or an integer.
            Needed for a window of time and for several sources.
        lateness (str | timedelta | int): How far a row may be below the largest time that its source has pushed: a
            length of time, or a number if the times are integers. Older rows are dropped and counted.
        sources: How many sources each side has, such as `{"r": 3, "s": 2}`; None is one each. At most 2^20.
        self_join: One stream, pushed as `"r"`, plays both sides; a row is never its own partner.
        index: `"auto"`, `"bisort"`, `"rap"`, `"wib"`, `"spo"`, `"pim"`, `"im"`, `"chain"`, `"btree"` or `"scan"`. It
            changes speed and memory, never the result.
        device: `"cpu"` or `"auto"`: live joins run on the CPU.
        threads: The most threads that match rows, 1 to 1,024; None is one per core.
        output: `"pairs"`, `"seqs"` (no payload) or `"count"` (one row per tuple with the number of pairs it
            completes).
        max_pending: The most rows that may wait for a silent source.
        fallback: `"cpu"` continues there after a `DeviceFault`, with nothing lost or repeated; None raises the fault.
        options: Options of the index by name, such as `{"merge_ratio": 0.25}` (see "Indexes" in the reference of
            conditions and windows); they change speed, never the result.
        capacity: How many rows may wait to be matched, and how many rows of results to be polled.

    Raises:
        PredicateError: `on` is no condition that Millrace can decide; the message points at the place.
        ArgumentError: An argument is not allowed; the message says what is.
        DeviceUnavailable: The device cannot be used, or cannot run this; the message says what can.
    """

    def __init__(
        self,
        on: str,
        *,
        window: Any,
        schemas: Mapping[str, Any],
        time: str | tuple[str, str] | None = None,
        lateness: Any = 0,
        sources: Mapping[str, int] | None = None,
        self_join: bool = False,
        index: IndexName = "auto",
        device: str = "auto",
        threads: int | None = None,
        output: Output = "pairs",
        max_pending: int = MAX_PENDING,
        fallback: Fallback | None = None,
        options: Mapping[str, int | float | str] | None = None,
        capacity: int = CAPACITY,
    ) -> None:
        """Check all arguments and start the worker thread."""
        room = integer_at_least("capacity", capacity, 1)
        _check_device(device)
        self._join = LiveEngine(
            on,
            window=window,
            time=time,
            lateness=lateness,
            sources=sources,
            self_join=self_join,
            index=index,
            device="cpu",
            threads=threads,
            output=output,
            max_pending=max_pending,
            schemas=schemas,
            fallback=fallback,
            options=options,
        )
        try:
            self._readers = self._join.row_readers(schemas)
        except BaseException:
            self._join.leave()
            raise
        self._writer = LiveStateWriter()
        self._unconfirmed: StateDelta | None = None
        """The last delta, until `state` returns it."""
        self._start(room, 0)

    def _start(self, capacity: int, first: int) -> None:
        self._queue: TaskQueue[Rows, pa.Table] = TaskQueue(capacity, first)
        self._worker = LiveWorker(self._queue, self._step)

    # --- public calls ---

    def put(self, side: str, batch: Any, source: int = 0, *, timeout: float | None = None) -> int:
        """Add rows of one side: a table, or one row as a mapping. Return the number of the first, over both sides.

        Args:
            side: `"r"` or `"s"`; in a self-join `"r"`.
            batch (pyarrow.Table or the like | Mapping): The rows, or one row as a mapping.
            source: The number of the side's source, from 0.
            timeout: The longest wait for room, in seconds, if `capacity` rows wait; None is no limit.

        Raises:
            StateError: There was no room in time, or the join is closed; nothing is added.
            SchemaError: A column is missing or has another type.
            ArgumentError: `side` or `source` is unknown, or `batch` is no table.
        """
        self._check_caller()
        known = self._join.check_open(side, source)
        table = self._readers[known].read(batch)
        rows = table.num_rows
        crowded = self._join.pending + self._queue.waiting + rows > self._join.max_pending
        few = rows <= FEW_ROWS
        first = self._queue.put((known, int(source), table), rows, _seconds(timeout), crowded, waking=not few)
        if few:
            self._worker.help(self._step)
        if self._queue.unreturned_first == first:
            self._queue.unreturned_first = None
        return first

    def poll(self, timeout: float | None = 0.0) -> pa.Table:
        """The results that are ready, in order, possibly none; waits up to `timeout` seconds (None: no limit) for some.

        The order of all results, over all calls, is that of `WindowJoin`.

        Args:
            timeout: The longest wait for a result, in seconds; None is no limit.

        Raises:
            StateError: The join is closed.
        """
        self._check_caller()
        tables = self._queue.poll(_seconds(timeout))
        result = self._table(tables)
        if self._queue.unreturned is tables:
            self._queue.unreturned = None
        return result

    def __iter__(self) -> Iterator[pa.Table]:
        """Tables of results, as they come, until the join is closed."""
        self._check_caller()
        while True:
            tables = self._queue.poll(None, ending=True)
            if tables:
                result = self._table(tables)
                if self._queue.unreturned is tables:
                    self._queue.unreturned = None
                yield result
            elif self._queue.closed:
                if self._queue.unreturned is tables:
                    self._queue.unreturned = None
                return

    def advance(self, side: str, ts: Any, source: int = 0) -> None:
        """Declare that a source puts nothing older than `ts` minus the lateness; see `WindowJoin.advance`.

        Args:
            side: `"r"` or `"s"`; in a self-join `"r"`.
            ts (datetime | int | pyarrow.Scalar): The time, of the same kind as the time column.
            source: The number of the side's source, from 0.

        Raises:
            ArgumentError: The join has no `time=`, or `ts` is no time of its kind.
            StateError: The join is closed.
        """
        self._check_caller()
        self._join.check_advance(side, ts, source)
        self._queue.call(partial(self._join.advance_later, side, ts, source), urgent=False, wait=False)

    def flush(self) -> pa.Table:
        """Move all clocks past the newest time, wait until all rows are matched; return the results not yet polled."""
        self._check_caller()
        self._queue.call(partial(_one_result, self._join.flush), urgent=True)
        return self._remaining()

    def close(self) -> pa.Table:
        """Flush and end: iterators end, and later calls raise a `StateError`. Return the results not yet polled."""
        self._check_caller()
        self._queue.call(partial(_one_result, self._join.close), urgent=True, closing=CLOSED)
        self._worker.stop(CLOSED)
        return self._remaining()

    def recover(self) -> pa.Table | StateDelta | int | None:
        """Return the result of a call that a signal handler has ended by raising, once, if the call took place.

        None if it did nothing. A `flush`, `close` or `state` that was asked for takes place: this waits for it. Results
        that an interrupted `poll` has taken are returned here or by the next `poll`.

        >>> import millrace as mr, pyarrow as pa
        >>> schema = pa.schema([("x", pa.int64())])
        >>> with mr.LiveJoin("r.x = s.x", window="9 rows", schemas={"r": schema, "s": schema}) as live:
        ...     live.recover() is None
        True
        """
        self._check_caller()
        queue, tables = self._queue, self._queue.unreturned
        reply, result = queue.unreturned_reply, queue.unreturned_first
        if reply is not None:
            result = queue.wait_for_reply(reply)
            if result is None and reply.done:  # a flush or close
                tables = queue.poll(0.0, ending=True) or []
            if self._unconfirmed is result:
                self._unconfirmed = None
        if result is None and tables is not None:
            result = self._table(tables)
        queue.unreturned = queue.unreturned_first = queue.unreturned_reply = None
        return result

    def _remaining(self) -> pa.Table:
        """The results not yet polled, after `flush` or `close`."""
        queue = self._queue
        tables = queue.poll(0.0, ending=True)
        result = self._table(tables)
        if queue.unreturned is tables:
            queue.unreturned = queue.unreturned_reply = None
        return result

    @property
    def stats(self) -> LiveStats:
        """The stats of the join as of the last step, rows in the queue, and latencies; waits for nothing."""
        joined = self._join.stats
        taken = list(self._queue.latencies)
        values: Sequence[float] = np.percentile(taken, list(PERCENTILES.values())).tolist() if taken else []
        return LiveStats(
            **{one.name: getattr(joined, one.name) for one in fields(JoinStats)},
            arrived=self._queue.end,
            queued=self._queue.waiting,
            unpolled=self._queue.unpolled,
            capacity=self._queue.capacity,
            latency={name: 1e6 * value for name, value in zip(PERCENTILES, values, strict=False)},
        )

    def explain(self) -> Explanation:
        """The logical plan, the index and the device in use, and the reasons for them."""
        found = self._join.explain()
        return replace(found, operator="live_join", device={**found.device, "why": "live joins run on the CPU only"})

    def state(self) -> StateDelta:
        """Wait until all rows put so far are matched; return what `restore` needs, results not yet polled included."""
        self._check_caller()
        delta: StateDelta = self._queue.call(partial(self._take_state, is_main()), urgent=True)
        if self._unconfirmed is delta:
            self._unconfirmed = None
        reply = self._queue.unreturned_reply
        if reply is not None and reply.done and reply.done[0] is delta:
            self._queue.unreturned_reply = None
        return delta

    @classmethod
    def restore(cls, manifest: bytes, runs: Mapping[str, bytes], **arguments: Any) -> LiveJoin:
        """Continue from a stored state; output, arrival numbers, clocks and stats are as without a stop.

        The arguments must be the same, except `index`, `threads`, `fallback`, `options` and `capacity`.

        Args:
            manifest: The last manifest that `state()` gave.
            runs: The runs that it names, by name; others are ignored.
            arguments (Any): The arguments of the join, as when it was made.

        Raises:
            StateError: A run is missing or altered, an argument differs, or the state is of another version.
        """
        stored = read_live_state(manifest, runs)
        live = cls(**arguments)
        try:
            live._load(stored, runs)
        except BaseException:
            live._end(LEFT)
            raise
        return live

    def __enter__(self) -> LiveJoin:
        """Use the join in a `with` statement; its end stops the worker without flushing."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop the worker. Rows not matched and results not polled are dropped, with a `ResourceWarning`."""
        if not self._worker.is_here or self._join.closed:
            return
        self._end(LEFT)
        rows, results = self._queue.waiting + self._join.pending, self._queue.unpolled
        self._queue.clear_results()
        if rows or results:
            warnings.warn(
                f"the live join was left with {rows} rows that were not matched and {results} rows of results that "
                f"were not polled: call close() for the last results",
                ResourceWarning,
                stacklevel=2,
            )

    def __reduce__(self) -> NoReturn:
        """Refuse to be pickled or copied, and say what to do instead."""
        raise StateError("a LiveJoin cannot be pickled or copied: store what state() gives and use LiveJoin.restore")

    def __repr__(self) -> str:
        """The join, and what waits."""
        waits = f"{self._queue.waiting} rows wait, {self._queue.unpolled} rows of results not polled"
        return f"<millrace LiveJoin of {self._join!r}: {waits}>"

    def _repr_html_(self) -> str:
        return html_table(self.stats.to_dict().items(), caption="LiveJoin")

    # --- internals ---

    def _check_caller(self) -> None:
        if not self._worker.is_here:
            raise StateError(
                "this live join belongs to the process that made it, and this one was forked: make a live join here"
            )
        self._queue.check_entrance()

    def _table(self, tables: Sequence[pa.Table]) -> pa.Table:
        if len(tables) == 1:
            return tables[0]
        return pa.concat_tables(tables) if tables else self._join.output_schema.empty_table()

    def _step(self, tasks: Sequence[Task[Rows]]) -> list[tuple[pa.Table, int]]:
        """Push the rows of tasks, as one atomic call; runs in the worker thread."""
        found = self._join.push_parts([task.item for task in tasks if task.item is not None])
        return [(found, found.num_rows)] if found.num_rows else []

    def _take_state(self, by_main: bool) -> tuple[list[tuple[pa.Table, int]], StateDelta]:
        """Runs in the worker thread, when all earlier tasks are done."""
        tables, arrived = self._queue.results(by_main)
        before = self._unconfirmed
        delta = self._writer.delta(self._join.state(), arrived, self._table(tables))
        # If an interrupt has kept the delta before from its caller, this one is added to it.
        self._unconfirmed = delta = delta if before is None else before.followed_by(delta)
        return [], delta

    def _load(self, stored: StoredLiveState, runs: Mapping[str, bytes]) -> None:
        """Go on from a stored state; the join is new."""
        self._worker.stop(LEFT)
        self._join.load(stored.join, runs)
        self._writer = LiveStateWriter(stored.name)
        self._start(self._queue.capacity, stored.arrived)
        if stored.pairs is not None:
            self._queue.add_results([(stored.pairs, stored.pairs.num_rows)])

    def _end(self, reason: str) -> None:
        self._worker.stop(reason)
        self._join.leave()


class LiveEngine(WindowJoin):
    """A `WindowJoin` that takes the rows of several puts as one call."""

    @property
    def pending(self) -> int:
        """Rows that wait for a source, as of the last finished call."""
        return len(self._progress.waiting)

    @property
    def max_pending(self) -> int:
        """The most rows that may wait for a source."""
        return self._args.max_pending

    @property
    def closed(self) -> bool:
        """Whether the join is closed."""
        return self._progress.closed

    @property
    def output_schema(self) -> pa.Schema:
        """The schema of results."""
        return out.COUNT_SCHEMA if self._args.output == "count" else self._progress.pair_schema

    def row_readers(self, schemas: Mapping[str, Any]) -> dict[Side, RowReader]:
        """A reader of rows for each side; all schemas must be known."""
        missing = [side for side in self._args.sides if side not in self._given_schemas]
        if missing:
            raise ArgumentError(
                f"schemas={schemas!r} lacks {' and '.join(map(repr, missing))}: a live join needs the schema of every "
                f"side from the start"
            )
        return {side: RowReader(schema, side) for side, schema in self._given_schemas.items()}

    def check_open(self, side: Any, source: Any) -> Side:
        """Check that the join is open, and the arguments of a call."""
        return self._check(side, source)

    def push_parts(self, parts: Sequence[Rows]) -> pa.Table:
        """Push the rows of several puts in order, as one atomic call."""
        with self._calls.exclusive():
            self._repair()
            short = self._push_few(parts[0][0], parts[0][2]) if len(parts) == 1 else None
            result = self._push_parts(parts) if short is None else short
        if self._unreturned is result:
            self._unreturned = None
        return result

    def _push_parts(self, parts: Sequence[Rows]) -> pa.Table:
        """The same for rows that are not few and plain, or of several puts."""
        order = None if len(parts) < 2 else [(0 if side == "r" else 1, rows.num_rows) for side, _, rows in parts]
        tables: dict[tuple[Side, int], list[pa.Table]] = {}
        for side, source, rows in parts:
            tables.setdefault((side, source), []).append(rows)
        team = self._engine.team
        team.acquire(sum(rows.num_rows for _, _, rows in parts))
        try:
            progress, fresh = self._progress, {}
            for (side, source), some in tables.items():
                # In one piece: kernels gather payload from whole columns only.
                table = some[0] if len(some) == 1 else pa.concat_tables(some).combine_chunks()
                progress, tuples = self._reader.read(progress, side, table, source)
                if self._args.time is None:
                    fresh[side] = tuples
                else:
                    progress = progress.with_waiting(progress.waiting.push(side, tuples))
            if self._args.time is not None:
                return self._take(progress)
            sides = None
            if order is not None and len(fresh) == 2:
                kinds, counts = np.array(order).T
                sides = np.repeat(kinds.astype(np.uint8), counts)
            return self._commit(progress, fresh, sides)
        finally:
            team.depth -= 1

    def check_advance(self, side: Any, ts: Any, source: Any) -> None:
        """Check the arguments of `advance` without changing anything."""
        self._advanced(self._check(side, source), ts, source)

    def advance_later(self, side: str, ts: Any, source: int) -> tuple[list[tuple[pa.Table, int]], None]:
        """Advance, for the worker thread: the results and nothing to return."""
        return _one_result(partial(self.advance, side, ts, source))

    def load(self, manifest: bytes, runs: Mapping[str, bytes]) -> None:
        """Load a stored state into this new join."""
        self._load(manifest, runs)

    def leave(self) -> None:
        """Free what the join holds, without flushing."""
        with self._calls.exclusive():
            self._repair()
            self._end()


def _one_result(work: Any) -> tuple[list[tuple[pa.Table, int]], None]:
    """The result of a call for the queue."""
    found = work()
    return ([(found, found.num_rows)] if found.num_rows else []), None


def _check_device(device: Any) -> None:
    if device not in ("auto", "cpu"):
        raise DeviceUnavailable(f"device={device!r}: live joins run on the CPU only; allowed are 'auto' and 'cpu'")


def _seconds(timeout: Any) -> float | None:
    """A `timeout` argument."""
    number = isinstance(timeout, int | float | np.integer | np.floating) and not isinstance(timeout, bool)
    if timeout is not None and not (number and timeout >= 0):
        raise ArgumentError(f"timeout={timeout!r}: must be a number of seconds of at least 0, or None for no limit")
    # Longer waits overflow the system's clock.
    return None if timeout is None else min(float(timeout), 1e6)
