"""Prints, after a run, what the conformance cases covered; under xdist the numbers travel in the reports."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any

import pytest

from tests.conformance.suite import LEAST, SEED

PROPERTY = "conformance"
_WRITTEN = pytest.StashKey[bool]()


def reports_of(terminalreporter: pytest.TerminalReporter) -> Iterable[tuple[str, dict[str, Any]]]:
    """The operator and the numbers of every shard that ran."""
    for reports in terminalreporter.stats.values():
        for report in reports:
            for name, value in getattr(report, "user_properties", ()):
                if name == PROPERTY and report.when == "call":
                    yield value["operator"], value


def summary_lines(shards: Iterable[tuple[str, dict[str, Any]]]) -> list[str]:
    """One line for each operator, and one for each pair."""
    cases: Counter[str] = Counter()
    covered: dict[str, Counter[str]] = {}
    served: dict[str, Counter[str]] = {}
    for operator, numbers in shards:
        cases[operator] += numbers["cases"]
        covered.setdefault(operator, Counter()).update(numbers["covered"])
        served.setdefault(operator, Counter()).update(numbers["served"])
    lines = []
    for operator, count in sorted(cases.items()):
        shares = ", ".join(f"{name} {covered[operator][name] / count:.0%}" for name in LEAST if covered[operator][name])
        lines.append(f"{operator}: {count} cases, seed {SEED}; with {shares}")
        lines += [f"    {pair}: {hits} cases served" for pair, hits in sorted(served[operator].items())]
    return lines


def write_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Called from `pytest_terminal_summary` hooks; only the first call writes."""
    lines = summary_lines(reports_of(terminalreporter))
    if lines and _WRITTEN not in terminalreporter.config.stash:
        terminalreporter.config.stash[_WRITTEN] = True
        least = ", ".join(f"{name} {share:.0%}" for name, share in LEAST.items())
        terminalreporter.section(f"conformance (at least: {least})")
        for line in lines:
            terminalreporter.write_line(line)
