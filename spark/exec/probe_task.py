"""A task's questions to the table it holds: bulk by bulk, and a card is held for as long as one bulk takes.

Operators of one stage run at the same time in Python workers of their own, each fed by the one before: whoever held a
card while it waits for rows, or for its own to be taken, might wait for a worker that waits for that card. So a bulk is
read first; then the card is taken, opened, asked, closed and given back; only then do rows go out. On a card the held
table is sent anew for every bulk, and bulks are larger for it. What needs no lock stays open from bulk to bulk.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator

import pyarrow as pa

from millrace.join_parts.table_probe import Partners, TableProbe
from millrace.spark.cluster.task import Place, at_work
from millrace.spark.exec.join_rows import ASK_ROWS, Job, ask, gather, out_schema, tally, told_row

CARD_ROWS = 1 << 19
"""Rows of a bulk that a card is taken for."""


def bulk_rows(place: Place) -> int:
    """About how many rows to ask with at once."""
    return CARD_ROWS if place.card else ASK_ROWS


class Asking:
    """One task and its held table, which is `side`; `opened` gives a probe of it."""

    def __init__(self, job: Job, side: str, held: pa.Table, place: Place, opened: Callable[[], TableProbe]) -> None:
        self._job, self._side, self._held = job, side, held
        self._place, self._opened = place, opened
        self._probe: TableProbe | None = None
        self._done: Counter[str] = Counter()
        self._fell_back = False

    def rows(self, bulk: pa.Table) -> Iterator[pa.RecordBatch]:
        """What a bulk of the asking side makes with the held rows."""
        with at_work(self._place):
            found = self._ask(bulk)
        yield from gather(self._job, found, bulk, self._held, self._side)

    def _ask(self, bulk: pa.Table) -> Partners:
        probe = self._opened() if self._probe is None else self._probe
        self._probe = probe
        before = tally(probe.stats)
        try:
            return ask(self._job, probe, bulk, self._side)
        finally:
            self._done.update({name: value - before[name] for name, value in tally(probe.stats).items()})
            self._fell_back |= probe.fell_back is not None
            if self._place.card:
                self.close()

    def told(self, asking: pa.Schema) -> pa.RecordBatch:
        """A row that tells what this task did; what a probe did for tasks before it is not told again."""
        told = dict(self._done) | {"tasks": 1, "held": self._held.num_rows, "fallbacks": int(self._fell_back)}
        return told_row(out_schema(self._job, asking, self._held.schema, self._side), told)

    def close(self) -> None:
        """Give the probe's device back."""
        probe, self._probe = self._probe, None
        if probe is not None:
            probe.close()
