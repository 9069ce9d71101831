"""What each structure takes for the stream at hand: a part of it is recorded, and gone through again with a clock.

No model knows what batches, partners, skew and caches make of a structure; the stream itself does. So `auto`
(`auto.py`) keeps the batches and the latest questions of a subwindow, and has a chain of each structure
take and answer them as a window would: a subwindow that has half expired, a whole one, and one that is filling up.
Limits: of large subwindows a part is gone through, and of many batches the latest are clocked. All subwindows hold the
same tuples, in the older ones moved back where keys wander.
"""

from __future__ import annotations

import time
from collections import deque
from dataclasses import dataclass, field, replace
from math import inf
from statistics import mean, median

import numpy as np

from millrace.host.base.types import Array
from millrace.host.device.cpu import CpuDevice
from millrace.host.join.panjoin import match_collector
from millrace.host.join.panjoin.chain import Chain
from millrace.host.join.panjoin.index import LOAD_ROWS, STRUCTURES, structure_class
from millrace.host.join.panjoin.subwindow import RangeProbes, Structure, StructureContext, VisibleIntervals
from millrace.host.kernels.word_sorter import sort_words
from millrace.host.runtime.team import MIN_SHARED_ROWS, Team

MOST_TUPLES, MOST_BATCHES = 1 << 19, 1 << 12
"""What is recorded at most."""
PARTS = 5
"""What is clocked is cut in so many parts, for the first may have compiled, and others may have met whatever else the
machine did."""
OUTLYING = 3
"""A part counts at most so many times the median."""
PART_TUPLES, PART_BATCHES = 1 << 14, 32
"""What a part has at most; one batch at least."""
HOPELESS = 2
"""A structure that took so many times what the best before it did, in two parts, is spared the others."""


@dataclass
class Recording:
    """What went into one side's newest subwindow, and the latest that its window was asked, by how many tuples.

    Every batch that is clocked has questions of its own: what was asked before is in the cache.
    """

    word: np.dtype[np.unsignedinteger]
    batches: list[Array] = field(default_factory=list)
    asked: deque[tuple[int, RangeProbes]] = field(default_factory=deque)
    tuples: int = 0
    askers: int = 0
    times: int = 0
    """How many tuples asked, and how often, not only those that are kept."""
    full: bool = False
    _kept: int = 0

    def put(self, words: Array) -> None:
        """These came in."""
        self.full = self.full or self.tuples + len(words) > MOST_TUPLES or len(self.batches) == MOST_BATCHES
        if len(words) and not self.full:
            self.batches.append(words.copy())
            self.tuples += len(words)

    def ask(self, askers: int, asked: RangeProbes) -> None:
        """These were asked; their arrays are the arena's, and are used again."""
        if self.full:
            return
        self.askers, self.times = self.askers + askers, self.times + 1
        kept = replace(
            asked,
            low=asked.low.copy(),
            high=asked.high.copy(),
            probe_tuple=asked.probe_tuple.copy(),
            slot=asked.slot.copy(),
        )
        self.asked.append((askers, kept))
        self._kept += askers
        while len(self.asked) > PARTS and (len(self.asked) > PARTS * PART_BATCHES or self._kept > PARTS * PART_TUPLES):
            self._kept -= self.asked.popleft()[0]

    @property
    def short(self) -> bool:
        """Whether more is to come before it can be gone through."""
        return len(self.batches) < PARTS and not self.full

    @property
    def enough(self) -> bool:
        """Whether every part has a batch and questions of its own."""
        return min(len(self.batches), len(self.asked)) >= PARTS

    @property
    def batch(self) -> float:
        """Tuples put in at once, on the average."""
        return self.tuples / len(self.batches)

    @property
    def asking(self) -> float:
        """Tuples that asked at once, on the average."""
        return self.askers / self.times


def able(wanders: bool) -> list[str]:
    """The structures to choose from. RaP-Table is none where keys wander: its last partition would hold them all."""
    return [name for name in STRUCTURES if not (wanders and name == "rap")]


