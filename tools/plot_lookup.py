"""Draws the curves of docs/internals/hbtree.md from benchmark results: `make plots`, or this script with `--help`.

The drawing is that of `plot_panjoin.py`; this file says which rows of bench `lookup` make which picture.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

Row = dict[str, Any]
BENCH, PREFIX = "lookup", "hbtree"
DISTRIBUTIONS = {"uniform": "queries in random order", "zipf": "queries with few frequent keys"}

# By name: mypy would follow an import statement into matplotlib.
sys.path.insert(0, str(Path(__file__).resolve().parent))
plots: Any = import_module("plot_panjoin")


def pictures(rows: list[Row]) -> Iterator[Any]:
    """Lookups by the number of keys, one panel per distribution of the queries."""
    found = plots.kind(rows, "lookup-")
    panels = []
    for distribution, title in DISTRIBUTIONS.items():
        chosen = [row for row in found if row["case"].endswith(distribution)]
        if chosen:
            panels.append(plots.Panel(title, "keys", "lookups/s", plots.curves(chosen, "keys")))
    yield plots.Picture("lookups", "Lookups in an ordered index", BENCH, panels)


if __name__ == "__main__":
    plots.main("docs/internals/hbtree.md", {BENCH: pictures}, PREFIX)
