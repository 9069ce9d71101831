"""Prints what the conformance cases covered, below pytest's own summary."""

from __future__ import annotations

import pytest

from tests.conformance.summary import write_summary


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Under xdist the main process loads this file only when it is named; tests/conftest.py calls it too."""
    write_summary(terminalreporter)
