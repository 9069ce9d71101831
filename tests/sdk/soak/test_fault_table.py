"""Every fault point is passed by some test; an operator then raises, falls back or absorbs, and its output is right."""

from __future__ import annotations

from pathlib import Path

import pytest

from millrace.faults import fault_points
from millrace.soak.fault_table import MEANING, Case, covering_tests, outcome, passed_points, table_lines

DEVICES = ("cpu", "opencl:0", "hls")


@pytest.fixture(scope="module")
def passed() -> dict[str, tuple[Case, int]]:
    """A case for each point that some operator passes."""
    found: dict[str, tuple[Case, int]] = {}
    for (_, point), case in passed_points(DEVICES, seeds=13).items():
        found.setdefault(point, case)
    return found


def test_every_point_is_passed_by_an_operator_or_has_tests_elsewhere(passed: dict[str, tuple[Case, int]]) -> None:
    wanted = {point.name for point in fault_points() if not covering_tests(point.name)}
    assert wanted - set(passed) == set()


def test_a_fault_at_any_point_loses_and_repeats_nothing(passed: dict[str, tuple[Case, int]]) -> None:
    for point, (case, hits) in passed.items():
        assert outcome(case, point, hits) in MEANING, point


def test_the_table_has_a_line_for_every_point() -> None:
    lines = table_lines([("WindowJoin", "bisort.step", "raises")])
    assert sum(line.startswith("| `") for line in lines) == len(fault_points())
    assert "| `bisort.step` | index bisort finds the partners of new tuples | raises |  |  |  |  |  |" in lines


def test_the_documented_table_has_every_point() -> None:
    """The outcomes in it are made by `millrace faults --table`; a new point, or another text, is seen here."""
    text = (Path(__file__).parents[3] / "docs/howto/failures.md").read_text()
    assert [point.name for point in fault_points() if f"| `{point.name}` | {point.what} |" not in text] == []
