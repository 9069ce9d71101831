"""Load balancing between host and device: depth D and share R, the cost model, the discovery (thesis, app. A, 5.5).

As corrected in our list of errata: the host walks levels 0 to D - 1 for every query and level D for the share R of
each bucket; the device does the rest. D=0, R=0 puts all inner levels on the device; D=levels all on the host, and then
no bucket goes to the device at all. (D, 1) is (D + 1, 0).

*Model.* Equation 4 gives what a bucket costs host and device (`CostModel`; Equation 3 is its case R = 0). What the
pipeline makes of stages T0 to T4 is in `StageTimes.period`: the paper's T_S = T1 + T2 + T3 + T4 for depth 1 and
max(T2, T4) for double buffering, with all that bounds it in between.

*Discovery.* Algorithm 1 on measured samples: D by linear search until the host is the slower side, R by bisection, and
one step more, to where the lines through the two nearest samples cross. D stops at the tree's height, where printed
Algorithm 1 goes on. The device's side counts its transfers, because on a device behind a slow link those are what
must be balanced. A finer split costs a second launch, so the best sample need not be the last: the few that are
predicted best are run at full depth, and the fastest is taken.

*Drift.* `Drift` compares how long both sides worked in each run with how it was when the plan was made.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from millrace.host.base.errors import ArgumentError
from millrace.host.base.types import Array
from millrace.host.hybrid.pipeline import Bucket, Stage, lanes_of

BISECTIONS = 4
"""Steps 2 to 5 of Algorithm 1: R to one 32nd."""
EVEN = 0.01
"""Sides that differ by less are in balance."""
FINALISTS = 3
"""Splits that are run at full depth."""
MOST_CHANGE = 1.3
"""By which factor the balance may change before a plan is made anew."""
SAMPLED_BUCKETS = 6
"""Buckets of a sample; the first warms up."""
MEASURED_BUCKETS = 24
"""Buckets of a run at full depth, beside those that fill and drain the pipeline."""


@dataclass(frozen=True)
class Split:
    """Who does what: the host `D` levels, and one more for the share `R` of each bucket."""

    D: int = 0
    R: float = 0.0

    @property
    def levels(self) -> float:
        """Levels per query on the host."""
        return self.D + self.R

    def further(self, size: int) -> int:
        """How many of a bucket's queries the host takes one level further."""
        return round(self.R * size)


def check_split(split: Split, levels: int) -> Split:
    """A split that can be in a tree of so many inner levels, or an `ArgumentError`."""
    if not 0 <= split.D <= levels:
        raise ArgumentError(f"D={split.D}: the tree has {levels} inner levels, so D is from 0 to {levels}")
    if not 0 <= split.R <= 1 or (levels == split.D and split.R > 0):
        raise ArgumentError(f"R={split.R}: R is from 0 to 1, and 0 where D is the tree's height, {levels}")
    return split


@dataclass(frozen=True)
class StageTimes:
    """Nanoseconds of each stage of a bucket."""

    walk: float
    send: float
    search: float
    receive: float
    leaves: float

    @classmethod
    def of(cls, buckets: Sequence[Bucket]) -> StageTimes:
        """The medians over buckets: one that was disturbed does not count."""
        return cls(*(float(np.median([bucket.took(stage) for bucket in buckets])) for stage in Stage))

    def all(self) -> tuple[float, ...]:
        """T0 to T4."""
        return (self.walk, self.send, self.search, self.receive, self.leaves)

    @property
    def host(self) -> float:
        """The host's share of the work."""
        return self.walk + self.leaves

    @property
    def carried(self) -> float:
        """A bucket's way to the device, through it and back."""
        return self.send + self.search + self.receive

    def device(self, depth: int) -> float:
        """The device's share: what it needs per bucket when it never waits for the host, and lanes overlap."""
        return max(self.search, self.send, self.receive, self.carried / lanes_of(depth))

    def period(self, depth: int) -> float:
        """What a bucket takes in a long run.

        Each of these bounds it from below: the host, the device, its links, the lanes, and that a bucket is begun only
        when the one `depth` before it is done. The largest is reached, since stages are taken up in order: every cycle
        among the events of a run is one of these.
        """
        return max(self.host, self.device(depth), (self.host + self.carried) / depth)


class CostModel:
    """Equations 3 and 4 over whole buckets: what samples at R = 0 say of every R between.

    The paper's C_C,i is how much longer the host's walk takes with level i, its C_G,i how much shorter the device's
    search, its L_C the time of the leaves. What is sent and received changes with R in the same way: at D = levels
    nothing is. Not in it: that a bucket in two parts is two launches.
    """

    def __init__(self, times: Mapping[int, StageTimes], bucket: int) -> None:
        """`times`: samples at R = 0, by D; `bucket`: their queries."""
        self._times, self._bucket = times, bucket

    def times(self, split: Split) -> StageTimes:
        """The stages of a bucket; `split` lies between two depths that were sampled."""
        above = self._times[split.D]
        if split.R == 0:
            return above
        below, R = self._times[split.D + 1], split.R
        return StageTimes(*((1 - R) * a + R * b for a, b in zip(above.all(), below.all(), strict=True)))

    def cost(self, split: Split) -> float:
        """C of Equation 4 (with R = 0, Equation 3): nanoseconds per query of the slower side, transfers left out."""
        times = self.times(split)
        return max(times.host, times.search) / self._bucket

    def speed(self, split: Split, depth: int) -> float:
        """Queries a second through a pipeline, transfers and all."""
        return self._bucket / self.times(split).period(depth) * 1e9


