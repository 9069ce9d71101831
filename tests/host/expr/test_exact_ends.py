"""Float bounds are exact: the words just inside a range satisfy the condition, those just outside do not.

Every condition is planned for many pairs of types and searched from both sides. Near the ends of each row's range, and
at all special values, the range must agree with the condition evaluated as written. The functions that invert one
operation are also compared with `Fraction` and with Python's own floats.
"""

from __future__ import annotations

import math
from fractions import Fraction
from itertools import product
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from millrace.host.base.types import SIDES, Array, Side, other
from millrace.host.base.words import from_words, to_words
from millrace.host.expr import exact_ends
from millrace.host.expr.exact import Exact
from millrace.host.expr.plan import Plan, bind, check_bands
from millrace.predicate import parse

HUGE, TINY, NORMAL = 1.7976931348623157e308, 5e-324, 2.2250738585072014e-308
ARROW = {
    "int32": pa.int32(),
    "int64": pa.int64(),
    "uint64": pa.uint64(),
    "float32": pa.float32(),
    "float64": pa.float64(),
}
FLOATS = [0.0, TINY, 3 * TINY, NORMAL, 1e-45, 1e-40, 1e-16, 0.1, 0.25, 0.3, 0.5, 0.75, 1.0, 1.5, 3.5, 5.0, 7.0, 1e7]
FLOATS += [16777217.0, 2.0**52 + 0.5, 2.0**53 - 1, 2.0**53, 2.0**53 + 2, 1e16, 2.0**60, 2.0**62, 2.0**63, 2.0**64, 1e19]
FLOATS += [3.4028234663852886e38, 3.5e38, 1e292, 9.9e307, 1e308, HUGE / 2, HUGE, math.inf]
INTEGERS = [0, 1, 2, 3, 5, 7, 10, 2**24 + 1, 2**31 - 1, 2**53 - 1, 2**53, 2**53 + 1, 2**53 + 3, 2**54 + 2, 2**54 + 6]
INTEGERS += [2**60 + 129, 2**62, 2**63 - 513, 2**63 - 512, 2**63 - 1, 2**63, 2**64 - 1025, 2**64 - 1024, 2**64 - 1]
CONDITIONS = [
    "abs(r.x - s.x) <= 0.5",
    "abs(r.x - s.x) < 0.1",
    "abs(s.x - r.x) <= 5",
    "abs(r.x + s.x) < 9007199254740993",
    "abs(r.x - s.x) <= 1e16",
    "abs(r.x - s.x) <= -1",
    "abs(r.x - s.x) < 0.0",
    "r.x - s.x BETWEEN -0.1 AND 0.3",
    "s.x BETWEEN r.x - 0.1 AND r.x + 0.1",
    "r.x + s.x <= 3.5",
    "r.x + s.x >= 1e308",
    "r.x - s.x > -1e308",
    "r.x - s.x < 5",
    "r.x - s.x = 0.1",
    "r.x = s.x + 0.5",
    "r.x - s.x = 0",
    "r.x - s.x <> 0.25",
    "r.x + s.x <> 1e16",
    "-(r.x - s.x) >= 5",
    "-s.x <= r.x",
    "-s.x = r.x",
    "-s.x <> r.x",
    "1 - abs(r.x - s.x) >= 0.25",
    "0.5 - abs(-r.x - s.x) > -3",
    "0.1 * s.x <= r.x",
    "-1.1 * s.x < 3 * r.x",
    "1e300 * s.x >= r.x",
    "1e-300 * s.x = r.x",
    "1e-320 * s.x <= r.x",
    "-1e300 * (r.x + s.x) < 7",
    "0.3 * (r.x - 0.7 * s.x) - 1 <= 0.1",
    "abs(r.x - 1.1 * s.x) <= 0.5",
    "abs(2 * s.x - r.x) < 1.5",
    "(s.x + 1) - (r.x + 1) <= 2.5",
    "(0.5 * s.x + 1) - r.x > 2.5",
    "2 * s.x - 1 <= r.x",
    "s.x + 9007199254740993 > r.x",
    "abs(r.x - s.x) <= 0.5 OR abs(r.x - s.x - 20) <= 0.1",
    "r.x - s.x BETWEEN 0.1 AND 0.3 OR r.x - s.x BETWEEN 0.2 AND 1e300 OR r.x = s.x + 0.5",
]


