"""A readers-writer lock and a mutex that survive a fork. Waiting writers take precedence over new readers.

The read lock is not re-entrant. A forked child gets both locks free, since the threads that held them do not exist
there. But if a writer held the readers-writer lock during the fork, the protected data is half changed in the child:
there `read`, `write` and `check` raise a `StateError` from then on.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from millrace.host.base.errors import StateError
from millrace.host.runtime.fork import reset_in_child


class ForkSafeLock:
    """A mutex that is free in a forked child, even if a thread of the parent held it."""

    def __init__(self) -> None:
        """A free lock."""
        self.reset_after_fork()
        reset_in_child(self)

    def reset_after_fork(self) -> None:
        """Free the lock; called in a child right after the fork."""
        self._lock = threading.Lock()

    @contextmanager
    def held(self) -> Iterator[None]:
        """Hold the lock."""
        with self._lock:
            yield


class ReadWriteLock:
    """Many readers or one writer, among the threads of a process."""

    def __init__(self) -> None:
        """A free lock."""
        self._half_changed = False
        self._refused = ""
        self._reset()
        reset_in_child(self)

    def _reset(self) -> None:
        self._condition = threading.Condition()
        self._readers = 0
        self._waiting = 0
        self._writing = False

    def reset_after_fork(self) -> None:
        """Free the lock; called in a child right after the fork."""
        self._half_changed = self._half_changed or self._writing
        self._reset()

    def refuse(self, reason: str) -> None:
        """Make all later calls of `read`, `write` and `check` raise a `StateError`; called by the last writer."""
        self._refused = reason

    def check(self) -> None:
        """Raise a `StateError` after `refuse`, or if a writer was active during the fork that made this process."""
        if self._refused:
            raise StateError(self._refused)
        if self._half_changed:
            raise StateError(
                "this process was forked while another thread was changing the index, so its copy is half changed: "
                "make or open an index in this process, or fork when no update is running"
            )

    @contextmanager
    def read(self) -> Iterator[None]:
        """Hold the lock together with other readers."""
        self.check()
        condition = self._condition
        with condition:
            condition.wait_for(lambda: not self._writing and not self._waiting)
            self.check()
            self._readers += 1
        try:
            yield
        finally:
            if condition is self._condition:  # else a reader has forked, and this is the child: its lock was reset
                with condition:
                    self._readers -= 1
                    if not self._readers:
                        condition.notify_all()

    @contextmanager
    def write(self) -> Iterator[None]:
        """Hold the lock alone."""
        self.check()
        condition = self._condition
        with condition:
            self._waiting += 1
            try:
                condition.wait_for(lambda: not self._writing and not self._readers)
                self.check()
                self._writing = True
            finally:
                self._waiting -= 1
        try:
            yield
        finally:
            if condition is self._condition:
                with condition:
                    self._writing = False
                    condition.notify_all()
