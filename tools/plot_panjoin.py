"""Draws the curves of docs/internals/panjoin.md from benchmark results: `make plots`, or this script with `--help`.

Reads the newest complete run of each bench in the results folder, or the newest quick run if there is no other (the
picture then says so). A picture without rows is not redrawn, and the command reports this. Pictures depend only on the
results: the same rows give the same bytes.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

Row = dict[str, Any]
Curves = dict[str, dict[float, float]]
"""Measured values by x, for each curve name."""

ROOT = Path(__file__).resolve().parents[1]
FILE = re.compile(r"(?P<bench>\w+)-(?P<date>\d{4}-\d\d-\d\d)(?P<quick>-quick)?\.jsonl")
STYLES = {
    "bisort": ("#0072b2", "o", "-"),
    "rap": ("#d55e00", "s", "-"),
    "wib": ("#009e73", "^", "-"),
    "auto": ("#000000", "*", "-"),
    "spo": ("#5a3d8a", "P", "-"),
    "btree": ("#cc79a7", "v", "-"),
    "implicit": ("#0072b2", "o", "-"),
    "regular": ("#d55e00", "s", "-"),
    "scan": ("#9a6a00", "D", "-"),
    "numpy": ("#7a7a7a", "o", "--"),
    "numpy-sorted": ("#7a7a7a", "s", "--"),
    "duckdb": ("#b08d00", "o", "--"),
    "duckdb-buckets": ("#b08d00", "s", "--"),
    "polars": ("#4a90c2", "o", "--"),
    "polars-buckets": ("#4a90c2", "s", "--"),
    "multimap": ("#8b0000", "x", "--"),
    "uniform": ("#0072b2", "o", "-"),
    "uniform, quantiles": ("#0072b2", "", "--"),
    "multimodal": ("#d55e00", "s", "-"),
    "multimodal, quantiles": ("#d55e00", "", "--"),
    "rank-size": ("#009e73", "^", "-"),
    "rank-size, quantiles": ("#009e73", "", "--"),
}
"""Colour, marker and line style of the known names: solid lines for ours, dashed for peers."""
OTHERS = (("#56b4e9", "P", "-."), ("#5a3d8a", "X", "-."), ("#2e8b57", "h", "-."), ("#b03060", "d", "-."))
"""Styles of all other names, such as indexes on other devices."""


@dataclass(frozen=True)
class Panel:
    """One pair of axes. `power`: base of the logarithmic x axis; None for a linear axis."""

    title: str
    x: str
    y: str
    curves: Curves
    power: int | None = 2
    logarithmic: bool = True
    target: float | None = None
    """Draws a horizontal line at the target."""
    labels: tuple[str, ...] = ()
    """Names of the numbers 0, 1, … on the x axis."""


@dataclass(frozen=True)
class Picture:
    """A file with panels side by side and a caption."""

    name: str
    title: str
    bench: str
    panels: list[Panel] = field(default_factory=list)
    lower: bool = False
    """Whether lower values are better."""


# Which rows make which curves.


def ours(row: Row) -> str:
    """The index name, with the device if it is not the CPU."""
    device, kind = row["device"], row.get("device_kind")
    if device == "cpu":
        return str(row["index"])
    return f"{row['index']} on {device}" + (f" ({kind})" if kind not in (None, device.partition(":")[0]) else "")


def theirs(row: Row) -> str | None:
    """The peer's name; None if it is another index of ours or a yardstick with other work."""
    peer = row["peer"]
    if peer is None or row.get("peer_index") is not None or row.get("peer_unit", row["unit"]) != row["unit"]:
        return None
    return None if " at " in peer or " on " in peer else str(peer)


def curves(rows: Iterable[Row], x: str) -> Curves:
    """Speeds of all contenders by a fact of the case (`x`); known names first."""
    found: Curves = {}
    for row in rows:
        found.setdefault(ours(row), {})[row[x]] = row["value"]
        peer = theirs(row)
        if peer is not None:
            found.setdefault(peer, {})[row[x]] = row["peer_value"]
    known = list(STYLES)
    order = sorted(found, key=lambda name: (known.index(name) if name in known else len(known), name))
    return {name: dict(sorted(found[name].items())) for name in order}


def kind(rows: Iterable[Row], start: str) -> list[Row]:
    """The rows of cases whose names start with `start`."""
    return [row for row in rows if row["case"].startswith(start)]


def power(number: float) -> str:
    """For example `2^16`; other numbers are printed in full."""
    integer = int(number)
    return f"2^{integer.bit_length() - 1}" if integer & (integer - 1) == 0 else f"{integer:,}"