@np.errstate(all="ignore")
def specials(name: str, seed: int) -> Array:
    """All special values of a type, their neighbours, and random ones of every size."""
    rng = np.random.default_rng(seed)
    if name.startswith("float"):
        base = np.array(FLOATS + [-f for f in FLOATS]).astype(name)
        loose = (rng.standard_normal(10) * 10.0 ** rng.integers(-30, 30, 10)).astype(name)
        plain = rng.standard_normal(10).astype(name)
        around = [np.nextafter(base, base.dtype.type(to)) for to in (-np.inf, np.inf)]
        every: Array = np.unique(np.concatenate([base, *around, loose, plain])) + base.dtype.type(0)
        return every
    info = np.iinfo(name)
    near = {n + d for n in INTEGERS + [-n for n in INTEGERS] for d in (-1, 0, 1)}
    random = {int(n) >> k for n, k in zip(rng.integers(-(2**63), 2**63 - 1, 30), range(0, 60, 2), strict=True)}
    return np.array(sorted(n for n in near | random if info.min <= n <= info.max), dtype=name)


def plan_of(text: str, r: str, s: str) -> Plan:
    condition = parse(text)
    check_bands(condition)
    return bind(condition, {"r": pa.schema({"x": ARROW[r]}), "s": pa.schema({"x": ARROW[s]})})


def around(low: Array, high: Array, known: Array, dtype: np.dtype[Any]) -> Array:
    """Words near both ends of each row's ranges, and the known words: one line per row, without NaN and -0.0."""
    rows = low.shape[1]
    word = low.dtype.type
    lines = [np.broadcast_to(known, (rows, len(known)))]
    for ends, by in product([*low, *high], [0, 1, 2]):
        lines += [(ends - word(by))[:, None], (ends + word(by))[:, None]]
    words = np.concatenate(lines, axis=1)
    if dtype.kind == "f":
        bottom, top = to_words(np.array([-np.inf, np.inf], dtype))
        words = np.clip(words, bottom, top)
        zero = to_words(np.zeros(1, dtype))[0]
        words = np.where(words == zero - word(1), zero, words)
    return words


@np.errstate(all="ignore")
def check(text: str, types: dict[Side, str], searched: Side, exact: bool = True) -> None:
    plan = plan_of(text, types["r"], types["s"])
    assert plan.searchable
    probe, prober = plan.searches[searched][0], other(searched)
    recheck = plan.recheck_of(searched)
    assert exact == (not recheck), f"{text} over {types}: recheck of {searched} is {recheck}"
    mine = specials(types[prober], 1)
    dtype = np.dtype(types[searched])
    low, high = probe.word_ranges({(prober, "x"): mine}, plan.types, len(mine))
    words = around(low, high, to_words(specials(types[searched], 2)[::3]), dtype)
    inside = ((low[:, :, None] <= words) & (words <= high[:, :, None])).any(axis=0)
    pairs = {(prober, "x"): np.repeat(mine, words.shape[1]), (searched, "x"): from_words(words.ravel(), dtype)}
    true = plan.matches(plan.two_sided_terms, pairs, words.size).reshape(words.shape)
    wrong = np.argwhere(inside != true if exact else true & ~inside)
    if len(wrong):
        row, at = wrong[0]
        key = from_words(words[row, at : at + 1], dtype)[0]
        raise AssertionError(
            f"{text}: {prober} {mine[row]!r}, {searched} {key!r} is {true[row, at]}, {len(wrong)} wrong"
        )


@pytest.mark.parametrize("text", CONDITIONS)
def test_words_inside_match_and_words_outside_do_not(text: str) -> None:
    for r, s in product(ARROW, ARROW):
        if "float" in r + s:
            for searched in SIDES:
                check(text, {"r": r, "s": s}, searched)


