"""Builds the logical plan of a condition from two schemas: what an index searches and which pairs are checked again.

For each direction (rows of one side search the other side) a plan has one `KeySearch` per key of the searched side,
most selective first: the key that orders it, one or more ranges of this key, and the terms that those ranges decide. An
index uses as many keys as it can; the other terms are checked on the pairs found. If no term can be converted to a
range, there are no searches, and only the `scan` index supports the condition. Terms over one side filter rows before
any index sees them (`stream/intake.py`); filtered rows still count in their window.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Literal

import numpy as np
import pyarrow as pa

from millrace.host.base.codes import CodeTable
from millrace.host.base.errors import PredicateError, SchemaError
from millrace.host.base.types import SIDES, Array, Mask, Side, other
from millrace.host.base.words import KeyType, from_words
from millrace.host.expr import evaluate as ev
from millrace.host.expr.bounds import SolvedComparison, ends, solve
from millrace.host.expr.code_terms import check_term, term_type, with_codes
from millrace.host.expr.condition import Column, CompareOp, Comparison, Condition, columns_of, render, sides_of
from millrace.host.expr.evaluate import Columns, Types
from millrace.host.expr.keys import Key, is_shift, make_key, word_range

PlanKind = Literal["equality", "band", "multi-band", "inequality", "two inequalities", "not equal", "residual"]
KeyShape = Literal["equal", "range", "at most", "at least", "ranges"]
"""What a tuple searches in a key of the other side: one word, a range, everything up to or from a word, or several
ranges (an OR of bands, or `<>`)."""
Conjunctions = tuple[tuple[Comparison, ...], ...]
"""A union of conjunctions: a pair satisfies it if all comparisons of one conjunction hold."""


@dataclass(frozen=True)
class SearchShape:
    """What a condition allows to search, known before any column type: an index says which shapes it serves.

    `keys` are the shapes of each searched side's keys, most selective first; equalities and an order key count as one
    (`grouped_keys.py`). If a type prevents that, the plan has more keys. Both are empty for a residual condition.
    """

    kind: PlanKind
    keys: dict[Side, tuple[KeyShape, ...]]


@dataclass(frozen=True)
class KeySearch:
    """How rows of the other side search one key of `side`.

    `ranges` is a union of conjunctions of solved comparisons. `decided` are the terms that the ranges decide exactly,
    so that the pairs found need no check of them.
    """

    side: Side
    key: Key
    shape: KeyShape
    ranges: tuple[tuple[tuple[SolvedComparison, CompareOp], ...], ...]
    decided: tuple[Comparison, ...]

    @property
    def terms(self) -> frozenset[int]:
        """The identities of the terms that the ranges are made of."""
        return frozenset(id(solved.term) for parts in self.ranges for solved, _ in parts)

    @np.errstate(all="ignore")
    def word_ranges(self, columns: Columns, types: Types, rows: int) -> tuple[Array, Array]:
        """Return low and high words, one row per range. The ranges are disjoint, so no pair is found twice."""
        pairs = [self._range(parts, columns, types, rows) for parts in self.ranges]
        if len(pairs) == 1:
            return pairs[0][0].reshape(1, rows), pairs[0][1].reshape(1, rows)
        return _disjoint(np.stack([p[0] for p in pairs]), np.stack([p[1] for p in pairs]))

    def shifts(self, column: Column, types: Types) -> tuple[int, int] | None:
        """Return the range as distances below and above a column of the probing side; None if it has another form.

        The distances come from one sample value. Both bounds must be `column + constant` with a non-empty range.
        """
        dtype, word = self.key.kind.dtype, self.key.kind.word
        middle = int(np.iinfo(word).max) // 2 + 1
        value = {(column.side, column.name): from_words(np.array([middle], word), dtype)}
        for solved, op in self.ranges[0]:
            columns = set(columns_of(solved.value)) | {
                c for p in solved.path if p.operand for c in columns_of(p.operand)
            }
            if columns != {column}:
                return None
            for bound in ends(solved, op, value, types)[0]:
                if bound is None or not is_shift(bound, self.key):
                    return None
        low, high = (int(words[0, 0]) for words in self.word_ranges(value, types, 1))
        if not 0 < low <= middle <= high < int(np.iinfo(word).max):
            return None
        return middle - low, high - middle

    def _range(
        self, parts: Sequence[tuple[SolvedComparison, CompareOp]], columns: Columns, types: Types, rows: int
    ) -> tuple[Array, Array]:
        """Intersect the ranges of all comparisons."""
        lo, hi = word_range(ends(parts[0][0], parts[0][1], columns, types), self.key, rows)
        for solved, op in parts[1:]:
            low, high = word_range(ends(solved, op, columns, types), self.key, rows)
            lo, hi = np.maximum(lo, low), np.minimum(hi, high)
        return lo, hi


def _disjoint(lo: Array, hi: Array) -> tuple[Array, Array]:
    """Return the same union of closed ranges per row without overlaps; an empty range has low > high."""
    empty = lo > hi
    top = np.iinfo(lo.dtype).max
    order = np.argsort(np.where(empty, top, lo), axis=0, kind="stable")
    lo, hi = np.take_along_axis(lo, order, 0), np.take_along_axis(hi, order, 0)
    empty = np.take_along_axis(empty, order, 0)
    covered_to = np.zeros(lo.shape[1], lo.dtype)
    seen = np.zeros(lo.shape[1], np.bool_)
    for i in range(len(lo)):
        covered = seen & (lo[i] <= covered_to)
        after = np.where(covered_to == top, top, covered_to + covered_to.dtype.type(1))
        gone = empty[i] | (covered & (hi[i] <= covered_to))
        low = np.where(covered, after, lo[i])
        covered_to = np.where(gone, covered_to, np.maximum(covered_to, hi[i]))
        seen |= ~gone
        lo[i], hi[i] = np.where(gone, 1, low), np.where(gone, 0, hi[i])
    return lo, hi


@dataclass(frozen=True)
class Plan:
    """A condition bound to the types of its columns."""

    condition: Condition
    kind: PlanKind
    types: Types
    searches: dict[Side, tuple[KeySearch, ...]]
    """By searched side, most selective key first; empty if no index can search. The sides' numbers of keys may differ:
    `s.x BETWEEN r.lo AND r.hi` searches one key of s and two of r."""
    two_sided_terms: Conjunctions
    """The terms that relate both sides; checked on every pair if nothing is searched."""

    @property
    def searchable(self) -> bool:
        """Whether both sides have a key to search."""
        return all(self.searches[side] for side in SIDES)

    def prefer(self, searched: Side, number: int) -> Plan:
        """Return the same plan with key `number` of a side first, and the other side's key of the same terms first."""
        chosen = self.searches[searched][number]
        own = sorted(self.searches[searched], key=lambda one: one is not chosen)
        best = _RANKS[self.searches[other(searched)][0].shape]

        def apart(one: KeySearch) -> bool:
            return _RANKS[one.shape] < best or not one.terms & chosen.terms

        others = sorted(self.searches[other(searched)], key=apart)
        return replace(self, searches={searched: tuple(own), other(searched): tuple(others)})

    def equally_ranked(self, searched: Side) -> int:
        """Return how many of a side's keys are of the same rank as the first one."""
        keys = self.searches[searched]
        return sum(_RANKS[one.shape] == _RANKS[keys[0].shape] for one in keys)

    def describe(self) -> str:
        """Return one line of text with the kind and the keys."""
        if not self.searchable:
            return f"{self.kind}: no term can be searched, every pair is checked"
        keys = (f"{s} by {' and '.join(one.key.label for one in self.searches[s])}" for s in SIDES)
        return f"{self.kind}: {', '.join(keys)}"

    def recheck_of(self, searched: Side, keys: int = 1) -> Conjunctions:
        """Return the terms to check on the pairs that a search of the first `keys` keys of a side found."""
        used = self.searches[searched][:keys]
        decided = {id(term) for one in used for term in one.decided}
        if len(self.two_sided_terms) > 1:
            return () if used and decided else self.two_sided_terms
        unproven = tuple(term for term in self.two_sided_terms[0] if id(term) not in decided)
        return (unproven,) if unproven else ()

    def band(self, probing: Side, number: int = 0) -> tuple[int, int] | None:
        """Return how far below and above its own word a tuple of side `probing` searches key `number`, if all do alike.

        This holds for `r.x - s.x BETWEEN a AND b` over integer columns of one type: words differ as values do.
        """
        own, searched = self.searches[probing][number : number + 1], self.searches[other(probing)][number : number + 1]
        if not own or not searched:
            return None
        key, search = own[0].key, searched[0]
        codes = key.kind.domain == search.key.kind.domain == "code"
        alike = codes or (key.kind == search.key.kind and key.kind.domain != "float")
        if len(search.ranges) > 1 or not alike or key.column is None or search.key.grouped:
            return None
        return search.shifts(key.column, self.types)

    def matches(self, terms: tuple[tuple[Comparison, ...], ...], columns: Columns, rows: int) -> Mask:
        """Return a mask of the pairs that satisfy all comparisons of at least one conjunction."""
        found = np.zeros(rows, np.bool_)
        for conjunction in terms:
            keep = np.ones(rows, np.bool_)
            for term in conjunction:
                keep &= ev.holds(term, columns, self.types, rows)
            found |= keep
        return found


