"""The plot of docs/internals/hbtree.md: which rows it uses, that rows decide its bytes, and that the page shows it."""

from __future__ import annotations

import json
from importlib import import_module
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
# By name: mypy would follow an import statement into matplotlib.
plots = import_module("tools.plot_lookup")
MACHINE = {"cpu": "Intel(R) Xeon(R)", "cores": 2}


def row(case: str, index: str, value: float, peer: str, **more: Any) -> dict[str, Any]:
    line = {"case": case, "device": "cpu", "index": index, "value": value, "unit": "lookups/s", "machine": MACHINE}
    return {**line, "peer": peer, "peer_value": value / 2, "peer_index": None, **more}


def rows() -> list[dict[str, Any]]:
    return [
        row("lookup-2^4-uniform", "implicit", 8.0, "numpy", keys=16),
        row("lookup-2^4-uniform", "implicit", 8.0, "random-reads", keys=16, peer_unit="lines/s"),
        row("lookup-2^5-uniform", "regular", 6.0, "numpy", keys=32),
        row("lookup-2^5-zipf", "regular", 7.0, "numpy", keys=32),
        row("range-2^5-match8", "regular", 7.0, "numpy", keys=32),
    ]


def test_curves_are_read_from_rows() -> None:
    (picture,) = plots.pictures(rows())
    uniform, zipf = picture.panels
    assert uniform.curves == {"implicit": {16: 8.0}, "regular": {32: 6.0}, "numpy": {16: 4.0, 32: 3.0}}
    assert zipf.curves == {"regular": {32: 7.0}, "numpy": {32: 3.5}}
    assert [picture.panels for picture in plots.pictures([])] == [[]]


def test_the_same_rows_give_the_same_bytes(tmp_path: Path) -> None:
    (tmp_path / "lookup-2026-01-01.jsonl").write_text("".join(json.dumps(one) + "\n" for one in rows()))
    for folder in ("once", "twice"):
        assert len(plots.plots.draw_all(tmp_path, tmp_path / folder, {plots.BENCH: plots.pictures}, plots.PREFIX)) == 1
    once, twice = ((tmp_path / folder / "hbtree-lookups.svg").read_bytes() for folder in ("once", "twice"))
    assert once == twice


def test_the_page_shows_it() -> None:
    assert "../images/hbtree-lookups.svg" in (ROOT / "docs/internals/hbtree.md").read_text()
    assert (ROOT / "docs/images/hbtree-lookups.svg").exists()
