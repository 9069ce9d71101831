"""Ends a soak that hangs: prints where every thread is and the line that replays the episode.

The watchdog counts its own ticks and no clock: while the process is stopped (SIGSTOP), neither the work nor the ticks
go on, so a pause of any length is no hang.
"""

from __future__ import annotations

import faulthandler
import os
import sys
import threading
import time
from collections.abc import Callable

TICK_SECONDS = 1.0
MOST_TICKS = 900
"""Ticks without progress that are a hang: the slowest episodes, on simulators beside other work, take minutes."""
MIN_PAUSE = 5.0
"""A tick that is late by more seconds than this is counted as a pause."""
HUNG = 3
"""The exit code of a process that hung."""


def _end_process(message: str) -> None:
    sys.stderr.write(f"failed: {message}\n")
    sys.stderr.flush()
    faulthandler.dump_traceback(file=sys.stderr, all_threads=True)
    os._exit(HUNG)  # the thread that hangs cannot be ended in another way


class Watchdog:
    """Calls `end` with a message if `progress` was not called for `MOST_TICKS` ticks. A context manager."""

    def __init__(self, end: Callable[[str], None] = _end_process, tick: float = TICK_SECONDS) -> None:
        """Nothing is watched before the block is entered."""
        self._end, self._tick = end, tick
        self._ticks, self._doing = 0, ""
        self.paused = 0.0
        """Seconds in which the process was stopped, by the clock; nothing depends on them but the report."""
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="soak-watchdog", daemon=True)

    def progress(self, doing: str) -> None:
        """Something is done; `doing` is what begins now, with the line that replays it."""
        self._ticks, self._doing = 0, doing

    def _watch(self) -> None:
        last = time.monotonic()
        while not self._done.wait(self._tick):
            last, late = time.monotonic(), time.monotonic() - last - self._tick
            self.paused += late if late > MIN_PAUSE else 0.0
            self._ticks += 1
            if self._ticks > MOST_TICKS:
                self._end(f"no progress in {MOST_TICKS} ticks of {self._tick:g} s: {self._doing}")
                return

    def __enter__(self) -> Watchdog:
        """Begin."""
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        """End, whether or not there was an error."""
        self._done.set()
        self._thread.join()
