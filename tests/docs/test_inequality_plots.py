"""The plots of docs/internals/spojoin.md: which rows each plot uses, and that the page shows what has been drawn."""

from __future__ import annotations

import json
import re
from importlib import import_module
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
# By name: mypy would follow an import statement into matplotlib.
plots = import_module("tools.plot_inequality")
MACHINE = {"cpu": "Intel(R) Xeon(R)", "cores": 2}


def row(case: str, value: float, peer: str | None = None, **more: Any) -> dict[str, Any]:
    line = {"case": case, "device": "cpu", "index": "spo", "value": value, "unit": "rows/s", "machine": MACHINE}
    return {**line, "peer": peer, "peer_value": None if peer is None else value / 2, "peer_index": None, **more}


def rows() -> list[dict[str, Any]]:
    tables = {"rows": 100, "output": "count", "groups": 1}
    return [
        row("count-100-10", 8.0, "duckdb", matches=10, **tables),
        row("count-100-90", 6.0, "spo at 10 matches", matches=90, **tables),
        row("count-100-10-groups5", 5.0, "duckdb", matches=10, **(tables | {"groups": 5})),
        row("count-900-10", 5.0, "duckdb", matches=10, **(tables | {"rows": 900})),
        row("crossover-100-band4-seqs", 3.0, "bisort on cpu", rows=100, output="seqs", groups=1, band=4),
        row("stream-1M-sel625", 2.0, "200,000 tuples/s", selectivity=625, output="count"),
    ]


def test_curves_are_read_from_rows() -> None:
    tables, crossover, stream = plots.pictures(rows())
    assert [panel.title for panel in tables.panels] == ["100 x 100 rows, counted"]
    assert tables.panels[0].curves == {"spo": {10: 8.0, 90: 6.0}, "duckdb": {10: 4.0}}
    assert crossover.panels[0].curves == {"spo": {4: 3.0}}
    assert stream.panels[0].curves == {"spo": {625: 2.0}, "200,000 tuples/s": {625: 1.0}}
    assert [picture.panels for picture in plots.pictures([])] == [[], [], []]


def test_the_same_rows_give_the_same_bytes(tmp_path: Path) -> None:
    (tmp_path / "inequality_join-2026-01-01.jsonl").write_text("".join(json.dumps(one) + "\n" for one in rows()))
    for folder in ("once", "twice"):
        report = plots.plots.draw_all(tmp_path, tmp_path / folder, {plots.BENCH: plots.pictures}, plots.PREFIX)
        assert len(report) == 3
    once = {path.name: path.read_bytes() for path in (tmp_path / "once").iterdir()}
    assert set(once) == {"inequality-tables.svg", "inequality-crossover.svg", "inequality-stream.svg"}
    assert once == {path.name: path.read_bytes() for path in (tmp_path / "twice").iterdir()}


def test_the_page_shows_every_picture_that_has_been_drawn_and_no_other() -> None:
    drawn = {path.name for path in (ROOT / "docs/images").glob("inequality-*.svg")}
    shown = set(re.findall(r"\(\.\./images/(inequality-\w+\.svg)\)", (ROOT / "docs/internals/spojoin.md").read_text()))
    assert shown == drawn
    assert drawn <= {f"inequality-{one.name}.svg" for one in plots.pictures([])}
