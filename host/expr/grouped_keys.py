"""Grouped keys: one key that combines the equality keys of a condition with an order key.

For `r.site = s.site AND r.x < s.x` an index of one key would search `s.site` and check `r.x < s.x` on every pair of a
site. A grouped key has the site in the high bits of its words and x in the low bits (`word_layout.py`). So the partners
of a row are one range of words, which every index can search. A plan is first `grouped`, which needs no row, and then
`laid_out`, once the rows are known: the layout decides which terms need no check. Limits: an equality that matches
several words of a key (`s.x + 0.1 = r.x` in doubles) and `<>` are never grouped; at most `MAX_KEYS` keys are combined.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import partial

import numpy as np

from millrace.host.base.types import SIDES, Array, Mask, Side
from millrace.host.base.words import KeyType
from millrace.host.expr.bounds import Kinds, SolvedComparison
from millrace.host.expr.condition import Column
from millrace.host.expr.evaluate import Columns, Types, kind_of
from millrace.host.expr.keys import Key
from millrace.host.expr.plan import KeySearch, Plan
from millrace.host.expr.word_layout import Layout, stream_layout, table_layout

MAX_KEYS = 8
_KIND = KeyType("grouped", "int", np.dtype(np.uint64))


@dataclass(frozen=True)
class GroupedKey(Key):
    """A key of combined words. `parts` are the searches of its keys: equalities, then maybe one of an order key."""

    parts: tuple[KeySearch, ...] = ()
    layout: Layout | None = None
    grouped = True

    @property
    def column(self) -> Column | None:
        """The words are made of several columns."""
        return None

    @property
    def label(self) -> str:
        """The key as text."""
        groups = ", ".join(one.key.label for one in self.parts[:-1])
        return f"{self.parts[-1].key.label} grouped by {groups if len(self.parts) == 2 else f'({groups})'}"

    def words(self, columns: Columns, types: Types) -> tuple[Array, Mask | None]:
        """Return the words of the rows, and a mask of rows that have one; raises `LayoutOutgrown`."""
        assert self.layout is not None
        words, known = self.part_words(columns, types)
        if known is None:
            return self.layout.words(words), None
        spread = np.zeros(len(known), np.uint64)
        spread[known] = self.layout.words(words)
        return spread, known

    def part_words(self, columns: Columns, types: Types) -> tuple[list[Array], Mask | None]:
        """Return the words of each part for the rows that have all, and a mask of those rows; None: all have."""
        found = [one.key.words(columns, types) for one in self.parts]
        masks = [known for _, known in found if known is not None]
        if not masks:
            return [words for words, _ in found], None
        known = np.logical_and.reduce(masks)
        return [words[known] for words, _ in found], known


@dataclass(frozen=True)
class GroupedSearch(KeySearch):
    """How rows of the other side search a grouped key."""

    key: GroupedKey

    @np.errstate(all="ignore")
    def word_ranges(self, columns: Columns, types: Types, rows: int) -> tuple[Array, Array]:
        """Return low and high words, one row."""
        assert self.key.layout is not None
        parts = (one.word_ranges(columns, types, rows) for one in self.key.parts)
        low, high = self.key.layout.ranges((low[0], high[0]) for low, high in parts)
        return low.reshape(1, rows), high.reshape(1, rows)


def grouped(plan: Plan, sides: Sequence[Side] = SIDES) -> Plan:
    """Return the plan with grouped keys, first among the keys of their side; the same plan if it has none."""
    if not plan.searchable or len(plan.two_sided_terms) > 1:
        return plan
    kinds = partial(kind_of, types=plan.types, text=plan.condition.text)
    return replace(plan, searches={**plan.searches, **{side: _grouped(plan.searches[side], kinds) for side in sides}})


def is_grouped(plan: Plan, side: Side) -> bool:
    """Return whether a side's first key is grouped."""
    return any(one.key.grouped for one in plan.searches[side][:1])


def group_bits(search: KeySearch) -> tuple[int, int] | None:
    """Return how many bits of a grouped key's words hold the group, and how many are below; None without a group."""
    if not isinstance(search, GroupedSearch) or search.shape == "equal" or search.key.layout is None:
        return None
    return search.key.layout.group_bits, search.key.layout.slots[-1].bits


def _grouped(searches: tuple[KeySearch, ...], kinds: Kinds) -> tuple[KeySearch, ...]:
    """Combine the equalities and the first order key."""
    equal = [one for one in searches if _finds_one_word(one, kinds)][: MAX_KEYS - 1]
    ordered = [one for one in searches if not _finds_one_word(one, kinds) and one.shape != "ranges"][:1]
    parts = (*equal, *ordered)
    if not equal or len(parts) == 1:
        return searches
    key = GroupedKey(parts[-1].key.expression, _KIND, Fraction(1), parts)
    ranges = tuple(pair for one in parts for pair in one.ranges[0])
    decided = tuple(term for one in parts for term in one.decided)
    first = GroupedSearch(parts[0].side, key, "range" if ordered else "equal", (ranges,), decided)
    return (first, *(one for one in searches if all(one is not part for part in parts)))


def _finds_one_word(search: KeySearch, kinds: Kinds) -> bool:
    """Return whether every row finds at most one word of the key."""
    return len(search.ranges) == 1 and any(_is_point(one, search.key, kinds) for one, _ in search.ranges[0])


def _is_point(solved: SolvedComparison, key: Key, kinds: Kinds) -> bool:
    """Return whether a comparison is an equality that no operator on the key widens.

    Several doubles may round to one sum or product, `abs` has two arguments of one value, and a double is rounded
    outwards for a key that is an expression of integers.
    """
    steps = (step.op == "negate" or (step.op != "abs" and step.kind != "double") for step in solved.path)
    return solved.op == "=" and all(steps) and not (key.clamped and kinds(solved.value) == "double")


def laid_out(plan: Plan, side: Side, columns: Columns, static: bool, numbered: bool = True) -> Plan:
    """Return the plan with a layout of a side's grouped key for these rows, which are all (`static`) or the first.

    `numbered`: see `table_layout`.
    """
    search = plan.searches[side][0]
    assert isinstance(search, GroupedSearch)
    words, _ = search.key.part_words(columns, plan.types)
    layout = table_layout(words, numbered) if static else stream_layout(words)
    exact = [one for one, slot in zip(search.key.parts, layout.slots, strict=True) if slot.exact]
    decided = tuple(term for one in exact for term in one.decided)
    first = replace(search, key=replace(search.key, layout=layout), decided=decided)
    return replace(plan, searches={**plan.searches, side: (first, *plan.searches[side][1:])})
