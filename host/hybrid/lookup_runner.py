"""Lookups by host and device together: a tree, its inner segment on a device, and a plan, run through the pipeline.

`LookupRunner(engine, tree).lookup(queries)` gives positions in key order, -1 where the key is absent, the same for
every depth, bucket, D and R (thesis, appendix A, 5.4 and 5.5). `tune` finds a plan; from then on each run is looked at,
and when host and device have drifted from how they were, the plan is made anew, with queries of the next run.

A runner may be used from several threads: runs take turns, since each uses all of the host and of the device. A device
belongs to the process that opened it, and so does a runner: a forked child opens a device and makes a runner anew.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
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
"""Queries and their leaf lines to positions."""


MOST_PATIENCE = 8
"""How often the buckets that are looked at before a plan is mended may double."""


class WalkedTree(Tree, Protocol):
    """A tree that the host walks too."""

    def walk(self, queries: Array, depth: int, at: Numbers | None = None, start: int = 0) -> Numbers:
        """Node numbers in level `depth`, from nodes `at` of level `start`."""

    def leaf(self, queries: Array, leaves: Numbers) -> Positions:
        """Positions of queries whose leaf lines are known."""


@dataclass(frozen=True)
class Run:
    """What one run found, and how it went."""

    positions: Positions
    buckets: list[Bucket]
    split: Split
    depth: int
    device: str

    def traced(self, name: str = "") -> Traced:
        """This run for a trace."""
        return Traced(self.buckets, {**self.stats(), "device": self.device}, name)

    def speed(self) -> float:
        """Queries a second after the buckets that fill the pipeline and before those that drain it."""
        middle = self.buckets[self.depth : len(self.buckets) - self.depth]
        assert len(middle) > 1, "too few buckets to tell a speed by"
        ends = [bucket.spans[Stage.LEAVES][1] for bucket in middle]
        return sum(bucket.size for bucket in middle[1:]) / max(ends[-1] - ends[0], 1) * 1e9

    def stats(self) -> dict[str, Any]:
        """What was done, and the medians of the stages in nanoseconds."""
        told: dict[str, Any] = {
            "queries": len(self.positions),
            "buckets": len(self.buckets),
            "depth": self.depth,
            "D": self.split.D,
            "R": self.split.R,
        }
        if self.buckets:
            times = StageTimes.of(self.buckets).all()
            told |= {f"T{number}_ns": round(time) for number, time in enumerate(times)}
        return told


class LookupRunner:
    """Runs lookups of one tree on one device."""

    def __init__(
        self,
        engine: SearchEngine,
        tree: WalkedTree,
        plan: Plan | None = None,
        bucket: int = BUCKET,
        depth: int | None = None,
        clock: Clock = WALL,
    ) -> None:
        """Send the tree's inner nodes; by default the device walks all of them.

        `depth`: by default what the device can overlap, two buckets on it and, as in the paper, three once tuned.
        """
        self.engine, self.tree, self.levels = engine, tree, tree.levels
        self.plan = plan or Plan()
        balance.check_split(self.plan.split, self.levels)
        pipeline.cut(0, bucket)  # says no to what cannot be
        self.bucket, self._clock, self._deeper = bucket, clock, depth is None and engine.overlaps
        self.depth = pipeline.check_depth(depth or (DOUBLE_BUFFERED if engine.overlaps else PIPELINED))
        """Buckets in flight."""
        self.retuned = 0
        """How often the plan was made anew because of drift."""
        self.last: Run | None = None
        """The last run that ended well."""
        self._drift, self._is_adrift = Drift(balance.MEASURED_BUCKETS), False
        self._turn = threading.Lock()
        self._segment: Segment | None = engine.load(tree)

    def lookup(
        self, queries: Array, finish: Finish | None = None, trace_to: str | os.PathLike[str] | None = None
    ) -> Positions:
        """Positions of queries, words of the tree's type.

        `finish`: what is asked of the leaves, such as the tree's `lower` (default: `leaf`); `trace_to`: a file for a
        trace of the run.
        """
        with self._turn:
            if self._is_adrift and len(queries) >= balance.SAMPLED_BUCKETS * self.bucket:
                self.retuned += 1
                self._tune(queries)
            run = self._run(queries, self.plan.split, self.depth, finish)
            self.last = run
            full = [bucket for bucket in run.buckets if bucket.size == self.bucket]
            self._is_adrift = self._drift.drifted(self.plan, full)
        if trace_to is not None:
            trace.write(Path(trace_to), run.traced())
        return run.positions

    def tune(self, queries: Array) -> Plan:
        """Find the best plan for queries like these, and keep to it."""
        with self._turn:
            return self._tune(queries)

    def close(self) -> None:
        """Give the device's memory back; the runner must not be used again."""
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
        """The tree has changed, and this is its segment now; the old one is given back unless it is the same memory."""
        with self._turn:
            old, self._segment, self.levels = self._segment, segment, segment.levels
            if self.plan.split.levels > self.levels:
                self.plan = Plan(D=self.levels)
            if old is not None and old.buffers[0] is not segment.buffers[0]:
                with suppress(DeviceFault):  # the new one is there, and in force
                    self.engine.free(old)

    def sample(self, queries: Array, split: Split) -> StageTimes:
        """Stages that nothing disturbs, one bucket at a time; the first only warms up."""
        buckets = self._run(queries, split, pipeline.SEQUENTIAL).buckets
        return StageTimes.of(buckets[1:] or buckets)

    def measure(self, queries: Array, split: Split) -> Measured:
        """At full depth, with enough queries for a steady part."""
        run = self._run(queries, split, self.depth)
        return Measured(run.speed(), StageTimes.of(run.buckets))

    def _tune(self, queries: Array) -> Plan:
        # Each time it takes twice as many buckets to be sure: a machine that never settles is not tuned for ever.
        self._drift, self._is_adrift = Drift(balance.MEASURED_BUCKETS << min(self.retuned, MOST_PATIENCE)), False
        self.depth = LOAD_BALANCED if self._deeper else self.depth
        self.plan = balance.discover(self, queries)
        return self.plan

    def _run(self, queries: Array, split: Split, depth: int, finish: Finish | None = None) -> Run:
        segment = self.segment
        if queries.dtype != self.tree.word:
            raise ArgumentError(f"queries are {queries.dtype}; the tree's words are {self.tree.word}")
        balance.check_split(split, self.levels)
        if self.levels == split.D:
            depth = pipeline.SEQUENTIAL  # nothing goes to the device, so nothing overlaps
        buckets = pipeline.cut(len(queries), self.bucket)
        job = _Lookup(self, segment, np.ascontiguousarray(queries), split, finish or self.tree.leaf)
        pipeline.run(job, buckets, depth, self._clock)
        return Run(job.positions, buckets, split, depth, self.engine.device.name)


