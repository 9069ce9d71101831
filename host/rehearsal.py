"""What each structure takes for the stream at hand: a part of it is recorded, and gone through again with a clock.

No model knows what batches, partners, skew and caches make of a structure; the stream itself does. So `auto`
(`millrace.host.strategy`) keeps the batches and the latest questions of a subwindow, and has a chain of each structure
take and answer them as a window would: an older subwindow that has half expired, and a newer one that fills up.
Limits: of large subwindows a part is gone through, and of many batches the latest are clocked. Both subwindows hold the
same tuples, so keys that wander do not show.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field, replace

import numpy as np

from millrace.host import answers
from millrace.host.chain import Chain
from millrace.host.cpu import CpuDevice
from millrace.host.panjoin import LOAD_ROWS, STRUCTURES, structure_class
from millrace.host.subwindow import Intervals, Questions, Site, Structure
from millrace.host.team import Team
from millrace.host.word_sorter import sort_words
from millrace.host.words import Array

MOST_TUPLES, MOST_BATCHES = 1 << 19, 1 << 12
"""What is recorded at most."""
CLOCKED_TUPLES, CLOCKED_BATCHES = 1 << 17, 128
"""What is clocked at a time, at most; one batch at least."""
_KEPT_QUESTIONS = 4
_LEAST_BATCHES = 3
_PASSES = 2
"""The quicker of so many counts: the first may have compiled, and others may have met whatever else the machine did."""


@dataclass
class Recording:
    """What went into one side's newest subwindow, and the latest that its window was asked, by how many tuples."""

    word: np.dtype[np.unsignedinteger]
    batches: list[Array] = field(default_factory=list)
    asked: deque[tuple[int, Questions]] = field(default_factory=lambda: deque(maxlen=_KEPT_QUESTIONS))
    tuples: int = 0
    askers: int = 0
    times: int = 0
    """How many tuples asked, and how often, not only those that are kept."""

    def put(self, words: Array) -> None:
        """These came in."""
        if len(words) and self.tuples + len(words) <= MOST_TUPLES and len(self.batches) < MOST_BATCHES:
            self.batches.append(words.copy())
            self.tuples += len(words)

    def ask(self, askers: int, asked: Questions) -> None:
        """These were asked; their arrays are the arena's, and are used again."""
        self.askers, self.times = self.askers + askers, self.times + 1
        kept = replace(asked, **{name: getattr(asked, name).copy() for name in ("low", "high", "who", "slot")})
        self.asked.append((askers, kept))

    @property
    def enough(self) -> bool:
        """Whether there is something to go through."""
        return len(self.batches) >= _LEAST_BATCHES and bool(self.asked)

    @property
    def batch(self) -> float:
        """Tuples put in at once, on the average."""
        return self.tuples / len(self.batches)

    @property
    def asking(self) -> float:
        """Tuples that asked at once, on the average."""
        return self.askers / self.times


def rehearse(recording: Recording, team: Team, want: bool) -> tuple[dict[str, float], int]:
    """Nanoseconds per tuple, of those put in and those that ask, of every structure; `want`: pairs, not only counts.

    And how long all that took, as near as can be told without the time for compiling.
    """
    costs, spent = {}, 0
    for name in STRUCTURES:
        start = time.perf_counter_ns()
        passes = _passes(name, recording, team, want)
        took = time.perf_counter_ns() - start
        costs[name] = min(passes)
        amount = recording.tuples + recording.askers
        spent += min(took, int(4 * costs[name] * amount))
    return costs, spent


def _passes(name: str, recording: Recording, team: Team, want: bool) -> list[float]:
    """Fill a window with what was recorded, and clock the latest batches and questions, in `_PASSES` parts."""
    batches, rows = recording.batches, recording.tuples
    device = CpuDevice(team=team)  # its own, so that what is counted of the join's device is the join's work

    def begin(before: Structure | None, first: int, capacity: int) -> Structure:
        site = Site(recording.word, capacity, device, team)
        return structure_class(name)(site, first) if before is None else before.successor(site, first)

    chain = Chain(begin, 2 * rows, team.arena)
    length = max(1, min(len(batches) // _PASSES, CLOCKED_BATCHES, CLOCKED_TUPLES * len(batches) // rows))
    latest = batches[len(batches) - _PASSES * length :]
    at = 0
    for words in (*_joined(batches), *_joined(batches[: len(batches) - len(latest)])):
        at = _put(chain, at, words, team)
    reach, costs = Intervals(np.full(1, rows // 2), np.full(1, 2 * rows)), []
    for first in range(0, len(latest), length):
        inserting = probing = put = asked = 0
        for number, words in enumerate(latest[first : first + length]):
            askers, questions = recording.asked[number % len(recording.asked)]
            start = time.perf_counter_ns()
            at = _put(chain, at, words, team)
            middle = time.perf_counter_ns()
            _ask(chain, askers, questions, reach, team, want)
            probing += time.perf_counter_ns() - middle
            inserting, put, asked = inserting + middle - start, put + len(words), asked + askers
        amount = rows + recording.askers
        costs.append((inserting / put * rows + probing / asked * recording.askers) / amount)
    chain.close()
    return costs


def _joined(batches: list[Array]) -> Iterable[Array]:
    """The same tuples in as few batches as they are loaded in."""
    if batches:
        words = np.concatenate(batches)
        for start in range(0, len(words), LOAD_ROWS):
            yield words[start : start + LOAD_ROWS]


def _put(chain: Chain, at: int, words: Array, team: Team) -> int:
    chain.append(at, len(words), *sort_words(words, team))
    return at + len(words)


def _ask(chain: Chain, askers: int, asked: Questions, reach: Intervals, team: Team, want: bool) -> None:
    records = chain.probe(asked, reach, want)
    if want:
        answers.find_partners(askers, asked, records, reach, 0, team)
    else:
        answers.count_partners(askers, asked, records, reach, team)
    for one in records:
        one.release()
