"""`millrace bench`: runs benches, prints their result rows, and writes them to a file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import typer

from millrace.bench import catalog
from millrace.bench.harness import Result
from millrace.bench.options import Options
from millrace.bench.rows import (
    BEST_FIXED,
    Row,
    about_run,
    as_line,
    default_folder,
    keep_results,
    lines_of_other_cases,
    result_rows,
    results_file,
)
from millrace.bench.targets import judged
from millrace.cli.screen import print_table, progress, remark

_NUMBERS = frozenset({"ours", "quartiles", "theirs", "their quartiles", "ratio", "wanted"})


def list_benches(as_json: bool) -> None:
    """Print all benches."""
    if as_json:
        typer.echo(json.dumps([{"bench": name, "title": bench.title} for name, bench in catalog.BENCHES.items()]))
        return
    print_table(("bench", "what it measures"), [(name, bench.title) for name, bench in catalog.BENCHES.items()])


def run_benches(
    names: list[str],
    as_json: bool,
    quick: bool,
    out: Path | None,
    repeats: int | None,
    only: str,
    trace: Path | None = None,
) -> None:
    """Measure, print and store the results."""
    options = Options(quick, repeats, only, trace)
    chosen = catalog.check_names(names)
    if trace is not None:
        catalog.check_traced(chosen)
    about = about_run()
    for name in chosen:
        catalog.cases(name, options)  # reports a name that matches no case before anything is measured
    for name in chosen:
        path = results_file(out or default_folder(), name, about["date"], options)
        rows = _run(name, options, about, path, as_json)
        if not as_json:
            _print(rows)
            if not quick:
                _print_targets(rows)
        remark(f"results: {path}")
    if trace is not None:
        remark(f"trace: {trace} (open it in https://ui.perfetto.dev or chrome://tracing)")


def _run(name: str, options: Options, about: Row, path: Path, as_json: bool) -> list[Row]:
    rows: list[Row] = []
    with progress() as report, keep_results(path) as file:
        for result in catalog.run(name, options, report):
            _print_missing(result)
            for row in result_rows(name, result, about):
                rows.append(row)
                file.write(as_line(row) + "\n")
                if as_json:
                    typer.echo(as_line(row))
        kept = lines_of_other_cases(path, {row["case"] for row in rows}) if options.only else []
        file.writelines(f"{line}\n" for line in kept)
    return rows


def _print_missing(result: Result) -> None:
    for name, reason in result.missing.items():
        remark(f"{result.case.name}: without {name}: {reason}")


def _print(rows: list[Row]) -> None:
    lines = []
    for row in rows:
        peer = row["peer"] is not None
        lines.append(
            (
                row["case"],
                row["index"],
                _device(row),
                _speed(row["value"]),
                _quartiles(row["spread"]),
                _peer(row),
                _speed(row["peer_value"]) + _other_unit(row) if peer else "",
                _quartiles(row["peer_spread"]) if peer else "",
                _ratio(row["ratio"]) if peer else "",
            )
        )
    headings = ("case", "index", "device", "ours", "quartiles", "peer", "theirs", "their quartiles", "ratio")
    print_table(headings, lines, _NUMBERS)
    if rows:
        units = ", ".join(dict.fromkeys(row["unit"] for row in rows))
        typer.echo(f"speeds in {units}, medians; ratio = ours / theirs, higher is better")
    _print_steps(rows)


def _print_steps(rows: list[Row]) -> None:
    """Print percentiles over single steps, of ours and of their peers, for the cases that have them."""
    found: dict[tuple[str, str], dict[str, Any]] = {}
    for row in rows:
        for name, steps in ((row["contender"], row.get("per_step")), (row["peer"], row.get("peer_per_step"))):
            if steps is not None and name != BEST_FIXED:
                found.setdefault((row["case"], name), steps)
    if found:
        names = ("p50", "p90", "p99", "max")
        lines = [(*key, *(f"{steps[name]:,.1f}" for name in names), steps["unit"]) for key, steps in found.items()]
        typer.echo("")
        print_table(("case", "contender", *names, "unit"), lines, frozenset(names))


def _print_targets(rows: list[Row]) -> None:
    """Print the speed targets that these rows cover, and whether they are met."""
    lines = [
        (v.target.text, _ratio(v.target.ratio), _ratio(v.worst["ratio"]), "yes" if v.met else "no", v.worst["case"])
        for v in judged(rows)
    ]
    if lines:
        typer.echo("")
        print_table(("target", "wanted", "ratio", "met", "in the worst case"), lines, _NUMBERS)


def _device(row: Row) -> str:
    """A device's name, with its kind if the name does not show it (such as a CPU driven by OpenCL)."""
    name, kind = row["device"], row["device_kind"]
    return name if kind in (None, name.partition(":")[0]) else f"{name} ({kind})"


def _peer(row: Row) -> str:
    """A peer's name; for the best fixed index, also which index that was."""
    name = row["peer"] or ""
    return f"{name}: {row['peer_index']}" if name == BEST_FIXED else name


def _other_unit(row: Row) -> str:
    return "" if row["peer_unit"] == row["unit"] else f" {row['peer_unit']}"


def _ratio(value: float) -> str:
    return f"{value:.2f}" if value >= 1 else f"{value:.3f}"


def _speed(value: float) -> str:
    """Large speeds (tuples/s) without decimals, small ones (tuples/cycle) with three."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.3f}"


def _quartiles(spread: dict[str, float]) -> str:
    return f"{_speed(spread['q1'])}..{_speed(spread['q3'])}"