def rehearse(recording: Recording, team: Team, want: bool, wanders: bool) -> tuple[dict[str, float], int]:
    """Nanoseconds per tuple, of those put in and those that ask, by structure; `want`: pairs, not only counts.

    And how long all that took, as near as can be told without the time for compiling. `wanders`: the keys do.
    """
    start = time.perf_counter_ns()
    batches = recording.batches
    length = max(1, min(len(batches) // PARTS, PART_BATCHES, PART_TUPLES * len(batches) // recording.tuples))
    latest = batches[-PARTS * length :]
    held, costs = _held(batches, len(latest), wanders), dict[str, float]()
    names = able(wanders)
    for name in (names[0], *names):  # the first twice: it meets memory that nobody has touched yet
        stage = _Stage(name, recording, held, team, want)
        parts: list[float] = []
        for first in range(0, len(latest), length):
            if len(parts) < 2 or min(parts) < HOPELESS * min(costs.values(), default=inf):
                parts.append(stage.clocked(latest[first : first + length], first - len(latest)))
        costs[name] = _level(parts)
        stage.chain.close()
    amount = recording.tuples + recording.askers
    return costs, min(time.perf_counter_ns() - start, int(4 * sum(costs.values()) * amount))


def _level(parts: list[float]) -> float:
    """Their mean, for structures do some of their work in bursts; what is far above the median was something else."""
    most = OUTLYING * median(parts)
    return mean(min(part, most) for part in parts)


class _Stage:
    """A chain of one structure, with what it holds before anything is clocked."""

    def __init__(self, name: str, recording: Recording, held: list[Array], team: Team, want: bool) -> None:
        device = CpuDevice(team=team)  # its own, so that what is counted of the join's device is the join's work

        def begin(before: Structure | None, first: int, capacity: int) -> Structure:
            context = StructureContext(recording.word, capacity, device, team)
            return structure_class(name)(context, first) if before is None else before.successor(context, first)

        rows = recording.tuples
        self.chain = Chain(begin, 2 * rows, team.arena)
        self._recording, self._team, self._want = recording, team, want
        self._reach = VisibleIntervals(np.full(1, rows // 2), np.full(1, 4 * rows))
        self._at = 0
        for words in held:
            for start in range(0, len(words), LOAD_ROWS):
                self._put(words[start : start + LOAD_ROWS])

    def clocked(self, batches: list[Array], number: int) -> float:
        """What a tuple takes when these are put in and what was asked beside them is answered.

        `number`: of the first batch, counted from the end of the recording, as are its questions.
        """
        recording, inserting, probing, put, asked = self._recording, 0, 0, 0, 0
        if recording.batch >= MIN_SHARED_ROWS:
            self._team.acquire()  # as a push does: helpers may have gone to sleep while a structure was made
        for at, words in enumerate(batches, number):
            askers, questions = recording.asked[at % len(recording.asked)]
            start = time.perf_counter_ns()
            self._put(words)
            middle = time.perf_counter_ns()
            self._ask(askers, questions)
            probing += time.perf_counter_ns() - middle
            inserting, put, asked = inserting + middle - start, put + len(words), asked + askers
        amount = recording.tuples + recording.askers
        return (inserting / put * recording.tuples + probing / asked * recording.askers) / amount

    def _put(self, words: Array) -> None:
        self.chain.append(self._at, len(words), *sort_words(words, self._team))
        self._at += len(words)

    def _ask(self, askers: int, asked: RangeProbes) -> None:
        records = self.chain.probe(asked, self._reach, self._want)
        if self._want:
            match_collector.find_partners(askers, asked, records, self._reach, 0, self._team)
        else:
            match_collector.count_partners(askers, asked, records, self._reach, self._team)
        for one in records:
            one.release()
        self.chain.maintain()


def _held(batches: list[Array], clocked: int, wanders: bool) -> list[Array]:
    """What two full subwindows and one that is half full hold, but for the batches that will be clocked."""
    words, middle = np.concatenate(batches), len(batches) // 2
    newest = batches[middle : len(batches) - clocked]
    older = [words, words]
    if wanders:
        # By how much the mean moves while a subwindow fills; words that fall below the least come round at the top.
        early, late = (np.concatenate(half) - words.min() for half in (batches[:middle], batches[middle:]))
        drift = round(2 * (float(late.mean()) - float(early.mean())))
        older = [words - words.dtype.type(times * drift % 2 ** (8 * words.itemsize)) for times in (2, 1)]
    return [*older, np.concatenate(newest)] if newest else older
