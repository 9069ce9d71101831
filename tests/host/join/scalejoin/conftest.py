"""Threads for ScaleJoin's tests: more stripes than the machine may have cores."""

from __future__ import annotations

import pytest

from millrace.host.runtime import pool


@pytest.fixture
def four_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    """Joins may have four threads, and so four stripes, on any machine."""
    monkeypatch.setattr(pool, "size", lambda: 4)
