"""Draws the curves of docs/internals/pimtree.md on index-based joins: `make plots`, or this script with `--help`.

The rows are those of bench `live` in the results folder: the newest complete run, or one that was put together from
runs of single cases. The drawing is that of `plot_panjoin.py`; this file says which rows make which picture.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

Row = dict[str, Any]
Curves = dict[str, dict[float, float]]
BENCH = PREFIX = "live"
SPEED = "million tuples/s"
WINDOW = "rows of each window"

# By name: mypy would follow an import statement into matplotlib.
sys.path.insert(0, str(Path(__file__).resolve().parent))
plots: Any = import_module("plot_panjoin")
plots.STYLES.update(
    {
        "pim": ("#0072b2", "o", "-"),
        "im": ("#009e73", "^", "-"),
        "chain of B+-trees": ("#d55e00", "s", "-"),
        "chain of immutable trees": ("#9a6a00", "D", "-"),
        "one thread": ("#0072b2", "o", "-"),
        "two threads": ("#d55e00", "s", "-"),
        "one worker, concurrency control": ("#009e73", "^", "--"),
        "pim, two threads": ("#0072b2", "o", "-"),
        "btree, two partitions": ("#cc79a7", "v", "--"),
        "nested loop": ("#9a6a00", "D", "-"),
        "nested loop, two stripes": ("#9a6a00", "D", "--"),
        "measured": ("#0072b2", "o", "-"),
        "predicted": ("#d55e00", "s", "--"),
        "pim while merging": ("#0072b2", "o", "-"),
        "im while merging": ("#009e73", "^", "-"),
        "pim while merging, merge ratio 1": ("#0072b2", "P", "--"),
        "a key and an id": ("#7a7a7a", "", "--"),
    }
)


def pictures(rows: list[Row]) -> Iterator[Any]:
    """All pictures, in the order of the page."""
    found = plots.kind(rows, "tuples-")
    yield _picture("tuples", "One thread, two matches per tuple", [_panel("", WINDOW, _by(found, "window"))])
    yield _picture("threads", "pim on two threads", [_panel("", WINDOW, _threads(rows))])
    yield _picture("robin", "Round-robin partitioning", [_panel("", WINDOW, _robin(rows), log=True)])
    yield _picture("chain", "Chained index, windows of 2^20", [_panel("", "subindexes in the chain", _chain(rows))])
    yield _picture("merge", "Merge ratio", list(_merges(rows)))
    subs = _labelled(plots.kind(rows, "subindexes-"), r"subindexes (\d+)")
    tasks = _labelled(plots.kind(rows, "task-"), r"task (\d+)")
    panels = [_panel("", "subindexes per side", subs), _panel("", "tuples searched together (task_rows)", tasks)]
    yield _picture("subindexes", "pim: subindexes and groups, windows of 2^20", panels)
    found = plots.kind(rows, "matches-")
    rate = _panel("", "matches per tuple", _by(found, "selectivity"), log=True)
    yield _picture("matches", "Match rate, windows of 2^20", [rate])
    yield _picture("memory", "Memory of an index", [_panel("", WINDOW, _memory(rows), y="bytes per tuple")], lower=True)
    windows = _panel("r's window: 2^20", "rows of s's window", _by(plots.kind(rows, "asymmetric-"), "s_window"))
    shares = [row for row in plots.kind(rows, "rates-") if not row["burst"]]
    rates = _panel("windows of 2^20", "share of r's tuples", _by(shares, "r_share"), power=None)
    yield _picture("asymmetric", "Different windows and rates", [windows, rates])
    yield _picture("keys", "Keys and self-join, windows of 2^20", [_keys(rows)])
    yield _picture("drift", "Shifting Gaussian, pim on two threads, windows of 2^20", [_drift(rows)])
    yield _picture("costs", "Cost equations beside measurements", list(_costs(rows)), lower=True)


def _picture(name: str, title: str, panels: list[Any], lower: bool = False) -> Any:
    return plots.Picture(name, title, BENCH, [panel for panel in panels if panel.curves], lower)


def _panel(title: str, x: str, curves: Curves, *, y: str = SPEED, log: bool = False, power: int | None = 2) -> Any:
    return plots.Panel(title, x, y, curves, power=power, logarithmic=log)


def _sorted(found: Curves) -> Curves:
    """Points by x; curves in the order of their styles."""
    known = list(plots.STYLES)
    names = sorted(found, key=lambda name: (known.index(name) if name in known else len(known), name))
    return {name: dict(sorted(found[name].items())) for name in names}


def _by(rows: list[Row], x: str) -> Curves:
    """Speeds of our indexes by a fact of the case."""
    found: Curves = {}
    for row in rows:
        found.setdefault(row["index"], {})[row[x]] = row["value"] / 1e6
    return _sorted(found)


def _label(row: Row) -> str:
    """What follows the index in a contender's name."""
    return str(row["contender"]).partition(", ")[2]


