"""The host pipeline: queries go in buckets to a device and back, several buckets on their way at a time.

One mechanism with one number, its depth: how many buckets are in flight, from the beginning of T0 to the end of T4
(thesis, appendix A, 5.4 and 5.5). The calling thread does the host's part, T0 and T4, in the order of the buckets. At
most depth - 1 *lanes* do the device's part, T1 to T3: each is a thread with buffers of its own (and, where the device
has them, a command queue of its own), as are the paper's "GPU threads". So the paper's strategies are

    1  sequential        one bucket, one stage at a time
    2  pipelined         the next bucket is sent as soon as the last one's result is back; T4 beside T1 to T3
    3  double-buffered   two buckets on the device: T1 and T3 beside T2 as well
    4  load-balanced     three buckets on the device, so that the next search is submitted before one ends

The paper counts the buckets on the device; the one in the host's hands makes one more. Lanes end with the run: they
are threads that wait for a device, not for a core, so they are not taken from the pool, which has one thread per core.
Where there is nothing to overlap (depth 1, or one bucket) there is no lane and the caller does everything.

A run ends in one of three ways: all buckets are done; a bucket failed on the device, which is one `DeviceFault` that
names the bucket; or the host's part raised something, `KeyboardInterrupt` included, which goes on to the caller. In
each case lanes have stopped at the end of their stage and given back what they held.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from enum import IntEnum
from functools import partial
from typing import Protocol

from millrace.host.base.errors import ArgumentError, DeviceFault, MillraceError
from millrace.host.runtime.clock import WALL, Clock, Worker

SEQUENTIAL, PIPELINED, DOUBLE_BUFFERED, LOAD_BALANCED = 1, 2, 3, 4
STRATEGIES = {
    "sequential": SEQUENTIAL,
    "pipelined": PIPELINED,
    "double-buffered": DOUBLE_BUFFERED,
    "load-balanced": LOAD_BALANCED,
}
MOST_DEPTH = 16
"""More buckets in flight only make each wait longer."""
BUCKET = 1 << 14
"""Queries of a bucket: the paper's choice (6.2), large beside a launch's fixed cost and small beside a cache."""
MOST_BUCKET = 1 << 24


class Stage(IntEnum):
    """What is done to a bucket, in this order; the numbers are the paper's, T0 is the balancer's."""

    WALK = 0
    SEND = 1
    SEARCH = 2
    RECEIVE = 3
    LEAVES = 4


NOT_YET = (0, 0)


@dataclass
class Bucket:
    """Queries `first` to `first + size - 1`, and when each stage of theirs began and ended, in nanoseconds."""

    number: int
    first: int
    size: int
    lane: int = 0
    spans: list[tuple[int, int]] = field(default_factory=lambda: [NOT_YET] * len(Stage))
    received: bool = False

    @property
    def part(self) -> slice:
        """Its queries."""
        return slice(self.first, self.first + self.size)

    def took(self, stage: Stage) -> int:
        """Nanoseconds of a stage."""
        start, end = self.spans[stage]
        return end - start


class Lane(Protocol):
    """The device's part, for one bucket at a time."""

    def send(self, bucket: Bucket) -> None:
        """T1: the queries to the device."""

    def search(self, bucket: Bucket) -> int | None:
        """T2: search them; for how many nanoseconds the device worked, if it says so."""

    def receive(self, bucket: Bucket) -> None:
        """T3: the leaves back to the host."""

    def close(self) -> None:
        """Give everything back."""


class Job(Protocol):
    """What is done to buckets; the pipeline says when, and by whom."""

    device: str

    def open_lane(self, bucket: Bucket) -> Lane:
        """A lane, opened by the thread that uses it, for its first bucket."""

    def walk(self, bucket: Bucket) -> None:
        """T0: what the host does before."""

    def leaves(self, bucket: Bucket) -> None:
        """T4: what the host does after."""


def check_depth(depth: int) -> int:
    """A depth that can be, or an `ArgumentError`."""
    if not 1 <= depth <= MOST_DEPTH:
        known = ", ".join(f"{number} {name}" for name, number in STRATEGIES.items())
        raise ArgumentError(f"depth={depth}: from 1 to {MOST_DEPTH} buckets can be in flight ({known})")
    return depth


def lanes_of(depth: int) -> int:
    """How many buckets can be on the device at a time."""
    return max(depth - 1, 1)


def cut(size: int, bucket: int) -> list[Bucket]:
    """Buckets of `bucket` queries, the last one of what is left."""
    if not 1 <= bucket <= MOST_BUCKET:
        raise ArgumentError(f"bucket={bucket}: a bucket has from 1 to {MOST_BUCKET} queries")
    firsts = range(0, size, bucket)
    return [Bucket(number, first, min(bucket, size - first)) for number, first in enumerate(firsts)]


def run(job: Job, buckets: Sequence[Bucket], depth: int, clock: Clock = WALL) -> None:
    """Do all of the buckets, at most `depth` at a time."""
    _Run(job, len(buckets), check_depth(depth), clock).work(buckets)


