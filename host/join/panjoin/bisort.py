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
from millrace.host.runtime.intrinsics import LANES, address

RATIO = 2
"""Two runs are merged unless the older one is more than this many times as large as the newer one."""
SMALL_RUN = 1 << 14
"""The size of a run up to which it is merged with any newer one."""


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
        self._sources: tuple[Array, list[Array]] | None = None
        """The table of sources, and the arrays whose addresses it contains; None after a change of the runs."""

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
        self._sources = None
        self._runs.append(self.engine.run(words, ids))

    def maintain(self) -> None:
        """Merge runs of similar size."""
        while len(self._runs) > 1 and self._are_similar(self._runs[-2].size, self._runs[-1].size):
            self._merge_last()

    def _are_similar(self, older: int, newer: int) -> bool:
        """Whether two runs are merged now. In host memory, small ones always are: a probe costs more than the merge."""
        small = self.engine.in_host_memory and older + newer <= SMALL_RUN
        return small or older <= RATIO * newer

    def _merge_last(self) -> None:
        self._sources = None
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
        self._sources = None
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
        self._runs, self._sources = [], None

    def sources(self) -> Array | None:
        """Return the runs and the insertion buffer, oldest first."""
        if self._sources is None and self.engine.in_host_memory:
            sizes, used, lines = np.array([run.size for run in self._runs], np.int64), [], []
            for i, run in enumerate(self._runs):
                host, ids = self.engine.host_words(run), self.engine.ids(run)
                index = address(host.index) if host.step == LANES else 0
                lines.append([address(host.words), index, address(ids), address(sizes) + 8 * i, self.first])
                used += [host.words, host.index, ids]
            buffer = self.buffer
            lines.append([address(buffer.words), 0, address(buffer.ids), address(buffer.sizes), self.first])
            self._sources = np.array(lines, np.int64), [*used, sizes]
        return None if self._sources is None else self._sources[0]

    def count_probes(self, probes: int) -> None:
        """Count probes that a small step has made in runs."""
        self.engine.device.count("bisort_prober", probes)

    def room_for(self, tuples: int) -> InsertionBuffer | None:
        """Return the insertion buffer with room for so many tuples."""
        if self.buffer.size + tuples > BUFFER:
            self.flush()
        return self.buffer

    def filled(self, tuples: int) -> None:
        """Count tuples that a small step has merged into the insertion buffer."""
        self.buffer.sizes[0] += tuples
        self._size += tuples

    def __len__(self) -> int:
        """Tuples in runs and buffer."""
        return self._size

    def counters(self) -> dict[str, int]:
        """The number of merges of runs."""
        return {"boundaries": self._merge_count}
