"""One task's search of the held table, bulk by bulk.

A card is locked for one block of pairs at a time (`pair_blocks.py`), so bulks are larger there: the held table is sent
to the card again for every one. A device that needs no lock stays open between bulks.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator

import pyarrow as pa

from millrace.join_parts.table_probe import TableProbe
from millrace.spark.cluster.jobs import log_held
from millrace.spark.cluster.task import TaskDevice
from millrace.spark.exec.join_rows import (
    PROBE_ROWS,
    JoinJob,
    SizedTable,
    gather,
    merge_batches,
    out_schema,
    report_row,
)
from millrace.spark.exec.pair_blocks import partner_blocks
from millrace.spark.plan.hows import other_side

CARD_ROWS = 1 << 19
"""Rows of a bulk on a card."""


def bulks(batches: Iterable[pa.RecordBatch], job: JoinJob, device: TaskDevice) -> Iterator[pa.Table]:
    """The rows to search with at once on this device."""
    return merge_batches(batches, CARD_ROWS if device.card else PROBE_ROWS, job.limits.bulk_bytes)


class ProbeTask:
    """One task and its held table; `open_probe` opens a probe of that table."""

    def __init__(
        self, job: JoinJob, held: SizedTable, device: TaskDevice, open_probe: Callable[[], TableProbe]
    ) -> None:
        self._job, self._held = job, held
        log_held(device.name, held.table.num_rows, held.side)
        self._device, self._open_probe = device, open_probe
        self._probe: TableProbe | None = None
        self._counts: Counter[str] = Counter()
        self._fell_back = False

    def rows(self, bulk: pa.Table) -> Iterator[pa.RecordBatch]:
        """The output rows of a bulk of the probing side."""
        job, side = self._job, other_side(self._held.side)
        keys, probing = job.keys(side, bulk), job.payload(side, bulk)
        for found in partner_blocks(keys, self._device, job.limits.pairs, self._opened, self._done, job.pairs):
            yield from gather(job, found, probing, self._held)

    def _opened(self) -> TableProbe:
        if self._probe is None:
            self._probe = self._open_probe()
        return self._probe

    def _done(self, probe: TableProbe, counted: Counter[str]) -> None:
        self._counts.update(counted)
        self._fell_back |= probe.fallback is not None
        if self._device.card:
            self.close()

    def report(self, probing: pa.Schema) -> pa.RecordBatch:
        """A row with this task's counts, without those of earlier tasks that used the same probe."""
        held = self._held.table
        counts = dict(self._counts) | {"tasks": 1, "held": held.num_rows, "fallbacks": int(self._fell_back)}
        return report_row(out_schema(self._job, probing, held.schema, self._held.side), counts)

    def close(self) -> None:
        """Close the probe, which frees its device."""
        probe, self._probe = self._probe, None
        if probe is not None:
            probe.close()
