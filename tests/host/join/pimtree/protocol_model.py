"""A model of the parallel index-based join in plain Python: rings, queue, edge tuples, propagation, two-phase merges.

Threads are generators; what happens between two `yield`s is one atomic step, and a scheduler chooses who steps next. So
every interleaving of the protocol (PIM-Tree, section 4, with the corrections of its four holes) can occur. A mutant
leaves out one of the parts that the protocol needs; a test shows that the model then fails.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from random import Random
from typing import Literal

Mutant = Literal[
    "",
    "lost wake-up",
    "edge read late",
    "edge ignored",
    "late entry",
    "drain unlocked",
    "blocked merge skipped",
    "room not seen",
    "sleep unlooked",
    "place reused early",
]
Thread = Generator[str, None, None]
IDLE = "idle"
"""A thread that found nothing to do; it runs on only after an event."""


@dataclass
class Tuple:
    """A tuple with its saved window limits: positions `begin <= p < end` of the other side."""

    side: int
    key: int
    position: int = -1
    begin: int = 0
    end: int = 0
    partners: list[int] = field(default_factory=list)


@dataclass
class Task:
    """Consecutive tuples of the queue."""

    tuples: list[Tuple]
    updating: list[bool]
    """Per side, whether its tuples are inserted into the index: saved under the queue's lock."""
    edges: tuple[int, int]
    """The edges when it was taken: it scans no tuple before them."""
    completed: bool = False
    left: int = 0
    """Tuples whose results have left."""


@dataclass
class Config:
    """The parameters of a model: a band join of count windows."""

    arrivals: list[tuple[int, int]]
    windows: tuple[int, int] = (3, 3)
    width: int = 1
    task_rows: int = 2
    merge_limit: int = 2
    workers: int = 2
    in_room: int = 1000
    """Tuples that the input ring holds until their results have left."""
    out_room: int = 1000
    """Results that the output ring holds until they are read."""
    mutant: Mutant = ""


class Stuck(AssertionError):
    """All threads wait although there is work left."""


