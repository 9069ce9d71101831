"""`millrace soak`: runs the soak of `millrace.soak` and prints its progress and its report."""

from __future__ import annotations

import typer

from millrace.soak.base import SoakFailure
from millrace.soak.runner import replay, soak


def run_soak(minutes: float, seed: int, replayed: str) -> int:
    """Soak, or replay one episode; the exit code is 1 after a failure."""
    try:
        if replayed:
            replay(replayed, typer.echo)
            return 0
        report = soak(minutes, seed, typer.echo)
    except SoakFailure as failure:
        typer.echo(f"failed: {failure}", err=True)
        return 1
    for line in report.lines():
        typer.echo(line)
    steep = report.too_steep()
    for line in steep:
        typer.echo(f"failed: {line} per 100 turnovers; allowed is 1%", err=True)
    return 1 if steep else 0
