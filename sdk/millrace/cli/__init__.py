"""The command `millrace`: devices, demo, bench, doctor. Run it as `millrace` or `python -m millrace.cli`.

A mistake of the user's ends in one line on stderr and exit code 2, never in a traceback. Commands load what they need
when they run, so that `millrace --version` is quick.
"""

from __future__ import annotations

import sys

from millrace.errors import MillraceError


def main() -> None:
    """The console's entry point."""
    from millrace.cli.app import app

    try:
        app(prog_name="millrace")
    except MillraceError as error:
        sys.stderr.write(f"error: {error}\n")
        sys.exit(2)


__all__ = ["main"]
