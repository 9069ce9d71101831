"""A few conformance cases with an injected fault each; `--inject-faults=SEED` gives every case of this folder one."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

import pytest

from millrace.host.base.errors import StateError
from millrace.host.hbtree.layout import LAYOUTS
from millrace.host.join.registry import INDEXES
from tests.conformance import injection, test_join, test_knn_join, test_live_join, test_ordered_index
from tests.conformance.cases import Shape, build
from tests.conformance.check import check_case
from tests.conformance.expected import expect
from tests.conformance.injection import Injection, case_faults, join_points
from tests.conformance.pairs import pairs
from tests.conformance.suite import Tally, draw_cases

WINDOW_CASES, TABLE_CASES, LIVE_CASES, INDEX_CASES = 3, 2, 6, 12


@pytest.fixture(autouse=True)
def armed() -> Iterator[None]:
    """Arms the cases of this file."""
    before = injection.set_seed(7)
    injection.hits.clear()
    yield
    injection.set_seed(before)


def raised() -> int:
    return injection.hits["raised, then right"]


def test_window_joins() -> None:
    tally = Tally()
    draw_cases(23, WINDOW_CASES, lambda shape: tally.run(shape, pairs(), check_case))
    assert raised() > WINDOW_CASES


def test_joins_of_tables() -> None:
    tally = Tally()
    draw_cases(23, TABLE_CASES, lambda shape: test_join.run(shape, tally))
    assert raised()


def test_live_joins() -> None:
    def run(shape: Shape) -> None:
        case = build(shape)
        rng = Random(shape.seed)
        with case_faults(
            [*join_points(rng.choice(list(INDEXES)), "cpu"), "live.put", "live.step"], shape.seed
        ) as faults:
            test_live_join.LiveCase(case, expect(case), Random(shape.seed), faults).check()

    draw_cases(23, LIVE_CASES, run)
    assert raised()


@pytest.mark.parametrize("device", test_knn_join.DEVICES)
def test_nearest_neighbours(device: str) -> None:
    for seed in range(3):
        test_knn_join.test_streams_equal_the_oracle_on_every_device(seed, device)
    assert raised()


def test_ordered_indexes() -> None:
    rng, names = Random(23), test_ordered_index.devices()
    for number in range(INDEX_CASES):
        device, layout = names[number % len(names)], LAYOUTS[number // len(names) % len(LAYOUTS)]
        test_ordered_index.run(Random(rng.randrange(2**63)), device, layout)
    assert raised()


def test_an_error_that_is_not_of_the_fault_is_raised_at_once() -> None:
    """A full queue is a `StateError` too: under load it was taken for one of damaged data, and the put made again."""

    class Full:
        def put(self) -> None:
            raise StateError("the queue is full")

    with pytest.raises(StateError, match="full"):
        Injection("manifest.read=1+2*corrupt").retried(Full()).put()
