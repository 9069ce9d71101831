"""A stand-in clock for tests: virtual time. Threads take turns, one at a time, and time passes when all of them wait.

Sleeping costs nothing and a run is the same each time, so what a pipeline makes of a device with set speeds can be
compared exactly with what is predicted. The thread that makes the clock and those started by it belong to it; no other
may use it. Threads that wait for each other in a circle are found out: that is a `RuntimeError`.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import AbstractContextManager
from types import TracebackType

from millrace.host.runtime.clock import Monitor, Worker


class _Thread:
    """One thread of a clock: what it waits for, and until when at the latest."""

    def __init__(self, clock: VirtualClock) -> None:
        """Ready to go."""
        self.clock = clock
        self.turn = threading.Semaphore(0)
        self.ready: Callable[[], bool] = lambda: True
        self.until: int | None = None
        self.ended = False

    def join(self) -> None:
        """Wait until it has ended."""
        self.clock.wait_for(lambda: self.ended)


class _Monitor:
    """Only one thread runs at a time, so there is nothing to lock; waiting is the clock's business."""

    def __init__(self, clock: VirtualClock) -> None:
        self._clock = clock

    def __enter__(self) -> bool:
        return True

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Nothing was locked."""

    def wait_for(self, predicate: Callable[[], bool]) -> bool:
        """The others' turn until the predicate is true."""
        self._clock.wait_for(predicate)
        return True

    def notify_all(self) -> None:
        """Predicates are looked at whenever a thread waits."""


class _Lock:
    """A thread that waits for it lets the others go on, as one that waits for a real lock would not."""

    def __init__(self, clock: VirtualClock) -> None:
        """Free."""
        self._monitor = clock.monitor()
        self._taken = False

    def __enter__(self) -> None:
        """Wait for one's turn."""
        with self._monitor:
            self._monitor.wait_for(lambda: not self._taken)
            self._taken = True

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """The next one's turn."""
        with self._monitor:
            self._taken = False
            self._monitor.notify_all()


class VirtualClock:
    """Time that passes only when all threads wait for it."""

    def __init__(self) -> None:
        """Midnight; the calling thread is the first."""
        self._now = 0
        first = _Thread(self)
        self._threads = [first]
        self._by_ident = {threading.get_ident(): first}

    def now(self) -> int:
        """Virtual nanoseconds since the clock was made."""
        return self._now

    def sleep_until(self, when: int) -> None:
        """Return when it is that time."""
        if when > self._now:
            self.wait_for(lambda: self._now >= when, when)

    def start(self, work: Callable[[], None], name: str) -> Worker:
        """A real thread, which runs when it is its turn."""
        thread = _Thread(self)

        def run() -> None:
            self._by_ident[threading.get_ident()] = thread
            thread.turn.acquire()
            try:
                work()
            finally:
                thread.ended = True
                self._threads.remove(thread)
                self._pass_on()

        self._threads.append(thread)
        threading.Thread(target=run, name=name, daemon=True).start()
        return thread

    def monitor(self) -> Monitor:
        """A monitor that locks nothing."""
        return _Monitor(self)

    def lock(self) -> AbstractContextManager[object]:
        """A lock by turns."""
        return _Lock(self)

    def wait_for(self, ready: Callable[[], bool], until: int | None = None) -> None:
        """Let the others go on until the calling thread is ready, or it is time."""
        me = self._by_ident[threading.get_ident()]
        me.ready, me.until = ready, until
        if self._pass_on() is not me:
            me.turn.acquire()
        me.ready, me.until = lambda: True, None

    def _pass_on(self) -> _Thread:
        """The first thread that can go on does; where none can, time passes."""
        while True:
            for thread in self._threads:
                if thread.ready():
                    # A thread that passes on to itself does not wait for its turn.
                    if self._by_ident.get(threading.get_ident()) is not thread:
                        thread.turn.release()
                    return thread
            times = [thread.until for thread in self._threads if thread.until is not None]
            if not times:
                raise RuntimeError("all threads of the virtual clock wait for each other")
            self._now = min(times)
