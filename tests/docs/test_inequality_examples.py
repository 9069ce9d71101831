"""The examples of joins on two inequalities (the paper's Q1 to Q3) run as they are and print what they found."""

from __future__ import annotations

import re
import runpy
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
WORDS = {
    "inequality_data_centres.py": ["17343519 pairs", "completes 4218 pairs", "first pair: rack"],
    "inequality_taxi_bands.py": ["4275228 pairs of near trips", "Midtown: 3649248", "JFK: 351358"],
    "inequality_taxi_fares.py": ["102913882 pairs of 50000 trips", "85 trips cost", "7946 shorter trips cost more"],
}
"""The numbers come from fixed seeds; the counts of the taxi fares agree with the nested loop."""


def test_all_are_here() -> None:
    assert {path.name for path in EXAMPLES.glob("inequality_*.py")} == set(WORDS)
    listed = set(re.findall(r"\[(inequality_\w+\.py)\]", (EXAMPLES / "README.md").read_text()))
    assert listed == set(WORDS)


@pytest.mark.parametrize("name", WORDS)
def test_an_example_runs(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    runpy.run_path(str(EXAMPLES / name), run_name="__main__")
    output = capsys.readouterr().out
    assert all(words in output for words in WORDS[name]), output
