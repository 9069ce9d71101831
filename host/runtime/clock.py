"""The clock that a pipeline runs by: what time it is, threads, and the one way in which they wait for each other.

`WALL` is the real one. The pipeline takes its clock as an argument so that tests can run the very same code in virtual
time (`device/virtual_clock.py`), where a device's speeds are set, nothing sleeps and every run is the same.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Protocol


class Worker(Protocol):
    """A started thread."""

    def join(self) -> None:
        """Wait until it has ended."""


class Monitor(AbstractContextManager["bool"], Protocol):
    """A lock that threads wait under until something holds; `threading.Condition` is one."""

    def wait_for(self, predicate: Callable[[], bool]) -> bool:
        """Let go of the lock until the predicate is true."""

    def notify_all(self) -> None:
        """Others may look at their predicates again."""


class Clock(Protocol):
    """Time and threads."""

    def now(self) -> int:
        """Nanoseconds, from any beginning."""

    def sleep_until(self, when: int) -> None:
        """Return when it is that time or later."""

    def start(self, work: Callable[[], None], name: str) -> Worker:
        """Start a thread. It must not raise."""

    def monitor(self) -> Monitor:
        """A monitor for threads of this clock."""

    def lock(self) -> AbstractContextManager[object]:
        """A lock that may be held while time passes."""


class WallClock:
    """Real time, real threads."""

    def now(self) -> int:
        """What the system's steady clock says."""
        return time.perf_counter_ns()

    def sleep_until(self, when: int) -> None:
        """Sleep; a system's timer may be late."""
        while (left := when - self.now()) > 0:
            time.sleep(left / 1e9)

    def start(self, work: Callable[[], None], name: str) -> Worker:
        """A thread that does not keep the process alive: after a second Ctrl-C nobody joins it."""
        thread = threading.Thread(target=work, name=name, daemon=True)
        thread.start()
        return thread

    def monitor(self) -> Monitor:
        """Python's own."""
        return threading.Condition()

    def lock(self) -> AbstractContextManager[object]:
        """Python's own."""
        return threading.Lock()


WALL = WallClock()