def bind(condition: Condition, schemas: dict[Side, pa.Schema], codes: CodeTable | None = None) -> Plan:
    """Find the columns, check their types, and plan what an index can search.

    `codes` is the table with which the columns are read; literals get their codes from it.
    """
    types: dict[tuple[Side, str], KeyType] = {}
    for side in SIDES:
        for name in condition.columns(side):
            types[side, name] = column_type(side, name, schemas[side])
    for term in condition.comparisons():
        check_term(term, types, condition.text)
    return _plan(with_codes(condition, types, CodeTable() if codes is None else codes), types)


def column_type(side: Side, name: str, schema: pa.Schema) -> KeyType:
    """Return the key type of a column of the condition; raise an error that lists the columns if there is none."""
    if name not in schema.names:
        known = ", ".join(f"{side}.{n}" for n in schema.names) or "none"
        raise SchemaError(f"the condition uses {side}.{name}, but {side} has no such column; its columns are {known}")
    return term_type(f"{side}.{name}", schema.field(name).type)


def search_shape(condition: Condition) -> SearchShape:
    """Return what a condition allows to search. It needs no types, so a wrong index is reported before any data."""
    bands = _two_sided(condition)
    groups = {side: _groups([solve(t, side, lambda _: "exact") for t in bands[0]]) for side in SIDES}
    if not groups["r"] or not groups["s"]:
        return SearchShape("residual", {"r": (), "s": ()})
    if len(bands) > 1:
        return SearchShape("multi-band", {"r": ("ranges",), "s": ("ranges",)})
    keys = {side: _grouped_shapes(groups[side]) for side in SIDES}
    return SearchShape(_kind(bands[0], min(_RANKS[_shape(groups[side][0])] for side in SIDES)), keys)


