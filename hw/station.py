"""One engine on a board, and the thread that works on it: what all devices that one process opened on a card share.

Jobs are done in the order they were posted. While the engine works, what the next launch reads is sent (double
buffering). After a fault of the link the station is dead: the card is given back at once, every job is a
`DeviceFault`, and whoever opens the card next gets a new one. A forked child has no station of its parent's.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable
from typing import Any

from millrace.host.base.errors import DeviceFault
from millrace.hw import cards
from millrace.hw.driver import Engine
from millrace.hw.link import Link
from millrace.hw.pieces import Piece

BYTES_PER_ROW = 32
"""Of a scarce memory: word, id and sample (13 bytes), twice, since a merge writes another run, and some room around."""


class Job:
    """Work that a station does; `ahead` sends what it reads, and may be called before its turn."""

    def __init__(self, work: Callable[[], Any], ahead: Callable[[], None] | None = None) -> None:
        """Not begun."""
        self._work, self.ahead = work, ahead
        self._ended = threading.Event()
        self._result: Any = None
        self._error: BaseException | None = None

    def run(self) -> None:
        """Do it."""
        try:
            self._result = self._work()
        except BaseException as error:
            self._error = error
        self._ended.set()

    def fail(self, error: DeviceFault) -> None:
        """It will not be done."""
        self._error = error
        self._ended.set()

    def wait(self) -> Any:
        """What came of it."""
        self._ended.wait()
        if self._error is not None:
            raise self._error
        return self._result


class Station:
    """An engine that answers, and is the right one."""

    def __init__(self, name: str, link: Link, release: Callable[[], None]) -> None:
        """`release` gives the card back."""
        self.name, self.link, self._release = name, link, release
        self.engine = Engine(link)
        depth, word = self.engine.shape.index_depth, self.engine.word
        self.engine.use_scratch(link.alloc(depth * word.itemsize), depth)
        self.pieces = [Piece(link, word) for _ in range(2)] if link.streams else []
        self.most_rows = None if link.room is None else link.room // BYTES_PER_ROW
        self.users = 0
        self._jobs: deque[Job] = deque()
        self._bell = threading.Condition()
        self._ends = False
        link.meanwhile = self._look_ahead
        self._thread = threading.Thread(target=self._serve, name=f"millrace-{name}", daemon=True)
        self._thread.start()

    @property
    def alive(self) -> bool:
        """Whether its link is."""
        return not self._ends and self.link.alive

    def post(self, job: Job) -> None:
        """To be done in its turn."""
        with self._bell:
            if self._ends:
                raise DeviceFault(f"device {self.name!r} is closed; open it again")
            self._jobs.append(job)
            self._bell.notify_all()

    def do(self, work: Callable[[], Any]) -> Any:
        """Done in its turn; what came of it."""
        job = Job(work)
        self.post(job)
        return job.wait()

    def close(self) -> None:
        """End the thread and give the card back."""
        with self._bell:
            self._ends = True
            self._bell.notify_all()
        self._thread.join(self.link.seconds)
        self.link.close()
        self._release()

    def _serve(self) -> None:
        while True:
            with self._bell:
                self._bell.wait_for(lambda: self._jobs or self._ends)
                if not self._jobs:
                    return
                job = self._jobs.popleft()
            if self._ends:
                job.fail(DeviceFault(f"device {self.name!r} was closed"))
                continue
            job.run()
            if not self.link.alive:
                self._release()

    def _look_ahead(self) -> None:
        with self._bell:
            ahead = next((job.ahead for job in self._jobs if job.ahead is not None), None)
        if ahead is not None:
            ahead()


_stations: dict[tuple[int, str, str], Station] = {}
_turn = threading.Lock()


def _key(name: str) -> tuple[int, str, str]:
    """Cards are told apart by the folder they are written down in, too."""
    return os.getpid(), str(cards.folder()), name


def shared(name: str, opened: Callable[[], tuple[Link, Callable[[], None]]]) -> Station:
    """The station of a card in this process; `opened` connects where there is none that is alive."""
    key = _key(name)
    with _turn:
        station = _stations.get(key)
        if station is None or not station.alive:
            link, release = opened()
            try:
                station = Station(name, link, release)
            except BaseException:
                link.close()
                release()
                raise
            _stations[key] = station
        station.users += 1
        return station


def leave(station: Station) -> None:
    """A user less; the last one closes it."""
    key = _key(station.name)
    with _turn:
        station.users -= 1
        if station.users:
            return
        if _stations.get(key) is station:
            del _stations[key]
        station.close()
