"""Work that no signal breaks off in the middle: Ctrl-C comes before it begins, or after it has ended.

Python runs signal handlers in the main thread alone, between any two of its steps. So what must be done wholly or not
at all is done by another thread, and the main thread waits. The work says when its preparations are over: an interrupt
that comes before is raised at once, and nothing is changed; one that comes later is raised when the work has ended.
Threads other than the main one, which no signal reaches, do the work themselves; so does the main one where no thread
can be started. Limit: only what is done inside is safe, so locks that it needs must be taken inside.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class Abandoned(Exception):
    """The change must not begin: whoever wanted it was interrupted. It never leaves this module's thread."""


Begin = Callable[[], None]
"""To be called once, when the change begins."""


def unbroken(work: Callable[[Begin], T]) -> T:
    """Run work to its end, which calls `begin` before it changes anything; an interrupt is raised before or after."""
    if threading.current_thread() is not threading.main_thread():
        return work(_nothing)
    job = _Job(work)
    worker = threading.Thread(target=job.run, name="millrace-change", daemon=True)
    interrupt: BaseException | None = None
    while not job.ended.is_set():
        try:
            if worker.ident is None:
                try:
                    worker.start()
                except RuntimeError:  # no more threads here, as when the interpreter ends
                    return work(_nothing)
            job.ended.wait()
        except BaseException as error:
            if job.claim():
                raise
            interrupt = error
    if interrupt is not None:
        raise interrupt
    return job.result()


class _Job(Generic[T]):
    """Work in another thread, and who may decide whether its change begins."""

    def __init__(self, work: Callable[[Begin], T]) -> None:
        """Not begun yet."""
        self._work, self._turn = work, threading.Lock()
        self._found: list[T] = []
        self._error: BaseException | None = None
        self.ended = threading.Event()

    def claim(self) -> bool:
        """Whether nobody else has: the change begins, or never will."""
        return self._turn.acquire(blocking=False)

    def run(self) -> None:
        """The thread's work."""
        try:
            self._found.append(self._work(self._begin))
        except BaseException as error:
            self._error = error
        self.ended.set()

    def _begin(self) -> None:
        if not self.claim():
            raise Abandoned

    def result(self) -> T:
        """What came of it."""
        if self._error is not None:
            raise self._error
        return self._found[0]


def _nothing() -> None:
    """Nobody can interrupt."""
