"""`millrace bench`: runs benches, prints their rows as they come, and keeps them in a file."""

from __future__ import annotations

import json
from pathlib import Path

import typer

from millrace.bench import catalog
from millrace.bench.harness import Result
from millrace.bench.options import Options
from millrace.bench.rows import Row, about_run, as_line, default_folder, keep_results, result_rows, results_file
from millrace.cli.screen import print_table, progress, remark

_NUMBERS = frozenset({"ours", "quartiles", "theirs", "their quartiles", "ratio"})


def list_benches(as_json: bool) -> None:
    """The benches there are."""
    if as_json:
        typer.echo(json.dumps([{"bench": name, "title": bench.title} for name, bench in catalog.BENCHES.items()]))
        return
    print_table(("bench", "what it measures"), [(name, bench.title) for name, bench in catalog.BENCHES.items()])


def run_benches(names: list[str], as_json: bool, quick: bool, out: Path | None, repeats: int | None, only: str) -> None:
    """Measure, print and keep."""
    options = Options(quick, repeats, only)
    chosen = catalog.check_names(names)
    about = about_run()
    for name in chosen:
        catalog.cases(name, options)  # a name that fits no case is told before anything is measured
    for name in chosen:
        path = results_file(out or default_folder(), name, about["date"], options)
        rows = _run(name, options, about, path, as_json)
        if not as_json:
            _print(rows)
        remark(f"results: {path}")


def _run(name: str, options: Options, about: Row, path: Path, as_json: bool) -> list[Row]:
    rows: list[Row] = []
    with progress() as report, keep_results(path) as file:
        for result in catalog.run(name, options, report):
            _tell_missing(result)
            for row in result_rows(name, result, about):
                rows.append(row)
                file.write(as_line(row) + "\n")
                if as_json:
                    typer.echo(as_line(row))
    return rows


def _tell_missing(result: Result) -> None:
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
                row["device"],
                _speed(row["value"]),
                _quartiles(row["spread"]),
                row["peer"] or "",
                _speed(row["peer_value"]) if peer else "",
                _quartiles(row["peer_spread"]) if peer else "",
                f"{row['ratio']:.2f}" if peer else "",
            )
        )
    headings = ("case", "index", "device", "ours", "quartiles", "peer", "theirs", "their quartiles", "ratio")
    print_table(headings, lines, _NUMBERS)
    if rows:
        typer.echo(f"speeds in {rows[0]['unit']}, medians; ratio = ours / theirs, higher is better")


def _speed(value: float) -> str:
    return f"{value:,.0f}"


def _quartiles(spread: dict[str, float]) -> str:
    return f"{spread['q1']:,.0f}..{spread['q3']:,.0f}"
