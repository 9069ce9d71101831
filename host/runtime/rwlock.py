"""A gate: many may be inside to read, or one alone to change something. Whoever waits to change goes first.

So a reader sees everything as it was before a change or after it. Readers may not enter a second time while they are
inside. A forked child finds the gate open: whoever was inside is not there. But where somebody was inside to change
something, what is behind the gate is half changed, and nobody is there to go on: then it stays shut in the child.
`Turns` is a lock that a forked child finds free, whoever held it.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from weakref import WeakSet

from millrace.host.base.errors import StateError


class Turns:
    """A lock: whoever takes it is alone until it is done."""

    def __init__(self) -> None:
        """Nobody has it."""
        self.inherit()
        _all.add(self)

    def inherit(self) -> None:
        """In a child that was forked just now."""
        self._lock = threading.Lock()

    @contextmanager
    def taken(self) -> Iterator[None]:
        """Alone."""
        with self._lock:
            yield


class Gate:
    """One gate, for the threads of a process."""

    def __init__(self) -> None:
        """Nobody is inside."""
        self._shut = False
        self._open()
        _all.add(self)

    def _open(self) -> None:
        self._turn = threading.Condition()
        self._readers = 0
        self._waiting = 0
        self._changing = False

    def inherit(self) -> None:
        """In a child that was forked just now."""
        self._shut = self._shut or self._changing
        self._open()

    def check(self) -> None:
        """A `StateError` where the gate is shut for ever."""
        if self._shut:
            raise StateError(
                "this process was forked while another thread was changing the index, whose copy here is half changed: "
                "make or open an index in this process, or fork when no update is under way"
            )

    @contextmanager
    def read(self) -> Iterator[None]:
        """Inside together with other readers."""
        self.check()
        turn = self._turn
        with turn:
            turn.wait_for(lambda: not self._changing and not self._waiting)
            self._readers += 1
        try:
            yield
        finally:
            if turn is self._turn:  # else the reader has forked, and is in the child: it was let out
                with turn:
                    self._readers -= 1
                    if not self._readers:
                        turn.notify_all()

    @contextmanager
    def change(self) -> Iterator[None]:
        """Inside alone."""
        self.check()
        turn = self._turn
        with turn:
            self._waiting += 1
            try:
                turn.wait_for(lambda: not self._changing and not self._readers)
                self._changing = True
            finally:
                self._waiting -= 1
        try:
            yield
        finally:
            if turn is self._turn:
                with turn:
                    self._changing = False
                    turn.notify_all()


_all: WeakSet[Gate | Turns] = WeakSet()


def _inherit() -> None:
    """Before the child does anything else, so that no thread of it is at a gate yet."""
    for one in list(_all):
        one.inherit()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_inherit)
