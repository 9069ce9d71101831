"""The examples of PanJoin, HB+-Tree and ScaleJoin run as a user would run them, and say that all is as it should be."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
SAID = {
    "stream_band.py": ("2400 offers, 2400 bids", "rows that wait are in them: True", "in the middle: the same pairs"),
    "index_prices.py": ("found 1000 of 1000", "two ranges are right: True", "new, changed", "file: ['new']"),
    "merge_sensors.py": ("6000 readings, in the same order for both readers: True", "another run: True", "ticks"),
}


@pytest.mark.parametrize("name", SAID)
def test_an_example_runs(name: str) -> None:
    done = subprocess.run([sys.executable, EXAMPLES / name], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert [words for words in SAID[name] if words not in done.stdout] == [], done.stdout
