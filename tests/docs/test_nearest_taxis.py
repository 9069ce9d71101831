"""`examples/nearest_taxis.py` runs, reports what it found, and draws a map."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.packaging.project import ROOT


def test_it_matches_requests_and_draws_a_map(tmp_path: Path) -> None:
    picture = tmp_path / "map.png"
    command = [sys.executable, str(ROOT / "examples" / "nearest_taxis.py"), str(picture), "0.1"]
    shown = subprocess.run(command, capture_output=True, text=True, check=True, cwd=tmp_path).stdout
    assert shown.startswith("240 requests, 1500 reports, ")
    assert picture.read_bytes().startswith(b"\x89PNG")
