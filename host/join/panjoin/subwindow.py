"""What a subwindow is: a stretch of one side's tuples, put in batch by batch and dropped as a whole (PanJoin, III-A).

A window is a chain of subwindows (`chain.py`). Each has a *structure* that finds its tuples by key word:
BI-Sort, RaP-Table or WiB+-Tree. Here is the one seam between the chain and the structures: sorted batches go in, sorted
questions are put, and `Records` come out, which stay records until somebody wants the pairs (`match_collector.py`).

A tuple in a subwindow is known by its *id*: its position in the stream less the subwindow's first position, 32 bits.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from millrace.host.base.types import Array, Ids, Positions
from millrace.host.device.contract import Device
from millrace.host.runtime.huge_pages import SPARE
from millrace.host.runtime.team import Team

PAD = 4
"""Ids that may be read beyond the end of an array of them."""
MOST_ROWS = 1 << 31
"""The most positions that a subwindow may span."""


def roomy(values: Array) -> Array:
    """A copy with two cache lines behind it that can be read, as all arrays of an arena have."""
    room = np.empty(len(values) + SPARE // values.itemsize, values.dtype)
    room[: len(values)] = values
    return room[: len(values)]


@dataclass(frozen=True)
class Batch:
    """Tuples to put in, sorted by word, equal words by id. Ids are above all those put in before.

    The structure takes the arrays over; `PAD` more ids and two cache lines more of words can be read.
    """

    words: Array
    ids: Ids

    def __len__(self) -> int:
        """How many."""
        return len(self.words)


@dataclass(frozen=True)
class Questions:
    """Closed ranges of words, none empty, ascending by `low`; `who[q]` is the number of the tuple that asks.

    A tuple may ask for several `ranges`; `slot[q]` is then the range's number times all tuples, plus `who[q]`. `rising`
    says that `high` is ascending too, as it is in every band of constant width. Where `band` is given, `low` and `high`
    are the words in `keys`, moved down and up by so much, saturating: some devices can do that themselves.
    """

    low: Array
    high: Array
    who: npt.NDArray[np.uint32]
    rising: bool
    slot: npt.NDArray[np.uint32]
    ranges: int = 1
    keys: Array | None = None
    band: tuple[int, int] | None = None

    def __len__(self) -> int:
        """How many."""
        return len(self.low)


@dataclass(frozen=True)
class Intervals:
    """Which positions the asking tuples may meet: `begin[who] <= position < end[who]`.

    One entry only where all tuples have the same reach, which is the common case of a push to one side.
    """

    begin: Positions
    end: Positions

    @property
    def stride(self) -> int:
        """What to multiply a tuple's number with to find its entry: 1, or 0 where there is only one."""
        return int(len(self.begin) > 1)

    def covers(self, first: int, end: int) -> bool:
        """Whether every tuple may meet all of these positions (reaches never move back)."""
        return bool(self.begin[-1] <= first and end <= self.end[0])

    def misses(self, first: int, end: int) -> bool:
        """Whether no tuple may meet any of these positions."""
        return bool(end <= self.begin[0] or self.end[-1] <= first)


@dataclass(frozen=True)
class HostRun:
    """A sorted run that lies in this memory, with its sampled index; two cache lines can be read beyond either's end.

    Where there are few words for each question, `step` is 1 and the words are their own index.
    """

    words: Array
    index: Array
    size: int
    step: int


@dataclass(frozen=True)
class Records:
    """What a structure found: question q's partners are `ids[starts[q]]` to `ids[ends[q]]`, the latter left out.

    Those out of reach are still among them where `check` is set. Ids count from position `first`, and can be read `PAD`
    beyond their end; they are asked for only if they are needed. Instead of starts and ends there may be the `run` to
    look them up in, where ids are wanted and questions are `rising`.
    """

    starts: Ids
    ends: Ids
    ids: Callable[[], Ids]
    first: int
    check: bool
    release: Callable[[], None] = lambda: None
    run: HostRun | None = None


@dataclass(frozen=True)
class Site:
    """What a structure works with. `capacity` is how many tuples the subwindow is meant for; a few more may come."""

    word: np.dtype[np.unsignedinteger]
    capacity: int
    device: Device
    team: Team


class Structure(ABC):
    """The index of one subwindow, whose first tuple has position `first`."""

    name: str
    """As in the argument `index=`."""
    needs: frozenset[str] = frozenset()
    """The units that a device must offer; without any the structure is for the CPU."""

    def __init__(self, site: Site, first: int) -> None:
        """Empty."""
        self.site = site
        self.first = first

    def successor(self, site: Site, first: int) -> Structure:
        """An empty structure for the next subwindow, which may learn from this one."""
        return type(self)(site, first)

    @abstractmethod
    def insert(self, batch: Batch) -> None:
        """Put tuples in."""

    @abstractmethod
    def probe(self, questions: Questions, reach: Intervals | None, want: bool) -> list[Records]:
        """Look questions up, oldest tuples first; without a `reach` all tuples count. `want`: ids will be asked for."""

    def trim(self, oldest: int) -> bool:
        """Let tuples below position `oldest` go, so that counts need no look at them; false where that does not pay."""
        return False

    def tidy(self) -> None:  # noqa: B027 - most structures are tidy at once
        """Do what can wait until the answers of a step are out."""

    def seal(self) -> None:  # noqa: B027 - most structures stay as they are
        """No more tuples will come."""

    def release(self) -> None:  # noqa: B027 - most structures have nothing to give back
        """Give everything back."""

    @abstractmethod
    def __len__(self) -> int:
        """How many tuples are in."""

    def counters(self) -> dict[str, int]:
        """What the structure has done; `boundaries` counts structural changes: merges, splits, full entries."""
        return {}
