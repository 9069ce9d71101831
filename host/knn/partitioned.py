"""`PartitionedIndex`: the points of a sliding window in several partitions, searched as one (ADS-kNN, appendix C).

It has the calls of `PointIndex` and gives the same neighbours. It is the dispatcher: it cuts the tuples of a call into
tasks, has them run (`task_runner.py`), and after each interval asks the load balancer (`balance.py`) for a better map.
A map is replaced while no task is active:

- `instant`: all points move to their new home at once.
- `lazy`: no point moves. New points follow the new map. Until the last point of an old map has left the window, queries
  ask the cores that any of the maps names.
- `never`: the first map stays.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np

from millrace.host.base.faults import fault_point
from millrace.host.base.types import Array, Longs
from millrace.host.device.contract import Device
from millrace.host.knn.balance import better_map, interval_is_over, thinned
from millrace.host.knn.device import DevicePointIndex
from millrace.host.knn.index import Neighbours, PointIndex, PointQueries
from millrace.host.knn.join_core import Found, JoinCore, PointShape
from millrace.host.knn.mapper_joiner import Load, MapperJoiner, Search, Task
from millrace.host.knn.maps import MapKind, PartitionMap, build_map
from millrace.host.knn.run import Points
from millrace.host.knn.task_runner import TaskRunner
from millrace.host.runtime.critical import Begin, critical_section
from millrace.host.runtime.team import MIN_SHARED_ROWS, Team

Replace = Literal["instant", "lazy", "never"]
REPLACEMENTS: tuple[Replace, ...] = get_args(Replace)
TASK_ROWS = 1 << 13
"""Tuples of each stream in a task."""
MAX_MAPS = 4
"""Maps in use at once: while there are so many, no further one is added."""
COUNTERS = ("home", "neighbour", "moved", "maps")


@dataclass(frozen=True)
class Partitioning:
    """How a window is partitioned, and on how many threads; nothing in it changes the neighbours."""

    partitions: int = 1
    map: MapKind = "kdtree"
    replace: Replace = "instant"
    threads: int = 1

    def team(self, other: Team) -> Team:
        """The team for what is done outside of the partitions: one thread beside those of the plan."""
        return other if self.partitions == 1 else Team(1)


@dataclass(frozen=True)
class _MapVersion:
    """A map, and the end of the positions whose points were distributed by it (None: it is the newest)."""

    map: PartitionMap
    end: int | None = None


class PartitionedIndex:
    """The points of a window in partitions. A point with a NaN coordinate takes a position and is never found."""

    def __init__(self, how: Partitioning, shape: PointShape, start: int = 0) -> None:
        """An empty window whose first point has position `start`; the first query builds the first map."""
        self.how, self._shape = how, shape
        self._operators = [MapperJoiner(i, how.partitions, shape) for i in range(how.partitions)]
        self._runner = TaskRunner(self._operators)
        self._versions: list[_MapVersion] = []
        self._new: list[Points] = []
        """Points that no task has distributed yet."""
        self.first = self.end = self._distributed = start
        self._tasks = 0
        self._past_builds = np.zeros(2, np.int64)
        self._past_counts = dict.fromkeys(COUNTERS, 0)
        self._past_loads = np.zeros(how.partitions, np.int64)

    @property
    def map(self) -> PartitionMap | None:
        """The newest map."""
        return self._versions[0].map if self._versions else None

    @property
    def maps_in_use(self) -> int:
        """How many maps some visible point was distributed by."""
        return len(self._versions)

    @property
    def loads(self) -> Longs:
        """Insertions and searches of each partition so far."""
        now: Longs = np.array([one.load.total for one in self._operators], np.int64)
        return self._past_loads + now

    def counters(self) -> dict[str, int]:
        """Queries searched at home and as a neighbour, points moved, maps built; runs built, and of how many points."""
        loads = [one.load for one in self._operators]
        now = {"home": sum(load.home for load in loads), "neighbour": sum(load.neighbour for load in loads)}
        builds = self._past_builds + np.sum([one.core.builds for one in self._operators], axis=0)
        counts = {name: past + now.get(name, 0) for name, past in self._past_counts.items()}
        return {**counts, "builds": int(builds[0]), "built_points": int(builds[1])}

    def close(self) -> None:
        """Free what is not in the memory of this process: nothing."""

    def insert(self, columns: list[Array], groups: Longs | None = None, ties: Longs | None = None) -> None:
        """Append points; the next query distributes them."""
        positions = np.arange(self.end, self.end + len(columns[0]))
        given = Points(columns, positions, positions if ties is None else ties, groups)
        self._new.append(given.take(np.arange(len(given))))
        self.end += len(positions)

    def expire(self, keep: int) -> None:
        """Drop the points below position `keep`: cores drop theirs when no active task can ask for them."""
        self.first = max(self.first, min(keep, self.end))
        self._versions = [one for one in self._versions if one.end is None or one.end > self.first]

    def query(self, queries: PointQueries, k: int, limit: float = np.inf) -> Neighbours:
        """Return the k nearest points of each query whose squared distance is at most `limit`.

        In the main thread another thread runs all of it: an interrupt is raised when the tasks are done, and no lock of
        the task runner or of the thread pool is ever interrupted.
        """

        def uninterrupted(begin: Begin) -> Neighbours:
            begin()
            return self._query(queries, k, limit)

        return critical_section(uninterrupted)

    def _query(self, queries: PointQueries, k: int, limit: float) -> Neighbours:
        k = max(min(k, self.end - self.first), 1)
        found = Found.room(len(queries), k, self._shape.tied)
        if len(queries) and self.end > self.first:
            if not self._versions:
                self._versions = [_MapVersion(self._first_map(queries))]
                self._past_counts["maps"] += 1
            for tasks in self._waves(queries, k, limit, found):
                fault_point("knn.partition")
                rows = sum(len(one.rows) + len(one.points) for one in tasks)
                self._runner.run(tasks, self.how.threads if rows >= MIN_SHARED_ROWS else 1)
                self._end_interval()
        return Neighbours(found.counts, found.positions, found.squares)

    def _first_map(self, queries: PointQueries) -> PartitionMap:
        """A map of all points and queries so far, each of them one unit of load."""
        both = [queries.columns, *(points.columns for points in self._new)]
        sample = thinned([np.concatenate(columns) for columns in zip(*both, strict=True)])
        return build_map(self.how.map, sample, self.how.partitions)

    def _waves(self, queries: PointQueries, k: int, limit: float, found: Found) -> Iterator[list[Task]]:
        """The tuples of a call as tasks, 2n at a time; between two waves no task is active."""
        parts, size = list(self._parts(queries)), 2 * self.how.partitions
        for first in range(0, len(parts), size):
            search = Search(k, limit, tuple(one.map for one in self._versions), found)
            wave = []
            for points, rows in parts[first : first + size]:
                oldest = self.first
                if queries.begin is not None and len(rows):
                    oldest = max(int(queries.begin[rows[0]]), self.first)
                wave.append(Task(self._tasks, search, oldest, points, rows, queries.take(rows)))
                self._tasks += 1
                self._distributed += len(points)
            yield wave

    def _parts(self, queries: PointQueries) -> Iterator[tuple[Points, Longs]]:
        """Points and rows of queries for each task: a query comes after all points that it may see."""
        new = self._take_new()
        start = at = self._distributed = self.end - len(new)
        for first in range(0, len(queries), TASK_ROWS):
            rows = np.arange(first, min(first + TASK_ROWS, len(queries)))
            last = self.end if queries.end is None else min(int(queries.end[rows[-1]]), self.end)
            while last - at > TASK_ROWS:
                yield new.take(np.arange(at - start, at - start + TASK_ROWS)), rows[:0]
                at += TASK_ROWS
            last = max(last, at)
            yield new.take(np.arange(at - start, last - start)), rows
            at = last
        if at < self.end:
            self._new = [new.take(np.arange(at - start, self.end - start))]

    def _take_new(self) -> Points:
        """The points that are not distributed yet, without those that have expired."""
        new, self._new = _joined(self._new, self._shape), []
        expired = max(self.first - (self.end - len(new)), 0)
        return new.take(np.arange(expired, len(new)))

    def _end_interval(self) -> None:
        """If an interval is over, replace the map if the loads of the cores differ too much."""
        loads = [one.load for one in self._operators]
        if not interval_is_over(loads):
            return
        self._past_counts = {name: self.counters()[name] for name in COUNTERS}
        self._past_loads = self.loads
        for one in self._operators:
            one.load = Load()
        newest = self._versions[0].map
        if self.how.replace == "never" or len(self._versions) >= MAX_MAPS:
            return
        made = better_map(self.how.map, newest, loads)
        if made is None:
            return
        self._past_counts["maps"] += 1
        if self.how.replace == "lazy":
            self._versions = [_MapVersion(made), _MapVersion(newest, self._distributed), *self._versions[1:]]
        else:
            self._versions = [_MapVersion(made)]
            self._move(made)

    def _move(self, made: PartitionMap) -> None:
        """Give every core the points of its new region."""
        held = [one.core.held() for one in self._operators]
        points = _joined(held, self._shape)
        owners = np.repeat(np.arange(len(held)), [len(one) for one in held])
        homes = made.homes(points.columns, points.positions)
        self._past_counts["moved"] += int(np.count_nonzero(homes != owners))
        order = np.argsort(points.positions, kind="stable")
        for number, one in enumerate(self._operators):
            self._past_builds += one.core.builds
            one.core = JoinCore(self._shape)
            one.core.insert(points.take(order[homes[order] == number]))


def open_index(
    how: Partitioning, shape: PointShape, team: Team, start: int = 0, device: Device | None = None
) -> PointIndex | PartitionedIndex:
    """An index for a window; one partition needs no plan, and a device with memory of its own has one partition."""
    if device is not None and not device.shares_host_memory:
        return DevicePointIndex(device, shape.dims, team, start, shape.grouped, shape.tied)
    if how.partitions == 1:
        return PointIndex(shape.dims, team, start, shape.grouped, shape.tied)
    return PartitionedIndex(how, shape, start)


def _joined(parts: list[Points], shape: PointShape) -> Points:
    """Points one after the other."""
    nothing = np.empty(0, np.int64)
    columns = [np.concatenate([np.empty(0), *(one.columns[i] for one in parts)]) for i in range(shape.dims)]
    positions = np.concatenate([nothing, *(one.positions for one in parts)])
    ties = np.concatenate([nothing, *(one.ties for one in parts)]) if shape.tied else positions
    groups = [one.groups for one in parts if one.groups is not None]
    return Points(columns, positions, ties, np.concatenate([nothing, *groups]) if shape.grouped else None)
