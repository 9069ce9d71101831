"""Plans and key ranges: the ranges contain every partner, and no other key if the plan says that they are exact.

Random conditions over random columns, row by row against the oracle's own evaluator (exact fractions and IEEE doubles).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millrace.host.base.errors import KeyTypeError, PredicateError, SchemaError
from millrace.host.base.types import SIDES, Side, other
from millrace.host.base.words import native
from millrace.host.expr.condition import Condition
from millrace.host.expr.plan import Plan, bind, check_bands, search_shape
from millrace.predicate import parse
from tests import oracle

HUGE, TINY = 1.7976931348623157e308, 5e-324
NUMBERS: dict[str, list[Any]] = {
    "int32": [-(2**31), 1 - 2**31, -7, -1, 0, 1, 5, 6, 2**31 - 2, 2**31 - 1],
    "uint32": [0, 1, 2, 5, 6, 7, 2**31, 2**32 - 2, 2**32 - 1],
    "int64": [-(2**63), 1 - 2**63, -(2**53) - 1, -6, -1, 0, 1, 5, 6, 2**53, 2**53 + 1, 2**63 - 2, 2**63 - 1],
    "uint64": [0, 1, 5, 6, 2**53 + 1, 2**63 - 1, 2**63, 2**64 - 2, 2**64 - 1],
    "float32": [-math.inf, -3.4028234663852886e38, -6.0, -0.0, 1e-45, 0.5, 5.0, 6.0, 16777216.0, math.inf],
    "float64": [-math.inf, -HUGE, -6.0, -TINY, 0.0, 0.1, 0.3, 5.0, 5.000000000000001, 2.0**53, 2.0**63, HUGE, math.inf],
}
UNITS = {"s": 10**9, "ms": 10**6, "us": 10**3, "ns": 1}
LITERALS = ["0", "1", "5", "-3", "0.1", "0.3", "2.5", "1e300", "9007199254740993", "9223372036854775813"]
FACTORS = ["2", "-1", "-3", "0.5", "1e300", "1e-300", "0.1"]
OPS = ["=", "<", "<=", ">", ">=", "<>"]


@dataclass(frozen=True)
class Rows:
    """One side: its Arrow columns, and the same rows as the oracle reads them."""

    table: pa.Table
    known: list[dict[str, Any]]


def values_of(name: str) -> st.SearchStrategy[Any]:
    special = st.sampled_from(NUMBERS[name])
    if name.startswith("float"):
        return special | st.floats(allow_nan=False, width=int(name[5:])) | st.integers(-9, 9).map(float)  # type: ignore[arg-type]
    low, high = int(np.iinfo(name).min), int(np.iinfo(name).max)
    return special | st.integers(max(low, -9), 9) | st.integers(low, high)


@st.composite
def numbers(draw: st.DrawFn, rows: int = 5) -> Rows:
    """Two columns x and y of any number types, without nulls."""
    columns, raw = {}, {}
    for name in ("x", "y"):
        kind = draw(st.sampled_from(list(NUMBERS)))
        raw[name] = draw(st.lists(values_of(kind), min_size=rows, max_size=rows))
        columns[name] = pa.array(
            raw[name], pa.type_for_alias(kind.replace("float32", "float").replace("float64", "double"))
        )
    return Rows(pa.table(columns), [{n: raw[n][i] for n in raw} for i in range(rows)])


@st.composite
def instants(draw: st.DrawFn, rows: int = 5) -> Rows:
    """Two columns t and u of any time types without a zone."""
    columns, raw = {}, {}
    for name in ("t", "u"):
        unit = draw(st.sampled_from([*UNITS, "day"]))
        ns = 86_400 * 10**9 if unit == "day" else UNITS[unit]
        bits = 31 if unit == "day" else 63
        near = st.integers(-5, 5) | st.sampled_from([n * 60 * 10**9 // ns for n in range(-5, 6)])
        ticks = draw(st.lists(near | st.sampled_from([-(2**bits), 2**bits - 1]), min_size=rows, max_size=rows))
        plain = pa.array(ticks, pa.int32() if unit == "day" else pa.int64())
        columns[name] = plain.view(pa.date32() if unit == "day" else pa.timestamp(unit))
        raw[name] = [oracle.Instant(t * ns) for t in ticks]
    return Rows(pa.table(columns), [{n: raw[n][i] for n in raw} for i in range(rows)])


def operands(side: str) -> st.SearchStrategy[str]:
    """An expression over one side's columns."""
    leaf = st.sampled_from([f"{side}.x", f"{side}.x", f"{side}.y"])
    literal = st.sampled_from(LITERALS)

    def bigger(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
        return st.one_of(
            st.builds("({} + {})".format, inner, literal),
            st.builds("({} - {})".format, inner, literal),
            st.builds("({} - {})".format, literal, inner),
            st.builds("({} * {})".format, st.sampled_from(FACTORS), inner),
            st.builds("-({})".format, inner),
            st.builds("abs({})".format, inner),
            st.builds("({} + {})".format, inner, inner),
            st.builds("({} - {})".format, inner, inner),
            st.builds("({} * {})".format, inner, inner),
        )

    return st.recursive(leaf, bigger, max_leaves=3)


def comparisons() -> st.SearchStrategy[str]:
    r, s, literal, op = operands("r"), operands("s"), st.sampled_from(LITERALS), st.sampled_from(OPS)
    return st.one_of(
        st.builds("{} {} {}".format, r, op, s),
        st.builds("{} {} {}".format, s, op, r),
        st.builds("abs({} - {}) {} {}".format, r, s, op, literal),
        st.builds("{} - {} BETWEEN {} AND {}".format, r, s, literal, literal),
        st.builds("{} BETWEEN {} AND {}".format, s, r, r),
        st.builds("{} - abs({} - {}) {} {}".format, literal, s, r, op, literal),
        st.builds("-({} - {}) {} {}".format, r, s, op, literal),
        st.builds("{} * ({} + {}) {} {}".format, st.sampled_from(FACTORS), r, s, op, literal),
        st.builds("{} - {} {} {}".format, r, s, op, r),
    )


conjunctions = st.lists(comparisons(), min_size=1, max_size=2).map(" AND ".join)
BAND = [
    "abs(r.x - s.x) <= {a}",
    "r.x - s.x BETWEEN {a} AND {b}",
    "s.x BETWEEN r.x + {a} AND r.x + {b}",
    "r.x = s.x + {a}",
    "(r.x < s.x + {b} AND r.x - s.x > {a})",
]
bands = st.builds(
    lambda text, a, b: text.format(a=a, b=b),
    st.sampled_from(BAND),
    st.sampled_from(["0", "1", "2.5", "-3", "-0.1"]),
    st.sampled_from(["0", "4", "5.5", "1e300"]),
)
unions = st.lists(bands, min_size=2, max_size=3).map(" OR ".join)
SPANS = ["INTERVAL '0' SECOND", "INTERVAL '90' SECOND", "INTERVAL '1' DAY", "INTERVAL '7' NANOSECOND"]
TIMES = [
    "r.t {op} s.t",
    "s.t + {d} {op} r.u",
    "abs(r.t - s.t) {op} {d}",
    "s.u BETWEEN r.t - {d} AND r.t + {d}",
    "r.t - s.t {op} r.u - r.t",
    "r.t - s.t BETWEEN -{d} AND {d}",
    "s.t - {d} {op} r.t AND r.u {op} s.u",
]
time_terms = st.builds(
    lambda text, op, d: text.format(op=op, d=d), st.sampled_from(TIMES), st.sampled_from(OPS), st.sampled_from(SPANS)
)


def plan_of(text: str, r: pa.Table, s: pa.Table) -> Plan:
    condition: Condition = parse(text)
    check_bands(condition)
    return bind(condition, {"r": r.schema, "s": s.schema})


def cells(side: Side, plan: Plan, rows: Rows) -> dict[tuple[Side, str], Any]:
    found: dict[tuple[Side, str], Any] = {}
    for of, name in plan.types:
        if of == side:
            found[of, name], valid = native(rows.table.column(name), plan.types[of, name])
            assert valid.all()
    return found


def candidates(plan: Plan, searched: Side, sides: dict[Side, Rows]) -> Any:
    """Whether each row of `searched` (columns) is in the ranges of each row of the other side (rows)."""
    assert plan.searchable
    probe = plan.searches[searched][0]
    searcher = sides[other(searched)]
    probers = searcher.table.num_rows
    low, high = probe.word_ranges(cells(other(searched), plan, searcher), plan.types, probers)
    words, known = probe.key.words(cells(searched, plan, sides[searched]), plan.types)
    words = np.broadcast_to(words, (sides[searched].table.num_rows,))
    assert low.dtype == high.dtype == words.dtype == probe.key.kind.word
    inside = (low[:, :, None] <= words) & (words <= high[:, :, None])
    assert inside.sum(axis=0).max() <= 1, "ranges of one row overlap: a pair would be found twice"
    found = inside.any(axis=0)
    return found if known is None else found & known


def check(text: str, r: Rows, s: Rows) -> None:
    plan = plan_of(text, r.table, s.table)
    if not plan.searchable:
        assert plan.kind == "residual"
        return
    holds = oracle.condition(oracle.Parser(text).parse())
    sides: dict[Side, Rows] = {"r": r, "s": s}
    for searched in SIDES:
        prober = other(searched)
        true = np.array(
            [
                [holds(*((mine, theirs) if prober == "r" else (theirs, mine))) for theirs in sides[searched].known]
                for mine in sides[prober].known
            ]
        )
        found = candidates(plan, searched, sides)
        missed = np.argwhere(true & ~found)
        assert not len(missed), f"{text}: searching {searched} misses {describe(missed, prober, sides)}"
        recheck = plan.recheck_of(searched)
        if recheck:
            probing_rows, searched_rows = (axis.ravel() for axis in np.indices(found.shape))
            pairs = {k: c[probing_rows] for k, c in cells(prober, plan, sides[prober]).items()}
            pairs |= {k: c[searched_rows] for k, c in cells(searched, plan, sides[searched]).items()}
            found = found & plan.matches(recheck, pairs, len(probing_rows)).reshape(found.shape)
        wrong = np.argwhere(found & ~true)
        assert not len(wrong), (
            f"{text}: searching {searched} gives {describe(wrong, prober, sides)} (recheck: {bool(recheck)})"
        )


def describe(at: Any, prober: Side, sides: dict[Side, Rows]) -> str:
    mine, theirs = at[0]
    return f"{prober} {sides[prober].known[mine]} with {other(prober)} {sides[other(prober)].known[theirs]}"


@settings(deadline=None, max_examples=400)
@given(text=conjunctions, r=numbers(), s=numbers())
def test_ranges_over_numbers_hold_every_partner(text: str, r: Rows, s: Rows) -> None:
    check(text, r, s)


@settings(deadline=None, max_examples=150)
@given(text=unions, r=numbers(), s=numbers())
def test_ranges_of_an_or_of_bands_hold_every_partner_once(text: str, r: Rows, s: Rows) -> None:
    check(text, r, s)


@settings(deadline=None, max_examples=150)
@given(text=time_terms, r=instants(), s=instants())
def test_ranges_over_times_hold_every_partner_whatever_the_units(text: str, r: Rows, s: Rows) -> None:
    check(text, r, s)


def rows_of(**columns: pa.Array) -> Rows:
    table = pa.table(columns)
    return Rows(table, table.to_pylist())


@pytest.mark.parametrize(
    ("text", "r", "s"),
    [
        # An exact number against doubles bounds them exactly, for every operator.
        ("-s.f <= r.i", {"i": [5]}, {"f": [-5.000000000000001, -5.0]}),
        ("abs(s.f) <= r.i", {"i": [5]}, {"f": [5.000000000000001, 5.0]}),
        ("-s.f < r.i", {"i": [5]}, {"f": [-4.999999999999999, -5.0]}),
        # A key that is an expression is clamped to 64 bits: rows beyond it still match each other.
        ("r.a + r.b = s.a + s.b", {"a": [2**63 - 1], "b": [2**63 - 1]}, {"a": [2**63 - 1], "b": [2**63 - 1]}),
        ("r.a + r.b = s.a + s.b", {"a": [-(2**63)], "b": [-(2**63)]}, {"a": [-(2**63)], "b": [-(2**63)]}),
        ("s.a + s.b > r.a", {"a": [2**63 - 1]}, {"a": [2**63 - 1, 2**63 - 1], "b": [1, 0]}),
        # Offsets wider than 64 bits whose sums are not.
        ("r.a + 9223372036854775813 < s.a", {"a": [-(2**63)]}, {"a": [7, 5, 6]}),
        ("r.a - 18446744073709551616 < s.a", {"a": [2**63 - 1]}, {"a": [-(2**63)]}),
        # Comparisons next to 2**53 and at the ends of the types.
        ("r.i = s.f", {"i": [2**53 + 1, 2**53]}, {"f": [2.0**53]}),
        ("r.i < s.f", {"i": [2**63 - 1]}, {"f": [2.0**63]}),
        ("r.i > s.f", {"i": [-(2**63)]}, {"f": [-(2.0**63), -math.inf]}),
        ("r.i <> s.f", {"i": [2**53 + 1]}, {"f": [2.0**53]}),
        # Infinity is beyond any integer, however large the factor that it is divided by.
        ("1e300 * s.i <= r.f", {"f": [math.inf, 1e301]}, {"i": [2, 11]}),
        ("-1e300 * s.i <= r.f", {"f": [math.inf, -math.inf]}, {"i": [2, -2]}),
        # The integers of a key that is an expression may count in halves, or in units of 1e-300.
        ("0.5 * s.a + s.b <= r.f", {"f": [2.5, 1.5, 2.0]}, {"a": [4], "b": [0]}),
        ("0.5 * s.a + s.b > r.f", {"f": [2.5, 1.5, 2.0]}, {"a": [4], "b": [0]}),
        ("1e-300 * s.a + s.b = r.f", {"f": [3.0, -4e16]}, {"a": [0, 1], "b": [3, 3]}),
        # Infinity minus infinity is NaN, and NaN is null.
        ("r.f - s.f <= 1", {"f": [math.inf]}, {"f": [math.inf, -math.inf, 1.0]}),
        ("abs(r.f - s.f) <= 1e308", {"f": [HUGE, -HUGE]}, {"f": [HUGE, -HUGE]}),
        # Rounding underflows and overflows.
        ("1e-300 * s.f = r.f", {"f": [0.0]}, {"f": [1e-30, 1e-20, -1e-24, 0.0]}),
        ("1e300 * s.f = r.f", {"f": [math.inf]}, {"f": [1e9, 1e8, math.inf]}),
        ("s.f + 1e300 = r.f", {"f": [1e300]}, {"f": [1.0, -1e283, 1e285]}),
        # A decimal literal next to the bare column is a double, as in any other term.
        (
            "abs(r.f - s.f) <= 5 AND s.f <= 0.1 AND r.f >= 0.7 OR abs(r.f - s.f - 20) <= 5",
            {"f": [0.7, 0.1]},
            {"f": [0.1, 0.7]},
        ),
    ],
)
def test_hand_picked_edges(text: str, r: dict[str, list[Any]], s: dict[str, list[Any]]) -> None:
    check(text, rows_of(**{n: pa.array(v) for n, v in r.items()}), rows_of(**{n: pa.array(v) for n, v in s.items()}))


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("r.x = s.x", "equality"),
        ("r.x = s.x AND r.y < s.y", "equality"),
        ("abs(r.x - s.x) <= 5", "band"),
        ("s.x BETWEEN r.lo AND r.hi", "two inequalities"),
        ("abs(r.x - s.x) <= 5 OR abs(r.x - s.x - 20) <= 5", "multi-band"),
        ("r.x < s.x", "inequality"),
        ("r.x < s.x AND r.y > s.y", "two inequalities"),
        ("r.x <> s.x", "not equal"),
        ("abs(r.x - s.x) > 5", "residual"),
        ("r.x * s.x > 5", "residual"),
    ],
)
def test_the_kind_of_a_plan_needs_no_types(text: str, kind: str) -> None:
    assert search_shape(parse(text)).kind == kind


