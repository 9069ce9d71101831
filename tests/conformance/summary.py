"""Prints after a run what the conformance cases covered; under xdist the reports carry the numbers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any

import pytest

from tests.conformance.suite import MIN_SHARES, SEED

PROPERTY = "conformance"
_WRITTEN = pytest.StashKey[bool]()


def reports_of(terminalreporter: pytest.TerminalReporter) -> Iterable[tuple[str, dict[str, Any]]]:
    """Yields the operator and the numbers of every shard that ran."""
    for reports in terminalreporter.stats.values():
        for report in reports:
            for name, value in getattr(report, "user_properties", ()):
                if name == PROPERTY and report.when == "call":
                    yield value["operator"], value


def summary_lines(shards: Iterable[tuple[str, dict[str, Any]]]) -> list[str]:
    """Returns one line for each operator, and one for each pair."""
    cases: Counter[str] = Counter()
    covered: dict[str, Counter[str]] = {}
    served: dict[str, Counter[str]] = {}
    for operator, numbers in shards:
        cases[operator] += numbers["cases"]
        covered.setdefault(operator, Counter()).update(numbers["covered"])
        served.setdefault(operator, Counter()).update(numbers["served"])
    lines = []
    for operator, count in sorted(cases.items()):
        shares = ", ".join(
            f"{name} {covered[operator][name] / count:.0%}" for name in MIN_SHARES if covered[operator][name]
        )
        lines.append(f"{operator}: {count} cases, seed {SEED}; with {shares}")
        lines += [f"    {pair}: {done} cases served" for pair, done in sorted(served[operator].items())]
    return lines


def write_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Called from `pytest_terminal_summary` hooks; only the first call writes."""
    lines = summary_lines(reports_of(terminalreporter))
    if lines and _WRITTEN not in terminalreporter.config.stash:
        terminalreporter.config.stash[_WRITTEN] = True
        min_shares = ", ".join(f"{name} {share:.0%}" for name, share in MIN_SHARES.items())
        terminalreporter.section(f"conformance (at least: {min_shares})")
        for line in lines:
            terminalreporter.write_line(line)
