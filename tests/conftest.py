"""Says, after a run, how many minutes each room's tests took and which ten tests were slowest.

A room is the first folder below tests/. A test's time is that of its set-up, call and tear-down, summed over
all worker processes, so it is work done, not time waited. It is read from pytest's own reports, which xdist
hands to the main process.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import PurePosixPath

import pytest

SLOWEST = 10


def room_of(nodeid: str) -> str:
    """`tests/host/test_words.py::test_x` belongs to `host`; a test right below tests/ to `tests`."""
    folders = PurePosixPath(nodeid.split("::", 1)[0]).parts[:-1]
    return folders[1] if len(folders) > 1 else "tests"


def seconds_by_test(reports: Iterable[object]) -> Counter[str]:
    """Adds up the phases of each test."""
    seconds: Counter[str] = Counter()
    for report in reports:
        if isinstance(report, pytest.TestReport):
            seconds[report.nodeid] += report.duration  # type: ignore[assignment]
    return seconds


def timing_lines(seconds: Mapping[str, float]) -> list[str]:
    """The two tables, as lines of text."""
    tests_in: Counter[str] = Counter(room_of(nodeid) for nodeid in seconds)
    spent: Counter[str] = Counter()
    for nodeid, taken in seconds.items():
        spent[room_of(nodeid)] += taken  # type: ignore[assignment]
    lines = ["minutes per room"]
    lines += [f"{taken / 60:8.2f}  {room} ({tests_in[room]} tests)" for room, taken in spent.most_common()]
    lines.append(f"{SLOWEST} slowest tests, in seconds")
    slowest = sorted(seconds.items(), key=lambda item: (-item[1], item[0]))[:SLOWEST]
    lines += [f"{taken:8.2f}  {nodeid}" for nodeid, taken in slowest]
    return lines


def kill_lines(reports: Iterable[object]) -> list[str]:
    """A table of the processes that tests killed (their property `kill`), and what came of it."""
    kills = [
        value
        for report in reports
        if isinstance(report, pytest.TestReport) and report.when == "call"
        for name, value in report.user_properties
        if name == "kill" and isinstance(value, dict)
    ]
    return ["  ".join(f"{name}: {value}" for name, value in one.items()) for one in kills]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests that share a Spark session go first: one worker does them all, which takes longer than any other group."""
    items.sort(key=lambda item: all("spark" not in mark.args for mark in item.iter_markers("xdist_group")))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Writes the tables below pytest's own summary, and what the conformance cases cover."""
    # Under xdist the main process does not load tests/conformance/conftest.py, so its summary is asked for here.
    from tests.conformance.summary import write_summary

    write_summary(terminalreporter)
    seconds = seconds_by_test(report for kind in terminalreporter.stats.values() for report in kind)
    if not seconds:
        return
    terminalreporter.section("time")
    for line in timing_lines(seconds):
        terminalreporter.write_line(line)
    killed = kill_lines(report for kind in terminalreporter.stats.values() for report in kind)
    if killed:
        terminalreporter.section("processes killed")
        for line in killed:
            terminalreporter.write_line(line)
