"""`millrace calibrate`: compiles all kernels and measures what `index="auto"` chooses by, once per machine."""

from __future__ import annotations

import json
from dataclasses import asdict

import typer

from millrace.cli.screen import print_table, progress
from millrace.host.calibration import Costs, calibrate
from millrace.host.pool import cores


def run_calibration(as_json: bool) -> None:
    """Measure, keep and print the constants."""
    with progress() as report:
        measured = calibrate(cores(), report)
    if as_json:
        typer.echo(json.dumps({name: asdict(costs) for name, costs in measured.items()}))
        return
    names = [name.replace("_", " ") for name in Costs.__dataclass_fields__]
    rows = [[index, *(f"{value:,.1f}" for value in asdict(costs).values())] for index, costs in measured.items()]
    print_table(("index (ns)", *names), rows, right=frozenset(names))
