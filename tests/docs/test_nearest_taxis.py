"""`examples/nearest_taxis.py` and its notebook run, report what they found, and draw a map."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.packaging.project import ROOT


def test_it_matches_requests_and_draws_a_map(tmp_path: Path) -> None:
    picture = tmp_path / "map.png"
    command = [sys.executable, str(ROOT / "examples" / "nearest_taxis.py"), str(picture), "0.1"]
    shown = subprocess.run(command, capture_output=True, text=True, check=True, cwd=tmp_path).stdout
    assert shown.startswith("240 requests, 1500 reports, ")
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_the_notebook_runs_cell_by_cell(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT / "examples")
    names: dict[str, object] = {"__name__": "__main__"}
    for cell in json.loads((ROOT / "examples" / "nearest_taxis.ipynb").read_text())["cells"]:
        if cell["cell_type"] == "code":
            assert cell["outputs"] == [], "outputs are not kept: they would not be those of this version"
            exec(compile("".join(cell["source"]), f"nearest_taxis.ipynb#{cell['id']}", "exec"), names)
    shown = capsys.readouterr().out
    assert "1200 requests, 7500 reports" in shown
    assert "same distance: True" in shown
    assert "identical: True" in shown
    assert "asked other cores: True" in shown
