"""`millrace warm`: compiles the kernels of all operators ahead of their first use, and says how long it took."""

from __future__ import annotations

import json
import time

import typer

from millrace.cli.screen import progress
from millrace.warm import RECIPES, warm


def run_warm(as_json: bool) -> None:
    """Compile and report."""
    start = time.perf_counter()
    with progress() as report:
        warm(list(RECIPES), report)
    seconds = time.perf_counter() - start
    if as_json:
        typer.echo(json.dumps({"operators": list(RECIPES), "seconds": round(seconds, 1)}))
    else:
        typer.echo(f"compiled the kernels of {', '.join(RECIPES)} in {seconds:.0f} s")
