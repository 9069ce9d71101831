"""What is known of a condition before rows are read: columns, keys, and routes whose ranges hold every partner."""

from __future__ import annotations

from fractions import Fraction
from random import Random

import pyarrow as pa
import pytest

import millrace as mr
from millrace.join_parts import routes
from tests import oracle

SCHEMA = pa.schema([(name, pa.int64()) for name in ("a", "b", "c")])
CONDITIONS = {
    "abs(r.a - s.a) <= 5": ["a"],
    "r.a - 2 * s.b BETWEEN -3 AND 4 AND r.b < s.b": ["a", "b"],
    "-(3 - r.a) * 2 < s.a": ["a"],
    "s.c - 0.5 * r.b >= s.a AND r.a = s.a": ["a", "b"],
    "r.c * -4 > s.a - s.b": ["c"],
    "abs(2 * r.a + s.a) < 7": ["a"],
    "abs(r.a - s.a) > 5": [],
    "r.a + r.b < s.a": [],
    "r.a * s.a > 4": [],
    "r.a <> s.a": [],
    "abs(r.a - s.b) <= 1 OR r.a - s.b BETWEEN 5 AND 6": ["a"],
    "s.a BETWEEN r.a AND r.b": ["a", "b"],
}


def value(node: routes.Expression, row: dict[str, int]) -> Fraction:
    if isinstance(node, routes.Column):
        return Fraction(row[node.name])
    if isinstance(node, routes.Number):
        return node.value
    if isinstance(node, routes.Negate):
        return -value(node.operand, row)
    if isinstance(node, routes.Absolute):
        return abs(value(node.operand, row))
    assert isinstance(node, routes.Arithmetic)
    left, right = value(node.left, row), value(node.right, row)
    return left + right if node.op == "+" else left - right if node.op == "-" else left * right


def inside(given: routes.Range, key: int, row: dict[str, int]) -> bool:
    low, high = given
    return (low is None or value(low, row) <= key) and (high is None or key <= value(high, row))


@pytest.mark.parametrize("on", CONDITIONS)
def test_partners_lie_in_a_routes_ranges(on: str) -> None:
    found = routes.bound_condition(on, SCHEMA, SCHEMA)
    assert sorted(route.column for route in found.routes["r"]) == CONDITIONS[on]
    holds, rng, met = oracle.condition(oracle.Parser(on).parse()), Random(on), 0
    for _ in range(3000):
        rows = [{name: rng.randrange(-12, 13) for name in SCHEMA.names} for _ in "rs"]
        if holds(*rows):
            met += 1
            for side, own, across in (("r", rows[0], rows[1]), ("s", rows[1], rows[0])):
                for route in found.routes[side]:  # type: ignore[index]
                    assert any(inside(one, own[route.column], across) for one in route.ranges)
    assert met > 20


def test_the_best_route_is_first() -> None:
    found = routes.bound_condition("r.b < s.b AND abs(r.c - s.c) <= 1 AND r.a = s.a", SCHEMA, SCHEMA)
    assert [(route.column, route.bounded) for route in found.routes["s"]] == [("a", True), ("c", True), ("b", False)]


def test_keys_are_of_terms_that_relate_both_sides() -> None:
    found = routes.bound_condition("r.a < s.b AND r.c > 3", SCHEMA, SCHEMA)
    assert found.columns == {"r": ("a", "c"), "s": ("b",)}
    assert found.keys == {"r": ("a",), "s": ("b",)}


def test_an_equality_of_text_is_routed_by_hash_after_bands() -> None:
    schema = pa.schema([("t", pa.string()), ("d", pa.decimal128(9, 2)), ("a", pa.int64()), ("b", pa.int64())])
    on = "r.t = s.t AND r.a < s.a AND abs(r.b - s.b) <= 2 AND r.d = s.d AND r.t <> 'x'"
    found = routes.bound_condition(on, schema, schema)
    assert [(one.column, one.hashed) for one in found.routes["s"]] == [
        ("b", False),
        ("t", True),
        ("d", True),
        ("a", False),
    ]
    assert found.routes["r"][1].bounded
    assert found.keys["r"] == ("t", "a", "b", "d")
    assert routes.bound_condition("r.t <> s.t", schema, schema).routes == {"r": (), "s": ()}


def test_what_is_wrong_is_raised() -> None:
    with pytest.raises(mr.SchemaError):
        routes.bound_condition("r.q = s.a", SCHEMA, SCHEMA)
    with pytest.raises(mr.PredicateError):
        routes.bound_condition("r.a LIKE s.a", SCHEMA, SCHEMA)
    with pytest.raises(mr.KeyTypeError):
        routes.bound_condition("r.a < s.a", SCHEMA, pa.schema([("a", pa.string())]))
