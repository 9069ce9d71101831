"""The clock of a pipeline: the time, threads, and how threads wait for each other.

`WALL` is real time. The pipeline takes its clock as an argument, so that tests can run the same code in virtual time
(`device/virtual_clock.py`): with fixed device speeds, without sleeping, and with the same result in every run.
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
        """Wait until the thread has ended."""


class Monitor(AbstractContextManager["bool"], Protocol):
    """A lock with a condition to wait for, like `threading.Condition`."""

    def wait_for(self, predicate: Callable[[], bool]) -> bool:
        """Free the lock until the predicate is true."""

    def notify_all(self) -> None:
        """Make all waiting threads check their predicates again."""


class Clock(Protocol):
    """Time and threads."""

    def now(self) -> int:
        """Return the time in nanoseconds since an arbitrary origin."""

    def sleep_until(self, when: int) -> None:
        """Return at that time or later."""

    def start(self, work: Callable[[], None], name: str) -> Worker:
        """Start a thread; `work` must not raise."""

    def monitor(self) -> Monitor:
        """Return a monitor for threads of this clock."""

    def lock(self) -> AbstractContextManager[object]:
        """Return a lock that may be held while time passes."""


class WallClock:
    """Real time, real threads."""

    def now(self) -> int:
        """Return the system's monotonic clock."""
        return time.perf_counter_ns()

    def sleep_until(self, when: int) -> None:
        """Sleep; the system's timer may be late."""
        while (left := when - self.now()) > 0:
            time.sleep(left / 1e9)

    def start(self, work: Callable[[], None], name: str) -> Worker:
        """Start a daemon thread: after a second Ctrl-C no thread joins it, and the process must still end."""
        thread = threading.Thread(target=work, name=name, daemon=True)
        thread.start()
        return thread

    def monitor(self) -> Monitor:
        """Return a `threading.Condition`."""
        return threading.Condition()

    def lock(self) -> AbstractContextManager[object]:
        """Return a `threading.Lock`."""
        return threading.Lock()


WALL = WallClock()
