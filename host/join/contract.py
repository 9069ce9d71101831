"""The contract of a join index: it separates the semantics of a join from how partners are found.

The callers number each side's tuples (*positions*, from 0) and compute, for each new tuple, which positions of the
other side are visible to it: a half-open interval that never moves back. An index processes one `ProbeBatch` at a time:
consecutive new tuples of both sides, interleaved, with the words of their own keys and, for each key of the other side,
the ranges of words that they search. It finds the live tuples inside the interval whose words are in the ranges of all
keys. An index states which shapes of condition it serves, and how many keys of a side it searches (`max_keys`); the
matcher checks terms on further keys. All indexes return the same matches; only their speed differs.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import ClassVar

import numpy as np

from millrace.host.base.types import Array, Mask, Order, Positions, Side
from millrace.host.base.value_class import value_class
from millrace.host.device.contract import Device
from millrace.host.expr.plan import KeyShape, Plan
from millrace.host.runtime.intrinsics import address
from millrace.host.runtime.team import Team


@value_class
class KeyProbe:
    """What new tuples search in one key of the other side: closed ranges of its words.

    Tuple i searches `low[k, i] .. high[k, i]` for every line k. Ranges of one tuple are disjoint; an empty range has
    low > high. If `shape` is "at most", every low is the least word; if it is "at least", every high is the largest. If
    all ranges form a `band`, an index may do without low and high, which are computed on first access.
    """

    shape: KeyShape
    make_ranges: Callable[[], tuple[Array, Array]]
    band: tuple[int, int] | None = None
    """How far below and above a tuple's own word its range extends (saturating), if that is the same for all."""

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

    @staticmethod
    def of(low: Array, high: Array, shape: KeyShape = "range") -> KeyProbe:
        """A probe with known ranges."""
        return KeyProbe(shape, lambda: (low, high))


@value_class
class SideProbes:
    """One side's new tuples, in order. Their positions are `first`, `first + 1`, …

    `live` tuples can match: no null in the condition's columns, and every one-sided term holds. Positions
    `begin[i] <= p < end[i]` of the other side are visible to tuple i. `words` has one array per key of this side,
    `probes` one entry per key of the other side: as many as the index searches, none if the condition has no key.
    """

    first: int
    live: Mask
    begin: Positions
    end: Positions
    words: tuple[Array, ...]
    probes: tuple[KeyProbe, ...]

    def __len__(self) -> int:
        """The number of tuples."""
        return len(self.live)


@value_class
class ProbeBatch:
    """New tuples of both sides; `order[i]` is the side of the i-th one taken: 0 for r, 1 for s.

    In a self-join each tuple occurs twice, as r and then as s, and its interval excludes itself. Positions below
    `keep` (r's, s's) are not visible to any tuple after this batch.
    """

    r: SideProbes
    s: SideProbes
    order: Order
    keep: tuple[int, int]


@value_class
class Matches:
    """The partners of one side's new tuples: `counts[i]` of them for tuple i, ascending, one tuple after the other.

    `positions` is None if only counts were wanted. `own_positions`, if the index returns them, are the positions of the
    new tuples themselves, one for each partner.
    """

    counts: Positions
    positions: Positions | None
    own_positions: Positions | None = None


@value_class
class PlainKey:
    """Keys that are integers in memory, of `width` bytes, without nulls: their words invert the bits of `flip`.

    The tuples search a band of the other side: so far `below` and `above` their own words. All three as signed numbers.
    """

    width: int
    flip: int
    below: int
    above: int


@value_class
class PlainTuples:
    """Few new tuples of one side that are all live and all see the same interval; `values`: where their keys are."""

    key: PlainKey
    values: int
    count: int
    first: int
    begin: int
    end: int


class FewPairs:
    """The pairs of few tuples, in order; valid until the next step of the index."""

    def __init__(self) -> None:
        """No pairs."""
        self.count = 0
        self.hold(_NOTHING, _NOTHING)

    def hold(self, own: Positions, partners: Positions) -> None:
        """Use these arrays, for positions of the new tuples and of their partners."""
        self.own, self.partners = own, partners
        self.own_at, self.partners_at = address(own), address(partners)

    def take(self) -> tuple[Positions, Positions]:
        """Return the positions for good: the next step uses other memory."""
        taken = self.own[: self.count], self.partners[: self.count]
        self.hold(_NOTHING, _NOTHING)
        return taken


