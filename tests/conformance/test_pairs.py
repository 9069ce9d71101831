"""The suite covers the pairs that it must, and fails if one of their devices does not open."""

from __future__ import annotations

from typing import Any

import pytest

from millrace.host.join.registry import INDEXES
from millrace.sim import rtl
from tests.conformance.pairs import EXPECTED, pairs


def test_all_expected_pairs_are_found() -> None:
    assert set(pairs()) >= EXPECTED


def test_every_index_is_expected() -> None:
    assert {index for index, _ in EXPECTED} == set(INDEXES)


def test_a_device_that_does_not_open_fails_the_suite(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*given: Any) -> Any:
        raise OSError("no simulator")

    monkeypatch.setattr(rtl, "open_device", fail)
    with pytest.raises(AssertionError, match=r"cannot run: \[\('bisort', 'rtl'\)\]"):
        pairs()
