"""`mr.ScaleGate`: merges the rows of many sources into one order for many readers.

ScaleJoin, section IV, as corrected: the order is (timestamp, source, seq), and a row is ready once the clocks say that
no source can still come before it. The compiled gate (`host/stream/scalegate_kernel.py`) merges times. Rows are
gathered once, in Arrow, for all readers; a reader gets slices. Calls from several threads are serialised.
"""

from __future__ import annotations

from typing import Any, Literal, NoReturn

import numpy as np
import pyarrow as pa

from millrace.host.base.errors import ArgumentError, SchemaError, StateError
from millrace.host.base.faults import fault_point
from millrace.host.base.html import html_table
from millrace.host.base.words import KeyType, all_true, count_true, native
from millrace.host.data.chunk_gathering import gather_rows
from millrace.host.data.rowstore import RowStore
from millrace.host.data.timescale import TimeScale
from millrace.host.expr.exact import INT64_MAX, INT64_MIN
from millrace.host.runtime import pool
from millrace.host.runtime.call_lock import CallLock
from millrace.host.runtime.team import Team
from millrace.host.stream.intake import time_type
from millrace.host.stream.scalegate import Gate, Inbox
from millrace.host.stream.scalegate_kernel import SourceWords
from millrace.ingest.arguments import MAX_PENDING
from millrace.ingest.checks import integer_at_least
from millrace.ingest.instants import Instant, parse_instant
from millrace.ingest.tables import as_table, check_schema
from millrace.stats import GateStats

MAX_MEMBERS = 1 << 16
"""The most sources, and the most readers, of a gate."""
INBOX_ROWS = 1 << 16
"""Rows merged and gathered at a time."""
_HEAD = pa.schema([("source", pa.int32()), ("seq", pa.int64())])


