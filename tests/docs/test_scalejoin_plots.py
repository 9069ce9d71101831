"""The plots of docs/internals/scalejoin.md on ScaleJoin: which rows each uses, and that the page shows them."""

from __future__ import annotations

import json
import re
from importlib import import_module
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
# By name: mypy would follow an import statement into matplotlib.
plots = import_module("tools.plot_scalejoin")
MACHINE = {"cpu": "Intel(R) Xeon(R)", "cores": 2}


def row(case: str, value: float, peer: str | None = None, **more: Any) -> dict[str, Any]:
    line = {"case": case, "device": "cpu", "index": "scan", "value": value, "unit": "comparisons/s"}
    return {**line, "machine": MACHINE, "peer": peer, "peer_value": value / 2, "per_step": {"p50": 5, "p99": 9}, **more}


def rows() -> list[dict[str, Any]]:
    return [
        row("nested-keys-2^12-threads1", 8.0, "numpy", window=4096, threads=1),
        row("nested-keys-2^12-threads2", 15.0, "1 thread", window=4096, threads=2),
        row("nested-bands-2^12-threads1", 6.0, "bar", window=4096, threads=1),
        row("nested-latency-2^16-batch16-threads2", 6.0, None, batch=16, threads=2),
    ]


def test_curves_are_read_from_rows() -> None:
    comparisons, latency = plots.pictures(rows())
    assert comparisons.panels[0].curves == {"1 thread": {4096: 8.0}, "2 threads": {4096: 15.0}, "numpy": {4096: 4.0}}
    assert comparisons.panels[1].curves == {"1 thread": {4096: 6.0}, "bar": {4096: 3.0}}
    assert latency.panels[0].curves == {"2 threads, p50": {16: 5}, "2 threads, p99": {16: 9}}
    assert [picture.panels for picture in plots.pictures([])] == [[], []]


def test_the_same_rows_give_the_same_bytes(tmp_path: Path) -> None:
    (tmp_path / "live-2026-01-01.jsonl").write_text("".join(json.dumps(one) + "\n" for one in rows()))
    for folder in ("once", "twice"):
        assert len(plots.draw_all(tmp_path, tmp_path / folder)) == 4
    once = {path.name: path.read_bytes() for path in (tmp_path / "once").iterdir()}
    assert set(once) == {f"scalejoin-{name}.svg" for name in ("comparisons", "latency", "load", "balance")}
    assert once == {path.name: path.read_bytes() for path in (tmp_path / "twice").iterdir()}


def test_the_page_shows_every_picture_that_has_been_drawn_and_no_other() -> None:
    drawn = {path.name for path in (ROOT / "docs/images").glob("scalejoin-*.svg")}
    shown = set(re.findall(r"\(\.\./images/(scalejoin-\w+\.svg)\)", (ROOT / "docs/internals/scalejoin.md").read_text()))
    assert shown == drawn
    assert {"scalejoin-load.svg", "scalejoin-balance.svg"} <= drawn
