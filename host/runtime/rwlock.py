"""A readers-writer lock that signals cannot break, and a mutex; both survive a fork.

The readers-writer lock is a big-reader lock: a few slots, each a re-entrant lock of C. A reader takes one slot, by its
thread; a writer takes all, in order. Rule for both: take locks only by `with` on an object of C. A signal handler that
raises cannot come between such a lock and its release, as it can inside a context manager of Python.

- Readers: `with rwlock.reader(): …`, where `reader` only chooses the slot.
- Writers: `rwlock.write(work)`; only in a thread that receives no signals (`critical.py`).

A thread that is at work under the lock cannot enter again, as a signal handler might try: that is a `StateError`. A
forked child gets both locks free, since the threads that held them do not exist there. But if a writer held the
readers-writer lock during the fork, the protected data is half changed in the child: there all calls raise a
`StateError` from then on. Limit: more than `SLOTS` readers at once may wait for each other, as they share slots.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TypeVar

from millrace.host.base.errors import StateError
from millrace.host.runtime.call_lock import reentered
from millrace.host.runtime.fork import reset_in_child

T = TypeVar("T")
SLOTS = 16
_THREAD_SHIFT = 12
"""Thread numbers are addresses on most systems: they differ above the size of a page."""


class ForkSafeLock:
    """A mutex that is free in a forked child, even if a thread of the parent held it: `with lock.mutex: …`."""

    def __init__(self) -> None:
        """A free lock."""
        self.reset_after_fork()
        reset_in_child(self)

    def reset_after_fork(self) -> None:
        """Free the lock; called in a child right after the fork."""
        self.mutex = threading.Lock()


class ReadWriteLock:
    """Many readers or one writer, among the threads of a process."""

    def __init__(self) -> None:
        """A free lock."""
        self._half_changed = self._writing = False
        self._refused = ""
        self._reset()
        reset_in_child(self)

    def _reset(self) -> None:
        self._slots = [threading.RLock() for _ in range(SLOTS)]
        self._writer = threading.Lock()
        self._wanted = 0
        """How many writers work or wait: new readers let them go first."""
        self._writing = False

    def reset_after_fork(self) -> None:
        """Free the lock; called in a child right after the fork."""
        self._half_changed = self._half_changed or self._writing
        self._reset()

    def refuse(self, reason: str) -> None:
        """Make all later calls of `reader`, `write` and `check` raise a `StateError`; called by the last writer."""
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

    def reader(self) -> threading.RLock:
        """The slot to hold while reading: `with lock.reader(): …`. After that, call `check` again."""
        slot = self.check_entrance()
        if self._wanted:
            with self._writer:
                pass
        return slot

    def check_entrance(self) -> threading.RLock:
        """Raise a `StateError` as `check` does, or if this thread is at work under the lock; return its slot."""
        self.check()
        return self.check_not_inside()

    def check_not_inside(self) -> threading.RLock:
        """Raise a `StateError` if this thread is at work under the lock; return its slot."""
        slot = self._slots[(threading.get_ident() >> _THREAD_SHIFT) % SLOTS]
        if slot._is_owned():  # type: ignore[attr-defined]
            raise reentered("index")
        return slot

    def write(self, work: Callable[[], T]) -> T:
        """Run `work` alone."""
        self.check_entrance()
        self._wanted += 1
        try:
            with self._writer:
                return self._write_from(0, self._slots, work)
        finally:
            self._wanted -= 1

    def _write_from(self, number: int, slots: list[threading.RLock], work: Callable[[], T]) -> T:
        if number < SLOTS:
            with slots[number]:
                return self._write_from(number + 1, slots, work)
        self.check()
        self._writing = True
        try:
            return work()
        finally:
            self._writing = False
