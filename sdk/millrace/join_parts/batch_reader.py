"""Reads pushed batches into tuples for joins of streams: schemas, sequence numbers, clocks and lateness.

`Progress` is the part of a join's state that a call changes, without the windows. It is immutable: a call computes the
next `Progress`, and the join adopts it only after the call has succeeded.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, ClassVar, Generic, Protocol, TypeVar

import numpy as np
import pyarrow as pa

from millrace.host.base.codes import CodeTable
from millrace.host.base.errors import SchemaError
from millrace.host.base.types import SIDES, Array, Mask, Order, Side, other
from millrace.host.base.value_class import value_class
from millrace.host.base.words import all_true, count_true
from millrace.host.data.timescale import TimeScale
from millrace.host.data.tuples import Tuples
from millrace.host.expr.grouped_keys import grouped
from millrace.host.expr.plan import Plan, bind
from millrace.host.stream.intake import Intake, Reading, make_intake
from millrace.host.stream.timeline import Clocks, Waiting
from millrace.host.stream.window_bounds import time_order
from millrace.ingest.arguments import StreamArguments, WindowArguments
from millrace.ingest.tables import as_table, check_schema, without_empty_chunks
from millrace.join_parts import output as out
from millrace.state.join_state import Totals

Extents = dict[Side, tuple[int, int, Array]]
"""For each side of a join with a time column: the first position of its window, its end, and the tuples' times."""


class StreamPlan(Protocol):
    """How a join of two known schemas searches."""

    def describe(self) -> str:
        """The plan as text."""


@value_class
class Progress:
    """The state that a call changes, except the windows."""

    scale: TimeScale
    clocks: Clocks
    waiting: Waiting = field(default_factory=Waiting)
    intakes: dict[Side, Intake] = field(default_factory=dict)
    plan: StreamPlan | None = None
    pair_schema: pa.Schema = field(default_factory=lambda: pa.schema([]))
    seqs: dict[tuple[Side, int], int] = field(default_factory=dict)
    totals: Totals = field(default_factory=Totals)
    closed: bool = False
    extents: Extents = field(default_factory=dict)

    def with_waiting(self, waiting: Waiting) -> Progress:
        """The same progress with other waiting rows."""
        return Progress(
            *(self.scale, self.clocks, waiting, self.intakes, self.plan, self.pair_schema, self.seqs),
            *(self.totals, self.closed, self.extents),
        )

    def after_batch(
        self, clocks: Clocks, seqs: dict[tuple[Side, int], int], totals: Totals, extents: Extents | None = None
    ) -> Progress:
        """The progress after a batch was read or matched."""
        return Progress(
            *(self.scale, clocks, self.waiting, self.intakes, self.plan, self.pair_schema, seqs, totals, self.closed),
            self.extents if extents is None else extents,
        )


A = TypeVar("A", bound=StreamArguments)


