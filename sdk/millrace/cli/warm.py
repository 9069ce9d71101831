"""`millrace warm`: compiles the kernels of all operators ahead of their first use, and says how long it took.

Each operator is compiled by a process of its own, as many at a time as there are cores, since the compiler uses one
core. On one core everything happens in this process: operators share kernels, which then compile once.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor, as_completed
from typing import TYPE_CHECKING

import typer

from millrace.cli.screen import progress
from millrace.warm import RECIPES, warm

if TYPE_CHECKING:
    from millrace.cli.screen import Report


def run_warm(as_json: bool) -> None:
    """Compile and report."""
    start = time.perf_counter()
    with progress() as report:
        if (os.cpu_count() or 1) > 1:
            _in_processes(report)
        else:
            warm(list(RECIPES), report)
    seconds = time.perf_counter() - start
    if as_json:
        typer.echo(json.dumps({"operators": list(RECIPES), "seconds": round(seconds, 1)}))
    else:
        typer.echo(f"compiled the kernels of {', '.join(RECIPES)} in {seconds:.0f} s")


def _in_processes(report: Report) -> None:
    """Compile the kernels of each operator in a process of its own."""
    report(f"compiling {', '.join(RECIPES)}", 0.0)
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        waiting = {pool.submit(_compile, name): name for name in RECIPES}
        for number, done in enumerate(as_completed(waiting), 1):
            done.result()
            report(f"compiled {waiting[done]}", number / len(waiting))


def _compile(name: str) -> None:
    subprocess.run([sys.executable, "-m", "millrace.warm", name], check=True)
