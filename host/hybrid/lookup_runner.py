"""Lookups by host and device together: runs a tree, its inner segment on a device, and a plan through the pipeline.

`LookupRunner(engine, tree).lookup(queries)` returns positions in key order, -1 if the key is absent. The result is the
same for every depth, bucket, D and R (thesis, appendix A, 5.4 and 5.5). `tune` finds a plan. From then on each run is
monitored; if the balance of host and device has drifted, the next large enough lookup makes a new plan.

Several threads may use a runner: runs are serialized, since each uses the entire host and device. Limit: a device and
its runners belong to the process that opened it; a forked child must open a device and make a new runner.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from millrace.host.base.errors import ArgumentError, DeviceFault
from millrace.host.base.types import Array
from millrace.host.hybrid import balance, pipeline, trace
from millrace.host.hybrid.balance import Drift, Measured, Plan, Split, StageTimes
from millrace.host.hybrid.pipeline import BUCKET, DOUBLE_BUFFERED, LOAD_BALANCED, PIPELINED, Bucket, Stage
from millrace.host.hybrid.search_engine import NUMBER, EngineLane, Numbers, Part, SearchEngine, Segment, Tree
from millrace.host.hybrid.trace import Traced
from millrace.host.runtime.clock import WALL, Clock

Positions = npt.NDArray[np.int64]
Finish = Callable[[Array, Numbers], Positions]
"""Maps queries and their leaf lines to positions."""


MAX_DOUBLINGS = 8
"""Maximum number of times that the buckets needed to detect drift are doubled."""
MIN_TUNED_BUCKET, MAX_TUNED_BUCKET = 1 << 10, 1 << 17
"""The bucket sizes that `tune` may choose."""


class WalkedTree(Tree, Protocol):
    """A tree that the host can walk too."""

    def walk(self, queries: Array, depth: int, at: Numbers | None = None, start: int = 0) -> Numbers:
        """Node numbers in level `depth`, from nodes `at` of level `start`."""

    def leaf(self, queries: Array, leaves: Numbers) -> Positions:
        """Positions of queries whose leaf lines are known."""


@dataclass(frozen=True)
class LookupRun:
    """The positions and the timings of one run."""

    positions: Positions
    buckets: list[Bucket]
    split: Split
    depth: int
    device: str

    def traced(self, name: str = "") -> Traced:
        """This run as input of a trace."""
        return Traced(self.buckets, {**self.stats(), "device": self.device}, name)

    def speed(self) -> float:
        """Queries per second, without the buckets that fill and drain the pipeline."""
        middle = self.buckets[self.depth : len(self.buckets) - self.depth]
        assert len(middle) > 1, "too few buckets to measure a speed"
        ends = [bucket.spans[Stage.LEAVES][1] for bucket in middle]
        return sum(bucket.size for bucket in middle[1:]) / max(ends[-1] - ends[0], 1) * 1e9

    def stats(self) -> dict[str, Any]:
        """Sizes, depth and split of the run, and the median stage times in nanoseconds."""
        report: dict[str, Any] = {
            "queries": len(self.positions),
            "buckets": len(self.buckets),
            "depth": self.depth,
            "D": self.split.D,
            "R": self.split.R,
        }
        if self.buckets:
            times = StageTimes.of(self.buckets).all()
            report |= {f"T{number}_ns": round(time) for number, time in enumerate(times)}
        return report


class LookupRunner:
    """Runs lookups of one tree on one device."""

    def __init__(
        self,
        engine: SearchEngine,
        tree: WalkedTree,
        plan: Plan | None = None,
        bucket: int | None = None,
        depth: int | None = None,
        clock: Clock = WALL,
    ) -> None:
        """Send the tree's inner nodes to the device; by default it walks all levels.

        `bucket`: queries per bucket; by default the paper's, until `tune` has measured which size is the fastest.
        `depth`: by default two buckets on a device that overlaps them and, as in the paper, three once tuned.
        """
        self.engine, self.tree, self.levels = engine, tree, tree.levels
        self.plan = plan or Plan()
        balance.check_split(self.plan.split, self.levels)
        self.bucket, self._sizes = BUCKET if bucket is None else bucket, bucket is None
        pipeline.cut_buckets(0, self.bucket)  # raises if the bucket size is invalid
        self._clock, self._deeper = clock, depth is None and engine.overlaps
        self.depth = pipeline.check_depth(depth or (DOUBLE_BUFFERED if engine.overlaps else PIPELINED))
        """Buckets in flight."""
        self.retuned = 0
        """Number of new plans because of drift."""
        self.last: LookupRun | None = None
        """The last successful run."""
        self._drift, self._has_drifted = Drift(balance.MEASURED_BUCKETS), False
        self._turn = threading.Lock()
        self._segment: Segment | None = engine.load(tree)

    def lookup(
        self, queries: Array, finish: Finish | None = None, trace_to: str | os.PathLike[str] | None = None
    ) -> Positions:
        """Positions of queries, words of the tree's type.

        `finish`: the search in the leaf lines, such as the tree's `lower` (default: `leaf`); `trace_to`: a file for a
        trace of the run.
        """
        with self._turn:
            if self._has_drifted and len(queries) >= balance.SAMPLED_BUCKETS * self.bucket:
                self.retuned += 1
                self._tune(queries)
            run = self._run(queries, self.plan.split, self.depth, finish)
            self.last = run
            full = [bucket for bucket in run.buckets if bucket.size == self.bucket]
            self._has_drifted = self._drift.drifted(self.plan, full)
        if trace_to is not None:
            trace.write(Path(trace_to), run.traced())
        return run.positions

    def tune(self, queries: Array) -> Plan:
        """Find the best plan for queries like these, and use it from now on."""
        with self._turn:
            return self._tune(queries)

    def close(self) -> None:
        """Free the device's memory; the runner cannot be used any more."""
        with self._turn:
            segment, self._segment = self._segment, None
            if segment is not None:
                self.engine.free(segment)

    @property
    def segment(self) -> Segment:
        """The tree's inner nodes on the device."""
        if self._segment is None:
            raise ArgumentError("this runner is closed; make another one")
        return self._segment

    def exchange(self, segment: Segment) -> None:
        """Replace the segment after the tree changed; free the old one unless it is the same memory."""
        with self._turn:
            old, self._segment, self.levels = self._segment, segment, segment.levels
            if self.plan.split.levels > self.levels:
                self.plan = Plan(D=self.levels)
            if old is not None and old.buffers[0] is not segment.buffers[0]:
                with suppress(DeviceFault):  # the new segment is complete and in use
                    self.engine.free(old)

    def sample(self, queries: Array, split: Split) -> StageTimes:
        """Stage times without overlap, one bucket at a time; the first bucket is a warm-up."""
        buckets = self._run(queries, split, pipeline.SEQUENTIAL).buckets
        return StageTimes.of(buckets[1:] or buckets)

    def measure(self, queries: Array, split: Split) -> Measured:
        """Run at full depth; `queries` must be enough for a steady part."""
        run = self._run(queries, split, self.depth)
        return Measured(run.speed(), StageTimes.of(run.buckets))

    def _tune(self, queries: Array) -> Plan:
        # Each retuning needs twice as many buckets, so that an unstable machine is not tuned all the time.
        self._drift, self._has_drifted = Drift(balance.MEASURED_BUCKETS << min(self.retuned, MAX_DOUBLINGS)), False
        self.depth = LOAD_BALANCED if self._deeper else self.depth
        self.plan = balance.discover(self, queries)
        if self._sizes and self.levels > self.plan.D:
            self.plan = self._size_buckets(queries, self.plan)
        return self.plan

    def _size_buckets(self, queries: Array, plan: Plan) -> Plan:
        """Find the fastest bucket size at the plan's split, and use it from now on."""
        balances: dict[int, float | None] = {}

        def speed_of(bucket: int) -> float:
            self.bucket = bucket
            run = np.resize(queries, (balance.MEASURED_BUCKETS + 2 * self.depth) * bucket)
            measured = self.measure(run, plan.split)
            balances[bucket] = balance.balance_of(measured.times)
            return measured.speed

        first = self.bucket
        try:
            best, speed = balance.best_bucket(speed_of, first, MIN_TUNED_BUCKET, MAX_TUNED_BUCKET)
        except BaseException:
            self.bucket = first
            raise
        self.bucket = best
        return replace(plan, measured=speed, balance=balances[best], bucket=best)

    def _run(self, queries: Array, split: Split, depth: int, finish: Finish | None = None) -> LookupRun:
        segment = self.segment
        if queries.dtype != self.tree.word:
            raise ArgumentError(f"queries are {queries.dtype}; the tree's words are {self.tree.word}")
        balance.check_split(split, self.levels)
        if self.levels == split.D:
            depth = pipeline.SEQUENTIAL  # nothing is sent to the device, so nothing overlaps
        buckets = pipeline.cut_buckets(len(queries), self.bucket)
        job = _Lookup(self, segment, np.ascontiguousarray(queries), split, finish or self.tree.leaf)
        pipeline.run(job, buckets, depth, self._clock)
        return LookupRun(job.positions, buckets, split, depth, self.engine.device.name)


