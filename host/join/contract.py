"""What a join index is: the one seam between what a join means and how partners are found.

The layers above number each side's taken tuples (*positions*, from 0) and work out, for each new tuple, which
positions of the other side it may meet: a half-open interval that never moves back. What is left for an index is to
find, inside that interval, the live tuples whose key word lies in one of the tuple's word ranges. An index answers
one `Step` at a time: a run of new tuples of both sides, interleaved. All indexes give the same answer; only their
speed differs.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from importlib import import_module

import numpy as np
import numpy.typing as npt

from millrace.host.base.types import Array, Mask, Positions, Side
from millrace.host.device.contract import Device
from millrace.host.expr.plan import Plan, PlanKind


@dataclass(frozen=True)
class SideStep:
    """One side's new tuples, in order. Their positions are `first`, `first + 1`, …

    `live` tuples can match: no null in the condition's columns, and every one-sided term holds. Tuple i looks for
    partners at positions `begin[i] <= p < end[i]` of the other side whose word lies in `low[k, i] .. high[k, i]`
    for some k (ranges of one tuple are disjoint; low > high is empty). Words are of the key of the side they
    search. Where all ranges make a `band`, an index may do without low and high, which are made when first looked at.
    """

    first: int
    words: Array
    live: Mask
    begin: Positions
    end: Positions
    make_ranges: Callable[[], tuple[Array, Array]]
    band: tuple[int, int] | None = None
    """How far below and above each tuple's own word its range reaches (saturating), where that is the same for all."""

    @staticmethod
    def of(first: int, words: Array, live: Mask, begin: Positions, end: Positions, low: Array, high: Array) -> SideStep:
        """Tuples whose ranges are known already."""
        return SideStep(first, words, live, begin, end, lambda: (low, high))

    def asking(self, low: Array, high: Array) -> SideStep:
        """The same tuples with other ranges."""
        return replace(self, make_ranges=lambda: (low, high), band=None)

    @cached_property
    def _ranges(self) -> tuple[Array, Array]:
        return self.make_ranges()

    @property
    def low(self) -> Array:
        """The lowest words, one line per range."""
        return self._ranges[0]

    @property
    def high(self) -> Array:
        """The highest words, one line per range."""
        return self._ranges[1]


@dataclass(frozen=True)
class Step:
    """New tuples of both sides; `order[i]` is the side of the i-th one taken: 0 for r, 1 for s.

    In a self-join each tuple is there twice, as r and then as s, and its interval excludes itself. Positions below
    `keep` (r's, s's) will not be asked for again after this step.
    """

    r: SideStep
    s: SideStep
    order: npt.NDArray[np.uint8]
    keep: tuple[int, int]


@dataclass(frozen=True)
class Matches:
    """The partners of one side's new tuples: `counts[i]` of them for tuple i, ascending, one tuple after the other.

    `positions` is None where only counts were asked for. `newcomers`, where the index gives them, are the positions of
    the new tuples themselves, one for each partner.
    """

    counts: Positions
    positions: Positions | None
    newcomers: Positions | None = None


@dataclass(frozen=True)
class Setting:
    """What an index is built for."""

    plan: Plan
    device: Device
    rows: Mapping[Side, int] = field(default_factory=dict)
    """How many rows a side's window spans, where that is known beforehand."""
    whole: bool = False
    """Whether windows are loaded once, as wholes, and never slide: the join of two tables."""


class JoinIndex(ABC):
    """Finds partners. A step that raises leaves the index unusable: it is thrown away and built anew."""

    needs: frozenset[str] = frozenset()
    """The units a device must offer to run it; without any it runs on the CPU alone."""

    def __init__(self, setting: Setting) -> None:
        """An empty index, both sides at position 0."""
        self.setting = setting

    @staticmethod
    @abstractmethod
    def serves(kind: PlanKind) -> bool:
        """Whether the index can search conditions of this kind."""

    @abstractmethod
    def load(self, side: Side, first: int, words: Array, live: Mask) -> None:
        """Put in tuples that were taken earlier, at positions `first` on, without asking anything."""

    @abstractmethod
    def step(self, step: Step, want_positions: bool) -> tuple[Matches, Matches]:
        """Put new tuples in, forget old ones, and give the partners of r's and of s's new tuples."""

    def rouse(self, rows: int) -> None:  # noqa: B027 - most indexes have no threads of their own
        """Work on so many rows is coming soon."""

    def rest(self) -> None:  # noqa: B027 - as above
        """No more work is coming in this call."""

    def close(self) -> None:  # noqa: B027 - as above
        """Give memory back that is kept for others; nothing is asked any more."""

    def reason(self) -> str:
        """What an index that adapts itself has chosen last, and why."""
        return ""

    def counters(self) -> dict[str, int]:
        """What the index has done; `boundaries` counts structural ones: splits, seals, merges, moves."""
        return {}


SELECTIVE: tuple[PlanKind, ...] = ("equality", "band", "multi-band")
"""Kinds of condition that leave a tuple few partners, as a rule."""
INDEXES: dict[str, str] = {
    "auto": "millrace.host.planner.auto:AutoIndex",
    "bisort": "millrace.host.join.panjoin.index:BisortIndex",
    "rap": "millrace.host.join.panjoin.index:RapIndex",
    "wib": "millrace.host.join.panjoin.index:WibIndex",
    "btree": "millrace.host.join.baseline.btree:BTreeIndex",
    "scan": "millrace.host.join.baseline.scan:ScanIndex",
}
"""Every index by name, in the order in which they are preferred where none is named."""


def load_index(name: str) -> type[JoinIndex]:
    """The class behind a name."""
    module, _, attribute = INDEXES[name].partition(":")
    index: type[JoinIndex] = getattr(import_module(module), attribute)
    return index


def serving(kind: PlanKind) -> list[str]:
    """The names of the indexes that can search conditions of a kind."""
    return [name for name in INDEXES if load_index(name).serves(kind)]


def preferred(kind: PlanKind, counting: bool) -> list[str]:
    """The same, best first.

    Where a tuple meets much of its window anyway and all of it is wanted, looking at all of it in vector code beats any
    index; where only counts are wanted, BI-Sort need not look at what it counts.
    """
    able = serving(kind)
    records = counting and kind != "two inequalities"  # of which one is checked on the pairs, so those are needed
    return able if kind in SELECTIVE or records else sorted(able, key=lambda name: name != "scan")


def runs_on(name: str, device: Device) -> bool:
    """Whether an index can run on a device."""
    needs = load_index(name).needs
    return device.kind == "cpu" if not needs else needs <= device.units
