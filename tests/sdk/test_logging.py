"""The logger `millrace`: silent by default; fallbacks, late rows, choices and builds for those who listen."""

from __future__ import annotations

import logging
import subprocess
import sys

import numpy as np
import pyarrow as pa
import pytest

import millrace as mr
from millrace import registry
from tests.host import faults
from tests.watchdog import WATCHDOG

TABLE = pa.table({"x": [1, 2], "ts": [5, 6]})


@pytest.fixture
def heard(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    caplog.set_level(logging.INFO, "millrace")
    return caplog


@pytest.fixture
def faulty(monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setitem(registry.BACKENDS, "faulty", faults.MODULE)
    return "faulty"


def test_choices_are_logged(heard: pytest.LogCaptureFixture) -> None:
    mr.join(TABLE, TABLE, "r.x < s.x")
    assert "join: no index; all pairs of rows are evaluated" in heard.text
    large = pa.table({"x": np.arange(100)})
    mr.join(large, large, "r.x < s.x")
    assert "join: index scan on device cpu; with the kind 'inequality'" in heard.text


def test_fallbacks_are_warnings(heard: pytest.LogCaptureFixture, faulty: str) -> None:
    j = mr.WindowJoin("r.x = s.x", window="5 rows", index="scan", device=faulty, fallback="cpu")
    ix = mr.OrderedIndex(np.arange(9), device=faulty, fallback="cpu")
    faults.arm("launch", 1)
    j.push("r", TABLE)
    j.push("s", TABLE)
    faults.arm("launch", 1)
    ix.lookup([3])
    texts = [record.getMessage() for record in heard.records if record.levelno == logging.WARNING]
    assert [text.partition(":")[0] for text in texts] == ["join", "index"]
    assert all("fell back" in text for text in texts)


def test_late_rows_are_logged_once_per_call(heard: pytest.LogCaptureFixture) -> None:
    j = mr.WindowJoin("r.x = s.x", window="5", time="ts")
    j.push("r", pa.table({"x": [1], "ts": [100]}))
    j.push("r", pa.table({"x": [1, 2, 3], "ts": [7, 8, 101]}))
    j.push("r", pa.table({"x": [1], "ts": [200]}))
    late = [record.getMessage() for record in heard.records if "late" in record.getMessage()]
    assert late == ["join: dropped 2 late rows in one call"]


def test_nothing_is_shown_by_default() -> None:
    code = """
import millrace as mr, pyarrow as pa
from millrace.host.base.log import log
log.warning("nobody hears this")
t = pa.table({"x": [1, 2]})
assert mr.join(t, t, "r.x = s.x").num_rows == 2
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=WATCHDOG)
    assert (done.stdout, done.stderr) == ("", "")
