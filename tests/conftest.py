"""Prints after a run how many minutes the tests of each folder took, and the ten slowest tests.

A folder is the first folder below tests/. A test's time is that of its set-up, call and tear-down, summed over all
worker processes, so it is work time, not elapsed time. The times come from pytest's own reports, which xdist sends to
the main process.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import PurePosixPath

import pytest

from tests import hardware_checks
from tests.conformance import injection

SLOWEST = 10
# Tests see the operators as they are when their kernels are compiled; `test_first_calls.py` is about the time before.
os.environ.setdefault("MILLRACE_COMPILE", "now")
# For every Java process that a test starts: no optimising compiler, which takes half of the time of sessions that live
# for minutes, and one thread for garbage.
os.environ.setdefault("SPARK_SUBMIT_OPTS", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")


LONGEST = ("spark", "boards/test_deploy_document", "wheel", "site", "verilator-benches", "icarus-benches")
"""Groups that take minutes, or that one worker runs to the end: the others run beside them."""
LONG = ("conformance", "signals", "sim", "fuzz", "boards", "hw", "hls", "gpu", "docs", "packaging")
"""Folders with few but long tests. Those that follow have many short files, which end at about the same time."""


def order_of(item: pytest.Item) -> int:
    """Where a test's group is in the order of the run."""
    mark = item.get_closest_marker("xdist_group")
    if mark is not None and mark.args[0] in LONGEST:
        return LONGEST.index(mark.args[0])
    return len(LONGEST) + (folder_of(item.nodeid) not in LONG)


def folder_of(nodeid: str) -> str:
    """`tests/host/test_words.py::test_x` belongs to `host`; a test right below tests/ to `tests`."""
    folders = PurePosixPath(nodeid.split("::", 1)[0]).parts[:-1]
    return folders[1] if len(folders) > 1 else "tests"


def seconds_by_test(reports: Iterable[object]) -> Counter[str]:
    """Sums the phases of each test."""
    seconds: Counter[str] = Counter()
    for report in reports:
        if isinstance(report, pytest.TestReport):
            seconds[report.nodeid] += report.duration  # type: ignore[assignment]
    return seconds


def timing_lines(seconds: Mapping[str, float]) -> list[str]:
    """Returns the two tables as lines of text."""
    tests_in: Counter[str] = Counter(folder_of(nodeid) for nodeid in seconds)
    spent: Counter[str] = Counter()
    for nodeid, taken in seconds.items():
        spent[folder_of(nodeid)] += taken  # type: ignore[assignment]
    lines = ["minutes per folder"]
    lines += [f"{taken / 60:8.2f}  {folder} ({tests_in[folder]} tests)" for folder, taken in spent.most_common()]
    lines.append(f"{SLOWEST} slowest tests, in seconds")
    slowest = sorted(seconds.items(), key=lambda item: (-item[1], item[0]))[:SLOWEST]
    lines += [f"{taken:8.2f}  {nodeid}" for nodeid, taken in slowest]
    return lines


def kill_lines(reports: Iterable[object]) -> list[str]:
    """Returns a table of the processes that tests killed (their property `kill`), with the outcomes."""
    kills = [
        value
        for report in reports
        if isinstance(report, pytest.TestReport) and report.when == "call"
        for name, value in report.user_properties
        if name == "kill" and isinstance(value, dict)
    ]
    return ["  ".join(f"{name}: {value}" for name, value in one.items()) for one in kills]


def fault_lines(reports: Iterable[object]) -> list[str]:
    """Returns what became of the injected faults: how many cases of each outcome, and at which points."""
    found: Counter[str] = Counter()
    for report in reports:
        if isinstance(report, pytest.TestReport) and report.when == "teardown":
            for name, value in report.user_properties:
                if name == injection.PROPERTY and isinstance(value, dict):
                    found.update(value)
    return [f"{count:8}  {what}" for what, count in found.most_common()]


def pytest_addoption(parser: pytest.Parser) -> None:
    """Adds `--inject-faults` and `--all-hardware`."""
    parser.addoption(
        "--inject-faults",
        type=int,
        metavar="SEED",
        help="arm a fault point in each conformance case, drawn with this seed",
    )
    parser.addoption(
        "--all-hardware",
        action="store_true",
        help="run long checks of the hardware though nothing changed, and record those that passed",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Hands the option to the conformance cases."""
    injection.set_seed(config.getoption("--inject-faults"))


@pytest.fixture(autouse=True)
def record_faults(record_property: Callable[[str, object], None]) -> Iterator[None]:
    """Reports what the faults injected in a test did."""
    yield
    if found := injection.report():
        record_property(injection.PROPERTY, found)


@pytest.hookimpl(tryfirst=True)  # before xdist reads the groups
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Puts the tests of a file into one group, and the groups that take longest first (`order_of`).

    One worker runs a group: it makes the fixtures of a file once, and no two workers compile the same kernels at the
    same time, as they would for neighbouring tests. Long checks of the hardware are skipped if they passed with the
    same sources, except in the long suite.
    """
    if not config.getoption("--all-hardware") and config.getoption("markexpr") != "long":
        hardware_checks.mark_unchanged(items)
    for item in items:
        if item.get_closest_marker("xdist_group") is None:
            file = PurePosixPath(item.location[0]).with_suffix("")
            item.add_marker(pytest.mark.xdist_group(file.as_posix().removeprefix("tests/")))
    items.sort(key=order_of)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Writes the tables and the coverage of the conformance cases below pytest's own summary."""
    # Under xdist the main process does not load tests/conformance/conftest.py, so this hook writes its summary.
    from tests.conformance.summary import write_summary

    write_summary(terminalreporter)
    seconds = seconds_by_test(report for kind in terminalreporter.stats.values() for report in kind)
    if not seconds:
        return
    if terminalreporter.config.getoption("--all-hardware"):
        reports = (
            one for kind in terminalreporter.stats.values() for one in kind if isinstance(one, pytest.TestReport)
        )
        for name in hardware_checks.record_passed((one.nodeid, one.outcome) for one in reports):
            terminalreporter.write_line(f"hw/checked.json: {name} passed with these sources")
    terminalreporter.section("time")
    for line in timing_lines(seconds):
        terminalreporter.write_line(line)
    faulted = fault_lines(report for kind in terminalreporter.stats.values() for report in kind)
    if faulted:
        terminalreporter.section("injected faults: cases")
        for line in faulted:
            terminalreporter.write_line(line)
    killed = kill_lines(report for kind in terminalreporter.stats.values() for report in kind)
    if killed:
        terminalreporter.section("processes killed")
        for line in killed:
            terminalreporter.write_line(line)