class _Lookup:
    """The job of one run: its queries, their split, and the results."""

    def __init__(self, runner: LookupRunner, segment: Segment, queries: Array, split: Split, finish: Finish) -> None:
        self.device = runner.engine.device.name
        self.positions: Positions = np.empty(len(queries), np.int64)
        self.engine, self.segment, self.tree = runner.engine, segment, runner.tree
        self.queries, self.split, self.finish = queries, split, finish
        self.largest = min(runner.bucket, len(queries))
        self.parts: dict[int, list[Part]] = {}
        self.found: dict[int, Numbers] = {}
        self.spare: list[Numbers] = []

    def walk(self, bucket: Bucket) -> None:
        """T0: walk all queries to level D, and the first ones a level further."""
        queries, D = self.queries[bucket.part], self.split.D
        leaves = self.spare.pop() if self.spare else self.engine.staging(self.largest, NUMBER)
        further = self.split.further(bucket.size)
        at = self.tree.walk(queries, D) if D else None
        parts = [Part(queries[further:], None if at is None else at[further:], D)]
        if further:
            nodes = self.tree.walk(queries[:further], D + 1, None if at is None else at[:further], D)
            parts.insert(0, Part(queries[:further], nodes, D + 1))
        self.parts[bucket.number] = [part for part in parts if len(part.queries)]
        self.found[bucket.number] = leaves

    def open_lane(self, bucket: Bucket) -> _Lane:
        return _Lane(self)

    def leaves(self, bucket: Bucket) -> None:
        """T4: search the leaf lines."""
        found = self.found.pop(bucket.number)
        self.positions[bucket.part] = self.finish(self.queries[bucket.part], found[: bucket.size])
        del self.parts[bucket.number]
        self.spare.append(found)


class _Lane:
    """The device stages of a lookup, on one lane of the engine."""

    def __init__(self, job: _Lookup) -> None:
        self._job = job
        self._lane: EngineLane | None = None
        self._sent: list[Numbers] = []

    def send(self, bucket: Bucket) -> None:
        """T1; queries that the host has walked to the leaves are not sent."""
        job, first = self._job, 0
        sent: list[Part] = []
        self._sent = []
        for part in job.parts[bucket.number]:
            found = job.found[bucket.number][first : first + len(part.queries)]
            first += len(part.queries)
            if part.depth == job.segment.levels:
                assert part.at is not None
                found[:] = part.at
            else:
                sent.append(part)
                self._sent.append(found)
        if sent and self._lane is None:
            self._lane = job.engine.lane(job.segment, job.largest)
        if self._lane is not None:
            self._lane.send(sent)

    def search(self, bucket: Bucket) -> int | None:
        """T2."""
        if self._lane is None:
            return 0
        self._lane.start()
        return self._lane.wait()

    def receive(self, bucket: Bucket) -> None:
        """T3."""
        if self._lane is not None:
            self._lane.receive(self._sent)

    def close(self) -> None:
        if self._lane is not None:
            self._lane.close()
