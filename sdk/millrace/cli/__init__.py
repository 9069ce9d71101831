"""The command `millrace`: devices, demo, bench, doctor. Run it as `millrace` or `python -m millrace.cli`.

A mistake of the user's ends in one line on stderr and exit code 2, output that cannot be written in one line and exit
code 1, never in a traceback. Commands load what they need when they run, so that `millrace --version` is quick.
"""

from __future__ import annotations

import errno
import os
import sys
from contextlib import suppress

from millrace.errors import MillraceError

_FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO})


def main() -> None:
    """The console's entry point."""
    sys.exit(_run())


def _run() -> int:
    """The exit code; 130 after Ctrl-C, 1 where the reader of a pipe has gone."""
    try:
        from typer import Abort

        from millrace.cli.app import app

        try:
            return app(prog_name="millrace", standalone_mode=False) or 0
        except Abort:  # older versions' word for Ctrl-C
            return 130
    except KeyboardInterrupt:
        return 130
    except MillraceError as error:
        return _fail(str(error), 2)
    except BrokenPipeError:
        _drop_output()
        return 1
    except OSError as error:
        _drop_output()
        return _fail(f"output cannot be written: {error.strerror}" if error.errno in _FULL else str(error), 1)
    except Exception as error:
        if not hasattr(error, "format_message"):
            raise
        # A usage error: of click or of the copy of click inside typer, by typer's version.
        context = getattr(error, "ctx", None)
        command = context.command_path if context else "millrace"
        return _fail(f"{error.format_message().rstrip('.')}; see '{command} --help'", 2)


def _fail(text: str, code: int) -> int:
    with suppress(OSError, AttributeError):  # stderr is full or closed: the code alone must tell
        sys.stderr.write(f"error: {' '.join(text.splitlines())}\n")
    return code


def _drop_output() -> None:
    """What a stdout that takes no more still holds goes nowhere, else Python would complain at its end."""
    try:
        if sys.stdout is not None:  # none: it was closed before the start
            sys.stdout.flush()
    except OSError:
        with open(os.devnull, "w") as nowhere:
            os.dup2(nowhere.fileno(), sys.stdout.fileno())


__all__ = ["main"]
