"""The command `millrace`: run it as `millrace` or `python -m millrace.cli`.

A user error prints one line on stderr and exits with code 2. Output that cannot be written prints one line and exits
with code 1. Neither prints a traceback. Commands import what they need when they run, so `millrace --version` is fast.
"""

from __future__ import annotations

import errno
import os
import sys
from contextlib import suppress

from millrace.errors import MillraceError

_FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO})


def main() -> None:
    """The entry point of the console script."""
    # Commands measure and compare: they wait for kernels instead of working without them (`host/runtime/first_use.py`).
    os.environ.setdefault("MILLRACE_COMPILE", "now")
    sys.exit(_run())


def _run() -> int:
    """The exit code: 130 after Ctrl-C, 1 if the reader of a pipe has closed it."""
    try:
        from typer import Abort

        from millrace.cli.app import app

        try:
            return app(prog_name="millrace", standalone_mode=False) or 0
        except Abort:  # older versions raise this on Ctrl-C
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
        # A usage error, raised by click or by typer's own copy of click, depending on typer's version.
        context = getattr(error, "ctx", None)
        command = context.command_path if context else "millrace"
        return _fail(f"{error.format_message().rstrip('.')}; see '{command} --help'", 2)


def _fail(text: str, code: int) -> int:
    # A message may quote a file or a driver: no control character of theirs reaches the terminal.
    line = "".join(letter if letter.isprintable() else " " for letter in " ".join(text.splitlines()))
    with suppress(OSError, AttributeError):  # stderr is full or closed: only the exit code reports the error
        sys.stderr.write(f"error: {line}\n")
    return code


def _drop_output() -> None:
    """Discard what a broken stdout still buffers; otherwise Python reports an error at exit."""
    try:
        if sys.stdout is not None:  # None: it was closed before the start
            sys.stdout.flush()
    except OSError:
        with open(os.devnull, "w") as nowhere:
            os.dup2(nowhere.fileno(), sys.stdout.fileno())


__all__ = ["main"]
