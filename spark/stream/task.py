"""One shard of a streaming join in one micro-batch: drops late rows, joins the others with the runs, stores them.

PanJoin's worker (III-A, V-C) on Spark: new rows of r search the runs of s, including those of this batch; new rows of s
search the older runs of r. So every pair is found once, by its later row. If rows are broadcast, a shard searches with
all of them and stores its own part. Rows arrive encoded, and are stored in these bytes unless some of them are dropped.
Rows of s are processed as they arrive, those of r after them, in bulks of bounded size: usually each side has one. A
bulk that spans several windows is cut by time, so that rows search only runs that they can match; the pairs found are
then filtered by the window.

This module does not use Spark: the state store is a `Store`, the batch's rows are `ShardInput`s.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Protocol, TypeVar

import numpy as np
import pyarrow as pa

from millrace.join_parts.table_probe import Partners, TableProbe
from millrace.spark.cluster.task import TaskDevice
from millrace.spark.exec.batch_bytes import OUT_ROWS, BatchLimits
from millrace.spark.exec.pair_blocks import partner_blocks
from millrace.spark.exec.row_bytes import RowBytes, cut_gathered, cut_rows
from millrace.spark.plan.hows import other_side
from millrace.spark.stream import run_cache
from millrace.spark.stream.plan import SIDES, Flags, Longs, StreamPlan
from millrace.spark.stream.run_cache import HeldRun
from millrace.spark.stream.state import (
    MAX_ROWS,
    EncodedRows,
    StoredRun,
    check_run,
    pack_rows,
    read_manifest,
    run_bytes,
    to_merge,
)

COUNTS = (
    *(f"{side}_{what}" for side in SIDES for what in ("rows", "late", "null_times", "null_keys", "held", "expired")),
    *("pairs", "runs", "written", "asked", "device_rows", "device_cycles", "device_ns", "fallbacks"),
)
"""The counts that a shard reports for a batch."""
T = TypeVar("T")
MIN_CUT_ROWS = 1 << 14
"""Minimum rows of a part when a batch is cut by time."""
COMBINED_ROWS = 1 << 19
"""Up to this many rows in several runs are combined and sorted again for each batch: faster than run by run."""


class Store(Protocol):
    """A shard's part of the state store."""

    def manifest(self) -> bytes | None:
        """The manifest that `keep` stored last."""

    def run(self, name: str) -> bytes | None:
        """A run's bytes."""

    def keep(self, manifest: bytes) -> None:
        """Store the manifest."""

    def add(self, run: StoredRun, data: bytes) -> None:
        """Store a run."""

    def remove(self, run: StoredRun) -> None:
        """Remove a run."""

    def set_timer(self, before: int | None, at: int | None) -> None:
        """Call `ShardBatch.expire` at the watermark `at`, and no longer at `before`."""


@dataclass(frozen=True)
class ShardInput:
    """Rows of a side sent to this shard: it stores part `own`, and counts the first `counted` rows of that part."""

    side: str
    parts: tuple[EncodedRows, ...]
    own: int
    counted: int


