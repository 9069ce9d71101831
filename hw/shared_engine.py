"""A board's engine and its thread, shared by all devices that a process opens on one card.

The thread executes jobs in order. While the engine works, the thread sends the inputs of the next launch (double
buffering), and queues it in the engine if it is the very next job and the engine has room. After a fault of the link
the shared engine is unusable: the card is released at once, every job raises `DeviceFault`, and the next device that
opens the card gets a new shared engine. A forked child does not use the engine of its parent.

Interrupts: callers in the main thread use locks and queues of C alone, so that a signal handler that raises leaves none
of them taken. A job that was queued is executed, also if its caller does not wait for it any more. Engines are opened
and closed in a critical section (`runtime/critical.py`).
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from queue import Empty, SimpleQueue
from typing import Any

from millrace.host.base.errors import DeviceFault
from millrace.host.runtime.fork import ProcessLocal
from millrace.hw import cards
from millrace.hw.driver import Engine
from millrace.hw.link import Link
from millrace.hw.pieces import Piece

BYTES_PER_ROW = 32
"""Scarce memory per row: word, id and sample (13 bytes), twice, because a merge writes a second run, plus a margin."""


class EngineJob:
    """Work for the engine's thread; `ahead` sends its inputs, and may be called before the job's turn.

    `begin`, if given, queues the job in the engine and returns what `work` does otherwise; it may be called while the
    job before is in flight.
    """

    def __init__(
        self,
        work: Callable[[], Any],
        ahead: Callable[[], None] | None = None,
        begin: Callable[[], Callable[[], Any]] | None = None,
    ) -> None:
        """Not started."""
        self._work, self.ahead, self._begin = work, ahead, begin
        self._ended = threading.Lock()
        self._ended.acquire()
        self._result: Any = None
        self._error: BaseException | None = None

    def begin(self) -> None:
        """Queue the job in the engine before its turn, if it can be."""
        if self._begin is not None:
            begin, self._begin = self._begin, None
            try:
                self._work = begin()
            except DeviceFault as error:  # it is this job's, not that of the one that waits
                self._work = partial(_raise, error)

    def run(self) -> None:
        """Execute the work."""
        try:
            self._result = self._work()
        except BaseException as error:
            self._error = error
        self._ended.release()

    def fail(self, error: DeviceFault) -> None:
        """End the job with an error, without executing it."""
        self._error = error
        self._ended.release()

    def wait(self) -> Any:
        """Wait for the end; returns the result or raises the error."""
        with self._ended:
            pass
        if self._error is not None:
            raise self._error
        return self._result


def _raise(error: DeviceFault) -> None:
    raise error


class SharedEngine:
    """An engine whose identity was checked, and the thread that executes jobs on it."""

    def __init__(self, name: str, link: Link, release: Callable[[], None]) -> None:
        """`release` releases the card."""
        self.name, self.link, self._release = name, link, release
        self.engine = Engine(link, sums=True)
        depth, word = self.engine.shape.index_depth, self.engine.word
        self.engine.use_scratch(link.alloc(depth * word.itemsize), depth)
        self.pieces = [Piece(link, word) for _ in range(2)] if link.streams else []
        self.most_rows = None if link.free_bytes is None else link.free_bytes // BYTES_PER_ROW
        self.users = 0
        self._lock = threading.RLock()
        self._posted: SimpleQueue[EngineJob | None] = SimpleQueue()
        """Jobs, and None behind the last one."""
        self._waiting: deque[EngineJob | None] = deque()
        """What the thread has taken from `_posted` to look ahead."""
        self._closing = False
        link.meanwhile = self._look_ahead
        self._thread = threading.Thread(target=self._serve, name=f"millrace-{name}", daemon=True)
        self._thread.start()

    @property
    def alive(self) -> bool:
        """Whether it is usable."""
        return not self._closing and self.link.alive and self.engine.usable

    def post(self, job: EngineJob) -> None:
        """Queue a job."""
        with self._lock:
            if self._closing:
                raise DeviceFault(f"device {self.name!r} is closed; open it again")
            self._posted.put(job)

    def do(self, work: Callable[[], Any]) -> Any:
        """Queue work and wait for its result."""
        job = EngineJob(work)
        self.post(job)
        return job.wait()

    def close(self) -> None:
        """End the thread and release the card."""
        with self._lock:
            self._closing = True
            self._posted.put(None)
        self._thread.join(self.link.seconds)
        self.link.close()
        self._release()

    def _serve(self) -> None:
        while (job := self._waiting.popleft() if self._waiting else self._posted.get()) is not None:
            if self._closing:
                job.fail(DeviceFault(f"device {self.name!r} was closed"))
                continue
            job.run()
            if not self.link.alive or not self.engine.usable:
                self._release()

    def _look_ahead(self) -> None:
        with suppress(Empty):
            while True:
                self._waiting.append(self._posted.get_nowait())
        ahead = next((job.ahead for job in self._waiting if job is not None and job.ahead is not None), None)
        if ahead is not None:
            ahead()
        following = self._waiting[0] if self._waiting else None
        if following is not None and self.engine.can_begin:
            following.begin()


class _Engines:
    """The engines of a process, by folder and name of their card: cards of different folders are different."""

    def __init__(self) -> None:
        """No engine is open."""
        self.lock = threading.RLock()
        self.by_card: dict[tuple[str, str], SharedEngine] = {}


_engines = ProcessLocal(_Engines)


def acquire(name: str, connect: Callable[[], tuple[Link, Callable[[], None]]]) -> SharedEngine:
    """The shared engine of a card in this process; calls `connect` if there is no usable one.

    This and `release_engine` belong into a critical section.
    """
    key, engines = (str(cards.folder()), name), _engines.get()
    with engines.lock:
        engine = engines.by_card.get(key)
        if engine is None or not engine.alive:
            link, release = connect()
            try:
                engine = SharedEngine(name, link, release)
            except BaseException:
                link.close()
                release()
                raise
            engines.by_card[key] = engine
        engine.users += 1
        return engine


def release_engine(engine: SharedEngine) -> None:
    """Remove one user; the last one closes the engine."""
    key, engines = (str(cards.folder()), engine.name), _engines.get()
    with engines.lock:
        engine.users -= 1
        if engine.users:
            return
        if engines.by_card.get(key) is engine:
            del engines.by_card[key]
        engine.close()
