"""BI-Sort (PanJoin, III-D): a subwindow as a main array kept sorted, an insertion buffer, and a sampled index.

The paper merges the buffer, or a batch larger than it, straight into the main array, which costs the whole array each
time. Here a batch becomes a sorted run of its own, and runs of like size are merged, so that each tuple is moved a
logarithmic number of times; a sealed subwindow is one run. Runs are merged when the answers of a step are out, by
helpers while the caller is away. Merging, sampling and probing are done by the device
through the run engine; results stay `<start, end>` records until somebody wants the pairs.
"""

from __future__ import annotations

from functools import partial

import numpy as np

from millrace.host.base.errors import DeviceFault
from millrace.host.base.types import Array, Ids
from millrace.host.join.panjoin import run_engine
from millrace.host.join.panjoin.insertion_buffer import BUFFER, InsertionBuffer
from millrace.host.join.panjoin.run_engine import Run, RunEngine
from millrace.host.join.panjoin.subwindow import Batch, Intervals, Questions, Records, Site, Structure
from millrace.host.kernels.word_sorter import sort_words

RATIO = 2
"""Two runs are merged unless the older one is more than this many times the newer one."""


class Bisort(Structure):
    """Sorted runs, oldest first, and the insertion buffer behind them."""

    name = "bisort"
    needs = run_engine.UNITS

    def __init__(self, site: Site, first: int) -> None:
        """No runs."""
        super().__init__(site, first)
        self.engine = RunEngine(site.device)
        self._runs: list[Run] = []
        self.buffer = InsertionBuffer(site.word)
        self._size = 0
        self._merges = 0

    def insert(self, batch: Batch) -> None:
        """Into the buffer, or as a run of its own if it is larger than the buffer."""
        self._size += len(batch)
        if self.buffer.size + len(batch) > BUFFER:
            self.flush()
        if len(batch) > BUFFER:
            self._add(batch.words, batch.ids)
        else:
            self.buffer.insert(batch)

    def _add(self, words: Array, ids: Ids) -> None:
        """A new run; it is merged when its step's answers are out, or when the next one comes."""
        self.tidy()
        self._runs.append(self.engine.run(words, ids))

    def tidy(self) -> None:
        """Merge runs of like size."""
        while len(self._runs) > 1 and self._runs[-2].size <= RATIO * self._runs[-1].size:
            self._merge_last()

    def _merge_last(self) -> None:
        newer, older = self._runs.pop(), self._runs.pop()
        self._runs.append(self.engine.merge(older, newer))
        self._merges += 1

    def flush(self) -> None:
        """Make a run of the insertion buffer."""
        if self.buffer.size:
            self._add(*self.buffer.empty())

    def seal(self) -> None:
        """One run of all."""
        self.flush()
        while len(self._runs) > 1:
            self._merge_last()

    def trim(self, oldest: int) -> bool:
        """Let tuples below position `oldest` go, if the device can; only what is one run is worth it."""
        if not (self.engine.trims and len(self._runs) == 1 and not self.buffer.size):
            return False
        run = self.engine.trim(self._runs[0], oldest - self.first)
        self._runs, self._size = [run], run.size
        return True

    def probe(self, questions: Questions, reach: Intervals | None, want: bool) -> list[Records]:
        """Have every run probed, and look into the buffer."""
        found: list[Records] = []
        if self._runs:
            near = want and questions.rising and self.engine.is_near
            found = (self._near_runs if near else self._probe_runs)(questions, reach is not None)
        if self.buffer.size:
            starts, ends = self.buffer.probe(questions)
            found.append(Records(starts, ends, lambda: self.buffer.ids, self.first, reach is not None))
        return found

    def _near_runs(self, questions: Questions, check: bool) -> list[Records]:
        """The runs themselves, to be probed where their ids are copied: what is found then never leaves the cache."""
        none = np.zeros(0, np.uint32)
        return [
            Records(
                none, none, partial(self.engine.ids, run), self.first, check, run=self.engine.near(run, len(questions))
            )
            for run in self._runs
        ]

    def _probe_runs(self, questions: Questions, check: bool) -> list[Records]:
        engine, n = self.engine, len(questions)
        order = None
        if questions.keys is not None and questions.band is not None:
            sent = [engine.send(questions.keys)]
            under_way = [(run, engine.probe_band(run, sent[0], questions.band, n)) for run in self._runs]
        else:
            high = questions.high
            if not questions.rising:
                high, order = sort_words(questions.high, self.site.team)
            sent = [engine.send(questions.low), engine.send(high)]
            under_way = [(run, engine.probe(run, sent[0], sent[1], n)) for run in self._runs]
        found = []
        for run, probing in under_way:
            starts, ends = engine.places(probing)
            if order is not None:
                in_order = np.empty(n, np.uint32)
                in_order[order] = ends
                ends = in_order
            if not engine.is_near and bool((starts > ends).any()):
                raise DeviceFault(f"device {engine.device.name!r} found partners that end before they begin")
            ids = partial(engine.ids, run)
            found.append(Records(starts, ends, ids, self.first, check, partial(engine.forget, probing)))
        engine.unsend(sent)
        return found

    def release(self) -> None:
        """Give the runs back."""
        for run in self._runs:
            self.engine.free(run)
        self._runs = []

    def __len__(self) -> int:
        """Tuples in runs and buffer."""
        return self._size

    def counters(self) -> dict[str, int]:
        """Merges of runs."""
        return {"boundaries": self._merges}
