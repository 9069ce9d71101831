"""Reads pushed batches into tuples for `mr.WindowJoin`: schemas, sequence numbers, clocks and lateness.

`Progress` is the part of a join's state that a call changes, without the windows. It is immutable: a call computes the
next `Progress`, and the join adopts it only after the call has succeeded.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np
import pyarrow as pa

from millrace.host.base.errors import SchemaError
from millrace.host.base.types import SIDES, Side
from millrace.host.base.words import all_true, count_true, mask_and
from millrace.host.data.timescale import TimeScale
from millrace.host.data.tuples import Tuples
from millrace.host.expr.plan import Plan, bind
from millrace.host.stream.intake import Intake, make_intake
from millrace.host.stream.timeline import Clocks, Waiting
from millrace.ingest.arguments import WindowArguments
from millrace.ingest.tables import check_schema
from millrace.join_parts import output as out
from millrace.state.join_state import Totals


@dataclass(frozen=True)
class Progress:
    """The state that a call changes, except the windows."""

    scale: TimeScale
    clocks: Clocks
    waiting: Waiting = field(default_factory=Waiting)
    intakes: dict[Side, Intake] = field(default_factory=dict)
    plan: Plan | None = None
    pair_schema: pa.Schema = field(default_factory=lambda: pa.schema([]))
    seqs: dict[tuple[Side, int], int] = field(default_factory=dict)
    totals: Totals = field(default_factory=Totals)
    closed: bool = False


@dataclass(frozen=True)
class BatchReader:
    """Reads batches for one `mr.WindowJoin`. Methods take a `Progress` and return the next one."""

    args: WindowArguments
    ranks: tuple[tuple[Side, int], ...]
    """All (side, source), in the order in which rows of the same time are taken."""

    def initial_progress(self) -> Progress:
        """The progress before the first batch."""
        scale = TimeScale()
        for span in (self.args.window.r, self.args.window.s, self.args.lateness):
            if span.measure == "ns":
                scale = scale.with_length(span.length)
        clocks = Clocks((None,) * len(self.ranks))
        schema = out.pair_schema({}, self.args.output, self.args.several)
        return Progress(scale, clocks, pair_schema=schema, seqs=dict.fromkeys(self.ranks, 0))

    def read(self, progress: Progress, side: Side, table: pa.Table, source: int) -> tuple[Progress, Tuples]:
        """Read a batch; return the next progress and the rows kept (late rows and rows without a time are dropped)."""
        if side in progress.intakes:
            check_schema(table, progress.intakes[side].schema, side)
        else:
            progress = self.add_schema(progress, side, table.schema)
        first = progress.seqs[side, source]
        seq = np.arange(first, first + table.num_rows, dtype=np.int64)
        reading = progress.intakes[side].read(table, seq, source, progress.scale)
        known_keys = reading.known_keys
        if self.args.self_join:
            known_keys = mask_and(known_keys, progress.intakes["s"].read(table, seq, source, progress.scale).known_keys)
        fresh, known = reading.tuples, reading.known_time
        kept, clocks = known, progress.clocks
        if self.args.time is not None:
            rank = self.ranks.index((side, source))
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

    def add_schema(self, progress: Progress, side: Side, schema: pa.Schema) -> Progress:
        """Set a side's schema (in a self-join, both sides'). Once both are known, bind the condition."""
        sides: tuple[Side, ...] = SIDES if self.args.self_join else (side,)
        intakes, scale = dict(progress.intakes), progress.scale
        for one in sides:
            time = None if self.args.time is None else self.args.time[one]
            intakes[one] = make_intake(one, self.args.condition, schema, time)
            timed = intakes[one].time
            if timed is not None:
                scale = scale.with_column(timed[1], f"{one}.{timed[0]}")
                self.check_measures(timed[1].domain == "time", f"{one}.{timed[0]}")
        schemas = {s: i.schema for s, i in intakes.items()}
        pairs = out.pair_schema(schemas, self.args.output, self.args.several)
        plan = bind(self.args.condition, schemas) if len(schemas) == 2 else None
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
                given = self.args.given[name]
                raise SchemaError(f"{name}={given!r} is for {kind}, but {label} is {what}: write {hint}")

    def rescaled(self, progress: Progress, scale: TimeScale) -> Progress:
        """The same progress with its times in a finer unit."""
        factor = scale.factor_from(progress.scale)
        lateness = self.args.lateness
        late = scale.ticks(lateness.length) if lateness.measure == "ns" else lateness.length
        clocks = progress.clocks.rescaled(factor, scale.step(), late)
        waiting = progress.waiting if factor == 1 else progress.waiting.rescaled(factor)
        return replace(progress, scale=scale, clocks=clocks, waiting=waiting)

    def first_rank(self) -> dict[Side, int]:
        """The index in `ranks` of each side's first source."""
        return {"r": 0, "s": self.args.sources["r"]}
