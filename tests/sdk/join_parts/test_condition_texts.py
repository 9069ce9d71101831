"""Conditions compared by meaning, and other names for their columns."""

from __future__ import annotations

import pytest

from millrace.join_parts.condition_texts import same_meaning, with_names


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("abs(r.x - s.x) <= 5", "ABS(R.x-S.x)<=5"),
        ("abs(r.x - s.x) <= 5", "5 >= abs((r.x - s.x))"),
        ("r.a < s.a AND r.b > s.b", 'r.b > s."b" and r.a < s.a'),
        ("s.x BETWEEN r.lo AND r.hi", "r.lo <= s.x AND s.x <= r.hi"),
        ("r.x = s.x OR r.x = s.x + 1", "r.x = s.x + 1.0 OR s.x = r.x".replace("1.0", "1")),
        ("abs(r.x - s.x) <= 5", "abs(s.x - r.x) <= 5"),
        ("r.x + 1 = 2 * s.x", "s.x * 2 = 1 + r.x"),
        ("r.n != s.n AND r.x = s.x", "r.n <> s.n AND r.x = s.x"),
    ],
)
def test_the_same_condition_in_other_words(one: str, other: str) -> None:
    assert same_meaning(one, other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("abs(r.x - s.x) <= 5", "abs(r.x - s.x) <= 6"),
        ("abs(r.x - s.x) <= 5", "abs(r.x - s.x) < 5"),
        ("r.x < s.x", "r.x > s.x"),
        ("r.x < s.x", "r.X < s.x"),
        ("r.x - s.x = 1", "s.x - r.x = 1"),
        ("abs(r.x + s.x) <= 5", "abs(r.x - s.x) <= 5"),
        ("r.x + 2 * s.x = 1", "2 * r.x + s.x = 1"),
        ("r.x = s.x AND r.y = s.y", "r.x = s.x"),
        ("r.x = s.x", "not a condition"),
    ],
)
def test_other_conditions(one: str, other: str) -> None:
    assert not same_meaning(one, other)


def test_names_are_replaced_where_they_stand() -> None:
    known = {"a": "A", "odd": 'o"dd name'}
    text = with_names("r.a < s.b AND s.odd BETWEEN r.a AND r.a + 1", lambda _, name: known.get(name, name))
    assert text == 'r."A" < s.b AND s."o""dd name" BETWEEN r."A" AND r."A" + 1'
