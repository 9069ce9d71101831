"""Draws the curves of docs/internals/scalejoin.md on ScaleJoin: `make plots`, or this script with `--help`.

Speeds and latencies are read from the newest complete run of bench `live` in the results folder: the rows of the cases
`nested-…`. The load and the balance of the threads are counted here, because they
do not depend on the machine. The drawing is that of `plot_panjoin.py`.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

from millrace.bench.scalejoin_shares import STUDIES, deviations

Row = dict[str, Any]
PREFIX = "scalejoin"
PEERS = {"numpy": "numpy", "bar": "bar", "paper": "paper"}
SECONDS = 3
"""Every third second is drawn."""

# By name: mypy would follow an import statement into matplotlib.
sys.path.insert(0, str(Path(__file__).resolve().parent))
plots: Any = import_module("plot_panjoin")


def pictures(rows: list[Row]) -> Iterator[Any]:
    """What was timed: comparisons per second by window, and latency by batch."""
    kinds = {"keys": "one band on 32-bit keys, counted", "bands": "the paper's two bands, pairs emitted"}
    panels = [
        plots.Panel(title, "rows of each window", "comparisons/s", _speeds(plots.kind(rows, f"nested-{name}-")))
        for name, title in kinds.items()
        if plots.kind(rows, f"nested-{name}-")
    ]
    yield plots.Picture("comparisons", "ScaleJoin: comparisons per second", "live", panels)
    found: dict[str, dict[float, float]] = {}
    for row in plots.kind(rows, "nested-latency-"):
        for percentile in ("p50", "p99"):
            name = f"{_threads(row['threads'])}, {percentile}"
            found.setdefault(name, {})[row["batch"]] = row["per_step"][percentile]
    panel = plots.Panel("", "tuples per push", "µs per push", found)
    yield plots.Picture("latency", "ScaleJoin: latency of a push, windows of 2^16", "live", [panel] if found else [])


def counted() -> Iterator[Any]:
    """What is counted: comparisons per thread, and how far threads are from the mean."""
    load: dict[str, dict[float, float]] = {}
    balance: dict[str, dict[float, float]] = {}
    for study in STUDIES:
        for one in deviations(study):
            if one.period % SECONDS == 0:
                name = f"{study.name}, {study.threads} threads"
                load.setdefault(name, {})[one.period] = one.mean
                balance.setdefault(name, {})[one.period] = 100 * one.deviation
    about = {"power": None, "logarithmic": False}
    panel = plots.Panel("", "second", "comparisons per thread and second", load, **about)
    yield plots.Picture("load", "ScaleJoin: load of a thread at different rates", "live", [panel])
    panel = plots.Panel("", "second", "standard deviation in % of the mean", balance, **about)
    yield plots.Picture("balance", "ScaleJoin: balance of the threads at different rates", "live", [panel])


def _speeds(rows: list[Row]) -> dict[str, dict[float, float]]:
    """Ours by threads; peers and bars for one thread."""
    found: dict[str, dict[float, float]] = {}
    for row in rows:
        found.setdefault(_threads(row["threads"]), {})[row["window"]] = row["value"]
        if row["threads"] == 1 and row["peer"] in PEERS:
            found.setdefault(PEERS[row["peer"]], {})[row["window"]] = row["peer_value"]
    return {name: dict(sorted(found[name].items())) for name in sorted(found)}


def _threads(count: int) -> str:
    return "1 thread" if count == 1 else f"{count} threads"


def draw_all(results: Path, out: Path) -> list[str]:
    """Draw all pictures that have results; returns one report line per picture."""
    file = plots.newest(results).get("live")
    rows = [] if file is None else plots.read(file)
    report = []
    out.mkdir(parents=True, exist_ok=True)
    below = plots.caption("live", rows, quick=False).replace(", higher is better", "") if rows else ""
    for picture in pictures(rows):
        path = out / f"{PREFIX}-{picture.name}.svg"
        if picture.panels:
            plots.draw(picture, below, path)
        report.append(f"{path}: from {file.name}" if file and picture.panels else f"{path}: not drawn, no rows")
    for picture in counted():
        path = out / f"{PREFIX}-{picture.name}.svg"
        plots.draw(picture, "python tools/plot_scalejoin.py · counted, not timed", path)
        report.append(f"{path}: counted")
    return report


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description="Draw the curves of docs/internals/scalejoin.md on ScaleJoin.")
    parser.add_argument(
        "--results", type=Path, default=plots.ROOT / "benchmarks/results", help="folder of .jsonl files"
    )
    parser.add_argument("--out", type=Path, default=plots.ROOT / "docs/images", help="folder of the pictures")
    given = parser.parse_args()
    sys.stdout.write("\n".join(draw_all(given.results, given.out)) + "\n")


if __name__ == "__main__":
    main()
