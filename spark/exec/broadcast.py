"""A join without a shuffle: the small side is read by the driver, sorted by its key, saved, and mapped by every worker.

The small side is the *held* one; the other streams through the tasks and asks it. Each row of the asking side is in one
task alone, so with s held every `how` is right; r is held only for inner joins. A worker keeps its probes, sorted and
sent to the device once, for the tasks that come; on a card they live as long as one bulk (`asking.py`).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from itertools import chain

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from millrace.join_parts.table_probe import TableProbe
from millrace.spark.cluster.files import Shipped, map_table
from millrace.spark.cluster.task import Place, place_of
from millrace.spark.exec.join_rows import Job, in_bulk, open_probe
from millrace.spark.exec.probe_task import Asking, bulk_rows

MOST_PROBES = 4
"""Held tables that a worker keeps."""
Batches = Iterable[pa.RecordBatch]
_kept: dict[tuple[int, Shipped, Job, str], TableProbe] = {}


def in_key_order(table: pa.Table, key: str | None) -> pa.Table:
    """The rows sorted by their key, so that partners lie close together; as they are where there is no such key."""
    if key is None:
        return table
    keys = table.column(key)
    if keys.null_count:
        return table.take(pc.sort_indices(keys))
    return table.take(pa.array(np.argsort(keys.to_numpy())))  # takes half as long


def asker(job: Job, file: Shipped, side: str) -> Callable[[Batches], Iterator[pa.RecordBatch]]:
    """The function that tasks run on the asking side's batches."""

    def ask(batches: Batches) -> Iterator[pa.RecordBatch]:
        place = place_of(job.asked)
        bulks = in_bulk(batches, bulk_rows(place))
        first = next(bulks, None)
        if first is None:
            return
        schema = first.schema
        asking = Asking(job, side, map_table(file), place, lambda: _probe(job, file, side, place, schema))
        for bulk in chain([first], bulks):
            yield from asking.rows(bulk)
        if job.told:
            yield asking.told(schema)

    return ask


def _probe(job: Job, file: Shipped, side: str, place: Place, asking: pa.Schema) -> TableProbe:
    """A probe of a file: one that this process keeps, unless it is on a card."""
    if place.card:
        return open_probe(job, map_table(file), asking, side, place)
    key = (os.getpid(), file, job, place.device)
    if key not in _kept:
        _kept[key] = open_probe(job, map_table(file), asking, side, place)
    while len(_kept) > MOST_PROBES:
        _kept.pop(next(iter(_kept))).close()
    return _kept[key]
