"""A join's state as bytes: a small manifest, and immutable runs of rows named by their content.

A run is an Arrow IPC stream: seq, source, then the side's own columns. Runs are the chunks of windows and waiting
rows. So `state()` writes only what is new since the last call, and lists what is no longer needed. The manifest has a
checksum (`manifest.py`). Times, keys and words are not stored: they are computed from the rows again.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np
import pyarrow as pa

from millrace.host.base.errors import StateError
from millrace.host.base.faults import fault_data
from millrace.host.base.types import SIDES, Array, Side
from millrace.host.data.timescale import TimeScale
from millrace.host.data.tuples import Tuples
from millrace.host.data.window import Window
from millrace.host.stream.intake import Intake
from millrace.host.stream.timeline import Clocks, Frontier, Waiting, WaitingRun
from millrace.state.checks import FOREIGN, check_content, check_run, no_state, read_run
from millrace.state.manifest import check_same, seal, unseal

KIND, FORMAT = "millrace_state", 1
"""`FORMAT` is the version of this layout; a state of another version is refused."""
EMPTY_WINDOW: Mapping[str, Any] = {"first": 0, "end": 0, "runs": []}
FREE_ARGUMENTS = frozenset({"index", "device", "threads", "fallback", "options"})
"""The arguments that may differ after a restore, since the output is the same; older manifests have some of them."""


@dataclass(frozen=True)
class StateDelta:
    """What changed since the last call of `state()`.

    Store `added` (by name), then `manifest`, then delete `removed`: in this order a crash never leaves a manifest
    without its runs. `restore` needs the manifest and a mapping with at least the runs that it names.
    """

    manifest: bytes
    added: dict[str, bytes]
    removed: tuple[str, ...]

    def followed_by(self, later: StateDelta) -> StateDelta:
        """This delta and the next one as one: what must be stored if this one was not."""
        added = {name: data for name, data in {**self.added, **later.added}.items() if name not in later.removed}
        removed = {*self.removed, *(name for name in later.removed if name not in self.added)} - set(added)
        return StateDelta(later.manifest, added, tuple(sorted(removed)))

    def __repr__(self) -> str:
        """Sizes, not contents."""
        size = sum(len(b) for b in self.added.values())
        return (
            f"StateDelta(manifest={len(self.manifest)} bytes, added={len(self.added)} runs of {size} bytes, "
            f"removed={len(self.removed)} runs)"
        )


@dataclass(frozen=True)
class Totals:
    """Totals since the join was created."""

    late: int = 0
    null_times: int = 0
    null_keys: int = 0
    pairs: int = 0

    def plus(self, late: int = 0, null_times: int = 0, null_keys: int = 0, pairs: int = 0) -> Totals:
        """The totals with these amounts added."""
        return Totals(self.late + late, self.null_times + null_times, self.null_keys + null_keys, self.pairs + pairs)


@dataclass(frozen=True)
class Snapshot:
    """The state of a join without its rows."""

    arguments: dict[str, str]
    schemas: dict[Side, pa.Schema]
    scale: TimeScale
    clocks: Clocks
    seqs: dict[str, int]
    totals: Totals
    counters: dict[str, int]
    fallback: str | None
    strategy: str


class StateWriter:
    """Writes deltas; immutable. Knows the runs of the last delta; a chunk with any other name is written again."""

    def __init__(self, names: frozenset[str] = frozenset()) -> None:
        """`names`: the runs that are already stored (after a restore)."""
        self._names = names

    def delta(
        self, snapshot: Snapshot, windows: dict[Side, Window], waiting: Waiting
    ) -> tuple[StateWriter, Waiting, StateDelta]:
        """The writer to go on with, the waiting rows with the names of their runs, and the delta."""
        written: dict[str, bytes] = {}
        layout: dict[str, Any] = {}
        for side, window in windows.items():
            layout[side] = self._window(window, written)
        runs: dict[Side, tuple[WaitingRun, ...]] = {}
        queued: dict[str, list[str]] = {}
        for side in SIDES:
            runs[side] = tuple(self._named(run, written) for run in waiting.runs[side])
            queued[side] = [str(run.run) for run in runs[side]]
        names = frozenset(name for w in layout.values() for name, _ in w["runs"]) | frozenset(
            name for side in SIDES for name in queued[side]
        )
        manifest = seal(KIND, FORMAT, {"snapshot": _packed(snapshot), "windows": layout, "waiting": queued})
        added = {name: data for name, data in written.items() if name not in self._names}
        removed = tuple(sorted(self._names - names))
        return StateWriter(names), Waiting(runs), StateDelta(manifest, added, removed)

    def _window(self, window: Window, written: dict[str, bytes]) -> dict[str, Any]:
        def write(start: int, rows: pa.Table) -> str:
            positions = np.arange(start, start + rows.num_rows)
            return _write(rows, window.seq.take(positions), window.source.take(positions), written)

        window.rows.name_runs(window.first, self._names, write)
        return {
            "first": window.first,
            "end": window.end,
            "runs": [[chunk.run, chunk.run_start] for chunk in window.rows.chunks],
        }

    def _named(self, run: WaitingRun, written: dict[str, bytes]) -> WaitingRun:
        if run.run in self._names:
            return run
        return replace(run, run=_write(run.rows.payload, run.rows.seq, run.rows.source, written))


def _write(rows: pa.Table, seq: Array, source: Array, written: dict[str, bytes]) -> str:
    """Serialise rows as a run; its name is the hash of its bytes."""
    fields = [pa.field("seq", pa.int64()), pa.field("source", pa.int32()), *rows.schema]
    columns = [pa.array(seq), pa.array(source), *(c.combine_chunks() for c in rows.columns)]
    name, data = pack_run(pa.Table.from_arrays(columns, schema=pa.schema(fields)))
    written[name] = data
    return name


def pack_run(table: pa.Table) -> tuple[str, bytes]:
    """A table as a run: the name, which is the hash of its bytes, and the bytes."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as stream:
        stream.write_table(table)
    data = sink.getvalue().to_pybytes()
    return hashlib.sha256(data).hexdigest(), fault_data("state.write", data)


