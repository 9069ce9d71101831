"""The state of one shard of a streaming join: a manifest, and immutable runs of rows named by their content.

The layout is that of `mr.WindowJoin.state`, without order: a `WindowJoin` processes rows in time order and holds the
newest back until the clocks pass them, but a Spark query must output their pairs at once. A run is an Arrow IPC stream
of a side's rows. The manifest (`state/manifest.py`) names the runs with their time spans, and the arguments of the
join. Names begin with a running number, so that equal rows of two batches are two runs. Runs are PanJoin's subwindows
(III-A): they are added, never changed, and dropped as a unit when no row can match them any more. Four small runs are
merged into one as long as the result spans at most a quarter of the window: so a row is written about
`1 + log4(window / batch / 4)` times, and there are few runs to search.
"""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import pyarrow as pa

from millrace.errors import StateError
from millrace.join_parts.condition_texts import same_meaning
from millrace.spark.stream.plan import Flags
from millrace.state.manifest import check_same, seal, unseal

KIND, FORMAT = "millrace_stream", 2
"""The version of this layout; a checkpoint of another version is refused."""
MERGED = 4
"""Runs of one level that are merged into one of the next."""
WINDOW_PARTS = 4
"""A merged run spans at most one such part of the window, so that its rows expire without much delay."""
MAX_ROWS = 1 << 20
"""Maximum rows of a run."""
_END_OF_STREAM = b"\xff\xff\xff\xff\0\0\0\0"


@dataclass(frozen=True)
class StoredRun:
    """A run in the manifest: its name, side, number of rows, time span, how often it was merged, and its bytes.

    Manifests of earlier versions do not say the bytes: they count as 0.
    """

    name: str
    side: str
    rows: int
    low: int
    high: int
    level: int = 0
    size: int = 0

    @property
    def span(self) -> tuple[int, int]:
        """The times of the oldest and the newest row."""
        return self.low, self.high


@dataclass(frozen=True)
class Manifest:
    """The runs of a shard. `owner`: identifies the shard in caches; `timer`: when the next run is dead."""

    arguments: dict[str, str]
    runs: tuple[StoredRun, ...] = ()
    number: int = 0
    timer: int | None = None
    owner: str = field(default_factory=lambda: uuid.uuid4().hex)

    def of(self, side: str) -> tuple[StoredRun, ...]:
        """A side's runs."""
        return tuple(run for run in self.runs if run.side == side)

    def names(self) -> frozenset[str]:
        """The names of all runs."""
        return frozenset(run.name for run in self.runs)

    def with_run(
        self, side: str, data: bytes, rows: int, span: tuple[int, int], level: int
    ) -> tuple[Manifest, StoredRun]:
        """A manifest with one more run, whose content is `data`; and that run."""
        name = f"{self.number}-{hashlib.sha256(data).hexdigest()[:32]}"
        run = StoredRun(name, side, rows, *span, level, len(data))
        return replace(self, runs=(*self.runs, run), number=self.number + 1), run

    def without(self, gone: tuple[StoredRun, ...]) -> Manifest:
        """A manifest without the runs `gone`."""
        return replace(self, runs=tuple(run for run in self.runs if run not in gone))

    def pack(self) -> bytes:
        """The bytes to store."""
        return seal(KIND, FORMAT, {**asdict(self), "runs": [asdict(run) for run in self.runs]})


def read_manifest(stored: bytes | None, arguments: dict[str, str]) -> Manifest:
    """The manifest of a shard, or a new one if none is stored; one of another join is a `StateError`."""
    if stored is None:
        return Manifest(arguments)
    try:
        content = unseal(KIND, FORMAT, stored)
        before = content["arguments"]
        texts = before.get("on", ""), arguments.get("on", "")
        if texts[0] != texts[1] and same_meaning(*texts):
            before = {**before, "on": texts[1]}
        check_same(before, arguments)
    except StateError as error:
        raise StateError(
            f"cannot continue from this checkpoint: {error}. Call ms.window_join as before, or start with a new "
            f"checkpoint location"
        ) from error
    runs = tuple(StoredRun(**run) for run in content.pop("runs"))
    return Manifest(**content, runs=runs)


def check_run(run: StoredRun, data: bytes | None) -> bytes:
    """Check a run's bytes from the state store against its name."""
    if data is None:
        raise StateError(f"the run {run.name} that the manifest names is missing from the checkpoint")
    if hashlib.sha256(data).hexdigest()[:32] != run.name.partition("-")[2]:
        raise StateError(f"the run {run.name} was altered: its content does not match its name")
    return data


@dataclass(frozen=True)
class EncodedRows:
    """Rows and their bytes: one Arrow IPC message, without a schema. Rows are encoded once, before they travel."""

    rows: pa.RecordBatch
    message: pa.Buffer

    @staticmethod
    def of(rows: pa.RecordBatch) -> EncodedRows:
        """Encode rows."""
        return EncodedRows(rows, rows.serialize())

    def kept(self, flags: Flags) -> EncodedRows:
        """The flagged rows; the same bytes if that is all of them."""
        return self if flags.all() else EncodedRows.of(self.rows.filter(pa.array(flags)))


def decode_rows(data: Any, schema: pa.Schema) -> tuple[EncodedRows, ...]:
    """The rows of several messages, one after the other, without a copy."""
    buffer, found = pa.py_buffer(data), []
    reader, start = pa.BufferReader(buffer), 0
    while start < buffer.size:
        rows = pa.ipc.read_record_batch(pa.ipc.read_message(reader), schema)
        found.append(EncodedRows(rows, buffer.slice(start, reader.tell() - start)))
        start = reader.tell()
    return tuple(found)


def run_bytes(schema: pa.Schema, parts: Iterable[EncodedRows]) -> bytes:
    """A run of encoded rows: an Arrow IPC stream."""
    return b"".join([schema.serialize(), *(part.message for part in parts if part.rows.num_rows), _END_OF_STREAM])


def pack_rows(table: pa.Table) -> bytes:
    """Rows as an Arrow IPC stream."""
    sink = pa.BufferOutputStream()
    write_rows(table, sink)
    packed: bytes = sink.getvalue().to_pybytes()
    return packed


def write_rows(table: pa.Table, sink: Any) -> None:
    """Write rows to a file as an Arrow IPC stream."""
    with pa.ipc.new_stream(sink, table.schema) as stream:
        stream.write_table(table)


def unpack_rows(data: Any) -> pa.Table:
    """The rows of an Arrow IPC stream, without a copy."""
    return pa.ipc.open_stream(pa.py_buffer(data)).read_all()


def to_merge(runs: tuple[StoredRun, ...], window: int, max_bytes: int) -> Iterator[tuple[StoredRun, ...]]:
    """Groups of a side's runs to merge into one run each, of at most `max_bytes`; a run is in at most one group."""
    levels: dict[int, list[StoredRun]] = {}
    for run in sorted(runs, key=lambda one: one.low):
        levels.setdefault(run.level, []).append(run)
    for level in sorted(levels):
        waiting: list[StoredRun] = []
        for run in levels[level]:
            waiting.append(run)
            if len(waiting) < MERGED:
                continue
            span = max(one.high for one in waiting) - waiting[0].low
            fits = sum(one.rows for one in waiting) <= MAX_ROWS and sum(one.size for one in waiting) <= max_bytes
            if span * WINDOW_PARTS <= window and fits:
                yield tuple(waiting)
                waiting = []
            else:
                waiting = waiting[1:]