def _labelled(rows: list[Row], pattern: str, name: Callable[[Row, Any], str] | None = None) -> Curves:
    """Speeds by a number in the label; contenders without one are lines."""
    found: Curves = {}
    for row in rows:
        match = re.fullmatch(pattern, _label(row))
        if match is not None:
            key = row["index"] if name is None else name(row, match)
            found.setdefault(key, {})[float(match[match.lastindex or 1])] = row["value"] / 1e6
    ticks = {x for points in found.values() for x in points}
    for row in rows:
        if not _label(row) and ticks:
            found[row["index"]] = dict.fromkeys(ticks, row["value"] / 1e6)
    return _sorted(found)


def _threads(rows: list[Row]) -> Curves:
    found: Curves = {}
    for row in plots.kind(rows, "threads-"):
        if row["peer"] == "one thread":
            found.setdefault("two threads", {})[row["window"]] = row["value"] / 1e6
            found.setdefault("one thread", {})[row["window"]] = row["peer_value"] / 1e6
    for row in plots.kind(rows, "control-"):
        if row["peer"] == "one thread":
            found.setdefault("one worker, concurrency control", {})[row["window"]] = row["value"] / 1e6
    return _sorted(found)


_ROBIN = {
    "btree on cpu": "btree",
    "btree on cpu, two partitions": "btree, two partitions",
    "scan on cpu, one thread": "nested loop",
    "scan on cpu, two stripes": "nested loop, two stripes",
    "pim on cpu, two threads": "pim, two threads",
}


def _robin(rows: list[Row]) -> Curves:
    found: Curves = {}
    for row in plots.kind(rows, "robin-"):
        found.setdefault(_ROBIN[row["contender"]], {})[row["window"]] = row["value"] / 1e6
    return _sorted(found)


def _chain(rows: list[Row]) -> Curves:
    names = {"b": "chain of B+-trees", "ib": "chain of immutable trees"}
    return _labelled(plots.kind(rows, "chain-"), r"(ib|b), length (\d+)", lambda _, match: names[match[1]])


def _merges(rows: list[Row]) -> Iterator[Any]:
    found = plots.kind(rows, "merge-")
    for window in sorted({row["window"] for row in found}):
        curves = _labelled([row for row in found if row["window"] == window], r"ratio ([\d.e-]+)")
        yield _panel(f"windows of {plots.power(window)}", "merge ratio", curves)


_MEMORY = {
    "btree on cpu": "btree",
    "im on cpu, merging": "im while merging",
    "pim on cpu, merging": "pim while merging",
    "pim on cpu, ratio 1, merging": "pim while merging, merge ratio 1",
}


def _memory(rows: list[Row]) -> Curves:
    found: Curves = {}
    for row in plots.kind(rows, "memory-"):
        found.setdefault(_MEMORY[row["contender"]], {})[row["window"]] = 1 / row["value"]
        if row["peer"] == "entries":
            found.setdefault("a key and an id", {})[row["window"]] = 1 / row["peer_value"]
    return _sorted(found)


def _keys(rows: list[Row]) -> Any:
    """Distributions, and the self-join, one beside the other."""
    chosen = [*plots.kind(rows, "keys-"), *plots.kind(rows, "self-")]
    names = {row["case"]: "self-join" if row["self_join"] else row["distribution"] for row in chosen}
    ticks = list(dict.fromkeys(names.values()))
    found: Curves = {}
    for row in chosen:
        found.setdefault(row["index"], {})[ticks.index(names[row["case"]])] = row["value"] / 1e6
    return plots.Panel("", "", SPEED, _sorted(found), power=None, logarithmic=False, labels=tuple(ticks))


def _drift(rows: list[Row]) -> Any:
    found: Curves = {}
    for row in plots.kind(rows, "drift-"):
        found.setdefault("pim, two threads", {})[row["drift"]] = row["value"] / 1e6
    return _panel("", "shift of the mean in ten windows (r)", _sorted(found), power=None)


def _costs(rows: list[Row]) -> Iterator[Any]:
    titles = {
        "btree": "btree, equation 2",
        "chain": "chain of two B+-trees, equation 3",
        "partitions": "round robin, all work, equation 4",
        "im": "im, equation 5",
        "pim": "pim, equation 6",
    }
    found = plots.kind(rows, "costs-")
    for name, title in titles.items():
        curves: Curves = {}
        for row in found:
            if row["costs"] == name:
                curves.setdefault("measured", {})[row["window"]] = 1e9 / row["value"]
                curves.setdefault("predicted", {})[row["window"]] = 1e9 / row["peer_value"]
        yield _panel(title, WINDOW, _sorted(curves), y="ns per tuple")


if __name__ == "__main__":
    plots.main("docs/internals/pimtree.md", {BENCH: pictures}, PREFIX)
