"""Exact and double arithmetic over arrays: the same as `Fraction` and Python floats, number by number."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millrace.host.expr import exact
from millrace.host.expr.condition import CompareOp
from millrace.host.expr.exact import Double, Exact, Value

Number = Fraction | float
ROWS = 4
COMPARE: dict[CompareOp, Callable[[Any, Any], bool]] = {
    "=": operator.eq,
    "<>": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
DTYPES = [np.int32, np.uint32, np.int64, np.uint64]
EDGES = [0, 1, -1, 2**31, 2**32 - 1, 2**53 - 1, 2**53, 2**53 + 1, 2**63 - 1, 2**63, -(2**63), 2**64 - 1]


@dataclass(frozen=True)
class Model:
    """A value as the module stores it, and as plain numbers, one per row."""

    value: Value
    numbers: tuple[Number, ...]


def nearest(x: Number) -> float:
    try:
        return float(x)
    except OverflowError:
        return math.inf if x > 0 else -math.inf


def of_type(dtype: Any) -> st.SearchStrategy[int]:
    low, high = int(np.iinfo(dtype).min), int(np.iinfo(dtype).max)
    return st.sampled_from([e for e in EDGES if low <= e <= high]) | st.integers(low, high) | st.integers(0, 9)


@st.composite
def columns(draw: st.DrawFn) -> Model:
    """An integer or a float column of a few rows."""
    if draw(st.booleans()):
        dtype = draw(st.sampled_from(DTYPES))
        values = draw(st.lists(of_type(dtype), min_size=ROWS, max_size=ROWS))
        mul = draw(st.sampled_from([1, 1, 10**9, 86_400 * 10**9]))
        return Model(Exact(np.array(values, dtype), mul=mul), tuple(Fraction(v) * mul for v in values))
    special = [0.0, -0.0, 0.1, 0.5, 5e-324, 1.7976931348623157e308, math.inf, -math.inf, 2.0**53, 2.0**63, -(2.0**63)]
    one = st.sampled_from(special) | st.floats(allow_nan=False) | st.integers(-5, 5).map(float)
    floats = draw(st.lists(one, min_size=ROWS, max_size=ROWS))
    return Model(Double(np.array(floats)), tuple(floats))


@st.composite
def constants(draw: st.DrawFn) -> Model:
    number = draw(
        st.sampled_from(EDGES).map(Fraction) | st.fractions(max_denominator=1000) | st.integers(-9, 9).map(Fraction)
    )
    return Model(Exact.constant(number), (number,) * ROWS)


def unary(name: str, x: Model) -> Model:
    function = {"negate": exact.negate, "absolute": exact.absolute}[name]
    plain: Callable[[Any], Any] = operator.neg if name == "negate" else abs
    return Model(function(x.value), tuple(plain(n) for n in x.numbers))


def binary(name: str, x: Model, y: Model) -> Model:
    function = {"add": exact.add, "subtract": exact.subtract, "multiply": exact.multiply}[name]
    plain = {"add": operator.add, "subtract": operator.sub, "multiply": operator.mul}[name]
    numbers: list[Number] = []
    for a, b in zip(x.numbers, y.numbers, strict=True):
        if isinstance(a, float) or isinstance(b, float):
            a, b = nearest(a), nearest(b)
        numbers.append(plain(a, b))
    with np.errstate(over="ignore", invalid="ignore"):
        return Model(function(x.value, y.value), tuple(numbers))


def trees(leaves: st.SearchStrategy[Model]) -> st.SearchStrategy[Model]:
    def bigger(inner: st.SearchStrategy[Model]) -> st.SearchStrategy[Model]:
        one = st.builds(unary, st.sampled_from(["negate", "absolute"]), inner)
        two = st.builds(binary, st.sampled_from(["add", "subtract", "multiply"]), inner, inner)
        return one | two

    return st.recursive(leaves, bigger, max_leaves=4)


values = trees(columns() | constants())


def read(x: Value) -> list[Number]:
    """Returns the numbers of a value, one per row (a constant is repeated)."""
    if isinstance(x, Double):
        found: list[Number] = [float(f) for f in x.array]
    else:
        found = [Fraction(int(n), x.den) for n in exact.numerators(x)]
    return found * ROWS if len(found) == 1 else found


def same(a: Number, b: Number) -> bool:
    return (a != a and b != b) or a == b


@settings(deadline=None, max_examples=200)
@given(values)
def test_arithmetic_is_exact_over_integers_and_ieee_over_floats(x: Model) -> None:
    found = read(x.value)
    assert all(same(a, b) for a, b in zip(found, x.numbers, strict=True)), (found, x.numbers)
    assert all(type(a) is type(b) for a, b in zip(found, x.numbers, strict=True))


@settings(deadline=None, max_examples=100)
@given(values)
def test_the_nearest_double_is_pythons(x: Model) -> None:
    found = exact.to_double(x.value)
    wanted = [nearest(n) for n in x.numbers]
    found_rows = [float(f) for f in np.broadcast_to(found, (ROWS,))]
    assert all(same(a, b) for a, b in zip(found_rows, wanted, strict=True)), (found_rows, wanted)


@settings(deadline=None, max_examples=300)
@given(x=values, y=values, op=st.sampled_from(list(COMPARE)))
def test_comparisons_are_of_exact_numbers_and_nan_is_never_true(x: Model, y: Model, op: CompareOp) -> None:
    found = np.broadcast_to(exact.compare(op, x.value, y.value), (ROWS,)).tolist()
    wanted = [a == a and b == b and COMPARE[op](a, b) for a, b in zip(x.numbers, y.numbers, strict=True)]
    assert found == wanted


@settings(deadline=None)
@given(
    integers=st.lists(of_type(np.int64), min_size=ROWS, max_size=ROWS),
    steps=st.lists(st.integers(-2, 2), min_size=ROWS, max_size=ROWS),
    op=st.sampled_from(list(COMPARE)),
)
def test_integers_next_to_a_double_are_distinguished(integers: list[int], steps: list[int], op: CompareOp) -> None:
    """A double compares exactly with the integers next to it, also beyond 2**53."""
    doubles = [float(i) for i in integers]
    for _ in range(2):
        doubles = [math.nextafter(d, math.inf * s) if s else d for d, s in zip(doubles, steps, strict=True)]
    x, y = Exact(np.array(integers, np.int64)), Double(np.array(doubles))
    wanted = [COMPARE[op](Fraction(i), Fraction(d)) for i, d in zip(integers, doubles, strict=True)]
    assert exact.compare(op, x, y).tolist() == wanted
    mirrored = [COMPARE[op](Fraction(d), Fraction(i)) for i, d in zip(integers, doubles, strict=True)]
    assert exact.compare(op, y, x).tolist() == mirrored


@pytest.mark.parametrize("dtype", [np.int64, np.uint64])
def test_two_to_the_53_plus_one_is_not_two_to_the_53(dtype: type) -> None:
    x = Exact(np.array([2**53, 2**53 + 1, 2**53 + 2], dtype))
    y = Double(np.array([2.0**53] * 3))
    assert exact.compare("=", x, y).tolist() == [True, False, False]
    assert exact.compare("<", y, x).tolist() == [False, True, True]


def test_a_decimal_literal_is_exact_against_integers_and_a_double_against_floats() -> None:
    tenth = Exact.constant(Fraction("0.1"), literal=True)
    assert exact.compare("=", Double(np.array([0.1])), tenth).tolist() == [True]
    assert exact.compare("=", tenth, Double(np.array([0.1]))).tolist() == [True]
    # 0.1 as a double is a little more than a tenth: a computed exact tenth is not equal to it.
    assert exact.compare("=", Double(np.array([0.1])), Exact.constant(Fraction(1, 10))).tolist() == [False]
    ten = Exact(np.array([1], np.int64))
    assert exact.compare("=", exact.multiply(tenth, ten), Exact.constant(Fraction(1, 10))).tolist() == [True]


def test_the_offset_may_be_wider_than_64_bits_where_the_sum_is_not() -> None:
    x = exact.add(Exact(np.array([-(2**63)], np.int64)), Exact.constant(2**63 + 5))
    assert read(x)[0] == 5


def test_sums_of_columns_beyond_64_bits_stay_exact() -> None:
    x = Exact(np.array([2**63 - 1, -(2**63)], np.int64))
    assert read(exact.add(x, x)) == [2**64 - 2, -(2**64)]
    assert read(exact.multiply(x, x)) == [(2**63 - 1) ** 2, 2**126]
    assert read(exact.absolute(x)) == [2**63 - 1, 2**63]


@pytest.mark.parametrize("operation", [exact.add, exact.subtract, exact.multiply])
def test_no_rows_give_no_rows(operation: Callable[[Value, Value], Value]) -> None:
    none = Exact(np.zeros(0, np.int64))
    for other in (none, Exact.constant(3), Double(np.zeros(0))):
        result = operation(none, other)
        assert len(exact.to_double(result)) == 0
        assert len(exact.compare("<", result, none)) == 0