def test_a_plan_says_what_it_searches() -> None:
    table = pa.table({"x": [1]})
    assert "s.x" in plan_of("abs(r.x - s.x) <= 5", table, table).describe()
    assert "every pair" in plan_of("r.x * s.x > 5", table, table).describe()


def test_an_or_that_is_not_of_bands_is_refused_with_its_position() -> None:
    text = "abs(r.x - s.x) <= 5 OR r.x < s.x"
    with pytest.raises(PredicateError) as caught:
        check_bands(parse(text))
    assert "band" in str(caught.value)
    assert text in str(caught.value)


def test_binding_names_the_unknown_column_and_those_there_are() -> None:
    with pytest.raises(SchemaError, match=r"r\.z.*r\.x, r\.y"):
        plan_of("r.z = s.x", pa.table({"x": [1], "y": [1]}), pa.table({"x": [1]}))


def test_binding_names_the_column_that_cannot_be_a_key() -> None:
    with pytest.raises(KeyTypeError, match=r"s\.x.*string"):
        plan_of("r.x < s.x", pa.table({"x": [1]}), pa.table({"x": ["a"]}))


@pytest.mark.parametrize(
    ("text", "r", "s"),
    [
        ("r.t < s.t", pa.timestamp("s"), pa.timestamp("s", "UTC")),
        ("r.t < s.t", pa.timestamp("s"), pa.int64()),
        ("r.t - s.t < 5", pa.timestamp("s"), pa.timestamp("s")),
        ("r.t + s.t < INTERVAL '1' DAY", pa.timestamp("s"), pa.timestamp("s")),
        ("2 * r.t < s.t", pa.timestamp("s"), pa.timestamp("s")),
        ("abs(r.t) < s.t", pa.timestamp("s"), pa.timestamp("s")),
        ("r.t + INTERVAL '1' DAY < s.t", pa.int64(), pa.int64()),
        ("r.t - s.t < INTERVAL '1' DAY", pa.int64(), pa.int64()),
    ],
    ids=str,
)
def test_times_and_numbers_that_do_not_combine_are_refused_with_their_position(
    text: str, r: pa.DataType, s: pa.DataType
) -> None:
    with pytest.raises(PredicateError) as caught:
        plan_of(text, pa.table({"t": pa.nulls(1, r)}), pa.table({"t": pa.nulls(1, s)}))
    assert "^" in str(caught.value)
    assert "timestamp" in str(caught.value) or "interval" in str(caught.value)
