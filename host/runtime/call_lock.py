"""The lock that serialises the calls of an operator, and refuses a thread that is at work in it already.

`with lock.exclusive(): …` takes a lock of C by `with`, so no signal can come between the lock and its release. A signal
handler that calls the operator which it has interrupted gets a `StateError`: the operator is half changed there. A
forked child makes its own lock, since a thread of the parent may hold the old one.
"""

from __future__ import annotations

import threading

from millrace.host.base.errors import StateError
from millrace.host.runtime.fork import ProcessLocal


def reentered(what: str) -> StateError:
    """The error of a thread that calls an operator in which it is at work."""
    return StateError(
        f"this {what} is at work in the same thread: a signal handler cannot call it then. Set a flag in the handler, "
        f"and check it between calls"
    )


class CallLock:
    """One lock per operator."""

    def __init__(self, what: str) -> None:
        """`what`: the operator's kind, for the message."""
        self._what = what
        self._locks = ProcessLocal(threading.RLock)

    def exclusive(self) -> threading.RLock:
        """The lock to hold during a call; re-entrant, so that a second entry is refused instead of waiting."""
        lock = self._locks.get()
        if lock._is_owned():  # type: ignore[attr-defined]
            raise reentered(self._what)
        return lock
