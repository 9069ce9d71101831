"""One task's search of the held table, bulk by bulk; a card is locked for one bulk at a time.

The operators of one stage run at the same time in separate Python workers, and each feeds the next. An operator that
keeps a card while it waits for input, or for its output to be read, may wait for a worker that waits for that card: a
deadlock. So a task reads a bulk first; then it locks the card, opens it, searches, closes it and unlocks it; only then
does it output rows. On a card the held table is sent again for every bulk, so bulks are larger there. A device that
needs no lock stays open between bulks.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator

import pyarrow as pa

from millrace.join_parts.table_probe import Partners, TableProbe
from millrace.spark.cluster.task import TaskDevice, device_lock
from millrace.spark.exec.join_rows import PROBE_ROWS, JoinJob, find_partners, gather, out_schema, report_row, tally

CARD_ROWS = 1 << 19
"""Rows of a bulk on a card."""


def bulk_rows(device: TaskDevice) -> int:
    """About how many rows to search with at once on this device."""
    return CARD_ROWS if device.card else PROBE_ROWS


class ProbeTask:
    """One task and its held table, which is `side`; `open_probe` opens a probe of that table."""

    def __init__(
        self, job: JoinJob, side: str, held: pa.Table, device: TaskDevice, open_probe: Callable[[], TableProbe]
    ) -> None:
        self._job, self._side, self._held = job, side, held
        self._device, self._open_probe = device, open_probe
        self._probe: TableProbe | None = None
        self._counts: Counter[str] = Counter()
        self._fell_back = False

    def rows(self, bulk: pa.Table) -> Iterator[pa.RecordBatch]:
        """The output rows of a bulk of the probing side."""
        with device_lock(self._device):
            found = self._find(bulk)
        yield from gather(self._job, found, bulk, self._held, self._side)

    def _find(self, bulk: pa.Table) -> Partners:
        probe = self._open_probe() if self._probe is None else self._probe
        self._probe = probe
        before = tally(probe.stats)
        try:
            return find_partners(self._job, probe, bulk, self._side)
        finally:
            self._counts.update({name: value - before[name] for name, value in tally(probe.stats).items()})
            self._fell_back |= probe.fallback is not None
            if self._device.card:
                self.close()

    def report(self, probing: pa.Schema) -> pa.RecordBatch:
        """A row with this task's counts, without those of earlier tasks that used the same probe."""
        counts = dict(self._counts) | {"tasks": 1, "held": self._held.num_rows, "fallbacks": int(self._fell_back)}
        return report_row(out_schema(self._job, probing, self._held.schema, self._side), counts)

    def close(self) -> None:
        """Close the probe, which frees its device."""
        probe, self._probe = self._probe, None
        if probe is not None:
            probe.close()
