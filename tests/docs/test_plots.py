"""The plots of docs/internals/panjoin.md: which rows each plot uses, and that the same rows give the same bytes."""

from __future__ import annotations

import json
import re
from importlib import import_module
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
# By name: mypy would follow an import statement into matplotlib.
plots = import_module("tools.plot_panjoin")
MACHINE = {"cpu": "Intel(R) Xeon(R)", "cores": 2}


def row(case: str, value: float, peer: str | None = None, **more: Any) -> dict[str, Any]:
    line = {"case": case, "device": "cpu", "index": "bisort", "value": value, "unit": "tuples/s", "machine": MACHINE}
    return {**line, "peer": peer, "peer_value": None if peer is None else value / 2, "peer_index": None, **more}


def structure_rows() -> list[dict[str, Any]]:
    rows = [row(f"insert-2^{p}-batch{b}", b * p, subwindow=2**p, batch=b) for p in (16, 20) for b in (1, 64)]
    rows += [row(f"count-2^20-batch9-sel{s}", 9.0, "numpy", subwindow=1 << 20, selectivity=s) for s in (1, 256)]
    facts = {"distribution": "uniform"}
    return rows + [
        row(f"balance-uniform-adjusted{a}", 900.0 / (a + 1), "quantiles", adjustments=a, **facts) for a in (0, 1)
    ]


def keep(folder: Path, name: str, rows: list[dict[str, Any]]) -> None:
    folder.mkdir(exist_ok=True)
    (folder / name).write_text("".join(json.dumps(one) + "\n" for one in rows))


def test_curves_are_read_from_rows() -> None:
    insert, probe, count, balance = plots.structures(structure_rows())
    assert [panel.title for panel in insert.panels] == ["subwindow of 2^16", "subwindow of 2^20"]
    assert insert.panels[1].curves == {"bisort": {1: 20, 64: 1280}}
    assert probe.panels == []
    assert count.panels[0].curves == {"bisort": {1: 9, 256: 9}, "numpy": {1: 4.5, 256: 4.5}}
    quantiles = {0: 0.45, 1: 0.225}
    assert balance.panels[0].curves == {"uniform": {0: 0.9, 1: 0.45}, "uniform, quantiles": quantiles}


def test_yardsticks_and_our_own_indexes_are_not_peers() -> None:
    facts = {"window": 64, "output": "seqs"}
    rows = [
        row("batches-2^6-seqs", 8.0, "random-reads", peer_unit="lines/s", **facts),
        row("batches-2^6-seqs", 8.0, "bisort at 2^16", **facts),
        row("batches-2^6-seqs", 8.0, "btree on cpu", peer_index="btree", **facts),
        row("batches-2^6-seqs", 8.0, "duckdb", **facts),
        row("batches-2^6-seqs", 3.0, "duckdb", **facts) | {"device": "opencl:0", "device_kind": "opencl-cpu"},
    ]
    window = next(iter(plots.window_join(rows)))
    assert list(window.panels[0].curves) == ["bisort", "duckdb", "bisort on opencl:0 (opencl-cpu)"]


def test_the_newest_complete_run_is_taken(tmp_path: Path) -> None:
    for name in ("join-2026-01-02", "join-2026-01-01", "join-2026-01-03-quick", "join-2026-01-04-part"):
        keep(tmp_path, f"{name}.jsonl", [])
    keep(tmp_path, "structures-2026-01-01-quick.jsonl", [])
    found = plots.newest(tmp_path)
    assert {bench: path.name for bench, path in found.items()} == {
        "join": "join-2026-01-02.jsonl",
        "structures": "structures-2026-01-01-quick.jsonl",
    }


def test_the_page_shows_every_picture_that_has_been_drawn_and_no_other() -> None:
    known = {f"panjoin-{one.name}.svg" for make in plots.PICTURES.values() for one in make([])}
    drawn = {path.name for path in (ROOT / "docs/images").glob("panjoin-*.svg")}
    shown = set(re.findall(r"\(\.\./images/(panjoin-\w+\.svg)\)", (ROOT / "docs/internals/panjoin.md").read_text()))
    assert shown == drawn
    assert drawn <= known


def test_the_same_rows_give_the_same_bytes(tmp_path: Path) -> None:
    keep(tmp_path / "results", "structures-2026-01-01-quick.jsonl", structure_rows())
    report = plots.draw_all(tmp_path / "results", tmp_path / "once")
    plots.draw_all(tmp_path / "results", tmp_path / "twice")
    once = {path.name: path.read_bytes() for path in (tmp_path / "once").iterdir()}
    assert set(once) == {"panjoin-insert.svg", "panjoin-count.svg", "panjoin-balance.svg"}
    assert once == {path.name: path.read_bytes() for path in (tmp_path / "twice").iterdir()}
    assert b"<dc:date>" not in b"".join(once.values())
    assert sum("not drawn" in line for line in report) == 6
