"""What the commands print: tables and progress, coloured in a terminal, plain and uncut anywhere else.

Results go to stdout, progress and remarks to stderr. Whether a stream is a terminal is asked of the stream alone, so
that a colour setting in the environment never puts escape codes into a file.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:
    from collections.abc import Callable

    Report = Callable[[str, float], None]

Cells = Sequence[str]


def is_terminal(error_stream: bool = False) -> bool:
    """Whether a person looks at stdout (or at stderr)."""
    stream = sys.stderr if error_stream else sys.stdout
    return stream is not None and stream.isatty()  # none: it was closed before the start


def print_table(headings: Cells, rows: Sequence[Cells], right: frozenset[str] = frozenset()) -> None:
    """A table on stdout; columns named in `right` are numbers and align at the right."""
    if is_terminal():
        _print_rich(headings, rows, right)
        return
    widths = [max(len(line[i]) for line in [headings, *rows]) for i in range(len(headings))]
    for line in [headings, *rows]:
        cells = (
            cell.rjust(width) if heading in right else cell.ljust(width)
            for heading, cell, width in zip(headings, line, widths, strict=True)
        )
        typer.echo("  ".join(cells).rstrip())


def _print_rich(headings: Cells, rows: Sequence[Cells], right: frozenset[str]) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table()
    for heading in headings:
        table.add_column(heading, justify="right" if heading in right else "left", overflow="fold")
    for row in rows:
        table.add_row(*(Text(cell) for cell in row))
    Console().print(table)


def remark(text: str) -> None:
    """A line on stderr."""
    typer.echo(text, err=True)


@contextmanager
def progress() -> Iterator[Report]:
    """A function that is told what is under way and the share done: a bar in a terminal, else a line per topic."""
    if not is_terminal(error_stream=True):
        yield _lines()
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (
        BarColumn(),
        TextColumn("{task.percentage:3.0f}%"),
        TimeElapsedColumn(),
        TextColumn("{task.description}"),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("", total=1.0)

        def report(what: str, share: float) -> None:
            bar.update(task, description=what.replace("[", r"\["), completed=share)

        yield report


def _lines() -> Report:
    last = ""

    def report(what: str, share: float) -> None:
        nonlocal last
        # Whatever comes after the colon is detail that only a bar has room for.
        topic = what.partition(":")[0]
        if topic != last:
            last = topic
            remark(f"{share:4.0%}  {topic}")

    return report