@pytest.mark.parametrize(
    "text",
    [
        "1e-400 * s.x <= r.x",
        "1e400 * s.x <= r.x",
        "1e-400 * (s.x - r.x) <= 1",
        "1e400 * (r.x - s.x) = 0",
        "-1e400 * (r.x - s.x) <> 1",
        "(abs(r.x - s.x) - 1e308) * 10 + 1 <= 5",
        "abs(abs(r.x - s.x) - 5) <= 0.5",
    ],
)
def test_what_is_not_one_range_is_searched_wider_and_checked_again(text: str) -> None:
    for types in ("float64", "float32"):
        check(text, {"r": types, "s": types}, "s", exact=False)


@np.errstate(all="ignore")
def test_matches_on_both_sides_of_what_does_not_match_are_checked_again() -> None:
    plan = plan_of("(abs(s.x) - 1e308) * 10 + r.x <= 1e400", "float64", "float64")
    assert plan.searchable
    probe = plan.searches["s"][0]
    assert plan.recheck_of("s")
    keys = np.array([-1e308, 0.0, 1e308])
    low, high = probe.word_ranges({("r", "x"): np.array([math.inf])}, plan.types, 1)
    pairs: dict[tuple[Side, str], Array] = {("r", "x"): np.full(3, math.inf), ("s", "x"): keys}
    assert plan.matches(plan.recheck_of("s"), pairs, 3).tolist() == [True, False, True]
    assert ((low[0] <= to_words(keys)) & (to_words(keys) <= high[0])).all()


def test_a_second_term_on_another_key_is_still_checked() -> None:
    schema = pa.schema({"x": pa.float64(), "y": pa.float64()})
    plan = bind(parse("abs(r.x - s.x) <= 0.1 AND r.y < s.y"), {"r": schema, "s": schema})
    assert plan.searchable
    for side in SIDES:
        (unproven,) = plan.recheck_of(side)
        assert [term.op for term in unproven] == ["<"]


@np.errstate(all="ignore")
def test_the_range_is_exact_where_cancellation_leaves_most_doubles_to_search() -> None:
    a = np.array([1e16, 1e16, 2.0**53, HUGE, 1.0, TINY, -1e300])
    low = np.array([-1e16, -1e16 + 2, -(2.0**53), -HUGE, -1.0, -TINY, 1e300])
    first, last = exact_ends.undo_subtract(a, low, low)
    assert ((first - a >= low) & (last - a <= low)).all()
    assert not (np.nextafter(first, -np.inf) - a >= low).any()
    assert not (np.nextafter(last, np.inf) - a <= low).any()
    assert first[0] == -1.0
    assert last[0] == 1.0


@pytest.mark.parametrize("c", [TINY, NORMAL, 1e-300, 0.1, 1 - 2**-53, 1.0, 1.1, 3.0, 1e300, HUGE])
@np.errstate(all="ignore")
def test_a_product_is_undone_exactly(c: float) -> None:
    low = specials("float64", 3)
    first, last = exact_ends.undo_multiply(np.array([c]), low, low)
    assert ((first * c >= low) & (last * c <= low)).all()
    assert (~(np.nextafter(first, -np.inf) * c >= low) | (first == -np.inf)).all()
    assert (~(np.nextafter(last, np.inf) * c <= low) | (last == np.inf)).all()


def test_infinity_minus_infinity_is_left_out() -> None:
    inf = math.inf
    a = np.array([inf, inf, -inf, -inf, 1.0])
    low, high = np.array([-inf, 0.0, -inf, -inf, -inf]), np.array([inf, inf, inf, 0.0, inf])
    first, last = exact_ends.undo_subtract(a, low, high)
    assert (first[0], last[0]) == (-inf, HUGE)
    assert first[1] > last[1]
    assert (first[2], last[2]) == (-HUGE, inf)
    assert first[3] > last[3]
    assert (first[4], last[4]) == (-inf, inf)


