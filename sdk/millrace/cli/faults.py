"""`millrace faults`: lists the fault points, or runs every operator through all of them and prints what happens."""

from __future__ import annotations

import json as json_module
from dataclasses import asdict

import typer

from millrace.faults import fault_points


def show_points(json: bool) -> None:
    """Print all points."""
    if json:
        typer.echo(json_module.dumps([asdict(point) for point in fault_points()], indent=2))
        return
    for point in fault_points():
        typer.echo(f"{point.name:18} {point.what}{' (data)' if point.data else ''}")


def show_table() -> None:
    """Print the table of points, operators and outcomes."""
    from millrace.soak.fault_table import outcomes, table_lines
    from millrace.soak.runner import usable_devices

    for line in table_lines(outcomes(dict.fromkeys(usable_devices()))):
        typer.echo(line)