_NOTHING = np.zeros(0, np.int64)
OptionValue = int | float | str


@dataclass(frozen=True)
class Option:
    """An option of an index: its default, which is also its type, and the values allowed. It never changes the output.

    Numbers have bounds (both inclusive), texts a list of choices.
    """

    default: OptionValue
    minimum: float | None = None
    maximum: float | None = None
    choices: tuple[str, ...] = ()

    def allowed(self) -> str:
        """The values allowed, as text."""
        if self.choices:
            return " or ".join(map(repr, self.choices))
        kind = "a whole number" if isinstance(self.default, int) else "a number"
        low = "" if self.minimum is None else f" of at least {self.minimum}"
        return kind + low + ("" if self.maximum is None else f"{' and' if low else ' of'} at most {self.maximum}")

    def accepts(self, value: object) -> bool:
        """Whether a value is allowed."""
        if self.choices:
            return isinstance(value, str) and value in self.choices
        types = int if isinstance(self.default, int) else (int, float)
        if isinstance(value, bool) or not isinstance(value, types):
            return False
        number = float(value)
        return (self.minimum is None or number >= self.minimum) and (self.maximum is None or number <= self.maximum)


@dataclass(frozen=True)
class IndexContext:
    """The parameters of an index."""

    plan: Plan
    device: Device
    team: Team
    """The threads for work on the host; the caller acquires its helpers for the length of a call."""
    rows: Mapping[Side, int] = field(default_factory=dict)
    """How many rows a side's window spans, if known."""
    static: bool = False
    """Whether windows are loaded once and never slide: the join of two tables."""
    options: Mapping[str, OptionValue] = field(default_factory=dict)
    """The values of all options that the index declares."""


class JoinIndex(ABC):
    """Finds partners. After a step that raises, the index is unusable: it must be discarded and rebuilt."""

    max_keys: int = 1
    """How many keys of a side the index searches; the condition may have more, or fewer."""
    options: ClassVar[Mapping[str, Option]] = {}
    """The options that users may set, by name; their values are in `IndexContext.options`."""
    numbers_rows: ClassVar[bool] = True
    """Whether the index keeps row numbers beside grouped words in a join of tables; if not, the words' layout is free
    to use all bits, and makes groups easy to count."""
    needs: frozenset[str] = frozenset()
    """The units that a device must offer. If empty, the index runs on the CPU only."""

    def __init__(self, context: IndexContext) -> None:
        """An empty index, both sides at position 0."""
        self.context = context

    @classmethod
    def keys_on(cls, device: Device) -> int:
        """How many keys of a side the index searches on a device; `max_keys` is the most of all devices."""
        return cls.max_keys

    @abstractmethod
    def load(self, side: Side, first: int, words: tuple[Array, ...], live: Mask) -> None:
        """Insert earlier tuples, from position `first` on, without probing; `words` has one array per key."""

    @abstractmethod
    def step(self, batch: ProbeBatch, want_positions: bool) -> tuple[Matches, Matches]:
        """Insert new tuples, drop expired ones, and return the partners of r's and of s's new tuples."""

    def is_ready_for_few(self, side: Side, tuples: int) -> bool:
        """Whether `step_few` can do the next step of so many plain tuples of one side. May merge, changes no result."""
        return False

    def step_few(self, side: Side, new: PlainTuples, keep: tuple[int, int]) -> FewPairs:
        """Do the same as `step` with positions wanted, for plain tuples of one side; `keep` as in `ProbeBatch`."""
        raise NotImplementedError

    def close(self) -> None:  # noqa: B027 - most indexes have nothing to free
        """Return memory to shared pools. No more steps follow."""

    def reason(self) -> str:
        """For an adaptive index: its last choice, and why."""
        return ""

    def counters(self) -> dict[str, int]:
        """Counters; `boundaries` counts structural changes: splits, seals, merges, moves."""
        return {}
