"""The host pipeline: sends buckets of queries to a device and receives the results, several buckets at a time.

Its one parameter is the depth: the number of buckets in flight, from the start of T0 to the end of T4 (thesis, appendix
A, 5.4 and 5.5). The calling thread runs the host stages, T0 and T4, in bucket order. At most depth - 1 *lanes* run the
device stages, T1 to T3. Like the paper's "GPU threads", each lane is a thread with its own buffers (and its own command
queue, if the device has several). So the paper's strategies are

    1  sequential        one bucket, one stage at a time
    2  pipelined         the next bucket is sent when the last result has arrived; T4 overlaps T1 to T3
    3  double-buffered   two buckets on the device: T1 and T3 overlap T2 as well
    4  load-balanced     three buckets on the device, so that the next search is submitted before one ends

The paper counts the buckets on the device; the bucket on the host is one more. Lanes end with the run. They wait for a
device, not for a core, so they are not taken from the thread pool, which has one thread per core. If nothing can
overlap (depth 1, or one bucket), there are no lanes and the caller runs all stages.

A run ends in one of three ways: all buckets are done; a bucket failed on the device, which raises one `DeviceFault`
with its number; or a host stage raised an exception, `KeyboardInterrupt` included, which is passed to the caller. In
each case the lanes stop at the end of their stage and free their buffers. Limit: at most `MAX_DEPTH` buckets in flight.
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
MAX_DEPTH = 16
"""With more buckets in flight, each only waits longer."""
BUCKET = 1 << 14
"""Queries per bucket: the paper's choice (6.2), large enough for the cost of a launch, small enough for a cache."""
MAX_BUCKET = 1 << 24


class Stage(IntEnum):
    """The stages of a bucket in this order; the numbers are the paper's, T0 belongs to load balancing."""

    WALK = 0
    SEND = 1
    SEARCH = 2
    RECEIVE = 3
    LEAVES = 4


NOT_YET = (0, 0)


@dataclass
class Bucket:
    """Queries `first` to `first + size - 1`, and the start and end of each stage in nanoseconds."""

    number: int
    first: int
    size: int
    lane: int = 0
    spans: list[tuple[int, int]] = field(default_factory=lambda: [NOT_YET] * len(Stage))
    received: bool = False

    @property
    def part(self) -> slice:
        """The slice of its queries."""
        return slice(self.first, self.first + self.size)

    def took(self, stage: Stage) -> int:
        """Nanoseconds of a stage."""
        start, end = self.spans[stage]
        return end - start


class Lane(Protocol):
    """The device stages, for one bucket at a time."""

    def send(self, bucket: Bucket) -> None:
        """T1: send the queries to the device."""

    def search(self, bucket: Bucket) -> int | None:
        """T2: search; return the device's working time in nanoseconds, if it reports it."""

    def receive(self, bucket: Bucket) -> None:
        """T3: receive the leaf lines."""

    def close(self) -> None:
        """Free all buffers."""


class BucketJob(Protocol):
    """The stages of a workload; the pipeline decides when, and on which thread, they run."""

    device: str

    def open_lane(self, bucket: Bucket) -> Lane:
        """Open a lane; called by the thread that uses it, at its first bucket."""

    def walk(self, bucket: Bucket) -> None:
        """T0: the host stage before the device."""

    def leaves(self, bucket: Bucket) -> None:
        """T4: the host stage after the device."""


def check_depth(depth: int) -> int:
    """Return the depth if it is valid, else raise `ArgumentError`."""
    if not 1 <= depth <= MAX_DEPTH:
        known = ", ".join(f"{number} {name}" for name, number in STRATEGIES.items())
        raise ArgumentError(f"depth={depth}: from 1 to {MAX_DEPTH} buckets can be in flight ({known})")
    return depth


def lanes_of(depth: int) -> int:
    """Maximum number of buckets on the device at a time."""
    return max(depth - 1, 1)


def cut_buckets(size: int, bucket: int) -> list[Bucket]:
    """Cut `size` queries into buckets of `bucket` queries; the last one may be smaller."""
    if not 1 <= bucket <= MAX_BUCKET:
        raise ArgumentError(f"bucket={bucket}: a bucket has from 1 to {MAX_BUCKET} queries")
    firsts = range(0, size, bucket)
    return [Bucket(number, first, min(bucket, size - first)) for number, first in enumerate(firsts)]


def run(job: BucketJob, buckets: Sequence[Bucket], depth: int, clock: Clock = WALL) -> None:
    """Run all buckets, at most `depth` at a time."""
    _PipelineRun(job, len(buckets), check_depth(depth), clock).work(buckets)


