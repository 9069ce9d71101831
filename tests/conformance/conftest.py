"""Adds the emulated CUDA device, and prints the coverage of the cases below pytest's own summary."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.conformance.summary import write_summary
from tests.gpu.emulated import backend


@pytest.fixture(scope="module", autouse=True)
def emulated_cuda() -> Iterator[None]:
    """Registers it for this folder only: other tests see the devices that a user sees."""
    with backend.registered():
        yield


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Under xdist the main process loads this file only when it is named; tests/conftest.py calls it too."""
    write_summary(terminalreporter)
