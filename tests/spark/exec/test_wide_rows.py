"""Wide rows and many pairs at a heap of 1 GB: the rows are complete, and workers stay below 512 MB."""

from __future__ import annotations

from pathlib import Path

from tests.spark.sessions import GROUP, run_script

pytestmark = GROUP
ROWS = {
    "streams": 24_617,
    "documents, broadcast": 76_970,
    "documents, range": 76_970,
    "many pairs": 39_430_022,
    "lookups": 200_000,
}
MAX_MB = 512


def test_memory_is_bounded_by_bytes(tmp_path: Path) -> None:
    report = run_script("wide_rows.py", str(tmp_path))
    assert {name: one["rows"] for name, one in report.items()} == ROWS
    assert all(one["peak"] < MAX_MB for one in report.values()), report
