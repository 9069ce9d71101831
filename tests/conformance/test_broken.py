"""The suite detects broken indexes, and outputs whose differences are easy to miss."""

from __future__ import annotations

from functools import cache
from random import Random

import pyarrow as pa
import pytest

from millrace.host.join.contract import JoinIndex
from millrace.host.join.registry import INDEXES
from tests.conformance.broken import BROKEN, CorrectIndex, CorrectScan
from tests.conformance.cases import Case, build, random_shape
from tests.conformance.check import Mismatch, check_case, first_difference
from tests.conformance.expected import Expected, expect
from tests.conformance.suite import Tally, shortfalls

LIMIT = 40
"""How many cases the suite may need to catch a broken index; a run has a thousand."""


@cache
def case(number: int) -> tuple[Case, Expected]:
    made = build(random_shape(Random(number)))
    return made, expect(made)


def run_many(count: int) -> int:
    """Runs this many cases on the index under test; returns how many it supports."""
    served = 0
    for number in range(count):
        made, expected = case(number)
        served += check_case(made, expected, "broken", "cpu", 1 + number % 2, split_seed=number).served
    return served


@pytest.fixture
def index(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> type[JoinIndex]:
    """Registers the index under test as `broken`."""
    chosen: type[JoinIndex] = request.param
    monkeypatch.setitem(INDEXES, "broken", f"{chosen.__module__}:{chosen.__name__}")
    return chosen


@pytest.mark.parametrize("index", BROKEN, indirect=True, ids=lambda chosen: chosen.__name__)
def test_a_broken_index_is_caught(index: type[JoinIndex]) -> None:
    with pytest.raises((Mismatch, IndexError)):  # an expired partner cannot even be looked up
        run_many(LIMIT)


@pytest.mark.parametrize("index", [CorrectIndex, CorrectScan], indirect=True, ids=lambda chosen: chosen.__name__)
def test_a_correct_index_passes(index: type[JoinIndex]) -> None:
    assert run_many(LIMIT) >= 30


@pytest.mark.parametrize(
    ("found", "wanted", "at"),
    [
        ([1.0, float("nan")], [1.0, float("nan")], None),
        ([1.0, 0.0], [1.0, -0.0], 1),
        ([1.0, None], [1.0, float("nan")], 1),
        ([1.0, None], [1.0, None], None),
        ([1.0, 2.0, 3.0], [1.0, 3.0, 2.0], 1),
        ([1.0], [1.0, 2.0], 1),
        ([], [], None),
    ],
)
def test_columns_are_compared_bit_by_bit(found: list[float], wanted: list[float], at: int | None) -> None:
    a, b = (pa.table({"x": pa.array(values, pa.float64())}) for values in (found, wanted))
    assert first_difference(a, b) == at


def test_a_shard_that_covers_too_little_fails() -> None:
    pair = ("scan", "cpu")
    tally = Tally(cases=200)
    tally.served[pair] = 200
    tally.covered.update({"pairs": 120, "boundaries": 50, "late": 30, "edge": 30})
    assert shortfalls(tally, 200, [pair]) == []
    tally.covered["late"] = 28
    tally.served[pair] = 199
    assert [line.split(" of ")[0] for line in shortfalls(tally, 200, [pair])] == [f"{pair} served 199 cases", "14%"]
