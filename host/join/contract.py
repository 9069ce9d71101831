"""The interface of a join index: it separates the semantics of a join from how partners are found.

The callers number each side's tuples (*positions*, from 0) and compute, for each new tuple, which positions of the
other side are visible to it: a half-open interval that never moves back. An index finds, inside that interval, the live
tuples whose key word is in one of the tuple's word ranges. An index processes one `Step` at a time: consecutive new
tuples of both sides, interleaved. All indexes return the same matches; only their speed differs.
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

    `live` tuples can match: no null in the condition's columns, and every one-sided term holds. The partners of tuple i
    are at positions `begin[i] <= p < end[i]` of the other side, and their word is in `low[k, i] .. high[k, i]` for some
    k (the ranges of one tuple are disjoint; low > high is empty). `low` and `high` are words of the other side's key.
    They are computed on first use; if all ranges form a `band`, an index may not need them.
    """

    first: int
    words: Array
    live: Mask
    begin: Positions
    end: Positions
    make_ranges: Callable[[], tuple[Array, Array]]
    band: tuple[int, int] | None = None
    """How far each tuple's range extends below and above its own word (saturating), if that is the same for all."""

    @staticmethod
    def of(first: int, words: Array, live: Mask, begin: Positions, end: Positions, low: Array, high: Array) -> SideStep:
        """Tuples with known ranges."""
        return SideStep(first, words, live, begin, end, lambda: (low, high))

    def with_ranges(self, low: Array, high: Array) -> SideStep:
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

    In a self-join each tuple occurs twice, as r and then as s, and its interval excludes itself. Positions below
    `keep` (r's, s's) are not visible to any tuple after this step.
    """

    r: SideStep
    s: SideStep
    order: npt.NDArray[np.uint8]
    keep: tuple[int, int]


@dataclass(frozen=True)
class Matches:
    """The partners of one side's new tuples: `counts[i]` of them for tuple i, ascending, one tuple after the other.

    `positions` is None if only counts were wanted. `own_positions`, if the index returns them, are the positions of the
    new tuples themselves, one for each partner.
    """

    counts: Positions
    positions: Positions | None
    own_positions: Positions | None = None


@dataclass(frozen=True)
class IndexContext:
    """The parameters of an index."""

    plan: Plan
    device: Device
    rows: Mapping[Side, int] = field(default_factory=dict)
    """How many rows a side's window spans, if known."""
    static: bool = False
    """Whether windows are loaded once and never slide: the join of two tables."""


class JoinIndex(ABC):
    """Finds partners. After a step that raises, the index is unusable: it must be discarded and rebuilt."""

    needs: frozenset[str] = frozenset()
    """The units that a device must offer. If empty, the index runs on the CPU only."""

    def __init__(self, context: IndexContext) -> None:
        """An empty index, both sides at position 0."""
        self.context = context

    @staticmethod
    @abstractmethod
    def serves(kind: PlanKind) -> bool:
        """Whether the index can search conditions of this kind."""

    @abstractmethod
    def load(self, side: Side, first: int, words: Array, live: Mask) -> None:
        """Insert earlier tuples, from position `first` on, without probing."""

    @abstractmethod
    def step(self, step: Step, want_positions: bool) -> tuple[Matches, Matches]:
        """Insert new tuples, drop expired ones, and return the partners of r's and of s's new tuples."""

    def acquire(self, rows: int) -> None:  # noqa: B027 - most indexes have no threads of their own
        """Announce work on `rows` rows, so that the index may wake threads."""

    def release(self) -> None:  # noqa: B027 - as above
        """End the announced work: the index may release its threads."""

    def close(self) -> None:  # noqa: B027 - as above
        """Return memory to shared pools. No more steps follow."""

    def reason(self) -> str:
        """For an adaptive index: its last choice, and why."""
        return ""

    def counters(self) -> dict[str, int]:
        """Counters; `boundaries` counts structural changes: splits, seals, merges, moves."""
        return {}


SELECTIVE: tuple[PlanKind, ...] = ("equality", "band", "multi-band")
"""Kinds of condition with few partners per tuple, usually."""
INDEXES: dict[str, str] = {
    "auto": "millrace.host.planner.auto:AutoIndex",
    "bisort": "millrace.host.join.panjoin.index:BisortIndex",
    "rap": "millrace.host.join.panjoin.index:RapIndex",
    "wib": "millrace.host.join.panjoin.index:WibIndex",
    "btree": "millrace.host.join.baseline.btree:BTreeIndex",
    "scan": "millrace.host.join.baseline.scan:ScanIndex",
}
"""Every index by name, in order of preference."""


def load_index(name: str) -> type[JoinIndex]:
    """The class of an index."""
    module, _, attribute = INDEXES[name].partition(":")
    index: type[JoinIndex] = getattr(import_module(module), attribute)
    return index


def serving(kind: PlanKind) -> list[str]:
    """The names of the indexes that can search conditions of a kind."""
    return [name for name in INDEXES if load_index(name).serves(kind)]


def preferred(kind: PlanKind, counting: bool) -> list[str]:
    """The same, best first.

    If a tuple matches much of its window and all pairs are wanted, a vectorised scan is faster than any index. If only
    counts are wanted, BI-Sort does not read the tuples that it counts.
    """
    able = serving(kind)
    counts_only = counting and kind != "two inequalities"  # one of the two is checked on the pairs, so they are needed
    return able if kind in SELECTIVE or counts_only else sorted(able, key=lambda name: name != "scan")


def runs_on(name: str, device: Device) -> bool:
    """Whether an index can run on a device."""
    needs = load_index(name).needs
    return device.kind == "cpu" if not needs else needs <= device.units
