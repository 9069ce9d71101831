"""Runs a program (a loader, Vivado) that does not outlive this process.

The program gets a session of its own. If the call ends early, by a time-out, Ctrl-C, SIGTERM or SIGHUP, the program and
all that it started are killed first. SIGTERM and SIGHUP become a `SystemExit` while a program runs, so that folders are
cleaned up, unless the application has handlers of its own. Limits: signals are looked after in the main thread only;
after SIGKILL of this process the program runs on, with the files of `pass_fds`, for example the lock of a card.
"""

from __future__ import annotations

import os
import signal
import subprocess
import threading
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType

ENDING = {signal.SIGTERM: signal.SIG_DFL, signal.SIGHUP: signal.SIG_DFL, signal.SIGINT: signal.default_int_handler}
"""The signals that end a process, and their usual handlers."""


def run(
    command: Sequence[str],
    folder: Path | None = None,
    env: Mapping[str, str] | None = None,
    seconds: float | None = None,
    pass_fds: Collection[int] = (),
) -> subprocess.CompletedProcess[str]:
    """Run a program without input, and return its exit code and what it printed. Raises what `subprocess.run` does."""
    with ended_by_signals():
        _ending.held = True
        try:
            child = subprocess.Popen(
                command,
                cwd=folder,
                env=env,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                pass_fds=pass_fds,
                start_new_session=True,
            )
        finally:
            _ending.held = False
        try:
            _ending.raise_held()
            output, errors = child.communicate(timeout=seconds)
        except BaseException:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(child.pid, signal.SIGKILL)
            child.communicate()
            raise
    texts = (text.decode(errors="replace") for text in (output, errors))
    return subprocess.CompletedProcess(command, child.returncode, *texts)


@contextmanager
def ended_by_signals() -> Iterator[None]:
    """Raise an exception for a signal that would end this process: `subprocess.run`, too, then kills what it runs."""
    taken = {}
    if threading.current_thread() is threading.main_thread():
        taken = {number: usual for number, usual in ENDING.items() if signal.getsignal(number) is usual}
    for number in taken:
        signal.signal(number, _ending.take)
    try:
        yield
    finally:
        for number, usual in taken.items():
            signal.signal(number, usual)


class _Ending(threading.local):
    """Raises the exceptions; a signal that arrives while a program is started waits until the program is known."""

    def __init__(self) -> None:
        """No signal has arrived."""
        self.held = False
        self._arrived: int | None = None

    def take(self, number: int, frame: FrameType | None) -> None:
        """Handle a signal."""
        self._arrived = number
        if not self.held:
            self.raise_held()

    def raise_held(self) -> None:
        """Raise the exception of a signal that has arrived."""
        number, self._arrived = self._arrived, None
        if number == signal.SIGINT:
            raise KeyboardInterrupt
        if number is not None:
            raise SystemExit(128 + number)


_ending = _Ending()