def _kind(terms: Sequence[Comparison], rank: int) -> PlanKind:
    if rank == 1:
        inequalities = [t for t in terms if t.op not in ("=", "<>")]
        return "two inequalities" if len(inequalities) == 2 else "inequality"
    return {3: "equality", 2: "band", 0: "not equal"}[rank]  # type: ignore[return-value]


def _two_sided(condition: Condition) -> tuple[tuple[Comparison, ...], ...]:
    """Return the terms that relate both sides; for an OR all terms: a one-sided term applies to its own band only."""
    if len(condition.bands) > 1:
        return condition.bands
    return (tuple(t for t in condition.bands[0] if len(sides_of(t)) == 2),)


def _plan(condition: Condition, types: Types) -> Plan:
    bands = _two_sided(condition)
    searches = {side: _searches(condition, bands, side, types) for side in SIDES}
    if not searches["r"] or not searches["s"]:
        return Plan(condition, "residual", types, {"r": (), "s": ()}, bands)
    rank = min(_RANKS[searches[side][0].shape] for side in SIDES)
    kind: PlanKind = "multi-band" if len(bands) > 1 else _kind(bands[0], rank)
    return Plan(condition, kind, types, searches, bands)


def _searches(condition: Condition, bands: Conjunctions, side: Side, types: Types) -> tuple[KeySearch, ...]:
    """Return the searches of all keys of `side`, most selective first."""
    kinds = partial(ev.kind_of, types=types, text=condition.text)
    solved = [[solve(t, side, kinds) for t in band] for band in bands]
    if len(bands) > 1:
        return (_multi_band(bands, side, types, solved),)
    return tuple(_search(group, side, types) for group in _groups(solved[0]))


