"""Builds the logical plan of a condition from two schemas: what an index searches and which pairs are checked again.

For each direction (rows of one side probe the other side) a plan has a `Probe`: the key that orders the searched side,
one or more ranges of this key, and the comparisons to check on the pairs found. If no term can be converted to a range,
the plan has no probes, and only the `scan` index supports the condition. Terms over one side filter rows before any
index sees them (`stream/intake.py`); filtered rows still count in their window.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Literal

import numpy as np
import pyarrow as pa

from millrace.host.base.errors import PredicateError, SchemaError
from millrace.host.base.types import SIDES, Array, Mask, Side, other
from millrace.host.base.words import KeyType, from_words, key_type
from millrace.host.expr import evaluate as ev
from millrace.host.expr.bounds import SolvedComparison, ends, solve
from millrace.host.expr.condition import (
    Absolute,
    Arithmetic,
    Column,
    CompareOp,
    Comparison,
    Condition,
    Expression,
    Negate,
    Number,
    columns_of,
    sides_of,
)
from millrace.host.expr.evaluate import Columns, Types
from millrace.host.expr.keys import Key, is_shift, make_key, word_range

PlanKind = Literal["equality", "band", "multi-band", "inequality", "two inequalities", "not equal", "residual"]


@dataclass(frozen=True)
class Probe:
    """How rows of the other side probe `side`: search ranges of `key`, then check `recheck` on the pairs found.

    `ranges` is a union of conjunctions of solved comparisons. `recheck` is a union of conjunctions, too; if it is
    empty, the pairs need no check.
    """

    side: Side
    key: Key
    ranges: tuple[tuple[tuple[SolvedComparison, CompareOp], ...], ...]
    recheck: tuple[tuple[Comparison, ...], ...]

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
    probes: dict[Side, Probe] | None
    """By searched side; None if no index can search."""
    two_sided_terms: tuple[tuple[Comparison, ...], ...]
    """The terms that relate both sides; checked on every pair if nothing is searched."""

    def describe(self) -> str:
        """Return one line of text with the kind and the keys."""
        if self.probes is None:
            return f"{self.kind}: no term can be searched, every pair is checked"
        keys = ", ".join(f"{s} by {render(self.probes[s].key.expression)}" for s in SIDES)
        return f"{self.kind}: {keys}"

    def recheck_of(self, searched: Side) -> tuple[tuple[Comparison, ...], ...]:
        """Return the terms to check on the pairs found in `searched`."""
        return self.two_sided_terms if self.probes is None else self.probes[searched].recheck

    def band(self, probing: Side) -> tuple[int, int] | None:
        """Return how far below and above its own key's word a tuple of side `probing` searches, if all search equally.

        This holds for `r.x - s.x BETWEEN a AND b` over integer columns of one type: words differ as values do.
        """
        if self.probes is None:
            return None
        own, searched = self.probes[probing].key, self.probes[other(probing)]
        alike = own.kind == searched.key.kind and own.kind.domain != "float"
        if len(searched.ranges) > 1 or not alike or not isinstance(own.expression, Column):
            return None
        return searched.shifts(own.expression, self.types)

    def matches(self, terms: tuple[tuple[Comparison, ...], ...], columns: Columns, rows: int) -> Mask:
        """Return a mask of the pairs that satisfy all comparisons of at least one conjunction."""
        found = np.zeros(rows, np.bool_)
        for conjunction in terms:
            keep = np.ones(rows, np.bool_)
            for term in conjunction:
                keep &= ev.holds(term, columns, self.types, rows)
            found |= keep
        return found


def bind(condition: Condition, schemas: dict[Side, pa.Schema]) -> Plan:
    """Find the columns, check their types, and plan what an index can search."""
    types: dict[tuple[Side, str], KeyType] = {}
    for side in SIDES:
        for name in condition.columns(side):
            types[side, name] = column_type(side, name, schemas[side])
    for term in condition.comparisons():
        ev.check(term, types, condition.text)
    return _plan(condition, types)


def column_type(side: Side, name: str, schema: pa.Schema) -> KeyType:
    """Return the key type of a column of the condition; raise an error that lists the columns if there is none."""
    if name not in schema.names:
        known = ", ".join(f"{side}.{n}" for n in schema.names) or "none"
        raise SchemaError(f"the condition uses {side}.{name}, but {side} has no such column; its columns are {known}")
    return key_type(f"{side}.{name}", schema.field(name).type)


def plan_kind(condition: Condition) -> PlanKind:
    """Return the kind of search a condition allows. It needs no types, so a wrong index is reported before any data."""
    bands = _two_sided(condition)
    best = {side: _best([solve(t, side, lambda _: "exact") for t in bands[0]]) for side in SIDES}
    if not best["r"] or not best["s"]:
        return "residual"
    if len(bands) > 1:
        return "multi-band"
    rank = min(_rank(best[side]) for side in SIDES)
    if rank == 1:
        inequalities = [t for t in bands[0] if t.op not in ("=", "<>")]
        return "two inequalities" if len(inequalities) == 2 else "inequality"
    return {3: "equality", 2: "band", 0: "not equal"}[rank]  # type: ignore[return-value]


def _two_sided(condition: Condition) -> tuple[tuple[Comparison, ...], ...]:
    """Return the terms that relate both sides; for an OR all terms: a one-sided term applies to its own band only."""
    if len(condition.bands) > 1:
        return condition.bands
    return (tuple(t for t in condition.bands[0] if len(sides_of(t)) == 2),)


def _plan(condition: Condition, types: Types) -> Plan:
    bands = _two_sided(condition)
    kind = plan_kind(condition)
    probes: dict[Side, Probe] | None = None
    if kind != "residual":
        probes = {side: _probe(condition, bands, side, types) for side in SIDES}
    return Plan(condition, kind, types, probes, bands)


def _probe(condition: Condition, bands: tuple[tuple[Comparison, ...], ...], side: Side, types: Types) -> Probe:
    """Return the best probe of `side`."""
    kinds = partial(ev.kind_of, types=types, text=condition.text)
    solved = [[solve(t, side, kinds) for t in band] for band in bands]
    if len(bands) > 1:
        return _multi_band(bands, side, types, solved)
    best = _best(solved[0])
    used = [one for one in best if one.op != "<>"] or best[:1]
    ranges: tuple[tuple[tuple[SolvedComparison, CompareOp], ...], ...] = (tuple((one, one.op) for one in used),)
    if used[0].op == "<>":
        ranges = (((used[0], "<"),), ((used[0], ">"),))
    certain = {id(one.term) for one in used if one.exact}
    unproven = tuple(t for t in bands[0] if id(t) not in certain)
    return Probe(side, make_key(best[0].key, types), ranges, (unproven,) if unproven else ())


def _best(solved: Sequence[SolvedComparison | None]) -> list[SolvedComparison]:
    """Return the comparisons on the most selective key; empty if no term can be converted to a range."""
    groups: dict[str, list[SolvedComparison]] = {}
    for one in solved:
        if one is not None:
            groups.setdefault(render(one.key), []).append(one)
    return max(groups.values(), key=_rank) if groups else []


def _rank(group: list[SolvedComparison]) -> int:
    """Rank by selectivity: an equality first, then a range with two ends, then with one end, then `<>`."""
    if any(one.op == "=" for one in group):
        return 3
    ranged = [one for one in group if one.op != "<>"]
    if any(one.below for one in ranged) and any(one.above for one in ranged):
        return 2
    return 1 if ranged else 0


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
    bands: tuple[tuple[Comparison, ...], ...],
    side: Side,
    types: Types,
    solved: list[list[SolvedComparison | None]],
) -> Probe:
    ranges = [tuple((one, one.op) for one in _band_parts(parts)) for parts in solved]
    exact = all(one is not None and one.exact and one.op != "<>" for parts in solved for one in parts)
    key = make_key(ranges[0][0][0].key, types)
    return Probe(side, key, tuple(ranges), () if exact else bands)


def render(node: Expression) -> str:
    """Return an expression as text; equal expressions give equal texts, whatever their position."""
    if isinstance(node, Column):
        return f"{node.side}.{node.name}"
    if isinstance(node, Number):
        return str(node.value)
    if isinstance(node, Negate):
        return f"-({render(node.operand)})"
    if isinstance(node, Absolute):
        return f"abs({render(node.operand)})"
    if isinstance(node, Arithmetic):
        return f"({render(node.left)} {node.op} {render(node.right)})"
    return f"{node.ns} ns"