def by_subwindow(rows: list[Row], x: str, label: str, y: str = "tuples/s") -> list[Panel]:
    """One panel per subwindow size."""
    sizes = sorted({row["subwindow"] for row in rows})
    return [
        Panel(f"subwindow of {power(size)}", label, y, curves([r for r in rows if r["subwindow"] == size], x))
        for size in sizes
    ]


def structures(rows: list[Row]) -> Iterator[Picture]:
    """The paper's Figures 10 to 13, for one subwindow."""
    bench = "structures"
    yield Picture("insert", "Inserting tuples", bench, by_subwindow(kind(rows, "insert-"), "batch", "tuples per batch"))
    yield Picture(
        "probe",
        "Probing, one partner per tuple, positions returned",
        bench,
        by_subwindow(kind(rows, "probe-"), "batch", "tuples per batch"),
    )
    yield Picture(
        "count",
        "Counting partners",
        bench,
        by_subwindow(kind(rows, "count-"), "selectivity", "partners per tuple (selectivity)"),
    )
    balance: Curves = {}
    for row in kind(rows, "balance-"):
        balance.setdefault(row["distribution"], {})[row["adjustments"]] = row["value"] / 1000
        if row["peer"] is not None:
            name = f"{row['distribution']}, {row['peer']}"
            balance.setdefault(name, {})[row["adjustments"]] = row["peer_value"] / 1000
    panel = Panel("", "adjustments", "mean absolute error / fair size", balance, power=None, logarithmic=False)
    yield Picture("balance", "Imbalance of RaP-Table's partitions", bench, [panel] if balance else [], True)


def window_join(rows: list[Row]) -> Iterator[Picture]:
    """Complete joins by window, selectivity and batch; `auto` against the best fixed index."""
    bench = "window_join"
    arrivals = {"batches": "alternating batches", "tuples": "tuples of both sides interleaved"}
    panels = []
    for arrival, title in arrivals.items():
        found = [row for row in kind(rows, f"{arrival}-") if row["output"] == "seqs"]
        panels += [Panel(title, "rows of each window", "tuples/s", curves(found, "window"))] if found else []
    yield Picture("window", "Window join, two matches per tuple, pairs emitted", bench, panels)
    found = kind(rows, "count-")
    panels = [Panel("", "matches per tuple (selectivity)", "tuples/s", curves(found, "selectivity"))] if found else []
    yield Picture("selectivity", "Window join, counts only", bench, panels)
    found = kind(rows, "small-")
    panels = [Panel("", "tuples per batch", "tuples/s", curves(found, "batch"))] if found else []
    yield Picture("batch", "Window join, two matches per tuple, small batches", bench, panels)
    yield Picture("auto", "auto against the best fixed index", bench, list(_auto(kind(rows, "grid-"))))


def _auto(rows: list[Row]) -> Iterator[Panel]:
    chosen = [row for row in rows if row["peer"] == "best fixed index"]
    for distribution in dict.fromkeys(row["distribution"] for row in chosen):
        found: Curves = {}
        for row in chosen:
            if row["distribution"] == distribution:
                found.setdefault(f"selectivity {row['selectivity']:g}", {})[row["batch"]] = row["ratio"]
        yield Panel(distribution, "tuples per batch", "auto / best fixed index", found, logarithmic=False, target=0.9)


def join(rows: list[Row]) -> Iterator[Picture]:
    """Joins of two tables."""
    panels = [Panel("", "rows of each table", "rows/s", curves(rows, "rows"), power=10)] if rows else []
    yield Picture("join", "mr.join, band, two matches per row, pairs with payload", "join", panels)


Pictures = dict[str, Callable[[list[Row]], Iterator[Picture]]]
"""By bench, what makes its pictures from its rows."""
PICTURES: Pictures = {
    "structures": structures,
    "window_join": window_join,
    "join": join,
}


# Files.


def newest(folder: Path) -> dict[str, Path]:
    """The result file per bench: the newest complete run, else the newest quick one."""
    best: dict[str, tuple[tuple[bool, str], Path]] = {}
    for path in sorted(folder.glob("*.jsonl")):
        name = FILE.fullmatch(path.name)
        if name is not None:
            rank = (name["quick"] is None, name["date"])
            best[name["bench"]] = max(best.get(name["bench"], (rank, path)), (rank, path))
    return {bench: path for bench, (_, path) in best.items()}


def read(path: Path) -> list[Row]:
    """The rows of a file."""
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines() if line.strip()]


