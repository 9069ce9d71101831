"""One place of a streaming join, one micro-batch: late rows are left out, the others meet what is held and are kept.

PanJoin's worker (III-A, V-C) on Spark: new rows of r ask the runs of s, those that came with this batch included; new
rows of s ask the runs of r that were there before. So every pair is found once, by whichever row came later. Where
rows were broadcast, a place asks with all of them and keeps its own share. A batch that spans several windows is cut
by time first, so that rows ask only runs that they can reach; what an index finds is held to the window afterwards.

Knows nothing of Spark: the state store is a `Store`, the batch's rows are `Share`s.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Protocol, TypeVar

import numpy as np
import pyarrow as pa

from millrace.spark.cluster.task import Place, at_work
from millrace.spark.exec.join_rows import OUT_ROWS, tally
from millrace.spark.stream import run_cache
from millrace.spark.stream.plan import SIDES, Flags, Longs, StreamPlan
from millrace.spark.stream.run_cache import Held
from millrace.spark.stream.state import MOST_ROWS, Run, check_run, pack_rows, read_manifest, to_merge

COUNTS = (
    *(f"{side}_{what}" for side in SIDES for what in ("rows", "late", "null_times", "null_keys", "held", "expired")),
    *("pairs", "runs", "written", "asked", "device_rows", "device_cycles", "device_ns", "fallbacks"),
)
"""What a place tells of a batch."""
T = TypeVar("T")
LEAST_CUT = 1 << 14
"""Rows of a batch are not cut by time into parts smaller than this."""
TOGETHER = 1 << 19
"""So many rows in several runs are ordered anew by each batch, rather than asked run by run: that is faster."""


class Store(Protocol):
    """A place's part of the state store."""

    def manifest(self) -> bytes | None:
        """What `keep` stored last."""

    def run(self, name: str) -> bytes | None:
        """A run's bytes."""

    def keep(self, manifest: bytes) -> None:
        """Store the manifest."""

    def add(self, run: Run, data: bytes) -> None:
        """Store a run."""

    def remove(self, run: Run) -> None:
        """Remove a run."""

    def wake(self, before: int | None, at: int | None) -> None:
        """Have `Batch` run without rows at this watermark, no longer at the one before."""


@dataclass(frozen=True)
class Share:
    """Rows of a side that came to this place: those that it keeps, and those that it counts, as ranges."""

    side: str
    rows: pa.Table
    own: tuple[int, int]
    counted: tuple[int, int]


@dataclass(frozen=True)
class Rows:
    """New rows that may meet others: their times, and which of them this place keeps."""

    table: pa.Table
    times: Longs
    own: Flags

    @property
    def span(self) -> tuple[int, int]:
        """From the oldest to the newest."""
        return int(self.times.min()), int(self.times.max())

    def take(self, rows: Longs | Flags) -> Rows:
        """Some of them."""
        numbers = np.flatnonzero(rows) if rows.dtype == np.bool_ else rows
        return Rows(self.table.take(pa.array(numbers)), self.times[numbers], self.own[numbers])


