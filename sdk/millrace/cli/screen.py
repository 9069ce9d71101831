"""Prints tables and progress: coloured in a terminal, plain and not truncated otherwise.

Results go to stdout, progress and remarks to stderr. Only the stream itself decides whether it is a terminal, so a
colour setting in the environment never puts escape codes into a file. Texts may come from files, drivers and boards:
control characters are printed as spaces, so nobody else writes escape codes to the terminal either.
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


def harmless(text: str) -> str:
    """The text with a space for each control character, of which a terminal would obey some."""
    return text if text.isprintable() else "".join(letter if letter.isprintable() else " " for letter in text)


def is_terminal(error_stream: bool = False) -> bool:
    """Whether stdout (or stderr) is a terminal."""
    stream = sys.stderr if error_stream else sys.stdout
    return stream is not None and stream.isatty()  # None: it was closed before the start


def print_table(headings: Cells, rows: Sequence[Cells], right: frozenset[str] = frozenset()) -> None:
    """Print a table on stdout; columns named in `right` are right-aligned."""
    rows = [[harmless(cell) for cell in line] for line in rows]
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
    """Print a line on stderr."""
    typer.echo(harmless(text), err=True)


@contextmanager
def progress() -> Iterator[Report]:
    """Yields a function to report the current task and the share done: a bar in a terminal, else a line per topic."""
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
        # The text after the colon is detail, shown only in a bar.
        topic = what.partition(":")[0]
        if topic != last:
            last = topic
            remark(f"{share:4.0%}  {topic}")

    return report
