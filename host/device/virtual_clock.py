"""A clock in virtual time, for tests. One thread runs at a time, and time advances when all threads wait.

Sleeping costs nothing and every run is the same, so the throughput of a pipeline on a device with fixed speeds can be
compared exactly with the prediction. Limit: only the thread that creates the clock and those started by it may use it.
A deadlock raises a `RuntimeError`.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import AbstractContextManager
from types import TracebackType

from millrace.host.runtime.clock import Monitor, Worker


class _Thread:
    """One thread of a clock: the condition that it waits for, and its deadline."""

    def __init__(self, clock: VirtualClock) -> None:
        """A thread that is ready to run."""
        self.clock = clock
        self.turn = threading.Semaphore(0)
        self.ready: Callable[[], bool] = lambda: True
        self.until: int | None = None
        self.ended = False

    def join(self) -> None:
        """Wait until the thread has ended."""
        self.clock.wait_for(lambda: self.ended)


class _Monitor:
    """A monitor without a lock, since only one thread runs at a time; the clock does the waiting."""

    def __init__(self, clock: VirtualClock) -> None:
        self._clock = clock

    def __enter__(self) -> bool:
        return True

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Nothing to unlock."""

    def wait_for(self, predicate: Callable[[], bool]) -> bool:
        """Let other threads run until the predicate is true."""
        self._clock.wait_for(predicate)
        return True

    def notify_all(self) -> None:
        """Nothing to do: the clock checks all predicates whenever a thread waits."""


class _Lock:
    """A lock that lets other threads of the clock run while one waits for it; a real lock would block the clock."""

    def __init__(self, clock: VirtualClock) -> None:
        """A free lock."""
        self._monitor = clock.monitor()
        self._taken = False

    def __enter__(self) -> None:
        """Wait for the lock and take it."""
        with self._monitor:
            self._monitor.wait_for(lambda: not self._taken)
            self._taken = True

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Free the lock."""
        with self._monitor:
            self._taken = False
            self._monitor.notify_all()


class VirtualClock:
    """Time that advances only when all threads wait."""

    def __init__(self) -> None:
        """Start at time 0 with the calling thread."""
        self._now = 0
        first = _Thread(self)
        self._threads = [first]
        self._by_ident = {threading.get_ident(): first}

    def now(self) -> int:
        """Return the virtual nanoseconds since the clock was created."""
        return self._now

    def sleep_until(self, when: int) -> None:
        """Return at that time."""
        if when > self._now:
            self.wait_for(lambda: self._now >= when, when)

    def start(self, work: Callable[[], None], name: str) -> Worker:
        """Start a real thread, which runs when the clock schedules it."""
        thread = _Thread(self)

        def run() -> None:
            self._by_ident[threading.get_ident()] = thread
            thread.turn.acquire()
            try:
                work()
            finally:
                thread.ended = True
                self._threads.remove(thread)
                self._run_next()

        self._threads.append(thread)
        threading.Thread(target=run, name=name, daemon=True).start()
        return thread

    def monitor(self) -> Monitor:
        """Return a monitor of this clock."""
        return _Monitor(self)

    def lock(self) -> AbstractContextManager[object]:
        """Return a lock of this clock."""
        return _Lock(self)

    def wait_for(self, ready: Callable[[], bool], until: int | None = None) -> None:
        """Let other threads run until the calling thread is ready or its deadline is reached."""
        me = self._by_ident[threading.get_ident()]
        me.ready, me.until = ready, until
        if self._run_next() is not me:
            me.turn.acquire()
        me.ready, me.until = lambda: True, None

    def _run_next(self) -> _Thread:
        """Schedule the first thread that is ready and return it; if none is ready, advance the time."""
        while True:
            for thread in self._threads:
                if thread.ready():
                    # A thread that schedules itself does not wait on its semaphore.
                    if self._by_ident.get(threading.get_ident()) is not thread:
                        thread.turn.release()
                    return thread
            times = [thread.until for thread in self._threads if thread.until is not None]
            if not times:
                raise RuntimeError("all threads of the virtual clock wait for each other")
            self._now = min(times)
