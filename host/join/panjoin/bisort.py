"""BI-Sort (PanJoin, III-D): a subwindow as a main array kept sorted, an insertion buffer, and a sampled index.

The paper merges the buffer, or a larger batch, directly into the main array, which moves the entire array each time.
Here a batch becomes a sorted run of its own, and runs of similar size are merged, so that each tuple is moved a
logarithmic number of times. A sealed subwindow is one run. Helper threads merge runs in the background after `step`
returns. The device merges, samples and probes, through `run_engine.py`. Results stay `<start, end>` match ranges until
pairs are wanted.
"""

from __future__ import annotations

from functools import partial

import numpy as np

from millrace.host.base.errors import DeviceFault
from millrace.host.base.types import Array, Ids
from millrace.host.join.panjoin import run_engine
from millrace.host.join.panjoin.insertion_buffer import BUFFER, InsertionBuffer
from millrace.host.join.panjoin.run_engine import RunEngine, SortedRun
from millrace.host.join.panjoin.subwindow import (
    SMALL_BATCH,
    InsertBatch,
    MatchRanges,
    RangeProbes,
    Structure,
    StructureContext,
    VisibleIntervals,
)
from millrace.host.kernels.word_sorter import sort_words

RATIO = 2
"""Two runs are merged unless the older one is more than this many times as large as the newer one."""


class Bisort(Structure):
    """Sorted runs, oldest first, and the insertion buffer with the newest tuples."""

    name = "bisort"
    needs = run_engine.UNITS

    def __init__(self, context: StructureContext, first: int) -> None:
        """Empty, without runs."""
        super().__init__(context, first)
        self.engine = RunEngine(context.device)
        self._runs: list[SortedRun] = []
        self.buffer = InsertionBuffer(context.word)
        self._size = 0
        self._merge_count = 0

    def insert(self, batch: InsertBatch) -> None:
        """Insert into the buffer, or as a run of its own if the batch is larger than the buffer."""
        self._size += len(batch)
        if self.buffer.size + len(batch) > BUFFER:
            self.flush()
        if len(batch) > BUFFER:
            self._add(batch.words, batch.ids)
        else:
            self.buffer.insert(batch)

    def _add(self, words: Array, ids: Ids) -> None:
        """Append a run. It is merged at the end of its step, or when the next run is appended."""
        self.maintain()
        self._runs.append(self.engine.run(words, ids))

    def maintain(self) -> None:
        """Merge runs of similar size."""
        while len(self._runs) > 1 and self._runs[-2].size <= RATIO * self._runs[-1].size:
            self._merge_last()

    def _merge_last(self) -> None:
        newer, older = self._runs.pop(), self._runs.pop()
        self._runs.append(self.engine.merge(older, newer))
        self._merge_count += 1

    def flush(self) -> None:
        """Turn the insertion buffer into a run."""
        if self.buffer.size:
            self._add(*self.buffer.drain())

    def seal(self) -> None:
        """Merge everything into one run."""
        self.flush()
        while len(self._runs) > 1:
            self._merge_last()

    def trim(self, oldest: int) -> bool:
        """Drop tuples below position `oldest`, if the device can and everything is in one run."""
        if not (self.engine.trims and len(self._runs) == 1 and not self.buffer.size):
            return False
        run = self.engine.trim(self._runs[0], oldest - self.first)
        self._runs, self._size = [run], run.size
        return True

    def probe(self, probes: RangeProbes, visible: VisibleIntervals | None, want: bool) -> list[MatchRanges]:
        """Probe every run and the buffer."""
        found: list[MatchRanges] = []
        if self._runs:
            # A launch costs more than a few binary searches; the collector of counts searches for small batches alone.
            by_collector = want or len(probes) <= SMALL_BATCH
            from_host = by_collector and probes.rising and self.engine.in_host_memory
            found = (self._host_runs if from_host else self._probe_runs)(probes, visible is not None)
        if self.buffer.size:
            starts, ends = self.buffer.probe(probes)
            found.append(MatchRanges(starts, ends, lambda: self.buffer.ids, self.first, visible is not None))
        return found

    def _host_runs(self, probes: RangeProbes, check: bool) -> list[MatchRanges]:
        """Return the runs themselves: `match_collector.py` probes them as it copies ids. Bounds stay in the cache."""
        none = np.zeros(0, np.uint32)
        return [
            MatchRanges(
                none, none, partial(self.engine.ids, run), self.first, check, run=self.engine.host_run(run, len(probes))
            )
            for run in self._runs
        ]

    def _probe_runs(self, probes: RangeProbes, check: bool) -> list[MatchRanges]:
        engine, n = self.engine, len(probes)
        order = None
        if probes.keys is not None and probes.band is not None:
            sent = [engine.send(probes.keys)]
            under_way = [(run, engine.probe_band(run, sent[0], probes.band, n)) for run in self._runs]
        else:
            high = probes.high
            if not probes.rising:
                high, order = sort_words(probes.high, self.context.team)
            sent = [engine.send(probes.low), engine.send(high)]
            under_way = [(run, engine.probe(run, sent[0], sent[1], n)) for run in self._runs]
        found = []
        for run, probing in under_way:
            starts, ends = engine.match_bounds(probing)
            if order is not None:
                in_order = np.empty(n, np.uint32)
                in_order[order] = ends
                ends = in_order
            if not engine.in_host_memory and bool((starts > ends).any()):
                raise DeviceFault(f"device {engine.device.name!r} found partners that end before they begin")
            ids = partial(engine.ids, run)
            found.append(MatchRanges(starts, ends, ids, self.first, check, partial(engine.free_probe, probing)))
        engine.free_bounds(sent)
        return found

    def release(self) -> None:
        """Free the runs."""
        for run in self._runs:
            self.engine.free(run)
        self._runs = []

    def __len__(self) -> int:
        """Tuples in runs and buffer."""
        return self._size

    def counters(self) -> dict[str, int]:
        """The number of merges of runs."""
        return {"boundaries": self._merge_count}