class Protocol:
    """The memory that threads share, and what they do."""

    def __init__(self, config: Config) -> None:
        self.config = config
        self.queue: list[Tuple] = []
        self.next = 0
        self.tasks: list[Task] = []
        self.head = 0
        self.output: list[Tuple] = []
        self.read = 0
        self.closed = False
        self.events = 0
        self.locks = {"queue": False, "propagation": False, "edge": False}
        self.entered = [0, 0]
        self.window: list[dict[int, int]] = [{}, {}]
        self.indexed: list[set[int]] = [set(), set()]
        self.edge = [0, 0]
        self.oldest = [0, 0]
        self.static: list[dict[int, int]] = [{}, {}]
        self.inserted: list[dict[int, int]] = [{}, {}]
        self.updating = [True, True]
        self.active = 0
        self.draining = False
        self.merging = False
        self.merges = 0

    # Locks

    def _lock(self, name: str) -> Thread:
        while self.locks[name]:
            yield f"wait for {name}"
        self.locks[name] = True
        yield f"lock {name}"

    def _unlock(self, name: str) -> None:
        assert self.locks[name]
        self.locks[name] = False

    def _try_lock(self, name: str) -> bool:
        if self.locks[name]:
            return False
        self.locks[name] = True
        return True

    # Threads

    def source(self) -> Thread:
        """Delivers the tuples one by one, then closes the queue."""
        for side, key in self.config.arrivals:
            while len(self.queue) - len(self.output) >= self.config.in_room:
                seen = self.events
                yield "look for room"
                while self.events == seen and len(self.queue) - len(self.output) >= self.config.in_room:
                    yield IDLE
            self.queue.append(Tuple(side, key))
            self.events += 1
            yield "arrive"
        self.closed = True
        self.events += 1
        yield "close"

    def reader(self) -> Thread:
        """Reads results; then it looks itself for results that waited for room."""
        while self.read < len(self.config.arrivals):
            seen = self.events
            yield "look for results"
            if self.read < len(self.output):
                self.read += 1
                yield "read"
                yield from self._propagate()
                continue
            while self.events == seen:
                yield IDLE

    def worker(self, max_tasks: int | None = None) -> Thread:
        """Takes tasks until the queue is closed and empty, or leaves after some tasks."""
        done = 0
        while max_tasks is None or done < max_tasks:
            seen = self.events
            task = yield from self._acquire()
            if task is None:
                if self.config.mutant == "sleep unlooked":
                    seen = self.events
                if self.closed and self.next == len(self.queue) and not self.merging:
                    return
                while self.events == seen:
                    yield IDLE
                continue
            yield from self._process(task)
            done += 1

    def _acquire(self) -> Generator[str, None, Task | None]:
        """Take a task under the queue's lock, or do a merge that is due; returns the task or None."""
        if self.config.mutant == "drain unlocked":
            while self.draining:
                yield "wait for the drain"
            yield "saw no drain"
        yield from self._lock("queue")
        if self.draining and self.config.mutant != "drain unlocked":
            self._unlock("queue")
            yield "wait for the drain"
            return (yield from self._acquire())
        due = [side for side in (0, 1) if len(self.inserted[side]) >= self.config.merge_limit]
        if due and not self.merging:
            self.merging = self.draining = True
            self._unlock("queue")
            yield "merge"
            yield from self._merge(due[0])
            return (yield from self._acquire())
        tuples = self.queue[self.next : self.next + self.config.task_rows]
        if not tuples:
            self._unlock("queue")
            yield "nothing"
            return None
        task = self._begin(tuples)
        self._unlock("queue")
        yield "acquired"
        return task

    def _begin(self, tuples: list[Tuple]) -> Task:
        self.next += len(tuples)
        self.active += 1
        for one in tuples:
            other = 1 - one.side
            one.position = self.entered[one.side]
            self.entered[one.side] += 1
            one.end = self.entered[other]
            one.begin = max(one.end - self.config.windows[other], 0)
            self.oldest[other] = one.begin
            if self.config.mutant != "late entry":
                self.window[one.side][one.position] = one.key
        task = Task(tuples, self.updating.copy(), (self.edge[0], self.edge[1]))
        self.tasks.append(task)
        return task

    def _process(self, task: Task) -> Thread:
        for one in task.tuples:
            yield from self._search(one)
            self.window[one.side][one.position] = one.key
            if task.updating[one.side]:
                yield from self._insert(one.side, one.position)
                yield from self._move_edge(one.side)
        task.completed = True
        yield "completed"
        yield from self._lock("queue")
        self.active -= 1
        self._unlock("queue")
        yield "inactive"
        yield from self._propagate()

    def _search(self, one: Tuple) -> Thread:
        other = 1 - one.side
        early = self.edge[other]
        yield "edge read"
        found = dict(self._matching(self.static[other], one))
        yield "static searched"
        found |= self._matching(self.inserted[other], one)
        yield "inserted searched"
        edge = self.edge[other] if self.config.mutant == "edge read late" else early
        limit = one.end if self.config.mutant == "edge ignored" else min(edge, one.end)
        partners = [p for p in found if p < limit]
        for p in range(max(edge, one.begin), one.end):
            key = self.window[other].get(p)
            if key is not None and abs(key - one.key) <= self.config.width:
                partners.append(p)
            yield "scanned"
        one.partners = sorted(partners)

    def _matching(self, entries: dict[int, int], one: Tuple) -> dict[int, int]:
        return {
            p: key for p, key in entries.items() if abs(key - one.key) <= self.config.width and one.begin <= p < one.end
        }

    def _insert(self, side: int, position: int) -> Thread:
        self.inserted[side][position] = self.window[side][position]
        yield "inserted"
        self.indexed[side].add(position)
        yield "marked"

    def _move_edge(self, side: int) -> Thread:
        """An edge that stays behind costs time, not results: whoever does not get the lock goes on."""
        if not self._try_lock("edge"):
            return
        yield "lock edge"
        while self.edge[side] in self.indexed[side]:
            self.edge[side] += 1
            yield "edge moved"
        self._unlock("edge")
        yield "unlock edge"

    def _head_ready(self) -> bool:
        return self.head < len(self.tasks) and self.tasks[self.head].completed

    def _has_room(self) -> bool:
        return len(self.output) - self.read < self.config.out_room

    def _propagate(self) -> Thread:
        while True:
            if not self._try_lock("propagation"):
                return
            yield "lock propagation"
            full = False
            while self._head_ready() and not full:
                task = self.tasks[self.head]
                for one in task.tuples[task.left :]:
                    full = not self._has_room()
                    yield "looked for room"
                    if full:
                        break
                    self.output.append(one)
                    task.left += 1
                    self.events += 1
                    yield "propagated"
                else:
                    self.head += 1
            yield "head not ready"
            edges = tuple(self.edge)
            yield "edges read"
            self._free(edges)
            self._unlock("propagation")
            yield "unlock propagation"
            # Another thread may have completed the head, or read, and failed to get the lock since the last look.
            if self.config.mutant == "lost wake-up" or not self._head_ready() or not self._has_room():
                return
            if full and self.config.mutant == "room not seen":
                return

    def _free(self, edges: tuple[int, ...]) -> None:
        """New tuples take the places, in the rings, of those that no task scans any more."""
        if self.head < len(self.tasks) and self.config.mutant != "place reused early":
            edges = self.tasks[self.head].edges
        for window, edge in zip(self.window, edges, strict=True):
            for position in [p for p in window if p < edge]:
                del window[position]

    def _merge(self, side: int) -> Thread:
        """Two phases; each begins when no task is active."""
        yield from self._drained()
        yield "drained"
        if self.config.mutant != "blocked merge skipped":
            self.updating[side] = False
        yield from self._resume()
        # All tuples that entered are indexed here, and nothing is inserted until the trees are swapped.
        oldest = self.oldest[side]
        merged = {p: key for p, key in self.static[side].items() if p >= oldest}
        yield "static merged"
        merged |= {p: key for p, key in self.inserted[side].items() if p >= oldest}
        yield "inserted merged"
        yield from self._lock("queue")
        self.draining = True
        self._unlock("queue")
        yield from self._drained()
        yield "drained"
        self.static[side], self.inserted[side] = merged, {}
        self.updating[side] = True
        pending = range(self.edge[side], self.entered[side])
        yield from self._resume()
        for position in pending:
            if position not in self.indexed[side]:
                yield from self._insert(side, position)
        yield from self._move_edge(side)
        self.merging = False
        self.merges += 1
        self.events += 1
        yield "merged"

    def _drained(self) -> Thread:
        while True:
            yield from self._lock("queue")
            active = self.active
            self._unlock("queue")
            if not active:
                return
            yield "drain"

    def _resume(self) -> Thread:
        yield from self._lock("queue")
        self.draining = False
        self._unlock("queue")
        yield "resume"