def caption(bench: str, rows: Sequence[Row], quick: bool) -> str:
    """The caption: command, machine, and how to read the numbers."""
    machine = rows[0]["machine"]
    cpu = re.sub(r"\((R|TM)\)", "", machine["cpu"])
    run = f"millrace bench {bench}{' --quick (small sizes: a sketch)' if quick else ''}"
    return f"{run} · {cpu}, {machine['cores']} cores · medians, higher is better"


# Drawing.


def draw(picture: Picture, below: str, path: Path) -> None:
    """Write a picture."""
    import matplotlib as mpl
    from matplotlib.figure import Figure

    style_options: Any = {
        "svg.hashsalt": "millrace",
        "svg.fonttype": "none",
        "font.family": "sans-serif",
        "font.size": 9,
        "axes.spines.top": False,
        "axes.spines.right": False,
    }
    columns = min(len(picture.panels), 2)
    lines = -(-len(picture.panels) // columns)
    with mpl.rc_context(style_options):
        figure = Figure(figsize=(5.2 * columns + 1.2 * (columns == 1), 3.6 * lines + 0.6), layout="constrained")
        axes = figure.subplots(lines, columns, squeeze=False, sharey=True)
        for panel, one in zip(picture.panels, axes.flat, strict=False):
            _draw_panel(panel, one)
        for one in axes.flat[len(picture.panels) :]:
            one.set_visible(False)
        figure.suptitle(picture.title, fontsize=11)
        handles: dict[str, Any] = {}
        for one in axes.flat:
            handles |= dict(zip(*reversed(one.get_legend_handles_labels()), strict=True))
        figure.legend(handles.values(), handles.keys(), loc="outside right center", frameon=False, fontsize=8)
        figure.supxlabel(below.replace("higher", "lower") if picture.lower else below, fontsize=7)
        figure.savefig(path, metadata={"Date": None, "Creator": None}, facecolor="white")


def _draw_panel(panel: Panel, axes: Any) -> None:
    unknown = [name for name in panel.curves if name not in STYLES]
    for name, points in panel.curves.items():
        style = STYLES.get(name) or OTHERS[unknown.index(name) % len(OTHERS)]
        colour, marker, line = style
        axes.plot(
            list(points), list(points.values()), color=colour, marker=marker, linestyle=line, markersize=4, label=name
        )
    if panel.target is not None:
        axes.axhline(panel.target, color="#999999", linewidth=0.8, linestyle=(0, (4, 3)))
    if panel.power is not None:
        axes.set_xscale("log", base=panel.power)
    else:
        ticks = sorted({x for points in panel.curves.values() for x in points})
        axes.set_xticks(ticks, labels=panel.labels or None)
    if panel.logarithmic:
        axes.set_yscale("log")
    else:
        highest = max([y for points in panel.curves.values() for y in points.values()] + [panel.target or 0])
        axes.set_ylim(0, max(1.1 * highest, axes.get_ylim()[1]))
    axes.set(title=panel.title, xlabel=panel.x, ylabel=panel.y)
    axes.title.set_fontsize(9)
    axes.grid(True, which="major", color="#dddddd", linewidth=0.6)
    axes.set_axisbelow(True)


def draw_all(results: Path, out: Path, wanted: Pictures = PICTURES, prefix: str = "panjoin") -> list[str]:
    """Draw all pictures that have results; returns one report line per picture."""
    files = newest(results)
    report = []
    for bench, pictures in wanted.items():
        rows = read(files[bench]) if bench in files else []
        for picture in pictures(rows):
            path = out / f"{prefix}-{picture.name}.svg"
            if not picture.panels:
                report.append(f"{path}: not drawn, {results} has no rows for it from `millrace bench {bench}`")
                continue
            out.mkdir(parents=True, exist_ok=True)
            draw(picture, caption(bench, rows, files[bench].name.endswith("-quick.jsonl")), path)
            report.append(f"{path}: from {files[bench].name}")
    return report


def main(page: str = "docs/internals/panjoin.md", wanted: Pictures = PICTURES, prefix: str = "panjoin") -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=f"Draw the curves of {page} from benchmark results.")
    parser.add_argument("--results", type=Path, default=ROOT / "benchmarks/results", help="folder of .jsonl files")
    parser.add_argument("--out", type=Path, default=ROOT / "docs/images", help="folder of the pictures")
    given = parser.parse_args()
    try:
        report = draw_all(given.results, given.out, wanted, prefix)
    except ImportError:
        sys.exit("plots need matplotlib: run `make setup`, or pip install matplotlib")
    sys.stdout.write("\n".join(report) + "\n")


if __name__ == "__main__":
    main()