@dataclass(frozen=True)
class Plan:
    """D and R, and queries a second at them: as the model has it and as it was measured (nothing if nobody tuned)."""

    D: int = 0
    R: float = 0.0
    predicted: float | None = None
    measured: float | None = None
    balance: float | None = field(default=None, compare=False)
    """How long the host worked for each second of the device's, in the run that was measured."""
    crossover: int | None = field(default=None, compare=False)
    """Updates of so many changes, or more, send all inner nodes at once; smaller ones send each node that changed."""

    @property
    def split(self) -> Split:
        """D and R alone."""
        return Split(self.D, self.R)

    def __repr__(self) -> str:
        """As a user wants to read it."""
        speeds = [("predicted", self.predicted), ("measured", self.measured)]
        told = [f"{name}={value / 1e6:.3g} M queries/s" for name, value in speeds if value is not None]
        told = told or ["not tuned"]
        told += [] if self.crossover is None else [f"updates asynchronous from {self.crossover:,} changes"]
        return f"Plan({', '.join([f'D={self.D}', f'R={self.R:.3g}', *told])})"


@dataclass(frozen=True)
class Measured:
    """A run at full depth: queries a second in its steady part, and how its stages were."""

    speed: float
    times: StageTimes


class Subject(Protocol):
    """What is tuned: runs sample queries at a split."""

    levels: int
    depth: int
    bucket: int

    def sample(self, queries: Array, split: Split) -> StageTimes:
        """Bucket by bucket, so that no stage is disturbed by another."""

    def measure(self, queries: Array, split: Split) -> Measured:
        """At full depth."""


def discover(subject: Subject, queries: Array) -> Plan:
    """The best D and R for queries like these."""
    if len(queries) == 0:
        raise ArgumentError("tuning needs queries to measure with; given none")
    samples = _Samples(subject, np.resize(queries, SAMPLED_BUCKETS * subject.bucket))
    samples.take(Split(subject.levels))
    _algorithm_1(samples)
    run = np.resize(queries, (MEASURED_BUCKETS + 2 * subject.depth) * subject.bucket)
    trials = [(split, subject.measure(run, split)) for split in samples.best(FINALISTS)]
    split, fastest = max(trials, key=lambda trial: trial[1].speed)
    predicted = samples.model().speed(split, subject.depth)
    return Plan(split.D, split.R, predicted, fastest.speed, balance_of(fastest.times))


class _Samples:
    """Samples by split."""

    def __init__(self, subject: Subject, queries: Array) -> None:
        self.levels, self.depth, self.bucket = subject.levels, subject.depth, subject.bucket
        self._subject, self._queries = subject, queries
        self._taken: dict[Split, StageTimes] = {}

    def take(self, split: Split) -> tuple[float, float]:
        """The paper's getSample: the time that device and host require for their share."""
        if split not in self._taken:
            self._taken[split] = self._subject.sample(self._queries, split)
        times = self._taken[split]
        return times.device(self.depth), times.host

    def best(self, count: int) -> list[Split]:
        """Those that must be fastest, the ones with more work on the device first where they are alike."""
        return sorted(self._taken, key=lambda split: (self._taken[split].period(self.depth), split.levels))[:count]

    def model(self) -> CostModel:
        """From what was sampled at R = 0."""
        return CostModel({split.D: times for split, times in self._taken.items() if split.R == 0}, self.bucket)


def _algorithm_1(samples: _Samples) -> None:
    """D by linear search, R by bisection; all that is sampled on the way is kept."""
    D = 0
    device, host = samples.take(Split(0))
    while device > host and samples.levels > D:
        D += 1
        device, host = samples.take(Split(D))
    if D == 0 or device > host:
        return  # one side is the slower one however the levels are split
    above = samples.take(Split(D - 1))
    gaps = {0.0: above[0] - above[1], 1.0: device - host}
    low, high = 0.0, 1.0
    for _ in range(BISECTIONS):
        R = (low + high) / 2
        device, host = samples.take(Split(D - 1, R))
        gaps[R] = device - host
        if abs(gaps[R]) < EVEN * host:
            return
        low, high = (R, high) if gaps[R] > 0 else (low, R)
    crossing = low + (high - low) * gaps[low] / (gaps[low] - gaps[high])
    samples.take(Split(D - 1, round(crossing * samples.bucket) / samples.bucket))  # whole queries


def balance_of(times: StageTimes) -> float | None:
    """How long the host works for each second of the device's; nothing where the device does not work."""
    return times.host / times.search if times.search > 0 else None


class Drift:
    """Notices when host and device are no longer as they were when a plan was made."""

    def __init__(self, least_buckets: int) -> None:
        """`least_buckets`: looked at before anything is said."""
        self._least = least_buckets
        self._buckets: list[Bucket] = []

    def drifted(self, plan: Plan, buckets: Sequence[Bucket]) -> bool:
        """Look at a run's buckets; whether the balance has drifted from the plan's."""
        if plan.balance is None:
            return False
        self._buckets = [*self._buckets, *buckets][-self._least :]
        if len(self._buckets) < self._least:
            return False
        recent = balance_of(StageTimes.of(self._buckets))
        return recent is None or not 1 / MOST_CHANGE <= recent / plan.balance <= MOST_CHANGE
