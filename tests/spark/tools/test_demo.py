"""The demo in Spark: it runs, keeps what it found, and sees rows that differ or that no counter accounts for."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from millrace.spark.tools import demo
from tests.spark.sessions import GROUP, set_up
from tests.watchdog import WATCHDOG

pytestmark = GROUP


def test_the_demo_runs_and_keeps_its_result(tmp_path: Path) -> None:
    set_up()
    command = [sys.executable, "-m", "millrace.cli", "demo", "--spark", "--rows", "5000", "--out", "kept"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, timeout=WATCHDOG, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    report = json.loads((tmp_path / "kept/demo.json").read_text())
    assert report["identical"]
    assert report["accounted"]
    runs = {run["device"].partition(":")[0]: run for run in report["runs"]}
    assert {"cpu", "opencl", "rtl"} <= set(runs)
    assert runs["rtl"]["device_cycles"] > 0
    assert runs["rtl"]["rows"] == 2 * 5000 // demo.SLICE
    assert runs["cpu"]["late"] > 0
    for name, run in runs.items():
        assert run["asked"] > 0
        assert run["device_rows"] >= run["asked"] or name == "cpu"
        assert f"{run['pairs']:,}" in done.stdout
    rows = pq.read_table(tmp_path / "kept/demo.parquet")
    assert rows.num_rows == runs["cpu"]["pairs"] > 0
    assert runs["rtl"]["pairs"] > 0
    assert rows.column_names == ["r_n", "r_ts", "r_serial", "r_x", "r_site", "s_n", "s_ts", "s_kind", "s_x"]
    assert rows["r_site"].null_count == 0


COUNTS = {
    "device": "opencl:0",
    "r_rows": 10,
    "s_rows": 4,
    "r_late": 1,
    "s_late": 0,
    "asked": 9,
    "device_rows": 9,
    "device_cycles": 0,
    "seconds": 2.0,
    "first": 1.5,
    "speed": 40.0,
    "given": 14,
}
PAIRS = pa.table({"r_n": [1, 2]})


@pytest.mark.parametrize(
    ("change", "rows", "words"),
    [
        ({}, PAIRS, None),
        ({}, PAIRS.slice(1), "returns other rows"),
        ({"device_rows": 8}, PAIRS, "its counters show 8 rows"),
        ({"pairs": 1}, PAIRS, "reports 2 pairs of 14 rows"),
        ({"given": 15}, PAIRS, "reports 2 pairs of 14 rows"),
        ({"fallbacks": 1}, PAIRS, "its counters show"),
    ],
)
def test_what_is_wrong_is_a_fault(change: dict[str, int], rows: pa.Table, words: str | None) -> None:
    counts: dict[str, Any] = {**COUNTS, "pairs": 2, "fallbacks": 0, **change}
    faults = demo._faults(demo._evaluate(counts, PAIRS, rows))
    assert (faults == []) if words is None else words in faults[0]