def unpack_run(runs: Mapping[str, bytes], name: str) -> pa.Table:
    """A run as a table; a `StateError` if it is missing or was altered."""
    if not isinstance(runs, Mapping):
        raise StateError(f"runs is a {type(runs).__name__}; it must be a mapping from names of runs to their bytes")
    if name not in runs:
        raise StateError(f"the run {name} that the manifest names is missing")
    return read_run(name, fault_data("state.read", runs[name]))


def _packed(snapshot: Snapshot) -> dict[str, Any]:
    schemas = {side: base64.b64encode(s.serialize().to_pybytes()).decode() for side, s in snapshot.schemas.items()}
    return {
        "arguments": snapshot.arguments,
        "schemas": schemas,
        "scale": asdict(snapshot.scale),
        "clocks": asdict(snapshot.clocks),
        "seqs": snapshot.seqs,
        "totals": asdict(snapshot.totals),
        "counters": snapshot.counters,
        "fallback": snapshot.fallback,
        "strategy": snapshot.strategy,
    }


def _unpacked(stored: dict[str, Any]) -> Snapshot:
    schemas: dict[Side, pa.Schema] = {
        side: pa.ipc.read_schema(pa.py_buffer(base64.b64decode(text))) for side, text in stored["schemas"].items()
    }
    clocks = Clocks(**{**stored["clocks"], "high": tuple(stored["clocks"]["high"])})
    return Snapshot(
        {name: text for name, text in stored["arguments"].items() if name not in FREE_ARGUMENTS},
        schemas,
        TimeScale(**stored["scale"]),
        clocks,
        stored["seqs"],
        Totals(**stored["totals"]),
        stored["counters"],
        stored["fallback"] if "fallback" in stored else stored["fell_back"],  # its name in older manifests
        stored["strategy"],
    )


def read_state(manifest: bytes, runs: Mapping[str, bytes], arguments: dict[str, str]) -> StoredState:
    """Check a stored state completely: format, checksum, arguments, and that every run is present and unaltered."""
    if not isinstance(runs, Mapping):
        raise StateError(f"runs is a {type(runs).__name__}; it must be a mapping from names of runs to their bytes")
    content = unseal(KIND, FORMAT, manifest)
    try:
        snapshot = _unpacked(content["snapshot"])
        stored = StoredState(snapshot, content["windows"], content["waiting"])
        names = stored.names()
        check_same(snapshot.arguments, arguments)
        check_content(content)
    except FOREIGN as error:
        raise no_state(error) from error
    for name in names:
        stored.tables[name] = unpack_run(runs, name)
    stored.check_runs()
    return stored


@dataclass(frozen=True)
class StoredState:
    """A checked state; returns its windows and waiting rows."""

    snapshot: Snapshot
    windows: dict[str, Any]
    queued: dict[str, list[str]]
    tables: dict[str, pa.Table] = field(default_factory=dict)

    def names(self) -> frozenset[str]:
        """The names of the runs that are needed."""
        held = frozenset(name for w in self.windows.values() for name, _ in w["runs"])
        return held | frozenset(name for names in self.queued.values() for name in names)

    def check_runs(self) -> None:
        """Check that the runs have the columns of their side, and that those of a window are all its rows."""
        for side, schema in self.snapshot.schemas.items():
            layout = self.windows.get(side, EMPTY_WINDOW)
            end = layout["runs"][0][1] if layout["runs"] else layout["first"]
            for name, start in layout["runs"]:
                check_run(name, self.tables[name], schema)
                fits = start <= end <= start + self.tables[name].num_rows
                end = start + self.tables[name].num_rows if fits else -1
            if not layout["first"] <= layout["end"] == end:
                raise StateError(f"the runs of side {side} do not hold the rows of its window")
            for name in self.queued[side]:
                check_run(name, self.tables[name], schema)

    def _rows(self, name: str, intake: Intake, scale: TimeScale) -> Tuples:
        table = self.tables[name]
        seq, source = (table.column(i).to_numpy() for i in (0, 1))
        one = len(source) > 0 and bool((source == source[0]).all())
        # A single source is held as one number, as it was before it was stored.
        return intake.read(
            table.select(range(2, table.num_columns)), seq, int(source[0]) if one else source, scale
        ).tuples

    def window(self, side: Side, intake: Intake, scale: TimeScale) -> Window:
        """A side's window as it was stored."""
        dtypes = {name: t.dtype for (_, name), t in intake.types.items()}
        layout = self.windows.get(side, EMPTY_WINDOW)
        runs = layout["runs"]
        window = Window(dtypes, runs[0][1] if runs else layout["first"])
        for name, start in runs:
            rows = self._rows(name, intake, scale)
            skip = window.end - start
            window.append(rows.slice(skip, len(rows)), name)
        window.evict(layout["first"])
        return window

    def waiting(
        self, side: Side, intake: Intake | None, frontier: Frontier | None, first_rank: int
    ) -> tuple[WaitingRun, ...]:
        """A side's waiting rows: the rows of its runs that were not taken yet."""
        if intake is None:
            return ()
        runs = [WaitingRun(self._rows(name, intake, self.snapshot.scale), name) for name in self.queued[side]]
        return tuple(run if frontier is None else run.cut(frontier, first_rank)[1] for run in runs)
