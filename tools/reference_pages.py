"""Pages of the site that are made from the code: the command line.

The reference of the Python API is made by mkdocstrings from docstrings; registers, synthesis and the like are written
into their pages by the commands that they name.
"""

from __future__ import annotations

from typing import Any

import typer.main
from typer.testing import CliRunner

from millrace.cli.app import app

HEAD = """# Command line

Commands end with 0 if all is well, 1 if a check failed, 2 if an argument is not allowed. This page is what
`millrace COMMAND --help` prints.
"""
WIDTH = "100"


def generated_pages() -> dict[str, str]:
    """The text of each generated page, by its name."""
    return {"reference/cli.md": command_line()}


def command_line() -> str:
    """The help of every command, in the order of their names."""
    return "\n".join([HEAD, *(one_command(words) for words in command_words())])


def command_words() -> list[tuple[str, ...]]:
    """All commands, as the words behind `millrace`."""
    root: Any = typer.main.get_command(app)
    words: list[tuple[str, ...]] = []
    for name, command in sorted(root.commands.items()):
        words.append((name,))
        words += [(name, below) for below in sorted(getattr(command, "commands", {}))]
    return words


def one_command(words: tuple[str, ...]) -> str:
    """A command's help under its own heading."""
    shown = CliRunner().invoke(app, [*words, "--help"], env={"COLUMNS": WIDTH, "TERMINAL_WIDTH": WIDTH}).output
    text = "\n".join(line.rstrip() for line in shown.strip().splitlines()).replace("Usage: root", "Usage: millrace")
    level = "##" if len(words) == 1 else "###"
    return f"{level} millrace {' '.join(words)}\n\n```text\n{text}\n```\n"
