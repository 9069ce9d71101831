"""`millrace demo`: runs the demo with progress, prints a line per index and device, and writes the result."""

from __future__ import annotations

import json
from dataclasses import asdict
from datetime import datetime
from importlib import import_module
from pathlib import Path
from typing import Any

import typer

from millrace.cli import demo_job
from millrace.cli.screen import print_table, progress, remark

_FIRST_ROWS = 5
_SPARK_NUMBERS = (
    *("rows", "late", "pairs", "seconds", "first_batch_seconds", "rows_per_second"),
    *("asked", "device_rows", "device_cycles"),
)
_SPARK_HEADINGS = (
    "device",
    "rows in",
    "late",
    "pairs",
    "seconds",
    "first batch",
    "rows/s after",
    "probing rows",
    "rows probed by device",
    "device cycles",
    "same rows",
    "counters agree",
)
_NUMBERS = frozenset({"rows in", "pairs", "rows/s", "late", "held"})


def show_demo(rows: int, out: Path, as_json: bool) -> int:
    """Run the demo; return 0 if all outputs are identical, else 1."""
    demo_job.check_folder(out)
    with progress() as report:
        outcome = demo_job.run(rows, report)
    demo_job.write(outcome, out)
    if as_json:
        typer.echo(json.dumps(demo_job.summary(outcome), indent=2))
    else:
        _print(outcome)
    remark(f"result: {out / 'demo.parquet'}, table: {out / 'demo.json'}")
    for fault in outcome.faults:
        remark(f"error: {fault}")
    return 1 if outcome.faults else 0


def show_spark_demo(rows: int, out: Path, as_json: bool) -> int:
    """Run the Spark job; return 0 if all devices give the same rows and their counters agree, else 1."""
    demo_job.check_folder(out)
    job = import_module("millrace.spark.tools.demo")
    with progress() as report:
        outcome = job.run(rows, report)
    job.write(outcome, out)
    summary = job.summary(outcome)
    if as_json:
        typer.echo(json.dumps(summary, indent=2))
    else:
        typer.echo(
            f"Spark: two streams of {rows:,} rows in {summary['batches']} micro-batches; "
            f"lookup among {summary['serials']:,} serials, "
            f"then {summary['on']}, window {summary['window']}"
        )
        print_table(_SPARK_HEADINGS, [_spark_line(run) for run in summary["runs"]], frozenset(_SPARK_HEADINGS[1:10]))
        typer.echo(f"set-up (data, Spark, index of sites): {summary['setup_seconds']:.1f} s")
    remark(f"result: {out / 'demo.parquet'}, table: {out / 'demo.json'}")
    for fault in outcome.faults:
        remark(f"error: {fault}")
    return 1 if outcome.faults else 0


def _spark_line(run: dict[str, Any]) -> list[str]:
    numbers = [f"{run[name]:,}" for name in _SPARK_NUMBERS]
    return [run["device"], *numbers, "yes" if run["identical"] else "NO", "yes" if run["accounted"] else "NO"]


def _print(outcome: demo_job.Outcome) -> None:
    typer.echo(f"{demo_job.ON}, window {demo_job.WINDOW}, {outcome.rows:,} rows of each stream")
    print_table(
        ("index", "device", "rows in", "pairs", "rows/s", "late", "held", "same output"),
        [_line(run) for run in outcome.runs],
        _NUMBERS,
    )
    if any(not run.complete for run in outcome.runs):
        stopped = f"a run was stopped after {demo_job.SECONDS_PER_RUN:.0f} s"
        typer.echo(f"{stopped}: its output was compared with the others' up to that point")
    typer.echo(_count(outcome.result.num_rows))
    first = outcome.result.slice(0, _FIRST_ROWS).to_pylist()
    if first:
        print_table(outcome.result.column_names, [[_cell(value) for value in row.values()] for row in first])


def _count(pairs: int) -> str:
    """The heading above the first rows."""
    if pairs > _FIRST_ROWS:
        return f"first {_FIRST_ROWS} of {pairs:,} pairs"
    return "1 pair" if pairs == 1 else f"{pairs or 'no'} pairs"


def _line(run: demo_job.DemoRun) -> list[str]:
    facts = asdict(run)
    numbers = [f"{facts[name]:,}" for name in ("rows_in", "pairs", "rows_per_second", "late", "held")]
    return [run.index, run.device, *numbers, "yes" if run.identical else "NO"]


def _cell(value: object) -> str:
    """A cell's text; times without their date, so that a row fits a terminal."""
    if isinstance(value, datetime):
        return value.strftime("%H:%M:%S.%f")[:-3]
    return "" if value is None else str(value)