def run(config: Config, seed: int, leavers: int = 0) -> Protocol:
    """Run a model with a schedule drawn from a seed; raises `Stuck` if no thread can go on."""
    rng = Random(seed)
    protocol = Protocol(config)
    makers: list[Callable[[], Thread]] = [protocol.source, protocol.reader, *[protocol.worker] * config.workers]
    threads = [make() for make in makers] + [protocol.worker(rng.randrange(3)) for _ in range(leavers)]
    idle_at: dict[int, int] = {}
    ended: set[int] = set()
    chosen, burst = 0, 0
    for _ in range(200_000):
        ready = [i for i in range(len(threads)) if i not in ended and idle_at.get(i) != protocol.events]
        if not ready:
            break
        if burst == 0 or chosen not in ready:
            chosen, burst = rng.choice(ready), rng.choice((1, 1, 2, 5, 20))
        burst -= 1
        step = next(threads[chosen], None)
        if step is None:
            ended.add(chosen)
        elif step == IDLE:
            idle_at[chosen] = protocol.events
    else:
        raise Stuck("the threads go on for ever")
    return protocol


def expected(config: Config) -> list[list[int]]:
    """The partners of every tuple, by comparing everything."""
    seen: tuple[list[int], list[int]] = ([], [])
    found = []
    for side, key in config.arrivals:
        other = seen[1 - side]
        first = max(len(other) - config.windows[1 - side], 0)
        found.append([p for p in range(first, len(other)) if abs(other[p] - key) <= config.width])
        seen[side].append(key)
    return found


def check(config: Config, seed: int, leavers: int = 0) -> Protocol:
    """Run a model and compare: every tuple's partners, in order of arrival, none missing, none twice."""
    protocol = run(config, seed, leavers)
    wanted = expected(config)
    if len(protocol.output) != len(wanted):
        raise Stuck(f"{len(protocol.output)} of {len(wanted)} results came out")
    assert [one.partners for one in protocol.output] == wanted
    return protocol
