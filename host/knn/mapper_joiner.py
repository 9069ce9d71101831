"""A mapper-joiner of ADS-kNN: one operator that maps tasks and joins its partition (thesis, appendix C 4.2, 5.4, 5.5).

It handles one message at a time and returns the messages that follow from it; who carries them is not its concern
(`task_runner.py` runs many on threads).

- `Task`: the mapper divides it into subtasks, one for every core, even if it is empty.
- `Subtask`: the core stores its points and searches for its queries. Where the distance of the last neighbour meets
  another region, it sends a request there, with that distance. Subtasks are handled in the order of their tasks.
- `Request`: the core searches for another core's queries. A request of a task whose subtask has not come yet waits.
- `Response`: the home core merges the answer; after the last one the subtask is done.

At most 2n tasks are active at once for n cores, so a core knows which points no request can ask for any more: those
that had left the window 2n tasks ago.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from millrace.host.base.types import Array, Longs
from millrace.host.knn.index import PointQueries
from millrace.host.knn.join_core import Found, JoinCore, PointShape
from millrace.host.knn.maps import PartitionMap
from millrace.host.knn.run import Points

SAMPLE_STEP = 4
"""Every so many tuples of each stream, one is kept to approximate the load."""


@dataclass(frozen=True)
class Search:
    """What tasks of a call share: neighbours wanted, the limit, the maps in use (the newest first), and the results."""

    k: int
    limit: float
    maps: tuple[PartitionMap, ...]
    found: Found


@dataclass(frozen=True)
class Task:
    """Consecutive tuples of both streams. `rows`: where the results go; `oldest`: the oldest position that is seen."""

    number: int
    search: Search
    oldest: int
    points: Points
    rows: Longs
    queries: PointQueries


@dataclass(frozen=True)
class Subtask:
    """The tuples of a task whose home is one core."""

    task: Task
    points: Points
    rows: Longs
    queries: PointQueries


@dataclass(frozen=True)
class Request:
    """Queries of a task that another core, `sender`, has searched for; their limits are in the queries."""

    task: Task
    sender: int
    rows: Longs
    queries: PointQueries


@dataclass(frozen=True)
class Response:
    """The neighbours that a request has found."""

    task: Task
    rows: Longs
    found: Found


@dataclass(frozen=True)
class Done:
    """A core has finished its subtask."""

    task: Task


Message = Task | Subtask | Request | Response | Done
RUNNER = -1
"""The receiver of `Done`."""
Sent = Iterator[tuple[int, Message]]


@dataclass
class Load:
    """What a core did in an interval, and a sample of the tuples that it did it for."""

    inserted: int = 0
    home: int = 0
    neighbour: int = 0
    sample: list[list[Array]] = field(default_factory=list)
    seen: int = 0

    @property
    def total(self) -> int:
        """Insertions and searches."""
        return self.inserted + self.home + self.neighbour

    def add_sample(self, columns: list[Array]) -> None:
        """Keep one of `SAMPLE_STEP` tuples."""
        count = len(columns[0])
        if count:
            self.sample.append([column[-self.seen % SAMPLE_STEP :: SAMPLE_STEP] for column in columns])
            self.seen += count


class MapperJoiner:
    """Maps tasks, and joins the partition `number` of `partitions`."""

    def __init__(self, number: int, partitions: int, shape: PointShape) -> None:
        """An empty partition that waits for task 0."""
        self.core = JoinCore(shape)
        self.load = Load()
        self._number, self._partitions = number, partitions
        self._next = 0
        self._early: dict[int, Subtask] = {}
        self._requests: list[Request] = []
        self._open: dict[int, int] = {}
        """For each unfinished subtask how many responses are missing."""
        self._oldest: deque[int] = deque(maxlen=2 * partitions)

    def handle(self, message: Message) -> Sent:
        """Do what a message asks for; yields the messages that follow from it, with their receivers."""
        match message:
            case Task():
                yield from self._divide(message)
            case Subtask():
                self._early[message.task.number] = message
                while self._next in self._early:
                    yield from self._join(self._early.pop(self._next))
                    yield from self._answer_waiting()
            case Request():
                self._requests.append(message)
                yield from self._answer_waiting()
            case Response():
                yield from self._aggregate(message)

    def _divide(self, task: Task) -> Sent:
        """The mapper: a subtask for every core."""
        current = task.search.maps[0]
        points = _by_home(current.homes(task.points.columns, task.points.positions), self._partitions)
        queries = _by_home(current.homes(task.queries.columns, task.rows), self._partitions)
        for to in range(self._partitions):
            mine = queries[to]
            yield to, Subtask(task, task.points.take(points[to]), task.rows[mine], task.queries.take(mine))

    def _join(self, subtask: Subtask) -> Sent:
        """Store the points, search for the queries, and ask the cores whose regions their neighbours may be in."""
        task, self._next = subtask.task, self._next + 1
        self._oldest.append(task.oldest)
        self.core.expire(self._oldest[0])
        if len(subtask.points):
            self.core.insert(subtask.points)
        requests = list(self._search(subtask)) if len(subtask.rows) else []
        self.load.inserted += len(subtask.points)
        self.load.home += len(subtask.rows)
        for columns in (subtask.points.columns, subtask.queries.columns):
            self.load.add_sample(columns)
        self._open[task.number] = len(requests)
        yield from requests or self._finish(task)

    def _search(self, subtask: Subtask) -> Iterator[tuple[int, Request]]:
        search, rows, queries = subtask.task.search, subtask.rows, subtask.queries
        search.found.merge(rows, self.core.search(queries, search.k, search.limit))
        limits = search.found.limits(rows, search.limit)
        asked, partitions = _crossings(search.maps, queries.columns, limits)
        for to in range(self._partitions):
            mine = asked[partitions == to]
            if to != self._number and len(mine):
                yield to, Request(subtask.task, self._number, rows[mine], queries.take(mine, limits[mine]))

    def _answer_waiting(self) -> Sent:
        """Answer the requests whose subtask is here; the others stay."""
        ready = [one for one in self._requests if one.task.number < self._next]
        self._requests = [one for one in self._requests if one.task.number >= self._next]
        for one in ready:
            self.load.neighbour += len(one.rows)
            found = self.core.search(one.queries, one.task.search.k, one.task.search.limit)
            yield one.sender, Response(one.task, one.rows, found)

    def _aggregate(self, response: Response) -> Sent:
        """Merge what another core has found."""
        task = response.task
        task.search.found.merge(response.rows, response.found)
        self._open[task.number] -= 1
        if self._open[task.number] == 0:
            yield from self._finish(task)

    def _finish(self, task: Task) -> Sent:
        del self._open[task.number]
        yield RUNNER, Done(task)


def _by_home(homes: Array, partitions: int) -> list[Longs]:
    """The rows of each home, in order; those without a home are in none."""
    order = np.argsort(homes, kind="stable")
    ends = homes[order].searchsorted(np.arange(partitions + 1))
    return [order[ends[i] : ends[i + 1]] for i in range(partitions)]


def _crossings(maps: tuple[PartitionMap, ...], columns: list[Array], squares: Array) -> tuple[Longs, Array]:
    """The pairs of a row and a partition that any map in use finds, each once."""
    if len(maps) == 1:
        return maps[0].crossings(columns, squares)
    pairs = [rows * one.partitions + found for one in maps for rows, found in [one.crossings(columns, squares)]]
    both = np.unique(np.concatenate(pairs))
    return both // maps[0].partitions, both % maps[0].partitions
