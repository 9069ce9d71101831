"""A gate: many may be inside to read, or one alone to change something. Whoever waits to change goes first.

So a reader sees everything as it was before a change or after it. Readers may not enter a second time while they are
inside. A forked child finds the gate open: whoever was inside is not there.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager


class Gate:
    """One gate, for the threads of a process."""

    def __init__(self) -> None:
        """Nobody is inside."""
        self._open()

    def _open(self) -> None:
        self._pid = os.getpid()
        self._turn = threading.Condition()
        self._readers = 0
        self._waiting = 0
        self._changing = False

    def _here(self) -> threading.Condition:
        if self._pid != os.getpid():
            self._open()
        return self._turn

    @contextmanager
    def read(self) -> Iterator[None]:
        """Inside together with other readers."""
        with self._here():
            self._turn.wait_for(lambda: not self._changing and not self._waiting)
            self._readers += 1
        try:
            yield
        finally:
            with self._turn:
                self._readers -= 1
                if not self._readers:
                    self._turn.notify_all()

    @contextmanager
    def change(self) -> Iterator[None]:
        """Inside alone."""
        with self._here():
            self._waiting += 1
            try:
                self._turn.wait_for(lambda: not self._changing and not self._readers)
                self._changing = True
            finally:
                self._waiting -= 1
        try:
            yield
        finally:
            with self._turn:
                self._changing = False
                self._turn.notify_all()
