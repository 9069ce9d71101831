"""Draws the curves of docs/internals/spojoin.md from benchmark results: `make plots`, or this script with `--help`.

The drawing is that of `plot_panjoin.py`; this file says which rows of bench `inequality_join` make which picture.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

Row = dict[str, Any]
BENCH, PREFIX = "inequality_join", "inequality"
OUTPUTS = {"count": "counted", "seqs": "all pairs"}

# By name: mypy would follow an import statement into matplotlib.
sys.path.insert(0, str(Path(__file__).resolve().parent))
plots: Any = import_module("plot_panjoin")


def pictures(rows: list[Row]) -> Iterator[Any]:
    """Tables by matches, the crossover, streams by matches per tuple."""
    yield plots.Picture("tables", "mr.join on two inequalities", BENCH, list(_tables(rows)))
    yield plots.Picture("crossover", "A band and an inequality: one key or two", BENCH, list(_crossover(rows)))
    found = plots.kind(rows, "stream-")
    curves = plots.curves(found, "selectivity")
    panels = [plots.Panel("", "matches per tuple", "tuples/s", curves, power=10)] if found else []
    yield plots.Picture("stream", "Window join on two inequalities, counts only", BENCH, panels)


def _tables(rows: list[Row]) -> Iterator[Any]:
    """The smaller tables, without groups: one panel per output."""
    found = [row for row in rows if row["case"].startswith(("count-", "seqs-")) and row["groups"] == 1]
    smallest = min((row["rows"] for row in found), default=0)
    for output, title in OUTPUTS.items():
        chosen = [row for row in found if (row["output"], row["rows"]) == (output, smallest)]
        if chosen:
            name = f"{smallest:,} x {smallest:,} rows, {title}"
            yield plots.Panel(name, "matches", "rows/s", plots.curves(chosen, "matches"), power=10)


def _crossover(rows: list[Row]) -> Iterator[Any]:
    found = plots.kind(rows, "crossover-")
    for output, title in OUTPUTS.items():
        chosen = [row for row in found if row["output"] == output]
        if chosen:
            curves = plots.curves(chosen, "band")
            yield plots.Panel(title, "partners per row in the band", "rows/s", curves, power=10)


if __name__ == "__main__":
    plots.main("docs/internals/spojoin.md", {BENCH: pictures}, PREFIX)