@dataclass(frozen=True)
class BatchReader(ABC, Generic[A]):
    """Reads batches for one join. Methods take a `Progress` and return the next one."""

    args: A
    codes: CodeTable = field(default_factory=CodeTable)
    """The codes of both sides' text, binary, boolean and decimal values. A failed call may leave some unused."""

    first_side: ClassVar[Side] = "r"
    """The side whose rows are taken first at equal times."""

    @abstractmethod
    def make_intake(self, side: Side, schema: pa.Schema, time: str | None) -> Intake:
        """How a side's rows are read."""

    @abstractmethod
    def bind(self, schemas: out.Schemas) -> StreamPlan:
        """The plan, once both schemas are known."""

    @abstractmethod
    def output_schema(self, schemas: out.Schemas) -> pa.Schema:
        """The schema of the output; a side with an unknown schema has no columns."""

    @cached_property
    def ranks(self) -> tuple[tuple[Side, int], ...]:
        """All (side, source), in the order in which rows of the same time are taken."""
        sides = sorted(self.args.sides, key=lambda side: side != self.first_side)
        return tuple((side, i) for side in sides for i in range(self.args.sources[side]))

    def first_rank(self) -> dict[Side, int]:
        """The index in `ranks` of each side's first source."""
        second = other(self.first_side)
        return {self.first_side: 0, second: self.args.sources.get(self.first_side, 0)}

    def interleaved(self, fresh: Mapping[Side, Tuples]) -> Order:
        """How the taken tuples of both sides interleave by time."""
        times = {side: fresh[side].time if side in fresh else np.zeros(0, np.int64) for side in SIDES}
        if self.first_side == "r":
            return time_order(times["r"], times["s"])
        return 1 - time_order(times["s"], times["r"])

    def initial_progress(self) -> Progress:
        """The progress before the first batch."""
        scale = TimeScale()
        for span in (self.args.window.r, self.args.window.s, self.args.lateness):
            if span.measure == "ns":
                scale = scale.with_length(span.length)
        clocks = Clocks((None,) * len(self.ranks))
        return Progress(scale, clocks, pair_schema=self.output_schema({}), seqs=dict.fromkeys(self.ranks, 0))

    def as_table(self, progress: Progress, side: Side, batch: Any) -> pa.Table:
        """A pushed batch in Arrow. A table with exactly the schema of the batches before needs no further check."""
        intake = progress.intakes.get(side)
        if intake is not None and type(batch) is pa.Table and batch.schema.equals(intake.schema, check_metadata=True):
            return without_empty_chunks(batch)
        return as_table(batch, f"the batch pushed to {side!r}")

    def read(self, progress: Progress, side: Side, table: pa.Table, source: int) -> tuple[Progress, Tuples]:
        """Read a batch; return the next progress and the rows kept (late rows and rows without a time are dropped)."""
        if side in progress.intakes:
            check_schema(table, progress.intakes[side].schema, side)
        else:
            progress = self.add_schema(progress, side, table.schema)
        rows, first = table.num_rows, progress.seqs[side, source]
        seq = np.arange(first, first + rows, dtype=np.int64)
        reading = progress.intakes[side].read(table, seq, source, progress.scale)
        fresh, null_keys = reading.tuples, rows - count_true(reading.known_keys)
        clocks, late, null_times = progress.clocks, 0, 0
        if self.args.time is not None:
            clocks, kept, null_times = self._clocked(clocks, side, source, reading)
            remaining = count_true(kept)
            late = rows - null_times - remaining
            fresh = fresh if remaining == rows else fresh.take(np.flatnonzero(kept))
        totals = progress.totals
        if null_keys or late or null_times:
            totals = totals.plus(late, null_times, null_keys)
        return progress.after_batch(clocks, {**progress.seqs, (side, source): first + rows}, totals), fresh

    def _clocked(self, clocks: Clocks, side: Side, source: int, reading: Reading) -> tuple[Clocks, Mask, int]:
        """The clocks after a batch, the rows that are not dropped, and the number of rows without a time."""
        known, times = reading.known_time, reading.tuples.time
        rank = self.ranks.index((side, source))
        kept = known & ~clocks.late(rank, times, known)
        if known.any():
            clocks = clocks.moved(rank, int((times if all_true(known) else times[known]).max()))
        return clocks, kept, len(known) - count_true(known)

    def add_schema(self, progress: Progress, side: Side, schema: pa.Schema) -> Progress:
        """Set a side's schema (in a self-join, both sides'). Once both are known, bind the condition."""
        sides: tuple[Side, ...] = SIDES if self.args.self_join else (side,)
        intakes, scale = dict(progress.intakes), progress.scale
        for one in sides:
            time = None if self.args.time is None else self.args.time[one]
            intakes[one] = self.make_intake(one, schema, time)
            timed = intakes[one].time
            if timed is not None:
                scale = scale.with_column(timed[1], f"{one}.{timed[0]}")
                self.check_measures(timed[1].domain == "time", f"{one}.{timed[0]}")
        if self.args.self_join:
            intakes["r"] = replace(intakes["r"], as_s=intakes["s"])
        schemas = {s: i.schema for s, i in intakes.items()}
        pairs = self.output_schema(schemas)
        plan = self.bind(schemas) if len(schemas) == 2 else None
        return replace(self.rescaled(progress, scale), intakes=intakes, plan=plan, pair_schema=pairs)

    def check_measures(self, is_time: bool, label: str) -> None:
        """Raise a `SchemaError` unless window and lateness have the same kind (time or integer) as the time column."""
        window = self.args.window
        for name, span in (("window", window.r), ("lateness", self.args.lateness)):
            if span.measure == "rows" or (span.length == 0 and name == "lateness"):
                continue
            if is_time != (span.measure == "ns"):
                kind = "timestamps" if span.measure == "ns" else "integer times"
                what = "a timestamp" if is_time else "an integer"
                hint = f"'{span.length} seconds'" if is_time else "a plain number such as '1000'"
                given = getattr(self.args.given, name)
                raise SchemaError(f"{name}={given!r} is for {kind}, but {label} is {what}: write {hint}")

    def rescaled(self, progress: Progress, scale: TimeScale) -> Progress:
        """The same progress with its times in a finer unit."""
        factor = scale.factor_from(progress.scale)
        lateness = self.args.lateness
        late = scale.ticks(lateness.length) if lateness.measure == "ns" else lateness.length
        clocks = progress.clocks.rescaled(factor, scale.step(), late)
        waiting = progress.waiting if factor == 1 else progress.waiting.rescaled(factor)
        return replace(progress, scale=scale, clocks=clocks, waiting=waiting)


class WindowReader(BatchReader[WindowArguments]):
    """Reads batches for one `mr.WindowJoin`."""

    def make_intake(self, side: Side, schema: pa.Schema, time: str | None) -> Intake:
        """How a side's rows are read: the columns of the condition."""
        return make_intake(side, self.args.condition, schema, time, self.codes)

    def bind(self, schemas: out.Schemas) -> Plan:
        """The condition, bound to both schemas."""
        return grouped(bind(self.args.condition, schemas, self.codes))

    def output_schema(self, schemas: out.Schemas) -> pa.Schema:
        """The schema of pairs."""
        return out.pair_schema(schemas, self.args.output, self.args.several)
