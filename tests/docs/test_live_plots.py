"""The plots of docs/internals/pimtree.md on index-based joins: which rows each uses, and that the page shows them."""

from __future__ import annotations

import json
import re
from importlib import import_module
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
# By name: mypy would follow an import statement into matplotlib.
plots = import_module("tools.plot_live")
MACHINE = {"cpu": "Intel(R) Xeon(R)", "cores": 2}


def row(case: str, contender: str, value: float, peer: str | None = None, **more: Any) -> dict[str, Any]:
    line = {"case": case, "contender": contender, "device": "cpu", "index": contender.split()[0], "value": value * 1e6}
    facts = {"window": 1 << 20, "s_window": 1 << 20, "r_share": 0.5, "burst": 0, "self_join": False, "drift": 0.0}
    shared = {"unit": "tuples/s", "machine": MACHINE, "peer": peer, "peer_value": value * 5e5, "selectivity": 2.0}
    return {**line, **shared, "distribution": "uniform", **facts, **more}


def rows() -> list[dict[str, Any]]:
    return [
        row("tuples-2^16", "pim on cpu", 4, window=1 << 16),
        row("threads-2^18", "pim on cpu, two threads", 8, "one thread"),
        row("control-2^18", "pim on cpu, one worker", 3, "one thread"),
        row("robin-2^14", "btree on cpu, two partitions", 2, window=1 << 14),
        row("chain-2^20", "btree on cpu", 1),
        row("chain-2^20", "chain on cpu, ib, length 4", 2),
        row("merge-2^17", "im on cpu, ratio 0.015625", 3, window=1 << 17),
        row("subindexes-2^20", "pim on cpu, subindexes 16", 3),
        row("task-2^20", "pim on cpu, task 8", 3),
        row("matches-2^20-16", "im on cpu", 3, selectivity=16.0),
        row("memory-2^16", "btree on cpu", 2.5e-8, "entries", window=1 << 16),
        row("asymmetric-2^20-2^18", "pim on cpu", 3, s_window=1 << 18),
        row("rates-2^20-0.9", "pim on cpu", 3, r_share=0.9),
        row("rates-2^20-bursts64", "pim on cpu", 5, burst=64),
        row("keys-2^20-gaussian", "pim on cpu", 3, distribution="gaussian"),
        row("self-2^20", "pim on cpu", 4, self_join=True),
        row("drift-2^20-1", "pim on cpu, two threads", 6, "pim on cpu, two threads, steady", drift=1.0),
        row("costs-2^20-im", "im on cpu", 4, "equation 5", costs="im"),
    ]


def test_curves_are_read_from_rows() -> None:
    found = {one.name: one.panels for one in plots.pictures(rows())}
    window = 1 << 20
    curves = {name: [panel.curves for panel in panels] for name, panels in found.items()}
    assert curves["tuples"] == [{"pim": {1 << 16: 4}}]
    assert curves["threads"] == [
        {"one thread": {window: 4}, "two threads": {window: 8}, "one worker, concurrency control": {window: 3}}
    ]
    assert curves["robin"] == [{"btree, two partitions": {1 << 14: 2}}]
    assert curves["chain"] == [{"btree": {4: 1}, "chain of immutable trees": {4: 2}}]
    assert curves["merge"] == [{"im": {2**-6: 3}}]
    assert curves["subindexes"] == [{"pim": {16: 3}}, {"pim": {8: 3}}]
    assert curves["matches"] == [{"im": {16: 3}}]
    assert curves["memory"] == [{"btree": {1 << 16: 40}, "a key and an id": {1 << 16: 80}}]
    assert curves["asymmetric"] == [{"pim": {1 << 18: 3}}, {"pim": {0.9: 3}}]
    assert curves["keys"] == [{"pim": {0: 3, 1: 4}}]
    assert found["keys"][0].labels == ("gaussian", "self-join")
    assert curves["drift"] == [{"pim, two threads": {1.0: 6}}]
    assert curves["costs"] == [{"measured": {window: 250}, "predicted": {window: 500}}]
    assert all(one.panels == [] for one in plots.pictures([]))


def test_the_same_rows_give_the_same_bytes(tmp_path: Path) -> None:
    (tmp_path / "live-2026-01-01.jsonl").write_text("".join(json.dumps(one) + "\n" for one in rows()))
    for folder in ("once", "twice"):
        plots.plots.draw_all(tmp_path, tmp_path / folder, {plots.BENCH: plots.pictures}, plots.PREFIX)
    once = {path.name: path.read_bytes() for path in (tmp_path / "once").iterdir()}
    assert set(once) == {f"live-{one.name}.svg" for one in plots.pictures([])}
    assert once == {path.name: path.read_bytes() for path in (tmp_path / "twice").iterdir()}


def test_the_page_shows_every_picture_that_has_been_drawn_and_no_other() -> None:
    drawn = {path.name for path in (ROOT / "docs/images").glob("live-*.svg")}
    shown = set(re.findall(r"\(\.\./images/(live-\w+\.svg)\)", (ROOT / "docs/internals/pimtree.md").read_text()))
    assert shown == drawn
    assert drawn <= {f"live-{one.name}.svg" for one in plots.pictures([])}