class _PipelineRun:
    """The state of one run that the host and the lanes share."""

    def __init__(self, job: BucketJob, count: int, depth: int, clock: Clock) -> None:
        self._job, self._count, self._depth, self._clock = job, count, depth, clock
        self._changed = clock.monitor()
        self._ready: deque[Bucket] = deque()
        self._ended = False
        self._errors: dict[int, BaseException] = {}

    def work(self, buckets: Sequence[Bucket]) -> None:
        lanes: list[Worker] = []
        try:
            if min(self._depth, self._count) < 2:
                self._run_sequentially(buckets)
            else:
                for number in range(min(lanes_of(self._depth), self._count)):
                    lanes.append(self._clock.start(partial(self._lane, number), f"millrace-lane-{number}"))
                self._run_overlapped(buckets)
        finally:
            with self._changed:
                self._ended = True
                self._changed.notify_all()
            for lane in lanes:
                lane.join()
        self._check()

    def _run_sequentially(self, buckets: Sequence[Bucket]) -> None:
        """Without lanes: the caller runs the device stages too."""
        slot = _LaneSlot(self._job, 0)
        try:
            for bucket in buckets:
                self._timed(bucket, Stage.WALK, self._job.walk)
                self._run_device_stages(slot, bucket)
                self._timed(bucket, Stage.LEAVES, self._job.leaves)
        except BaseException:
            with suppress(Exception):  # the first error is the one to raise
                slot.close()
            raise
        self._close(slot)

    def _run_overlapped(self, buckets: Sequence[Bucket]) -> None:
        """Run the host stages: a bucket starts when the one `depth` before it is done; buckets end in order."""
        in_flight: deque[Bucket] = deque()
        for bucket in buckets:
            if len(in_flight) == self._depth:
                self._finish(in_flight.popleft())
            self._timed(bucket, Stage.WALK, self._job.walk)
            with self._changed:
                self._ready.append(bucket)
                self._changed.notify_all()
            in_flight.append(bucket)
        while in_flight:
            self._finish(in_flight.popleft())

    def _finish(self, bucket: Bucket) -> None:
        """Wait for the device stages of a bucket, then run its last stage."""
        with self._changed:
            self._changed.wait_for(lambda: bucket.received or bool(self._errors))
            self._check()
        self._timed(bucket, Stage.LEAVES, self._job.leaves)

    def _lane(self, number: int) -> None:
        """Run the device stages, bucket by bucket, until there are no more or one has failed."""
        slot = _LaneSlot(self._job, number)
        while (bucket := self._next_bucket()) is not None:
            try:
                self._run_device_stages(slot, bucket)
            except BaseException as error:  # any error is raised by the caller's thread
                self._fail(bucket.number, error)
                break
            with self._changed:
                bucket.received = True
                self._changed.notify_all()
        try:
            self._close(slot)
        except BaseException as error:
            self._fail(self._count, error)

    def _next_bucket(self) -> Bucket | None:
        """The next bucket for a lane; None when the run has ended."""
        with self._changed:
            self._changed.wait_for(lambda: self._ended or bool(self._errors) or bool(self._ready))
            return None if self._ended or self._errors else self._ready.popleft()

    def _run_device_stages(self, slot: _LaneSlot, bucket: Bucket) -> None:
        """Run T1 to T3; a device fault names its bucket."""
        bucket.lane = slot.number
        try:
            lane = slot.open(bucket)
            self._timed(bucket, Stage.SEND, lane.send)
            if self._ended:
                return
            began = self._clock.now()
            worked = lane.search(bucket)
            ended = self._clock.now()
            # A search waits for those that other lanes submitted before; the device reports its own working time.
            bucket.spans[Stage.SEARCH] = (began if worked is None else max(began, ended - worked), ended)
            if not self._ended:
                self._timed(bucket, Stage.RECEIVE, lane.receive)
        except Exception as error:  # a device may raise any exception; all count as device faults
            raise DeviceFault(
                f"bucket {bucket.number} of {self._count} (queries {bucket.first} to {bucket.first + bucket.size - 1}) "
                f"failed on device {self._job.device!r}: {_describe(error)}"
            ) from error

    def _close(self, slot: _LaneSlot) -> None:
        """Close a lane and free its buffers."""
        try:
            slot.close()
        except Exception as error:
            raise DeviceFault(f"device {self._job.device!r} failed to free buffers: {_describe(error)}") from error

    def _timed(self, bucket: Bucket, stage: Stage, work: Callable[[Bucket], None]) -> None:
        began = self._clock.now()
        work(bucket)
        bucket.spans[stage] = (began, self._clock.now())

    def _fail(self, number: int, error: BaseException) -> None:
        with self._changed:
            self._errors[number] = error
            self._changed.notify_all()

    def _check(self) -> None:
        """Raise the error of the first failed bucket, if any."""
        if self._errors:
            raise self._errors[min(self._errors)]


class _LaneSlot:
    """Holds a lane, which is opened for its first bucket."""

    def __init__(self, job: BucketJob, number: int) -> None:
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


def _describe(error: Exception) -> str:
    """The text of an error, with its type unless it is a `MillraceError`."""
    return str(error) if isinstance(error, MillraceError) else f"{type(error).__name__}: {error}"