class Batch:
    """A place's work for one micro-batch."""

    def __init__(self, plan: StreamPlan, store: Store, place: Place, watermark_ms: int) -> None:
        """`watermark_ms`: Spark's watermark when the batch began."""
        self._plan, self._store, self._place = plan, store, place
        self._watermark = plan.ticks(watermark_ms)
        self._before = self._manifest = read_manifest(store.manifest(), dict(plan.arguments))
        self._counts: Counter[str] = Counter()

    def meet(self, shares: Iterable[Share]) -> Iterator[pa.Table]:
        """The pairs that the new rows complete; when all were taken, the state has been changed."""
        given = list(shares)
        new = {side: self._arrived(side, [one for one in given if one.side == side]) for side in SIDES}
        self._expire()
        old = {side: self._runs(side) for side in SIDES}
        for side in SIDES:
            self._keep(side, new[side])
        fresh = [run for run in self._runs("s") if run not in old["s"]]
        if not self._plan.empty:
            yield from self._pairs("r", new["r"], [*old["s"], *fresh])
            yield from self._pairs("s", new["s"], old["r"])
        self._tidy()

    def wake(self) -> None:
        """No rows came, but time has passed: dead runs leave."""
        self._expire()
        self._tidy()

    def counts(self) -> dict[str, int]:
        """What was done, to be read at the end."""
        held = {f"{side}_held": sum(run.rows for run in self._manifest.of(side)) for side in SIDES}
        return {**dict.fromkeys(COUNTS, 0), **self._counts, **held, "runs": len(self._manifest.runs)}

    # New rows.

    def _arrived(self, side: str, shares: list[Share]) -> Rows | None:
        """The rows of a side that are neither late nor unable to match."""
        parts = []
        about = self._plan.side(side)
        for share in shares:
            times, known = about.times(share.rows)
            late = known & (times < self._watermark) if self._watermark is not None else np.zeros_like(known)
            able = about.usable(share.rows)
            own, counted = (_range(share.rows.num_rows, ends) for ends in (share.own, share.counted))
            self._counts[f"{side}_rows"] += int(counted.sum())
            for name, found in (("late", late), ("null_times", ~known), ("null_keys", ~able)):
                self._counts[f"{side}_{name}"] += int((found & counted).sum())
            rows, kept = Rows(share.rows, times, own), known & ~late & able
            parts.append(rows if kept.all() else rows.take(kept))
        parts = [part for part in parts if part.table.num_rows]
        if not parts:
            return None
        return Rows(
            pa.concat_tables([part.table for part in parts]).combine_chunks(),
            np.concatenate([part.times for part in parts]),
            np.concatenate([part.own for part in parts]),
        )

    def _keep(self, side: str, rows: Rows | None) -> None:
        """This place's own share becomes runs."""
        if rows is None or not rows.own.any():
            return
        own = rows if rows.own.all() else rows.take(rows.own)
        for part in self._cut(own):
            self._add(side, part.table, part.span, 0)

    def _add(self, side: str, table: pa.Table, span: tuple[int, int], level: int) -> None:
        for start in range(0, table.num_rows, MOST_ROWS):
            part = table.slice(start, MOST_ROWS)
            data = pack_rows(part)
            self._manifest, run = self._manifest.with_run(side, data, part.num_rows, span, level)
            self._store.add(run, data)
            self._counts["written"] += len(data)
            run_cache.held(self._plan, self._manifest.owner, run, lambda data=data: data)  # type: ignore[misc]

    def _cut(self, rows: Rows) -> list[Rows]:
        """Rows in parts that span about a window each."""
        low, high = rows.span
        window = max(self._plan.after + self._plan.before, 1)
        parts = min((high - low) // window + 1, len(rows.times) // LEAST_CUT)
        if parts <= 1:
            return [rows]
        order = np.argsort(rows.times, kind="stable")
        return [rows.take(part) for part in np.array_split(order, parts)]

    # Old rows.

    def _runs(self, side: str) -> list[Run]:
        return list(self._manifest.of(side))

    def _held(self, run: Run) -> Held:
        """A run's rows, from the cache or the store."""

        def read() -> bytes:
            return check_run(run, self._store.run(run.name))

        return run_cache.held(self._plan, self._manifest.owner, run, read)

    def _expire(self) -> None:
        """Runs that no later row can meet leave."""
        gone = tuple(run for run in self._manifest.runs if self._plan.dead(run.side, run.high, self._watermark))
        for run in gone:
            self._counts[f"{run.side}_expired"] += run.rows
        self._drop(gone)

    def _drop(self, gone: tuple[Run, ...]) -> None:
        for run in gone:
            self._store.remove(run)
        self._manifest = self._manifest.without(gone)

    def _tidy(self) -> None:
        """Merge what should be merged, and store the manifest."""
        window = self._plan.after + self._plan.before
        for side in SIDES:
            while groups := list(to_merge(self._manifest.of(side), window)):
                for group in groups:
                    self._merge(side, group)
        ends = [self._plan.expiry(run.side, run.high) for run in self._manifest.runs]
        self._manifest = replace(self._manifest, timer=min(ends, default=None))
        if self._manifest != self._before:
            self._store.keep(self._manifest.pack())
            self._store.wake(self._before.timer, self._manifest.timer)
        run_cache.prune(self._plan, self._manifest)

    def _merge(self, side: str, group: tuple[Run, ...]) -> None:
        tables, spans = [], []
        for run in group:
            one = self._held(run)
            alive = one.alive(self._watermark)
            table, times = one.table, one.times
            if alive is not None:
                table, times = table.filter(pa.array(alive)), times[alive]
                self._counts[f"{side}_expired"] += run.rows - len(times)
            tables.append(table)
            spans.append((int(times.min()), int(times.max())))
        self._drop(group)
        merged = pa.concat_tables(tables).combine_chunks()
        self._add(side, merged, (min(low for low, _ in spans), max(high for _, high in spans)), group[0].level + 1)

    # Pairs.

    def _pairs(self, side: str, rows: Rows | None, runs: list[Run]) -> Iterator[pa.Table]:
        """What new rows of a side make with the other's runs, in tables of about `OUT_ROWS`."""
        if rows is None or not runs:
            return
        waiting: list[pa.Table] = []
        for part in self._cut(rows):
            near = [run for run in runs if self._plan.touches(*_in_order(side, part.span, run.span))]
            for held, own, partners in self._ask(side, part, self._askable(near)):
                for start in range(0, len(own), OUT_ROWS):
                    stop = start + OUT_ROWS
                    waiting.append(_paired(side, part.table, own[start:stop], held.table, partners[start:stop]))
                    if sum(table.num_rows for table in waiting) >= OUT_ROWS:
                        yield pa.concat_tables(waiting).combine_chunks()
                        waiting = []
        if waiting:
            yield pa.concat_tables(waiting).combine_chunks()

    def _askable(self, near: list[Run]) -> list[Held]:
        """The runs to ask: each by itself, with the order that this worker knows, or a few rows ordered anew as one."""
        held = [self._held(run) for run in near]
        rows = sum(run.rows for run in near)
        if len(held) <= 1 or rows > TOGETHER:
            return held
        span = min(run.low for run in near), max(run.high for run in near)
        table = pa.concat_tables([one.table for one in held]).combine_chunks()
        return [Held(self._plan, Run("", near[0].side, rows, *span), table, passing=True)]

    def _ask(self, side: str, rows: Rows, near: list[Held]) -> list[tuple[Held, Longs, Longs]]:
        """Row numbers of pairs, for each run; a card is held while they are all asked."""
        asking = rows.table.select(list(self._plan.side(side).used))
        answers = []
        with at_work(self._place):
            for held in near:
                probe = held.probe(self._place)
                before = Counter(tally(probe.stats))
                found = probe.ask(asking)
                after = Counter(tally(probe.stats))
                after.subtract(before)
                for name in ("asked", "device_rows", "device_cycles", "device_ns", "fallbacks"):
                    self._counts[name] += after[name]
                if self._place.card or held.passing:
                    held.close()
                answers.append((held, *self._within(side, rows, held, found.rows, found.partners)))
        return answers

    def _within(self, side: str, rows: Rows, held: Held, own: Longs, partners: Longs) -> tuple[Longs, Longs]:
        """Those pairs that the window lets meet."""
        if not self._plan.covers(*_in_order(side, rows.span, held.run.span)):
            near = self._plan.near(*_in_order(side, rows.times[own], held.times[partners]))
            own, partners = own[near], partners[near]
        self._counts["pairs"] += len(own)
        return own, partners


def _range(rows: int, ends: tuple[int, int]) -> Flags:
    """True from one row to another."""
    flags = np.zeros(rows, np.bool_)
    flags[ends[0] : ends[1]] = True
    return flags


def _in_order(side: str, own: T, other: T) -> tuple[T, T]:
    """r's, then s's, where `own` is a side's."""
    return (own, other) if side == "r" else (other, own)


def _paired(side: str, own: pa.Table, rows: Longs, other: pa.Table, partners: Longs) -> pa.Table:
    """Pairs with the columns of both sides."""
    mine, theirs = own.take(pa.array(rows)), other.take(pa.array(partners))
    columns: dict[str, pa.ChunkedArray] = {}
    for name, table in zip(SIDES, _in_order(side, mine, theirs), strict=True):
        columns |= {f"{name}_{column}": table.column(column) for column in table.column_names}
    return pa.table(columns)
