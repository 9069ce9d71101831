"""`tools/draw_partitions.py` draws maps that have followed the load."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.packaging.project import ROOT


def test_it_draws_maps(tmp_path: Path) -> None:
    picture = tmp_path / "maps.png"
    command = [sys.executable, str(ROOT / "tools" / "draw_partitions.py"), str(picture)]
    subprocess.run(command, check=True, cwd=tmp_path)
    assert picture.read_bytes().startswith(b"\x89PNG")