@dataclass(frozen=True)
class NewRows:
    """New rows that can match: their times, which of them this shard stores, and those as they are stored."""

    table: pa.Table
    times: Longs
    own: Flags
    encoded: tuple[EncodedRows, ...]

    @property
    def span(self) -> tuple[int, int]:
        """The oldest and the newest time."""
        return int(self.times.min()), int(self.times.max())

    def cut(self, window: int) -> list[NewRows]:
        """Parts that span about one window each, so that rows search only what they can match; often one."""
        low, high = self.span
        parts = min((high - low) // max(window, 1) + 1, len(self.times) // MIN_CUT_ROWS)
        if parts <= 1:
            return [self]
        order = np.argsort(self.times, kind="stable")
        return [self._take(part) for part in np.array_split(order, parts)]

    def _take(self, numbers: Longs) -> NewRows:
        table, own = self.table.take(pa.array(numbers)), self.own[numbers]
        stored = table.filter(pa.array(own)).combine_chunks().to_batches()
        return NewRows(table, self.times[numbers], own, tuple(EncodedRows.of(rows) for rows in stored))


class ShardBatch:
    """The work of one shard for one micro-batch."""

    def __init__(self, plan: StreamPlan, store: Store, device: TaskDevice, watermark_ms: int) -> None:
        """`watermark_ms`: Spark's watermark at the start of the batch."""
        self._plan, self._store, self._device = plan, store, device
        self._watermark = plan.ticks(watermark_ms)
        self._before = self._manifest = read_manifest(store.manifest(), dict(plan.arguments))
        self._counts: Counter[str] = Counter()

    def join(self, inputs: Iterable[ShardInput]) -> Iterator[pa.Table]:
        """The pairs of the new rows; the state is updated when the iterator is exhausted."""
        for bulk in self._bulks(inputs):
            side = bulk[0].side
            parts = self._usable_rows(side, bulk)
            if not self._plan.empty:
                yield from self._pairs(side, parts, self._runs(other_side(side)))
            for part in parts:
                self._store_rows(side, part)
            if 2 * _size(bulk) > self._plan.limits.bytes:
                pa.default_memory_pool().release_unused()  # Arrow's allocator keeps freed memory otherwise
        self._drop_dead()  # not before: rows that are never late may be as old as the last batch's watermark
        self._commit()

    def expire(self) -> None:
        """Remove dead runs although no rows arrived."""
        self._drop_dead()
        self._commit()

    def counts(self) -> dict[str, int]:
        """The counts of this batch; read them at the end."""
        held = {f"{side}_held": sum(run.rows for run in self._manifest.of(side)) for side in SIDES}
        return {**dict.fromkeys(COUNTS, 0), **self._counts, **held, "runs": len(self._manifest.runs)}

    # New rows.

    def _bulks(self, inputs: Iterable[ShardInput]) -> Iterator[list[ShardInput]]:
        """Inputs of one side to process at once: those of s first, so that new rows of r find them in the runs."""
        bulk: list[ShardInput] = []
        for one in _s_first(inputs):
            if bulk and (bulk[0].side != one.side or _size(bulk) + _size([one]) > self._plan.limits.bytes):
                yield bulk
                bulk = []
            bulk.append(one)
        if bulk:
            yield bulk

    def _usable_rows(self, side: str, inputs: list[ShardInput]) -> list[NewRows]:
        """The rows of a side that have a time and keys and are not late, cut by time."""
        found = [rows for rows in (self._usable_input(side, one) for one in inputs) if rows.table.num_rows]
        if not found:
            return []
        rows = NewRows(
            pa.concat_tables([one.table for one in found]).combine_chunks(),
            np.concatenate([one.times for one in found]),
            np.concatenate([one.own for one in found]),
            tuple(part for one in found for part in one.encoded),
        )
        return rows.cut(self._plan.after + self._plan.before)

    def _usable_input(self, side: str, given: ShardInput) -> NewRows:
        """The usable rows of one input; counts those that are not."""
        about, own = self._plan.side(side), given.parts[given.own]
        table = pa.Table.from_batches([part.rows for part in given.parts])
        times, known = about.times(table)
        late = np.zeros_like(known)
        if self._watermark is not None and not about.never_late:
            late = known & (times < self._watermark)
        able = about.usable(table)
        first = sum(part.rows.num_rows for part in given.parts[: given.own])
        counted = slice(first, first + given.counted)
        self._counts[f"{side}_rows"] += given.counted
        for name, flags in (("late", late), ("null_times", ~known), ("null_keys", ~able)):
            self._counts[f"{side}_{name}"] += int(flags[counted].sum())
        stored = slice(first, first + own.rows.num_rows)
        is_own, kept = np.zeros_like(known), known & ~late & able
        is_own[stored] = True
        if kept.all():
            return NewRows(table, times, is_own, (own,))
        return NewRows(table.filter(pa.array(kept)), times[kept], is_own[kept], (own.kept(kept[stored]),))

    def _store_rows(self, side: str, rows: NewRows) -> None:
        """Store this shard's own rows as a run, or as several if they are many."""
        if not rows.own.any():
            return
        size = sum(part.message.size for part in rows.encoded)
        if np.count_nonzero(rows.own) > MAX_ROWS or size > self._plan.limits.run_bytes:
            self._add(side, rows.table.filter(pa.array(rows.own)), rows.span, 0)
            return
        times = rows.times[rows.own]
        span = int(times.min()), int(times.max())
        self._add_run(side, run_bytes(self._plan.side(side).schema, rows.encoded), len(times), span, 0)

    def _add(self, side: str, table: pa.Table, span: tuple[int, int], level: int) -> None:
        for cut in cut_rows(table, BatchLimits(self._plan.limits.run_bytes, MAX_ROWS)):
            part = table.slice(*cut)
            self._add_run(side, pack_rows(part), part.num_rows, span, level)

    def _add_run(self, side: str, data: bytes, rows: int, span: tuple[int, int], level: int) -> None:
        self._manifest, run = self._manifest.with_run(side, data, rows, span, level)
        self._store.add(run, data)
        self._counts["written"] += len(data)
        run_cache.get_run(self._plan, self._manifest.owner, run, lambda: data)

    # Old rows.

    def _runs(self, side: str) -> list[StoredRun]:
        return list(self._manifest.of(side))

    def _held(self, run: StoredRun) -> HeldRun:
        """A run, from the cache or the store."""

        def read() -> bytes:
            return check_run(run, self._store.run(run.name))

        return run_cache.get_run(self._plan, self._manifest.owner, run, read)

    def _drop_dead(self) -> None:
        """Remove runs that no later row can match."""
        gone = tuple(run for run in self._manifest.runs if self._plan.dead(run.side, run.high, self._watermark))
        for run in gone:
            self._counts[f"{run.side}_expired"] += run.rows
        self._drop(gone)

    def _drop(self, gone: tuple[StoredRun, ...]) -> None:
        for run in gone:
            self._store.remove(run)
        self._manifest = self._manifest.without(gone)

    def _commit(self) -> None:
        """Merge small runs and store the manifest."""
        window = self._plan.after + self._plan.before
        for side in SIDES:
            while groups := list(to_merge(self._manifest.of(side), window, self._plan.limits.run_bytes)):
                for group in groups:
                    self._merge(side, group)
        ends = [self._plan.expiry(run.side, run.high) for run in self._manifest.runs]
        self._manifest = replace(self._manifest, timer=min(ends, default=None))
        if self._manifest != self._before:
            self._store.keep(self._manifest.pack())
            self._store.set_timer(self._before.timer, self._manifest.timer)
        run_cache.prune(self._plan, self._manifest)

    def _merge(self, side: str, group: tuple[StoredRun, ...]) -> None:
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

    def _pairs(self, side: str, parts: list[NewRows], runs: list[StoredRun]) -> Iterator[pa.Table]:
        """The pairs of a side's new rows with the other side's runs, in tables of bounded rows and bytes."""
        limits = BatchLimits(self._plan.limits.bytes, OUT_ROWS)
        waiting: list[pa.Table] = []
        for part in parts:
            near = [run for run in runs if self._plan.may_match(*_in_order(side, part.span, run.span))]
            sizes = RowBytes.of(part.table)
            for held, own, partners in self._probe_runs(side, part, self._to_probe(near)):
                for cut in cut_gathered([(sizes, own), (held.sizes, partners)], limits):
                    table = self._pair_table(side, part, own.slice(*cut), held, partners.slice(*cut))
                    if waiting and not _fit([*waiting, table], limits):
                        yield pa.concat_tables(waiting).combine_chunks()
                        waiting = []
                    waiting.append(table)
        if waiting:
            yield pa.concat_tables(waiting).combine_chunks()

    def _pair_table(self, side: str, new: NewRows, rows: pa.Array, held: HeldRun, partners: pa.Array) -> pa.Table:
        """Pairs with the columns of both sides, and their later time if it is wanted."""
        mine, theirs = new.table.take(rows), held.table.take(partners)
        columns: dict[str, pa.ChunkedArray | pa.Array] = {}
        for name, table in zip(SIDES, _in_order(side, mine, theirs), strict=True):
            columns |= {f"{name}_{column}": table.column(column) for column in table.column_names}
        if self._plan.event_time is not None:
            times = new.times[rows.to_numpy()], held.times[partners.to_numpy()]
            columns[self._plan.event_time] = self._plan.pair_times(*times)
        return pa.table(columns)

    def _to_probe(self, near: list[StoredRun]) -> list[HeldRun]:
        """The runs to search: each with its cached probe, or all combined into one if they have few rows."""
        held = [self._held(run) for run in near]
        rows, size = sum(run.rows for run in near), sum(one.table.nbytes for one in held)
        if len(held) <= 1 or rows > COMBINED_ROWS or size > self._plan.limits.bytes:
            return [one.combined() for one in held]
        span = min(run.low for run in near), max(run.high for run in near)
        table = pa.concat_tables([one.table for one in held]).combine_chunks()
        times = np.concatenate([one.times for one in held])
        return [HeldRun(self._plan, StoredRun("", near[0].side, rows, *span), table, times, temporary=True)]

    def _probe_runs(
        self, side: str, rows: NewRows, near: list[HeldRun]
    ) -> Iterator[tuple[HeldRun, pa.Array, pa.Array]]:
        """Row numbers of pairs, in blocks of bounded size; none is empty."""
        probing = rows.table.select(list(self._plan.side(side).used))
        for held in near:
            for found in self._search(probing, held):
                own, partners = self._within(side, rows, held, found.rows, found.partners)
                if len(own):
                    yield held, pa.array(own), pa.array(partners)

    def _search(self, probing: pa.Table, held: HeldRun) -> Iterator[Partners]:
        def done(_: TableProbe, counted: Counter[str]) -> None:
            for name in ("asked", "device_rows", "device_cycles", "device_ns", "fallbacks"):
                self._counts[name] += counted[name]
            if self._device.card or held.temporary:
                held.close()

        device = self._device
        return partner_blocks(probing, device, self._plan.limits.pairs, lambda: held.probe(device), done)

    def _within(self, side: str, rows: NewRows, held: HeldRun, own: Longs, partners: Longs) -> tuple[Longs, Longs]:
        """The pairs that are within the window."""
        if not self._plan.all_within(*_in_order(side, rows.span, held.run.span)):
            near = self._plan.within_window(*_in_order(side, rows.times[own], held.times[partners]))
            own, partners = own[near], partners[near]
        self._counts["pairs"] += len(own)
        return own, partners


def _s_first(inputs: Iterable[ShardInput]) -> Iterator[ShardInput]:
    """The inputs of s as they come, then those of r."""
    waiting = []
    for one in inputs:
        if one.side == "s":
            yield one
        else:
            waiting.append(one)
    yield from waiting


def _size(inputs: Iterable[ShardInput]) -> int:
    return sum(part.message.size for one in inputs for part in one.parts)


def _fit(tables: list[pa.Table], limits: BatchLimits) -> bool:
    """Whether tables of pairs may become one."""
    rows, size = sum(one.num_rows for one in tables), sum(one.nbytes for one in tables)
    return bool(rows <= limits.rows and size <= limits.bytes)


def _in_order(side: str, own: T, other: T) -> tuple[T, T]:
    """r's value, then s's; `own` is the value of `side`."""
    return (own, other) if side == "r" else (other, own)
