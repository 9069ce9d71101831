"""`millrace calibrate`: compiles all kernels and measures the costs that `index="auto"` uses, once per machine."""

from __future__ import annotations

import json
from dataclasses import asdict

import typer

from millrace.cli.screen import print_table, progress, remark
from millrace.host.planner.calibration import Costs, calibrate, costs
from millrace.host.runtime.pool import cores


def run_calibration(as_json: bool) -> None:
    """Measure, store and print the costs."""
    with progress() as report:
        measured = calibrate(cores(), report)
    if costs(cores()) != measured:
        remark("the cache folder cannot be written: the costs were not stored (MILLRACE_CACHE_DIR sets another folder)")
    if as_json:
        typer.echo(json.dumps({name: asdict(one) for name, one in measured.items()}))
        return
    names = [name.replace("_", " ") for name in Costs.__dataclass_fields__]
    rows = [[index, *(f"{value:,.1f}" for value in asdict(one).values())] for index, one in measured.items()]
    print_table(("index (ns)", *names), rows, right=frozenset(names))
