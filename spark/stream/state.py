"""What a place of a streaming join keeps: a manifest, and immutable runs of rows named by their content.

The layout is that of `mr.WindowJoin.state`, without order: a `WindowJoin` takes rows in the order of time and lets the
newest wait for the clocks, a Spark query must give their pairs at once. A run is an Arrow IPC stream of a side's rows;
the manifest (`state/manifest.py`) names the runs with their spans of time, and the arguments they were made with. Names
begin with a running number, so that equal rows of two batches are two runs. Runs are PanJoin's subwindows (III-A):
appended to, never changed, and dropped as a whole when no row can meet them any more. Small ones are merged by
fours, as long as the result spans no more than a quarter of the window: so a row is written about
`1 + log4(window / batch / 4)` times, and there are few runs to ask.
"""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import pyarrow as pa

from millrace.errors import StateError
from millrace.state.manifest import check_same, seal, unseal

KIND, FORMAT = "millrace_stream", 1
"""The version of this layout; a checkpoint of another version is refused."""
MERGED = 4
"""Runs of one level that are merged into one of the next."""
WINDOW_PARTS = 4
"""A merged run spans at most this part of the window, so that its rows leave the state not much too late."""
MOST_ROWS = 1 << 20
"""Rows of a run."""


@dataclass(frozen=True)
class Run:
    """A run by its name: whose rows they are, how many, from when to when, and how often they were merged."""

    name: str
    side: str
    rows: int
    low: int
    high: int
    level: int = 0

    @property
    def span(self) -> tuple[int, int]:
        """From the oldest to the newest row."""
        return self.low, self.high


@dataclass(frozen=True)
class Manifest:
    """The runs of a place. `owner` tells its runs from another's in a cache; `timer` is when the next run is dead."""

    arguments: dict[str, str]
    runs: tuple[Run, ...] = ()
    number: int = 0
    timer: int | None = None
    owner: str = field(default_factory=lambda: uuid.uuid4().hex)

    def of(self, side: str) -> tuple[Run, ...]:
        """A side's runs."""
        return tuple(run for run in self.runs if run.side == side)

    def names(self) -> frozenset[str]:
        """All runs that are needed."""
        return frozenset(run.name for run in self.runs)

    def with_run(self, side: str, data: bytes, rows: int, span: tuple[int, int], level: int) -> tuple[Manifest, Run]:
        """With one more, of which these are the bytes."""
        name = f"{self.number}-{hashlib.sha256(data).hexdigest()[:32]}"
        run = Run(name, side, rows, *span, level)
        return replace(self, runs=(*self.runs, run), number=self.number + 1), run

    def without(self, gone: tuple[Run, ...]) -> Manifest:
        """Without some."""
        return replace(self, runs=tuple(run for run in self.runs if run not in gone))

    def pack(self) -> bytes:
        """As it is stored."""
        return seal(KIND, FORMAT, {**asdict(self), "runs": [asdict(run) for run in self.runs]})


def read_manifest(stored: bytes | None, arguments: dict[str, str]) -> Manifest:
    """The manifest of a place, or a new one where there is none; one of another join is refused."""
    if stored is None:
        return Manifest(arguments)
    try:
        content = unseal(KIND, FORMAT, stored)
        check_same(content["arguments"], arguments)
    except StateError as error:
        raise StateError(
            f"this checkpoint cannot be gone on with: {error}. Call ms.window_join as before, or start with a new "
            f"checkpoint location"
        ) from error
    runs = tuple(Run(**run) for run in content.pop("runs"))
    return Manifest(**content, runs=runs)


def check_run(run: Run, data: bytes | None) -> bytes:
    """A run's bytes out of the state store, if they are its own."""
    if data is None:
        raise StateError(f"the run {run.name} that the manifest names is missing from the checkpoint")
    if hashlib.sha256(data).hexdigest()[:32] != run.name.partition("-")[2]:
        raise StateError(f"the run {run.name} was altered: its content does not fit its name")
    return data


def pack_rows(table: pa.Table) -> bytes:
    """Rows as an Arrow IPC stream."""
    sink = pa.BufferOutputStream()
    write_rows(table, sink)
    packed: bytes = sink.getvalue().to_pybytes()
    return packed


def write_rows(table: pa.Table, sink: Any) -> None:
    """The same, into a file."""
    with pa.ipc.new_stream(sink, table.schema) as stream:
        stream.write_table(table)


def unpack_rows(data: Any) -> pa.Table:
    """Those rows again, where they lie."""
    return pa.ipc.open_stream(pa.py_buffer(data)).read_all()


def to_merge(runs: tuple[Run, ...], window: int) -> Iterator[tuple[Run, ...]]:
    """Groups of a side's runs that should each become one; a run is in one group at most."""
    levels: dict[int, list[Run]] = {}
    for run in sorted(runs, key=lambda one: one.low):
        levels.setdefault(run.level, []).append(run)
    for level in sorted(levels):
        waiting: list[Run] = []
        for run in levels[level]:
            waiting.append(run)
            if len(waiting) < MERGED:
                continue
            span = max(one.high for one in waiting) - waiting[0].low
            if span * WINDOW_PARTS <= window and sum(one.rows for one in waiting) <= MOST_ROWS:
                yield tuple(waiting)
                waiting = []
            else:
                waiting = waiting[1:]