class _Run:
    """One run: what the host and the lanes know of each other."""

    def __init__(self, job: Job, count: int, depth: int, clock: Clock) -> None:
        self._job, self._count, self._depth, self._clock = job, count, depth, clock
        self._changed = clock.monitor()
        self._ready: deque[Bucket] = deque()
        self._over = False
        self._errors: dict[int, BaseException] = {}

    def work(self, buckets: Sequence[Bucket]) -> None:
        lanes: list[Worker] = []
        try:
            if min(self._depth, self._count) < 2:
                self._one_by_one(buckets)
            else:
                for number in range(min(lanes_of(self._depth), self._count)):
                    lanes.append(self._clock.start(partial(self._lane, number), f"millrace-lane-{number}"))
                self._side_by_side(buckets)
        finally:
            with self._changed:
                self._over = True
                self._changed.notify_all()
            for lane in lanes:
                lane.join()
        self._check()

    def _one_by_one(self, buckets: Sequence[Bucket]) -> None:
        """Without lanes: the caller does the device's part too."""
        seat = _Seat(self._job, 0)
        try:
            for bucket in buckets:
                self._timed(bucket, Stage.WALK, self._job.walk)
                self._carry(seat, bucket)
                self._timed(bucket, Stage.LEAVES, self._job.leaves)
        except BaseException:
            with suppress(Exception):  # what went wrong first is what is told
                seat.close()
            raise
        self._leave(seat)

    def _side_by_side(self, buckets: Sequence[Bucket]) -> None:
        """The host's part: a bucket is begun when the one `depth` before it is done, and done in order."""
        flying: deque[Bucket] = deque()
        for bucket in buckets:
            if len(flying) == self._depth:
                self._finish(flying.popleft())
            self._timed(bucket, Stage.WALK, self._job.walk)
            with self._changed:
                self._ready.append(bucket)
                self._changed.notify_all()
            flying.append(bucket)
        while flying:
            self._finish(flying.popleft())

    def _finish(self, bucket: Bucket) -> None:
        """Wait until the device's part is done, and do what is left."""
        with self._changed:
            self._changed.wait_for(lambda: bucket.received or bool(self._errors))
            self._check()
        self._timed(bucket, Stage.LEAVES, self._job.leaves)

    def _lane(self, number: int) -> None:
        """The device's part, bucket by bucket, until there are no more or one has failed."""
        seat = _Seat(self._job, number)
        while (bucket := self._take()) is not None:
            try:
                self._carry(seat, bucket)
            except BaseException as error:  # whatever it is, the caller's thread must raise it
                self._fail(bucket.number, error)
                break
            with self._changed:
                bucket.received = True
                self._changed.notify_all()
        try:
            self._leave(seat)
        except BaseException as error:
            self._fail(self._count, error)

    def _take(self) -> Bucket | None:
        """The next bucket for a lane; nothing when the run is over."""
        with self._changed:
            self._changed.wait_for(lambda: self._over or bool(self._errors) or bool(self._ready))
            return None if self._over or self._errors else self._ready.popleft()

    def _carry(self, seat: _Seat, bucket: Bucket) -> None:
        """T1 to T3; a fault of the device says in which bucket it happened."""
        bucket.lane = seat.number
        try:
            lane = seat.open(bucket)
            self._timed(bucket, Stage.SEND, lane.send)
            if self._over:
                return
            began = self._clock.now()
            worked = lane.search(bucket)
            ended = self._clock.now()
            # A search waits for those that other lanes submitted before; the device says how long it really took.
            bucket.spans[Stage.SEARCH] = (began if worked is None else max(began, ended - worked), ended)
            if not self._over:
                self._timed(bucket, Stage.RECEIVE, lane.receive)
        except Exception as error:  # a device may raise anything; it is a fault of the device all the same
            raise DeviceFault(
                f"bucket {bucket.number} of {self._count} (queries {bucket.first} to {bucket.first + bucket.size - 1}) "
                f"failed on device {self._job.device!r}: {_told(error)}"
            ) from error

    def _leave(self, seat: _Seat) -> None:
        """Give back what a lane held."""
        try:
            seat.close()
        except Exception as error:
            raise DeviceFault(f"device {self._job.device!r} failed to take buffers back: {_told(error)}") from error

    def _timed(self, bucket: Bucket, stage: Stage, work: Callable[[Bucket], None]) -> None:
        began = self._clock.now()
        work(bucket)
        bucket.spans[stage] = (began, self._clock.now())

    def _fail(self, number: int, error: BaseException) -> None:
        with self._changed:
            self._errors[number] = error
            self._changed.notify_all()

    def _check(self) -> None:
        """Raise the error of the first bucket that failed, if one has."""
        if self._errors:
            raise self._errors[min(self._errors)]


class _Seat:
    """A lane's place: the lane is opened for the first bucket that sits there."""

    def __init__(self, job: Job, number: int) -> None:
        self.number = number
        self._job = job
        self._lane: Lane | None = None

    def open(self, bucket: Bucket) -> Lane:
        if self._lane is None:
            self._lane = self._job.open_lane(bucket)
        return self._lane

    def close(self) -> None:
        lane, self._lane = self._lane, None
        if lane is not None:
            lane.close()


def _told(error: Exception) -> str:
    """An error's own words; of which kind it is, where it is not one of ours."""
    return str(error) if isinstance(error, MillraceError) else f"{type(error).__name__}: {error}"
