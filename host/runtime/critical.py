"""Runs a critical section that a signal cannot interrupt: it runs completely or not at all.

Python runs signal handlers in the main thread only. So another thread runs the section, and the main thread waits, in a
call of C that no signal ends. The section calls `begin` after its preparations: an earlier interrupt is raised at once,
and nothing is changed; a later one is raised after the section has ended. No interrupt is lost. Threads other than the
main one receive no signals and run the section themselves; so does the main thread if no thread can be started.
Limits: only code inside the section is safe, so it must take the locks that it needs itself; and after `begin` an
interrupt waits for the end, however long that takes.
"""

from __future__ import annotations

import _thread
import ctypes
import sys
import threading
from collections.abc import Callable
from functools import partial
from importlib import import_module
from types import ModuleType
from typing import Any, Generic, TypeVar

from millrace.host.base.errors import StateError

T = TypeVar("T")
# The interpreter's own locks, taken without the GIL. Unlike `threading.Lock.acquire`, this wait runs no handlers.
_wait = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_int)(("PyThread_acquire_lock", ctypes.pythonapi))
_allocate: Any = ctypes.pythonapi.PyThread_allocate_lock
_allocate.restype = ctypes.c_void_p
_release: Any = ctypes.pythonapi.PyThread_release_lock
_free: Any = ctypes.pythonapi.PyThread_free_lock
_release.argtypes = _free.argtypes = [ctypes.c_void_p]
_release.restype = _free.restype = None


class Abandoned(Exception):
    """Raised by `begin` if the caller was interrupted before; it never leaves the thread of the section."""


Begin = Callable[[], None]
"""To be called once, right before the first change."""


def critical_section(work: Callable[[Begin], T]) -> T:
    """Run `work`, which calls `begin` before its first change; an interrupt is raised before that or at the end."""
    if threading.get_ident() != threading.main_thread().ident or sys.is_finalizing():
        return work(_no_interrupt)  # at the end of the interpreter a thread can be started, but never runs
    section = _CriticalSection(work)
    interrupt: BaseException | None = None
    try:
        _thread.start_new_thread(section.run, ())
        section.begun_or_ended.acquire()
    except BaseException as error:
        # Python handles signals after calls and at jumps backward. So none comes between the next lines.
        if not section.begun:
            section.abandoned = True
            own = error.__traceback__ is not None and error.__traceback__.tb_next is None  # else a handler raised it
            if not (own and isinstance(error, RuntimeError)):
                raise
        interrupt = error
    if section.abandoned:  # no thread can be started, as at the end of the interpreter
        return work(_no_interrupt)
    _wait(section.ended, 1)
    _free(section.ended)  # not by `__del__`, where an interrupt would be lost; after an interrupt the lock is left
    if interrupt is not None:
        raise interrupt
    return section.result()


def uninterrupted(work: Callable[[], T]) -> T:
    """Run all of `work`; an interrupt that comes meanwhile is raised at its end, and the result is dropped then."""

    def section(begin: Begin) -> T:
        begin()
        return work()

    return critical_section(section)


def check_imports() -> None:
    """Raise a `StateError` if modules cannot be imported any more: in `__del__` of what lives until the very end."""
    if sys.meta_path is None:
        raise StateError(
            "the interpreter has ended and nothing can be loaded any more: make this call earlier, as in a handler of "
            "atexit, not in __del__ of an object that lives until the end"
        )


def load_module(name: str) -> ModuleType:
    """Import a module. An interrupt cannot leave it half imported: some packages cannot be imported again then."""
    known = sys.modules.get(name)
    if known is not None and not getattr(known.__spec__, "_initializing", False):
        return known
    check_imports()
    return uninterrupted(partial(import_module, name))


class _CriticalSection(Generic[T]):
    """One section that runs in another thread."""

    def __init__(self, work: Callable[[Begin], T]) -> None:
        """A section that is not started yet."""
        self._work = work
        self._result: list[T] = []
        self._error: BaseException | None = None
        self.begun = self.abandoned = False
        self.begun_or_ended = threading.Lock()
        self.begun_or_ended.acquire()
        self.ended = _allocate()
        _wait(self.ended, 1)

    def run(self) -> None:
        """Run the section; the target of the thread."""
        try:
            self._result.append(self._work(self._begin))
        except BaseException as error:
            self._error = error
        if not self.begun:
            self.begun_or_ended.release()
        _release(self.ended)

    def _begin(self) -> None:
        # One step: only calls and jumps backward let another thread go on.
        if self.abandoned:
            raise Abandoned
        self.begun = True
        self.begun_or_ended.release()

    def result(self) -> T:
        """Return the result of the section, or raise its error."""
        if self._error is not None:
            raise self._error
        return self._result[0]


def _no_interrupt() -> None:
    """The `begin` of a section that no interrupt can abandon."""
