"""What a forked child must know: the one place of the library that registers a fork handler.

A forked child has one thread and a copy of all memory. Locks that other threads held stay held there, threads and
device connections of the parent do not exist. Four helpers cover this:

- `reset_in_child(owner)`: the child calls `owner.reset_after_fork()` right after the fork, for example to free a lock;
- `ProcessMark`: remembers the process that made it, for objects that are useless in another process;
- `ProcessLocal`: a value that is made on first use, and again in a forked child;
- `hold_during_forks(lock_of)`: a fork waits until it has this lock of others, and frees it in both processes.

Limit: only forks that run Python's fork handlers count (`os.fork`, `multiprocessing`, PySpark's workers).
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from typing import Any, Generic, Protocol, TypeVar
from weakref import WeakSet

T = TypeVar("T")


class ResetAfterFork(Protocol):
    """An object with state that a forked child must not keep."""

    def reset_after_fork(self) -> None:
        """Replace that state; the only thread of the child calls this before any other code."""


_forks = 0
"""How many forks led to this process. No object passes between processes of the same number, so it identifies one."""
_owners: WeakSet[ResetAfterFork] = WeakSet()


def reset_in_child(owner: ResetAfterFork) -> None:
    """Call `owner.reset_after_fork()` in every forked child while the owner lives; holds only a weak reference."""
    _owners.add(owner)


_wanted: list[Callable[[], Any]] = []
_held: list[Any] = []
"""The locks that the fork at work holds."""


def hold_during_forks(lock_of: Callable[[], Any]) -> None:
    """Let forks wait for the re-entrant lock that `lock_of()` returns; None: there is none yet."""
    _wanted.append(lock_of)


def _before_fork() -> None:
    for lock_of in _wanted:
        lock = lock_of()
        if lock is not None:
            lock.acquire()
            _held.append(lock)


def _release_held() -> None:
    while _held:
        _held.pop().release()


def _after_fork() -> None:
    global _forks
    _release_held()
    _forks += 1
    for owner in list(_owners):
        owner.reset_after_fork()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before_fork, after_in_parent=_release_held, after_in_child=_after_fork)


class ProcessMark:
    """Remembers the process that made it."""

    def __init__(self) -> None:
        """A mark of this process."""
        self._forks = _forks
        self.pid = os.getpid()

    @property
    def is_here(self) -> bool:
        """Whether this is the process that made the mark; false in a forked child."""
        return self._forks == _forks


class ProcessLocal(Generic[T]):
    """A value that each process makes for itself, on first use. Threads share it; one of them makes it."""

    def __init__(self, make: Callable[[], T], guard: Callable[[Callable[[], None]], None] | None = None) -> None:
        """Nothing is made yet. If `make` raises, the next `get` calls it again. `guard` runs it (`uninterrupted`)."""
        self._make, self._guard = make, guard
        self.reset_after_fork()
        reset_in_child(self)

    def reset_after_fork(self) -> None:
        """Forget the value of the parent process."""
        self._made: list[T] = []
        self._lock = threading.Lock()

    def get(self) -> T:
        """Return the value of this process."""
        made = self._made
        if not made:
            with self._lock:
                if made:
                    return made[0]
                if self._guard is None:
                    made.append(self._make())
                else:
                    self._guard(lambda: made.append(self._make()))
        return made[0]
