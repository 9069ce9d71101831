"""The interface of a subwindow: a range of one side's tuples, filled by batches and dropped at once (PanJoin, III-A).

A window is a chain of subwindows (`chain.py`). Each has a *structure* that finds its tuples by key word: BI-Sort,
RaP-Table or WiB+-Tree. This module is the only interface between the chain and the structures: a structure takes
sorted batches and sorted range probes, and returns `MatchRanges`. `match_collector.py` turns those into pairs, if pairs
are wanted.

A tuple in a subwindow has a 32-bit *id*: its position in the stream minus the subwindow's first position.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from millrace.host.base.types import Array, Ids, Positions
from millrace.host.base.value_class import value_class
from millrace.host.device.contract import Device
from millrace.host.runtime.allocator import SPARE
from millrace.host.runtime.team import Team

if TYPE_CHECKING:
    from millrace.host.join.panjoin.insertion_buffer import InsertionBuffer

ID_PADDING = 4
"""Ids that can be read beyond the end of an id array."""
SMALL_BATCH = 4
"""Batches of so few tuples skip the kernels of a probe: preparing their arguments costs more than the work."""
MAX_ROWS = 1 << 31
"""The maximum number of positions of a subwindow."""


def padded(values: Array) -> Array:
    """A copy with two readable cache lines after it, as all arrays of the allocator have."""
    memory = np.empty(len(values) + SPARE // values.itemsize, values.dtype)
    memory[: len(values)] = values
    return memory[: len(values)]


@value_class
class InsertBatch:
    """Tuples to insert, sorted by word, equal words by id. Ids are above all those inserted before.

    The structure takes ownership of the arrays. `ID_PADDING` ids and two cache lines of words after them are readable.
    """

    words: Array
    ids: Ids

    def __len__(self) -> int:
        """How many."""
        return len(self.words)


@value_class
class RangeProbes:
    """Closed ranges of words, none empty, ascending by `low`. `probe_tuple[q]` is the number of the tuple of probe q.

    A tuple may have several `ranges`: `slot[q]` is the number of the range times the number of tuples, plus
    `probe_tuple[q]`. `rising`: `high` is ascending too, as in every band of constant width. If `band` is given, `low`
    and `high` are the words in `keys` minus and plus its two widths, saturating; some devices compute that themselves.
    """

    low: Array
    high: Array
    probe_tuple: npt.NDArray[np.uint32]
    rising: bool
    slot: npt.NDArray[np.uint32]
    ranges: int = 1
    keys: Array | None = None
    band: tuple[int, int] | None = None

    def __len__(self) -> int:
        """How many."""
        return len(self.low)


@value_class
class VisibleIntervals:
    """The positions visible to each probing tuple: `begin[probe_tuple] <= position < end[probe_tuple]`.

    Only one entry if they are the same for all tuples, which is the usual case of a push to one side.
    """

    begin: Positions
    end: Positions

    @property
    def stride(self) -> int:
        """The factor from a tuple's number to its entry: 1, or 0 if there is only one entry."""
        return int(len(self.begin) > 1)

    def covers(self, first: int, end: int) -> bool:
        """Whether all of these positions are visible to every tuple (intervals never move back)."""
        return bool(self.begin[-1] <= first and end <= self.end[0])

    def misses(self, first: int, end: int) -> bool:
        """Whether none of these positions is visible to any tuple."""
        return bool(end <= self.begin[0] or self.end[-1] <= first)


@value_class
class HostRun:
    """A sorted run in host memory, with its sampled index. Two cache lines are readable beyond the end of each.

    If there are few words per probe, `step` is 1 and the words are their own index.
    """

    words: Array
    index: Array
    size: int
    step: int


@value_class
class MatchRanges:
    """The matches of a structure: probe q's partners are `ids[starts[q]]` up to, but not including, `ids[ends[q]]`.

    If `check` is set, they may include partners that are not visible. Ids count from position `first`; `ID_PADDING`
    more are readable. `ids` is called only if they are needed. Instead of starts and ends there may be the `run` to
    look them up in, if ids are wanted and probes are `rising`.
    """

    starts: Ids
    ends: Ids
    ids: Callable[[], Ids]
    first: int
    check: bool
    release: Callable[[], None] = lambda: None
    run: HostRun | None = None


@dataclass(frozen=True)
class StructureContext:
    """The parameters of a structure. `capacity`: the planned number of tuples; slightly more may be inserted."""

    word: np.dtype[np.unsignedinteger]
    capacity: int
    device: Device
    team: Team


class Structure(ABC):
    """The index of one subwindow, whose first tuple has position `first`."""

    name: str
    """The name in the argument `index=`."""
    needs: frozenset[str] = frozenset()
    """The units that a device must offer. If empty, the structure runs on the CPU only."""

    def __init__(self, context: StructureContext, first: int) -> None:
        """Empty."""
        self.context = context
        self.first = first

    def successor(self, context: StructureContext, first: int) -> Structure:
        """An empty structure for the next subwindow, which may use statistics of this one."""
        return type(self)(context, first)

    @abstractmethod
    def insert(self, batch: InsertBatch) -> None:
        """Insert tuples."""

    @abstractmethod
    def probe(self, probes: RangeProbes, visible: VisibleIntervals | None, want: bool) -> list[MatchRanges]:
        """Look up probes, oldest tuples first. Without `visible`, all tuples are. `want`: ids will be needed."""

    def sources(self) -> Array | None:
        """Return all tuples as a table of sorted sources in host memory, oldest first, or None if they are not so.

        Lines are those of `small_step_kernel.HostSource`. The table is the same object until it changes.
        """
        return None

    def count_probes(self, probes: int) -> None:  # noqa: B027 - structures without sources have none to count
        """Count probes that a small step has made in runs."""

    def room_for(self, tuples: int) -> InsertionBuffer | None:
        """Return an insertion buffer with room for so many tuples (at most `BUFFER`), or None if there is none."""
        return None

    def filled(self, tuples: int) -> None:  # noqa: B027 - structures without a buffer
        """Count tuples that a small step has merged into the insertion buffer."""

    def trim(self, oldest: int) -> bool:
        """Drop tuples below position `oldest`, so that counting need not check them. False if that does not pay off."""
        return False

    def maintain(self) -> None:  # noqa: B027 - most structures need no maintenance
        """Do maintenance that is deferred to the end of a step."""

    def seal(self) -> None:  # noqa: B027 - most structures do not change then
        """Prepare for reading only: no more tuples will be inserted."""

    def release(self) -> None:  # noqa: B027 - most structures have nothing to free
        """Free all memory of the device and the host."""

    @abstractmethod
    def __len__(self) -> int:
        """The number of tuples."""

    def counters(self) -> dict[str, int]:
        """Counters; `boundaries` counts structural changes: merges, splits, full entries."""
        return {}
