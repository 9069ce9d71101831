"""BI-Sort (PanJoin, III-D): a subwindow as a main array kept sorted, an insertion buffer, and a sampled index.

The paper merges the buffer, or a batch larger than it, straight into the main array, which costs the whole array each
time. Here a batch becomes a sorted run of its own, and runs of like size are merged, so that each tuple is moved a
logarithmic number of times; a sealed subwindow is one run. Merging, sampling and probing are done by the device
through the run engine; results stay `<start, end>` records until somebody wants the pairs.
"""

from __future__ import annotations

import numpy as np

from millrace.host import bisort_expander as ex
from millrace.host.indexes import Positions
from millrace.host.jit import Share
from millrace.host.memory import address
from millrace.host.run_engine import UNITS, Records, Run, RunEngine
from millrace.host.subwindow import Batch, Hits, Ids, Questions, Reach, Site, Structure
from millrace.host.word_sorter import sort_words
from millrace.host.words import Array

BUFFER = 1 << 10
"""Tuples of the insertion buffer, as in the paper (V-A3)."""
RATIO = 2
"""Two runs are merged unless the older one is more than this many times the newer one."""


class InsertionBuffer:
    """The newest tuples, kept sorted in a small array of the host: no device is asked for so few."""

    def __init__(self, word: np.dtype[np.unsignedinteger]) -> None:
        """Empty."""
        self._words: Array = np.empty(BUFFER, word)
        self.ids: Ids = np.empty(BUFFER, np.uint32)
        self.size = 0

    def insert(self, batch: Batch) -> None:
        """Merge a few tuples in."""
        ex.merge_in(self._words, self.ids, self.size, batch.words, batch.ids)
        self.size += len(batch)

    def empty(self) -> tuple[Array, Ids]:
        """What was in it."""
        n, self.size = self.size, 0
        return self._words[:n].copy(), self.ids[:n].copy()

    def probe(self, questions: Questions) -> tuple[Ids, Ids] | None:
        """Starts and ends of the questions' partners; nothing where the buffer is empty."""
        if self.size == 0:
            return None
        starts, ends = np.empty(len(questions), np.uint32), np.empty(len(questions), np.uint32)
        ex.search(self._words[: self.size], questions.low, questions.high, starts, ends)
        return starts, ends


class BisortHits(Hits):
    """Records of a few runs and of the insertion buffer."""

    def __init__(
        self,
        owner: Bisort,
        questions: Questions,
        records: list[Records],
        buffered: tuple[Ids, Ids] | None,
        reach: Reach | None,
    ) -> None:
        """Counts the partners."""
        self._owner, self._records, self._buffered, self._reach = owner, records, buffered, reach
        self._size = len(questions)
        self._keep = questions
        self.counts = owner.site.team.arena.take(self._size, np.int64)
        ranges = [(one.starts, one.ends) for one in records] + ([] if buffered is None else [buffered])
        self._runs = np.zeros((len(ranges), ex.LINE), np.int64)
        for line, (starts, ends) in zip(self._runs, ranges, strict=True):
            line[:] = address(starts), address(ends), 0, reach is not None
        self._given = np.zeros(ex.ARGUMENTS, np.int64)
        self._given[ex.QUESTIONS], self._given[ex.RUNS] = self._size, len(ranges)
        self._given[ex.TABLE], self._given[ex.WHO] = address(self._runs), address(questions.who)
        self._given[ex.FIRST], self._given[ex.COUNTS] = owner.first, address(self.counts)
        if reach is not None:
            self._given[ex.BEGIN : ex.STRIDE + 1] = address(reach.begin), address(reach.end), reach.stride
            self._add_ids()
        self._run(ex.count_partners)

    def _add_ids(self) -> None:
        """The host needs the ids now."""
        for line, one in zip(self._runs, self._records, strict=False):
            line[2] = address(self._owner.engine.ids(one.run))
        if self._buffered is not None:
            self._runs[-1, 2] = address(self._owner.buffer.ids)

    def _run(self, share: Share) -> None:
        self._owner.site.team.run(share, self._given, -(-self._size // ex.SLICE))

    def write(self, out: Positions, at: Positions) -> None:
        """Copy ids from the runs."""
        if self._reach is None:
            self._add_ids()
        self._given[ex.OUT], self._given[ex.AT] = address(out), address(at)
        self._run(ex.write_partners)

    def release(self) -> None:
        """Give the records back."""
        for one in self._records:
            self._owner.engine.forget(one)
        self._owner.site.team.arena.give(self.counts)


class Bisort(Structure):
    """Sorted runs, oldest first, and the insertion buffer behind them."""

    name = "bisort"
    needs = UNITS

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
        """A new run; runs of like size are merged."""
        self._runs.append(self.engine.run(words, ids))
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

    def probe(self, questions: Questions, reach: Reach | None, want: bool) -> BisortHits:
        """Have every run probed, and look into the buffer."""
        return BisortHits(self, questions, self._probe_runs(questions), self.buffer.probe(questions), reach)

    def _probe_runs(self, questions: Questions) -> list[Records]:
        engine, n = self.engine, len(questions)
        high, back = questions.high, None
        if not questions.rising:
            high, back = sort_words(questions.high, self.site.team)
        if not self._runs:
            return []
        low_buffer, high_buffer = engine.send(questions.low), engine.send(high)
        under_way = [(run, engine.probe(run, low_buffer, high_buffer, n)) for run in self._runs]
        records = [engine.records(run, probing) for run, probing in under_way]
        if back is not None:
            for one in records:
                ends = np.empty(n, np.uint32)
                ends[back] = one.ends
                one.ends = ends
        return records

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
