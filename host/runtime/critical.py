"""Runs a critical section that a signal (SIGINT) cannot interrupt: it runs completely or not at all.

Python runs signal handlers in the main thread only, between any two bytecodes. So another thread runs the section, and
the main thread waits. The section calls `begin` after its preparations: an earlier interrupt is raised at once, and
nothing is changed; a later one is raised after the section has ended. Threads other than the main one receive no
signals and run the section themselves; so does the main thread if no thread can be started.
Limit: only code inside the section is safe, so it must take the locks that it needs itself.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class Abandoned(Exception):
    """Raised by `begin` if the caller was interrupted before; it never leaves the thread of the section."""


Begin = Callable[[], None]
"""To be called once, right before the first change."""


def critical_section(work: Callable[[Begin], T]) -> T:
    """Run `work`, which calls `begin` before its first change; an interrupt is raised before that or at the end."""
    if threading.current_thread() is not threading.main_thread():
        return work(_no_interrupt)
    section = _CriticalSection(work)
    worker = threading.Thread(target=section.run, name="millrace-change", daemon=True)
    interrupt: BaseException | None = None
    while not section.ended.is_set():
        try:
            if worker.ident is None:
                try:
                    worker.start()
                except RuntimeError:  # no thread can be started, as at the end of the interpreter
                    return work(_no_interrupt)
            section.ended.wait()
        except BaseException as error:
            if section.claim():
                raise
            interrupt = error
    if interrupt is not None:
        raise interrupt
    return section.result()


class _CriticalSection(Generic[T]):
    """One section that runs in another thread. Whichever side claims it first decides whether it begins."""

    def __init__(self, work: Callable[[Begin], T]) -> None:
        """A section that is not started yet."""
        self._work, self._claimed = work, threading.Lock()
        self._result: list[T] = []
        self._error: BaseException | None = None
        self.ended = threading.Event()

    def claim(self) -> bool:
        """Return whether this claim is the first: that of `begin` continues the section, an interrupt abandons it."""
        return self._claimed.acquire(blocking=False)

    def run(self) -> None:
        """Run the section; the target of the thread."""
        try:
            self._result.append(self._work(self._begin))
        except BaseException as error:
            self._error = error
        self.ended.set()

    def _begin(self) -> None:
        if not self.claim():
            raise Abandoned

    def result(self) -> T:
        """Return the result of the section, or raise its error."""
        if self._error is not None:
            raise self._error
        return self._result[0]


def _no_interrupt() -> None:
    """The `begin` of a section that no interrupt can abandon."""
