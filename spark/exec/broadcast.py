"""A join without a shuffle: the driver reads, sorts and saves the small side; every worker maps the file.

The small side is the *held* one. The other side is the *probing* one: its rows stream through the tasks and search the
held rows. Each probing row is in exactly one task, so every `how` is correct if s is held; r is held only for inner
joins. A worker sorts the held table and sends it to the device once, and keeps that probe for later tasks. On a card a
probe lives only as long as one bulk (`probe_task.py`).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from itertools import chain

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from millrace.join_parts.table_probe import TableProbe
from millrace.spark.cluster.files import SharedFile, map_table
from millrace.spark.cluster.task import TaskDevice, task_device
from millrace.spark.exec.join_rows import JoinJob, merge_batches, open_probe
from millrace.spark.exec.probe_task import ProbeTask, bulk_rows

MAX_PROBES = 4
"""Probes of held tables that a worker keeps."""
Batches = Iterable[pa.RecordBatch]
_kept: dict[tuple[int, SharedFile, JoinJob, str], TableProbe] = {}


def sorted_by_key(table: pa.Table, key: str | None) -> pa.Table:
    """The rows sorted by `key`, so that partners are close together in memory; the table itself without a key."""
    if key is None:
        return table
    keys = table.column(key)
    if keys.null_count:
        return table.take(pc.sort_indices(keys))
    return table.take(pa.array(np.argsort(keys.to_numpy())))  # half the time of Arrow's sort


def joiner(job: JoinJob, file: SharedFile, side: str) -> Callable[[Batches], Iterator[pa.RecordBatch]]:
    """The function that tasks run on the probing side's batches. The file holds the rows of `side`."""

    def join_batches(batches: Batches) -> Iterator[pa.RecordBatch]:
        device = task_device(job.device_request)
        bulks = merge_batches(batches, bulk_rows(device))
        first = next(bulks, None)
        if first is None:
            return
        schema = first.schema
        task = ProbeTask(job, side, map_table(file), device, lambda: _probe(job, file, side, device, schema))
        for bulk in chain([first], bulks):
            yield from task.rows(bulk)
        if job.report:
            yield task.report(schema)

    return join_batches


def _probe(job: JoinJob, file: SharedFile, side: str, device: TaskDevice, probing: pa.Schema) -> TableProbe:
    """A probe of a file's table. This process keeps it for later tasks, unless it is on a card."""
    if device.card:
        return open_probe(job, map_table(file), probing, side, device)
    key = (os.getpid(), file, job, device.name)
    if key not in _kept:
        _kept[key] = open_probe(job, map_table(file), probing, side, device)
    while len(_kept) > MAX_PROBES:
        _kept.pop(next(iter(_kept))).close()
    return _kept[key]