class _Lookup:
    """One run's job: which queries, cut how, to where."""

    def __init__(self, runner: LookupRunner, segment: Segment, queries: Array, split: Split, finish: Finish) -> None:
        self.device = runner.engine.device.name
        self.positions: Positions = np.empty(len(queries), np.int64)
        self.engine, self.segment, self.tree = runner.engine, segment, runner.tree
        self.queries, self.split, self.finish = queries, split, finish
        self.most = min(runner.bucket, len(queries))
        self.parts: dict[int, list[Part]] = {}
        self.found: dict[int, Numbers] = {}
        self.spare: list[Numbers] = []

    def walk(self, bucket: Bucket) -> None:
        """T0: the host's levels; all queries to level D, the first ones a level further."""
        queries, D = self.queries[bucket.part], self.split.D
        leaves = self.spare.pop() if self.spare else self.engine.staging(self.most, NUMBER)
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
        """T4: the leaf lines."""
        found = self.found.pop(bucket.number)
        self.positions[bucket.part] = self.finish(self.queries[bucket.part], found[: bucket.size])
        del self.parts[bucket.number]
        self.spare.append(found)


class _Lane:
    """The device's part of a lookup, on one lane of the engine."""

    def __init__(self, job: _Lookup) -> None:
        self._job = job
        self._lane: EngineLane | None = None
        self._sent: list[Numbers] = []

    def send(self, bucket: Bucket) -> None:
        """T1; what the host has walked to the leaves already stays here."""
        job, first = self._job, 0
        sent: list[Part] = []
        self._sent = []
        for part in job.parts[bucket.number]:
            places = job.found[bucket.number][first : first + len(part.queries)]
            first += len(part.queries)
            if part.depth == job.segment.levels:
                assert part.at is not None
                places[:] = part.at
            else:
                sent.append(part)
                self._sent.append(places)
        if sent and self._lane is None:
            self._lane = job.engine.lane(job.segment, job.most)
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