def _search(group: list[SolvedComparison], side: Side, types: Types) -> KeySearch:
    """Return the search of one key by all comparisons on it."""
    used = [one for one in group if one.op != "<>"] or group[:1]
    ranges: tuple[tuple[tuple[SolvedComparison, CompareOp], ...], ...] = (tuple((one, one.op) for one in used),)
    if used[0].op == "<>":
        ranges = (((used[0], "<"),), ((used[0], ">"),))
    decided = tuple(one.term for one in used if one.exact)
    return KeySearch(side, make_key(group[0].key, types), _shape(group), ranges, decided)


def _groups(solved: Sequence[SolvedComparison | None]) -> list[list[SolvedComparison]]:
    """Group the comparisons by key, most selective key first; empty if no term can be converted to a range."""
    groups: dict[str, list[SolvedComparison]] = {}
    for one in solved:
        if one is not None:
            groups.setdefault(render(one.key), []).append(one)
    return sorted(groups.values(), key=lambda group: _RANKS[_shape(group)], reverse=True)


def _shape(group: list[SolvedComparison]) -> KeyShape:
    """Return what the comparisons on one key search in it."""
    if any(one.op == "=" for one in group):
        return "equal"
    ranged = [one for one in group if one.op != "<>"]
    below, above = any(one.below for one in ranged), any(one.above for one in ranged)
    if below and above:
        return "range"
    if below:
        return "at least"
    return "at most" if above else "ranges"


def _grouped_shapes(groups: list[list[SolvedComparison]]) -> tuple[KeyShape, ...]:
    """Return the shapes of all keys, with those that a grouped key combines as one."""
    shapes = [_shape(group) for group in groups]
    points = [any(one.op == "=" and all(step.op != "abs" for step in one.path) for one in group) for group in groups]
    others = [shape for shape, point in zip(shapes, points, strict=True) if not point]
    if not any(points) or len(shapes) == 1 or (sum(points) == 1 and others[0] == "ranges"):
        return tuple(shapes)
    ordered = [shape for shape in others[:1] if shape != "ranges"]
    return ("range" if ordered else "equal", *others[len(ordered) :])


_RANKS: dict[KeyShape, int] = {"equal": 3, "range": 2, "at most": 1, "at least": 1, "ranges": 0}
"""Selectivity: an equality first, then a range with two ends, then with one end, then `<>`."""


def key_rank(shape: KeyShape) -> int:
    """Return how selective a search of this shape usually is; higher is more selective."""
    return _RANKS[shape]


def check_bands(condition: Condition) -> None:
    """Raise a `PredicateError` unless every part of an OR is a band; needs no types."""
    if len(condition.bands) == 1:
        return
    for band in condition.bands:
        for side in SIDES:
            parts = _band_parts([solve(t, side, lambda _: "exact") for t in band])
            if not (any(one.below for one in parts) and any(one.above for one in parts)):
                raise PredicateError(
                    "each part of an OR must be a band, bounded on both sides, such as abs(r.x - s.x) <= 5 or "
                    "r.x - s.x BETWEEN 1 AND 3; for anything else run one join per part",
                    condition.text,
                    band[0].span[0],
                    band[-1].span[1],
                )


def _band_parts(parts: Sequence[SolvedComparison | None]) -> list[SolvedComparison]:
    """Return the comparisons of one part of an OR that bound the column itself."""
    return [one for one in parts if one is not None and one.op != "<>" and isinstance(one.key, Column)]


def _multi_band(
    bands: Conjunctions,
    side: Side,
    types: Types,
    solved: list[list[SolvedComparison | None]],
) -> KeySearch:
    ranges = [tuple((one, one.op) for one in _band_parts(parts)) for parts in solved]
    exact = all(one is not None and one.exact and one.op != "<>" for parts in solved for one in parts)
    key = make_key(ranges[0][0][0].key, types)
    return KeySearch(side, key, "ranges", tuple(ranges), tuple(t for band in bands for t in band) if exact else ())
