"""Processes die by SIGKILL while a job runs, and cards fail: every row comes, none twice."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.spark.sessions import GROUP, run_script

pytestmark = GROUP
SCRIPT = Path(__file__).parent / "kills.py"


def run(victim: str, seed: int, folder: Path) -> dict[str, Any]:
    told = run_script(SCRIPT, victim, str(seed), str(folder))
    assert told["rows"] > 10_000
    assert (told["missing"], told["extra"]) == (0, 0)
    assert told["tenfold"]
    return told


@pytest.mark.parametrize("victim", ["worker", "executor"])
def test_a_killed_process_loses_nothing(victim: str, tmp_path: Path) -> None:
    assert run(victim, 0, tmp_path)["killed"] is not None, "nothing was there to kill"


@pytest.mark.long
@pytest.mark.parametrize("seed", range(1, 4))
@pytest.mark.parametrize("victim", ["worker", "executor"])
def test_many_kills(victim: str, seed: int, tmp_path: Path) -> None:
    assert run(victim, seed, tmp_path)["killed"] is not None, "nothing was there to kill"


def test_a_device_fault_fails_over_as_asked(tmp_path: Path) -> None:
    assert run("fault", 0, tmp_path)["fallbacks"] > 0
