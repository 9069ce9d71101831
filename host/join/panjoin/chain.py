"""One side's window as a chain of subwindows (PanJoin, III-A): insert into the newest, expire the oldest as a whole.

A new subwindow is begun when the newest has its share of the window; what has expired inside the oldest one is filtered
from what is found. Subwindows hold half a window each: fewer and larger ones are probed faster (a probe of any costs
about the same), smaller ones are merged and forgotten sooner. So the chain spans at most the window, one subwindow and
one batch.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from millrace.host.base.types import Array, Ids
from millrace.host.join.panjoin.subwindow import MOST_ROWS, PAD, Batch, Intervals, Questions, Records, Structure
from millrace.host.runtime.arena import Arena

SHARES = 2
"""Subwindows that make up a window."""
LEAST_ROWS = 1 << 12
"""Rows of a subwindow at least: below that its overhead outweighs everything else."""


@dataclass
class Subwindow:
    """Positions from `structure.first` to `end`, and from where on they have not expired."""

    structure: Structure
    end: int
    capacity: int

    least: int = -1
    most: int = -1
    beyond: int = 0
    """Tuples beyond the keys of the subwindow before."""

    @property
    def first(self) -> int:
        """The oldest position."""
        return self.structure.first

    def widen(self, words: Array, before: Subwindow | None) -> None:
        """Note the least and the largest of new tuples' sorted words, and how many are beyond those before."""
        least, most = int(words[0]), int(words[-1])
        self.least = least if self.least < 0 else min(self.least, least)
        self.most = max(self.most, most)
        if before is not None and before.most >= 0 and (least < before.least or most > before.most):
            ends = np.array([before.least, before.most], words.dtype)
            self.beyond += int(np.searchsorted(words, ends[0]))
            self.beyond += len(words) - int(np.searchsorted(words, ends[1], "right"))

    def __len__(self) -> int:
        """How many positions it spans."""
        return self.end - self.first


class Chain:
    """The subwindows of one side, oldest first. `begin(before, first, rows)` makes the next one's structure."""

    def __init__(
        self,
        begin: Callable[[Structure | None, int, int], Structure],
        rows: int | None,
        arena: Arena,
        shares: int = SHARES,
    ) -> None:
        """Empty. `rows`: how many positions the window spans, where that is known beforehand."""
        self._begin = begin
        self._shares = shares
        self._arena = arena
        self._rows = rows
        self._oldest = 0
        self._trims = False
        self.subwindows: list[Subwindow] = []
        self.boundaries = 0
        self._past: Counter[str] = Counter()

    def append(self, first: int, span: int, words: Array, numbers: Ids) -> None:
        """Put in the tuples of `span` positions from `first` on: sorted words, and each tuple's number among them."""
        newest = self._newest(first, span)
        if len(words):
            newest.widen(words, self._before())
            # A copy: the structure takes the arrays over, and the caller goes on with the numbers.
            ids = self._arena.take(len(numbers) + PAD, np.uint32)[: len(numbers)]
            np.add(numbers, np.uint32(first - newest.first), out=ids)
            newest.structure.insert(Batch(words, ids))
        newest.end = first + span

    def _newest(self, first: int, span: int) -> Subwindow:
        """The subwindow for the next tuples."""
        newest = self.subwindows[-1] if self.subwindows else None
        if newest is not None and len(newest) < newest.capacity:
            return newest
        before = None
        if newest is not None:
            newest.structure.seal()
            before = newest.structure
            self.boundaries += 1
        rows = self._rows if self._rows is not None else first + span - self._oldest
        capacity = min(max(-(-rows // self._shares), LEAST_ROWS), MOST_ROWS // 2)
        self.subwindows.append(Subwindow(self._begin(before, first, capacity), first, capacity))
        return self.subwindows[-1]

    def _before(self) -> Subwindow | None:
        return self.subwindows[-2] if len(self.subwindows) > 1 else None

    @property
    def wandering(self) -> float:
        """The share of the newest subwindow's tuples with keys beyond those of the one before."""
        newest = self.subwindows[-1] if self.subwindows else None
        return newest.beyond / max(len(newest.structure), 1) if newest is not None else 0.0

    def tidy(self) -> None:
        """Do what can wait until the answers of a step are out; helpers go on with it while the caller is away."""
        if self.subwindows:
            newest = self.subwindows[-1]
            if len(newest) < newest.capacity:
                newest.structure.tidy()
            else:
                newest.structure.seal()

    def seal(self) -> None:
        """No more tuples will come."""
        if self.subwindows:
            self.subwindows[-1].structure.seal()

    def skip(self, end: int) -> None:
        """Positions below `end` were taken, and nobody will ask for them."""
        if self.subwindows:
            self.subwindows[-1].end = max(self.subwindows[-1].end, end)

    def expire(self, oldest: int) -> None:
        """Forget subwindows that lie wholly below a position."""
        self._oldest = max(self._oldest, oldest)
        while self.subwindows and self.subwindows[0].end <= oldest and len(self.subwindows) > 1:
            structure = self.subwindows.pop(0).structure
            self._past.update(structure.counters())
            structure.release()
            self.boundaries += 1

    def close(self) -> None:
        """Forget all subwindows."""
        for sub in self.subwindows:
            self._past.update(sub.structure.counters())
            sub.structure.release()
        self.subwindows = []

    def probe(self, questions: Questions, reach: Intervals, want: bool) -> list[Records]:
        """What each subwindow has to say, oldest first."""
        found: list[Records] = []
        for sub in self.subwindows:
            if reach.misses(sub.first, sub.end) or not len(sub.structure):
                continue
            begin = int(reach.begin[0])
            expiring = not want and begin > sub.first
            if expiring and self._trims:
                self._trims = sub.structure.trim(begin)
            records = self._ask(sub, questions, reach, want, begin if expiring and self._trims else sub.first)
            if expiring and not self._trims and _named(records) > len(sub.structure) and sub.structure.trim(begin):
                # To look at all that was found costs more than to cut off what has expired, once for all questions.
                self._trims = True
                for one in records:
                    one.release()
                records = self._ask(sub, questions, reach, want, begin)
            elif expiring and self._trims:
                self._trims = _named(records) > len(sub.structure)
            found += records
        return found

    def _ask(self, sub: Subwindow, questions: Questions, reach: Intervals, want: bool, first: int) -> list[Records]:
        """What one subwindow, whose tuples begin at position `first`, has to say."""
        covered = reach.covers(first, sub.end)
        return sub.structure.probe(questions, None if covered else reach, want)

    def counters(self) -> dict[str, int]:
        """What all structures have done, those that expired included: counters never go back."""
        total = self._past.copy()
        for sub in self.subwindows:
            total.update(sub.structure.counters())
        return dict(total)


def _named(records: list[Records]) -> int:
    """How many ids records name."""
    return sum(int(one.ends.sum(dtype=np.int64)) - int(one.starts.sum(dtype=np.int64)) for one in records)
