"""A join without a shuffle: the driver reads, sorts and saves the small side; every worker maps the file.

The small side is the *held* one. The other side is the *probing* one: its rows stream through the tasks and search the
held rows. Each probing row is in exactly one task, so every `how` is correct if the kept side probes: an inner join may
hold either side, a right join r, all others s. A worker sorts the held table and sends it to the device once, and keeps
that probe for later tasks. On a card a probe lives only as long as one bulk (`probe_task.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, ExitStack
from itertools import chain

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from millrace.join_parts.table_probe import TableProbe
from millrace.spark.cluster.files import SharedFile, map_table
from millrace.spark.cluster.open_cache import OpenCache
from millrace.spark.cluster.task import reporting, task_device
from millrace.spark.exec.join_rows import JoinJob, open_probe
from millrace.spark.exec.probe_task import ProbeTask, bulks

MAX_PROBES = 4
"""Probes of held tables that a worker keeps."""
Batches = Iterable[pa.RecordBatch]
ProbeKey = tuple[SharedFile, str, JoinJob, pa.Schema, str]
_probes: OpenCache[ProbeKey, TableProbe] = OpenCache(MAX_PROBES)
"""By file, held side, join, the probing rows' schema and device. Files are named by content: calls that hold the same
rows share one, whichever side these are.
"""


def sorted_by_key(table: pa.Table, key: str | None) -> pa.Table:
    """The rows sorted by `key`, so that partners are close together in memory; the table itself without a key."""
    if key is None:
        return table
    keys = table.column(key)
    if keys.null_count:
        return table.take(pc.sort_indices(keys))
    return table.take(pa.array(np.argsort(keys.to_numpy())))  # half the time of Arrow's sort


def _kept_probe(key: ProbeKey, new_probe: Callable[[], TableProbe]) -> AbstractContextManager[TableProbe]:
    """The probe that this process keeps for later tasks.

    A function of its own: Spark sends the function of a task by value, with copies of all objects that it names. If it
    named the cache, every task would have an empty one.
    """
    return _probes.use(key, new_probe)


def joiner(job: JoinJob, file: SharedFile, side: str) -> Callable[[Batches], Iterator[pa.RecordBatch]]:
    """The function that tasks run on the probing side's batches. The file holds the rows of `side`."""

    def join_batches(batches: Batches) -> Iterator[pa.RecordBatch]:
        device = task_device(job.device_request)
        rows = bulks(batches, job, device)
        first = next(rows, None)
        if first is None:
            return
        schema, held = first.schema, map_table(file)

        def new_probe() -> TableProbe:
            return open_probe(job, held, schema, side, device)

        def probe() -> TableProbe:
            key = (file, side, job, schema, device.name)
            return new_probe() if device.card else used.enter_context(_kept_probe(key, new_probe))

        with ExitStack() as used:  # a probe that is not on a card stays open for later tasks
            task = ProbeTask(job, job.payload(side, held), device, probe)
            for bulk in chain([first], rows):
                yield from task.rows(bulk)
            if job.report:
                yield task.report(schema)

    return reporting(join_batches)
