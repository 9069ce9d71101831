"""`mr.WindowJoin`: joins two streams on any order condition within a sliding window.

Most calls are those of every join of streams (`join_parts/stream_join.py`); tuples are matched by an index
(`join_parts/window_engine.py`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from millrace.host.base.errors import ArgumentError
from millrace.host.base.types import Side
from millrace.host.planner.explanation import Explanation
from millrace.host.planner.tune import TuneResult
from millrace.ingest.arguments import (
    MAX_PENDING,
    GivenWindowArguments,
    WindowArguments,
    parse_arrival,
    parse_window_arguments,
)
from millrace.ingest.checks import positive_number
from millrace.ingest.choices import Fallback, IndexName, Output
from millrace.ingest.tables import as_table
from millrace.join_parts.batch_reader import Progress, WindowReader
from millrace.join_parts.reporting import describe_join, explain_join
from millrace.join_parts.short_push import PlainRows, ShortPush
from millrace.join_parts.stream_join import StreamJoin
from millrace.join_parts.window_engine import WindowEngine


class WindowJoin(StreamJoin):
    """A stream join on an order condition, within a sliding window.

    >>> import millrace as mr, pyarrow as pa
    >>> j = mr.WindowJoin(on="abs(r.x - s.x) <= 5", window="1000 rows")
    >>> j.push("r", pa.table({"x": [10, 50]})).num_rows
    0
    >>> j.push("s", pa.table({"x": [12, 99, 46]})).to_pydict()
    {'r_seq': [0, 1], 's_seq': [0, 2], 'r_x': [10, 50], 's_x': [12, 46]}

    Calls from several threads are serialised. Leaving a `with` block frees the devices without flushing.

    Args:
        on: A SQL condition over r and s, such as `"abs(r.x - s.x) <= 5 AND r.site = s.site"`.
        window (str | timedelta | int | tuple): What a new row meets: `"N rows"`, a length of time such as `"10
            minutes"`, or a pair of either (r's window, s's window).
        time (str | tuple[str, str] | None): The time column, or a pair (r's, s's): a timestamp, a date or an integer.
            Needed for a window of time and for several sources.
        lateness (str | timedelta | int): How far a row may be below the largest time that its source has pushed: a
            length of time, or a number if the times are integers. Older rows are dropped and counted.
        sources: How many sources each side has, such as `{"r": 3, "s": 2}`; None is one each. At most 2^20.
        self_join: One stream, pushed as `"r"`, plays both sides; a row is never its own partner.
        index: `"auto"`, `"bisort"`, `"rap"`, `"wib"`, `"spo"`, `"pim"`, `"im"`, `"chain"`, `"btree"` or `"scan"`. It
            changes speed and memory, never the result.
        device: `"cpu"`, `"opencl[:i]"`, `"cuda[:i]"`, `"rtl"`, `"hls"`, `"fpga:<card>"`, or `"auto"`: the CPU, unless
            `millrace calibrate` found another real device faster on this machine.
        threads: The most threads of a call, 1 to 1,024; None is one per core.
        output: `"pairs"`, `"seqs"` (no payload) or `"count"` (one row per tuple with the number of pairs it
            completes).
        max_pending: The most rows that may wait for a silent source.
        schemas (Mapping[str, pyarrow.Schema] | None): The schema of a side, or of both, known before its first batch.
            Batches are then cast where no value changes.
        fallback: `"cpu"` continues there after a `DeviceFault`, with nothing lost or repeated; None raises the fault.
        options: Options of the index by name, such as `{"merge_ratio": 0.25}` (see "Indexes" in the reference of
            conditions and windows); they change speed, never the result.

    Raises:
        PredicateError: `on` is no condition that Millrace can decide; the message points at the place.
        ArgumentError: An argument is not allowed; the message says what is.
        DeviceUnavailable: The device cannot be used, or cannot run this; the message says what can.
    """

    _args: WindowArguments
    _engine: WindowEngine

    def __init__(
        self,
        on: str,
        *,
        window: Any,
        time: str | tuple[str, str] | None = None,
        lateness: Any = 0,
        sources: Mapping[str, int] | None = None,
        self_join: bool = False,
        index: IndexName = "auto",
        device: str = "auto",
        threads: int | None = None,
        output: Output = "pairs",
        max_pending: int = MAX_PENDING,
        schemas: Mapping[str, Any] | None = None,
        fallback: Fallback | None = None,
        options: Mapping[str, int | float | str] | None = None,
    ) -> None:
        """Check all arguments and open the device; no data is needed yet."""
        given = GivenWindowArguments(
            on=on,
            window=window,
            time=time,
            lateness=lateness,
            sources=sources,
            self_join=self_join,
            index=index,
            device=device,
            threads=threads,
            output=output,
            max_pending=max_pending,
            fallback=fallback,
            options=options,
        )
        args = parse_window_arguments(given)
        super().__init__(args, WindowReader(args), WindowEngine(args), schemas)

    def push_both(self, r_batch: Any, s_batch: Any, arrival: Any) -> pa.Table:
        """Add rows of both sides as one-row pushes, in the order of `arrival` (0: next r row, 1: next s row).

        Args:
            r_batch (pyarrow.Table or the like): The rows of r.
            s_batch (pyarrow.Table or the like): The rows of s.
            arrival (array of uint8): One number per row of both: 0 takes the next r row, 1 the next s row.

        Raises:
            ArgumentError: `arrival` does not fit the batches, or the join is a self-join.
            SchemaError: The columns or types differ from earlier batches.
            StateError: The join is closed.
        """
        with self._calls.exclusive():
            self._begin("r", 0)
            if self._args.self_join:
                raise ArgumentError("push_both is for two streams; a self-join has one: use push('r', batch)")
            tables = {
                "r": self._fitted("r", as_table(r_batch, "r_batch")),
                "s": self._fitted("s", as_table(s_batch, "s_batch")),
            }
            order = parse_arrival(arrival, tables["r"].num_rows, tables["s"].num_rows)
            progress, r = self._reader.read(self._progress, "r", tables["r"], 0)
            if self._args.time is None:
                progress, s = self._reader.read(progress, "s", tables["s"], 0)
                result = self._commit(progress, {"r": r, "s": s}, order)
            else:
                # Queue r's rows before reading s: if s has a finer time unit, the queued rows are rescaled too.
                progress = progress.with_waiting(progress.waiting.push("r", r))
                progress, s = self._reader.read(progress, "s", tables["s"], 0)
                result = self._take(progress.with_waiting(progress.waiting.push("s", s)))
        if self._unreturned is result:
            self._unreturned = None
        return result

    def _push_few(self, side: Side, batch: Any) -> pa.Table | None:
        """Push few plain rows the short way (`short_push.py`); None if it does not suit."""
        progress, engine = self._progress, self._engine
        way = engine.short_push(progress, side)
        if way is None or type(batch) is not pa.Table or self._reader.codes.due:
            return None
        rows = way.read(batch, engine.windows[side].end)
        if rows is None:
            return None
        team = engine.team
        team.acquire(batch.num_rows)
        self._working = True
        try:
            return self._match_few(progress, way, rows)
        finally:
            self._working = False
            team.depth -= 1

    def _match_few(self, progress: Progress, way: ShortPush, rows: PlainRows) -> pa.Table | None:
        """The steps of `_commit` and `_match` for few rows."""
        engine = self._engine
        engine.evict(progress, always=False)
        marks = engine.marks()
        self._undo_to = marks
        try:
            count = len(rows.values)
            if not way.matcher.is_ready_for_few(way.side, count):
                self._undo_to = None
                return None
            seq = progress.seqs[way.side, 0]
            result, pairs = engine.push_few(progress, way, rows, seq)
            totals = progress.totals.plus(pairs=pairs) if pairs else progress.totals
            seqs = {**progress.seqs, (way.side, 0): seq + count}
            adopted = progress.after_batch(progress.clocks, seqs, totals)
            self._progress, self._undo_to, self._unreturned = adopted, None, result
        except BaseException:
            self._repair()
            raise
        return result

    def tune(self, seconds: float = 0.3) -> TuneResult:
        """Measure every index on what the windows hold, and go on with the fastest; output never changes.

        Replays the rows held in batches of the recent size, about `seconds` per index, plus the time to build it. A
        failure changes nothing. A restored join begins with its `index` argument again.

        >>> import millrace as mr, pyarrow as pa
        >>> j = mr.WindowJoin(on="abs(r.x - s.x) <= 5", window="1000 rows")
        >>> _ = j.push("r", pa.table({"x": [10, 50]})), j.push("s", pa.table({"x": [12, 99, 46]}))
        >>> j.tune(seconds=0.01).index == j.stats["index"]
        True

        Args:
            seconds: The time per index, in seconds; above 0.

        Raises:
            ArgumentError: `seconds` is not above 0.
            StateError: The join is closed.
        """
        number = positive_number("seconds", seconds)
        with self._calls.exclusive():
            self._begin("r", 0)
            self._engine.evict(self._progress)
            result = self._unreturned = self._engine.tune(self._progress, number)
        if self._unreturned is result:
            self._unreturned = None
        return result

    def explain(self) -> Explanation:
        """The logical plan, the index and the device in use, and the reasons for them."""
        return explain_join(self._args, self._engine, self._progress)

    def __repr__(self) -> str:
        """Condition, window, index, device and row counts."""
        return describe_join(self._args, self.stats)

    def _title(self) -> str:
        return f"WindowJoin on {self._args.condition.text}"
