"""The examples of joins on two inequalities (the paper's Q1 to Q3) run, print what they found and draw it."""

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
def test_an_example_runs_and_draws_the_picture_of_the_page(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    picture = "spo-" + name.removeprefix("inequality_").removesuffix(".py").replace("_", "-") + ".svg"
    monkeypatch.setattr("sys.argv", [name, str(tmp_path / picture)])
    runpy.run_path(str(EXAMPLES / name), run_name="__main__")
    output = capsys.readouterr().out
    assert all(words in output for words in WORDS[name]), output
    drawn, docs = (tmp_path / picture).read_text(), EXAMPLES.parent / "docs"
    assert "<svg" in drawn
    assert (docs / "images" / picture).exists()
    assert f"(../images/{picture})" in (docs / "internals" / "spojoin.md").read_text()
