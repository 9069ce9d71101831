"""Processes are killed by SIGKILL and devices fail while a job runs: no row is lost or duplicated."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.spark.sessions import GROUP, run_script

pytestmark = GROUP
SCRIPT = Path(__file__).parent / "kills.py"


def run(victim: str, seed: int, folder: Path) -> dict[str, Any]:
    report = run_script(SCRIPT, victim, str(seed), str(folder))
    assert report["rows"] > 10_000
    assert (report["missing"], report["extra"]) == (0, 0)
    assert report["tenfold"]
    return report


@pytest.mark.parametrize("victim", ["worker", "executor"])
def test_a_killed_process_loses_nothing(victim: str, tmp_path: Path) -> None:
    assert run(victim, 0, tmp_path)["killed"] is not None, "nothing was there to kill"


@pytest.mark.long
@pytest.mark.parametrize("seed", range(1, 4))
@pytest.mark.parametrize("victim", ["worker", "executor"])
def test_many_kills(victim: str, seed: int, tmp_path: Path) -> None:
    assert run(victim, seed, tmp_path)["killed"] is not None, "nothing was there to kill"


def test_a_device_fault_falls_back_to_the_cpu(tmp_path: Path) -> None:
    assert run("fault", 0, tmp_path)["fallbacks"] > 0
