"""A join without a shuffle: the small side is read by the driver, sorted by its key, saved, and mapped by every worker.

The small side is the *held* one; the other streams through the tasks and asks it. Each row of the asking side is in one
task alone, so with s held every `how` is right; r is held only for inner joins. A worker keeps its probes, sorted and
sent to the device once, for the tasks that come; those on a card are given back with the card.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from itertools import chain

import pyarrow as pa
import pyarrow.compute as pc

from millrace.spark.files import Shipped, map_table
from millrace.spark.task import Place, at_work, place_of
from millrace.spark.work import Job, answer, in_bulk, open_probe, out_schema, tally, told_row
from millrace.table_probe import TableProbe

MOST_PROBES = 4
"""Held tables that a worker keeps."""
Batches = Iterable[pa.RecordBatch]
_kept: dict[tuple[int, Shipped, Job, str], tuple[pa.Table, TableProbe]] = {}


def in_key_order(table: pa.Table, key: str | None) -> pa.Table:
    """The rows sorted by their key, so that partners lie close together; as they are where there is no such key."""
    if key is None:
        return table
    return table.take(pc.sort_indices(table.column(key)))


def asker(job: Job, file: Shipped, side: str) -> Callable[[Batches], Iterator[pa.RecordBatch]]:
    """The function that tasks run on the asking side's batches."""

    def ask(batches: Batches) -> Iterator[pa.RecordBatch]:
        place = place_of(job.asked)
        with at_work(place):
            yield from _ask_all(job, file, side, place, batches)

    return ask


def _ask_all(job: Job, file: Shipped, side: str, place: Place, batches: Batches) -> Iterator[pa.RecordBatch]:
    """All of a task's rows, by one probe; what it did before, for other tasks, is not told again."""
    tables = in_bulk(batches)
    first = next(tables, None)
    if first is None:
        return
    with _probe(job, file, side, place, first.schema) as (held, probe):
        before = tally(probe.stats)
        for table in chain([first], tables):
            yield from answer(job, probe, table, held, side)
        if job.told:
            done = {name: value - before[name] for name, value in tally(probe.stats).items()}
            told = done | {"tasks": 1, "held": held.num_rows, "fallbacks": int(probe.fell_back is not None)}
            yield told_row(out_schema(job, first.schema, held.schema, side), told)


@contextmanager
def _probe(
    job: Job, file: Shipped, side: str, place: Place, asking: pa.Schema
) -> Iterator[tuple[pa.Table, TableProbe]]:
    """This process's probe of a file: a kept one, unless it is on a card."""
    key = (os.getpid(), file, job, place.device)
    if key not in _kept:
        held = map_table(file)
        _kept[key] = held, open_probe(job, held, asking, side, place)
    while len(_kept) > MOST_PROBES:
        _kept.pop(next(iter(_kept)))[1].close()
    try:
        yield _kept[key]
    finally:
        if place.card:
            _kept.pop(key)[1].close()