@np.errstate(all="ignore")
def test_words_of_doubles_and_of_the_float32_inside() -> None:
    doubles = specials("float64", 6)
    words = exact_ends.double_words(doubles)
    assert words.dtype == np.uint64
    assert (words == to_words(doubles)).all()
    keys = specials("float32", 6)
    low, high = exact_ends.single_words(doubles, lower=True), exact_ends.single_words(doubles, lower=False)
    assert low.dtype == high.dtype == np.uint32
    assert ((to_words(keys) >= low[:, None]) == (keys.astype(np.float64) >= doubles[:, None])).all()
    assert ((to_words(keys) <= high[:, None]) == (keys.astype(np.float64) <= doubles[:, None])).all()


def rounded(n: int, denominator: int) -> float:
    try:
        return float(Fraction(n, denominator))
    except OverflowError:
        return math.inf if n > 0 else -math.inf


@pytest.mark.parametrize("denominator", [1, 2, 10, 3 * 10**20, 10**320])
@np.errstate(all="ignore")
def test_the_least_integer_that_rounds_up_to_a_double(denominator: int) -> None:
    doubles = specials("float64", 4)
    found, infinite = exact_ends.least_integers_rounding_to(doubles, denominator)
    for f, n, unbounded in zip(doubles, found, infinite, strict=True):
        assert unbounded == (-1 if f == -math.inf else 0)
        if not unbounded:
            assert rounded(int(n), denominator) >= f > rounded(int(n) - 1, denominator)


@pytest.mark.parametrize("denominator", [1, 2, 10, 10**320])
@pytest.mark.parametrize("strict", [False, True])
def test_the_least_integer_above_a_double(denominator: int, strict: bool) -> None:
    doubles = specials("float64", 5)
    found, infinite = exact_ends.least_integers(doubles, strict, denominator)
    for f, n, sign in zip(doubles, found, infinite, strict=True):
        assert sign == (math.copysign(1, f) if math.isinf(f) else 0)
        if not sign:
            end = Fraction(float(f))
            here, before = Fraction(int(n), denominator), Fraction(int(n) - 1, denominator)
            assert here > end >= before if strict else here >= end > before


def test_the_outermost_double_inside_an_exact_end() -> None:
    value = Exact(np.array([2**53 + 1, 2**53, -(2**63), 2**63 - 1], np.int64))
    for lower, strict in product([True, False], repeat=2):
        doubles, nothing = exact_ends.closed_end(value, strict, lower)
        assert nothing is None
        for n, f in zip(value.base.tolist(), doubles.tolist(), strict=True):  # type: ignore[union-attr]
            beyond = math.nextafter(f, -math.inf if lower else math.inf)
            inside = [
                (x > n or (x == n and not strict)) if lower else (x < n or (x == n and not strict)) for x in (f, beyond)
            ]
            assert inside == [True, False]


@np.errstate(all="ignore")
def test_nothing_is_beyond_infinity() -> None:
    beyond = Exact.constant(Fraction(10) ** 400)
    assert exact_ends.closed_end(beyond, False, lower=False)[0].tolist() == [HUGE]
    assert exact_ends.closed_end(beyond, False, lower=True)[0].tolist() == [math.inf]
    literal = Exact.constant(Fraction(10) ** 400, literal=True)
    _, nothing = exact_ends.closed_end(literal, True, lower=True)
    assert nothing is not None
    assert nothing.all()


def test_a_literal_next_to_the_bare_column_is_a_double_in_a_part_of_an_or() -> None:
    text = "(abs(r.x - s.x) <= 5 AND s.x <= 0.1 AND s.x >= 0.1) OR abs(r.x - s.x - 20) <= 5"
    for searched in SIDES:
        plan = plan_of(text, "float64", "float64")
        assert plan.searchable
        low, high = plan.searches["s"][0].word_ranges({("r", "x"): np.array([0.0])}, plan.types, 1)
        word = to_words(np.array([0.1]))
        assert ((low <= word) & (word <= high)).any(), searched