class ScaleGate:
    """Merges the rows of many sources, each in time order, for many readers; every reader gets all rows.

    >>> import millrace as mr, pyarrow as pa
    >>> gate = mr.ScaleGate(sources=2, readers=1, time="ts")
    >>> gate.add(0, pa.table({"ts": [1, 4, 9]}))
    >>> gate.add(1, pa.table({"ts": [2, 4]}))
    >>> gate.ready(0).to_pydict()
    {'source': [0, 1, 0, 1], 'seq': [0, 0, 1, 1], 'ts': [1, 2, 4, 4]}
    >>> gate.close(1)
    >>> gate.ready(0)["ts"].to_pylist()
    [9]

    A source's clock is the largest time it has added or been advanced to. Calls from several threads are serialised.

    Args:
        sources: How many sources there are; their numbers start at 0.
        readers: How many readers there are; each gets all rows.
        time: The time column: a timestamp, a date or an integer.
        capacity: The most rows that are kept for the slowest reader.

    Raises:
        ArgumentError: A number is below 1, or `time` is no name.
    """

    def __init__(self, *, sources: int, readers: int, time: str, capacity: int = MAX_PENDING) -> None:
        """An empty gate; the first batch fixes the columns of all sources."""
        self._sources = integer_at_least("sources", sources, 1, MAX_MEMBERS)
        self._readers = integer_at_least("readers", readers, 1, MAX_MEMBERS)
        self._capacity = integer_at_least("capacity", capacity, 1)
        if not isinstance(time, str):
            raise ArgumentError(f"time={time!r}: must be the name of the time column")
        self._time = time
        self._calls = CallLock("gate")
        self._gate = Gate(self._sources, readers=1)
        self._team = Team(pool.cores())
        self._inbox = Inbox(INBOX_ROWS)
        self._stores = [RowStore() for _ in range(self._sources)]
        """Rows that are not merged yet, by source; row n of a source is its n-th that was kept."""
        self._merged = RowStore()
        """Rows in order that the slowest reader has not got yet."""
        self._merged_rows = 0
        self._read = [0] * self._readers
        self._unreturned: pa.Table | None = None
        """What `ready` has taken and not returned yet."""
        self._adding: tuple[int, int] | None = None
        """While `add` is at work: its source, and how many rows that had before."""
        self._schema: pa.Schema | None = None
        self._kind: KeyType | None = None
        self._early: list[tuple[int, Instant]] = []
        """What `advance` was given before the first batch, when the unit of the time column was not known."""

    # --- sources ---

    def add(self, src: int, batch: Any) -> None:
        """Add rows of a source; rows below its clock, or without a time, are dropped and counted.

        Args:
            src: The number of the source, from 0.
            batch (pyarrow.Table or the like): The rows to add.

        Raises:
            SchemaError: The columns or types differ from the first batch, or a column is named `source` or `seq`.
            StateError: The source is closed, or more than `capacity` rows would be kept; nothing is added.
            ArgumentError: There is no such source, or `batch` is no table.
        """
        with self._calls.exclusive():
            source = self._open_source(src)
            table = as_table(batch, f"the batch of source {source}")
            kind = self._check_columns(table, source)
            values, valid = native(table.column(self._time), kind)
            times = TimeScale(kind.ns, kind.ns).times(values, kind, f"source {source}.{self._time}")
            known = None if all_true(valid) else np.ascontiguousarray(valid)
            kept, count = self._gate.screen(source, times, known)
            self._check_capacity(count)
            self._fix_schema(table.schema, kind)
            words, store = self._gate.of_source(source), self._stores[source]
            end = int(words[SourceWords.END])
            seq = np.arange(table.num_rows) + words[SourceWords.ROWS]
            rows = table.add_column(0, "seq", pa.array(seq))
            store.truncate(end)  # rows of a call that an interrupt ended before the next line but one
            store.append(end, rows if count == len(kept) else rows.filter(pa.array(kept.view(np.bool_))))
            fault_point("gate.add")
            self._adding = source, int(words[SourceWords.ROWS])
            self._gate.append(source, times, kept, count, len(valid) - count_true(valid))
        self._adding = None

    def advance(self, src: int, ts: Any) -> None:
        """Declare that a source adds nothing older than `ts`; a time below its clock changes nothing.

        Args:
            src: The number of the source, from 0.
            ts (datetime | int | pyarrow.Scalar): The time, of the same kind as the time column.

        Raises:
            ArgumentError: There is no such source, or `ts` is no time of its kind.
            StateError: The source is closed.
        """
        with self._calls.exclusive():
            source = self._open_source(src)
            instant = parse_instant(ts)
            if self._kind is None:
                self._early.append((source, instant))
            else:
                self._gate.advance(source, _in_ticks(instant, self._kind))

    def close(self, src: int) -> None:
        """Declare that a source adds nothing more; it then holds nothing back. Closing it again changes nothing.

        Args:
            src: The number of the source, from 0.

        Raises:
            ArgumentError: There is no such source.
        """
        with self._calls.exclusive():
            self._gate.close(self._member("src", src, self._sources))

    # --- readers ---

    def ready(self, reader: int) -> pa.Table:
        """The rows that no source can come before any more and that this reader has not got yet, in order.

        Args:
            reader: The number of the reader, from 0.

        Raises:
            ArgumentError: There is no such reader.
        """
        with self._calls.exclusive():
            number = self._member("reader", reader, self._readers)
            self._merge()
            first = self._read[number]
            parts = [c.table.slice(max(first - c.start, 0)) for c in self._merged.chunks if c.end > first]
            result = pa.concat_tables(parts) if parts else self._output_schema().empty_table()
            read = [*self._read]
            read[number] = self._merged_rows
            self._read, self._unreturned = read, result  # one step, in which no signal comes
            self._merged.evict(min(read))
        if self._unreturned is result:
            self._unreturned = None
        return result

    def recover(self) -> pa.Table | Literal[True] | None:
        """Return the result of a call that was complete when a signal handler raised in it, once; None otherwise.

        The result of a complete `add` is `True`. `advance` and `close` can be called again.

        >>> import millrace as mr
        >>> mr.ScaleGate(sources=2, readers=1, time="ts").recover() is None
        True
        """
        with self._calls.exclusive():
            result: pa.Table | Literal[True] | None = self._unreturned
            if result is None and self._adding is not None:
                source, before = self._adding
                result = True if self._gate.of_source(source)[SourceWords.ROWS] > before else None
        self._unreturned = self._adding = None
        return result

    def _merge(self) -> None:
        """Gather all rows that are ready, in order, behind those of earlier calls."""
        while True:
            inbox = self._inbox
            if not len(inbox):
                self._gate.read(0, inbox)
            if not len(inbox):
                return
            used = np.flatnonzero(np.bincount(inbox.sources)).tolist()
            if inbox.first == self._merged_rows:  # otherwise an interrupt came between the lines below
                self._merged.truncate(inbox.first)
                fault_point("gate.merge")
                self._merged.append(inbox.first, self._gathered(inbox, used))
                self._merged_rows = inbox.first + len(inbox)
            inbox.clear()
            for source in used:
                self._stores[source].evict(int(self._gate.of_source(source)[SourceWords.BEGIN]))
            self._gate.shrink()

    def _gathered(self, inbox: Inbox, used: list[int]) -> pa.Table:
        """The rows of merged tuples, which come from the sources `used`, with their source in front."""
        sources, rows = inbox.sources, inbox.words.copy()
        shift = np.zeros(self._sources, np.int64)
        held, together = 0, RowStore()
        for source in used:
            chunks = self._stores[source].chunks
            shift[source] = held - chunks[0].start
            for chunk in chunks:
                together.append(held, chunk.table)
                held += chunk.table.num_rows
        rows += shift[sources]
        self._team.acquire(len(rows))
        try:
            columns = gather_rows(together, rows, self._team)
        finally:
            self._team.depth -= 1
        return pa.Table.from_arrays([pa.array(sources.astype(np.int32)), *columns], schema=self._output_schema())

    @property
    def stats(self) -> GateStats:
        """Rows added, dropped, waiting and read so far."""
        with self._calls.exclusive():
            gate = self._gate
            return GateStats(
                rows=gate.total(SourceWords.ROWS),
                late=gate.total(SourceWords.LATE_ROWS),
                null_times=gate.total(SourceWords.NULL_ROWS),
                pending=gate.waiting,
                held=gate.total(SourceWords.END) - min(self._read),
                read=tuple(self._read),
                open_sources=sum(not gate.is_closed(source) for source in range(self._sources)),
                slowest_source=gate.slowest_source(),
            )

    def __reduce__(self) -> NoReturn:
        raise StateError("a ScaleGate cannot be copied or pickled: its rows belong to one process; make another gate")

    def __repr__(self) -> str:
        """Sources, readers and row counts."""
        stats = self.stats
        return f"ScaleGate({self._sources} sources, {self._readers} readers, {stats.rows} rows, {stats.held} held)"

    def _repr_html_(self) -> str:
        return html_table(self.stats.to_dict().items(), caption="ScaleGate")

    # --- checks ---

    def _member(self, name: str, given: Any, count: int) -> int:
        if isinstance(given, bool) or not isinstance(given, int | np.integer) or not 0 <= given < count:
            kind = "sources" if name == "src" else "readers"
            raise ArgumentError(f"{name}={given!r}: this gate has {count} {kind}, numbered from 0")
        return int(given)

    def _open_source(self, src: Any) -> int:
        source = self._member("src", src, self._sources)
        if self._gate.is_closed(source):
            raise StateError(f"source {source} is closed: it can add no more rows and has no clock")
        return source

    def _check_columns(self, table: pa.Table, source: int) -> KeyType:
        """Check the columns of a batch; return the type of the time column."""
        if self._schema is not None and self._kind is not None:
            check_schema(table, self._schema, f"source {source}", "a gate")
            return self._kind
        clash = sorted(set(table.column_names) & set(_HEAD.names))
        if clash:
            raise SchemaError(
                f"the rows of source {source} have a column named {' and '.join(clash)}, but ready() puts columns of "
                f"these names in front: rename yours"
            )
        kind = time_type(f"source {source}", self._time, table.schema)
        for _, instant in self._early:
            _in_ticks(instant, kind)
        return kind

    def _fix_schema(self, schema: pa.Schema, kind: KeyType) -> None:
        """Keep the columns of the first batch; apply what `advance` was given before it."""
        if self._schema is None:
            for source, instant in self._early:
                self._gate.advance(source, _in_ticks(instant, kind))
            self._schema, self._kind, self._early = schema, kind, []

    def _output_schema(self) -> pa.Schema:
        return _HEAD if self._schema is None else pa.schema([*_HEAD, *self._schema])

    def _check_capacity(self, count: int) -> None:
        slowest = min(self._read)
        held = self._gate.total(SourceWords.END) - slowest + count
        if held <= self._capacity:
            return
        waits, source = self._gate.waiting, self._gate.slowest_source()
        held_back = f", {waits} of them because source {source} is behind all others" if waits else ""
        raise StateError(
            f"{held} rows would be kept for reader {self._read.index(slowest)}{held_back}; capacity={self._capacity}: "
            f"call ready({self._read.index(slowest)}) more often, advance or close the source that is behind, or give "
            f"a larger capacity"
        )


def _in_ticks(instant: Instant, kind: KeyType) -> int:
    """A point in time in the unit of the time column; between two ticks it is the later one, since none is between."""
    value, domain, zoned = instant
    if (domain == "time") != (kind.domain == "time") or zoned != kind.zoned:
        given = "an integer" if domain == "int" else "a time with a zone" if zoned else "a time without a zone"
        raise ArgumentError(f"advance was given {given}, but the time column is {kind.name}: give a time of its kind")
    ticks = value if domain == "int" else -(-value // kind.ns)
    if not INT64_MIN <= ticks <= INT64_MAX:
        raise ArgumentError("the timestamp given to advance is outside the range of 64-bit times")
    return ticks
