"""Load balancing between host and device: depth D and share R, cost model, discovery, drift (thesis, app. A, 5.5).

As corrected in our list of errata: the host walks levels 0 to D - 1 for every query and level D for the share R of
each bucket; the device walks the other inner levels. D=0, R=0 puts all inner levels on the device. D=levels puts all on
the host, and then no bucket is sent to the device. (D, 1) is the same as (D + 1, 0).

*Model.* Equation 4 gives the cost of a bucket on host and device (`CostModel`; Equation 3 is the case R = 0).
`StageTimes.period` gives the time per bucket in the pipeline: the paper's T_S = T1 + T2 + T3 + T4 for depth 1,
max(T2, T4) for double buffering, and all bounds in between.

*Discovery.* Algorithm 1 on measured samples: linear search for the first D at which the host is slower, bisection for
R, and one more step to the crossing of the lines through the two nearest samples. D stops at the tree's height; the
printed Algorithm 1 does not stop there. The device's time includes its transfers, because behind a slow link these must
be balanced. A finer split costs a second launch, so the last sample need not be the best: the splits with the best
predictions are run at full depth, and the fastest is used.

*Drift.* `Drift` compares the working times of both sides in each run with those measured for the plan.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from millrace.host.base.errors import ArgumentError
from millrace.host.base.types import Array
from millrace.host.hybrid.pipeline import Bucket, Stage, lanes_of

BISECTIONS = 4
"""Steps 2 to 5 of Algorithm 1: R to one 32nd."""
EVEN = 0.01
"""Host and device times that differ by less are balanced."""
FINALISTS = 3
"""Number of splits that are run at full depth."""
MAX_CHANGE = 1.3
"""Factor by which the balance may change before a new plan is made."""
MIN_GAIN = 1.05
"""A bucket size is preferred to another only if it is this much faster."""
SAMPLED_BUCKETS = 6
"""Buckets of a sample; the first is a warm-up."""
MEASURED_BUCKETS = 24
"""Buckets of a run at full depth, in addition to those that fill and drain the pipeline."""


@dataclass(frozen=True)
class Split:
    """The host walks `D` levels, and one more for the share `R` of each bucket."""

    D: int = 0
    R: float = 0.0

    @property
    def levels(self) -> float:
        """Average number of levels per query on the host."""
        return self.D + self.R

    def further(self, size: int) -> int:
        """Number of a bucket's queries that the host walks one level further."""
        return round(self.R * size)


def check_split(split: Split, levels: int) -> Split:
    """Return the split if it is valid for a tree with `levels` inner levels, else raise `ArgumentError`."""
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
        """The medians over buckets, so that outliers do not count."""
        return cls(*(float(np.median([bucket.took(stage) for bucket in buckets])) for stage in Stage))

    def all(self) -> tuple[float, ...]:
        """T0 to T4."""
        return (self.walk, self.send, self.search, self.receive, self.leaves)

    @property
    def host(self) -> float:
        """The host's time per bucket."""
        return self.walk + self.leaves

    @property
    def carried(self) -> float:
        """Time of a bucket on the device, transfers included."""
        return self.send + self.search + self.receive

    def device(self, depth: int) -> float:
        """The device's time per bucket if it never waits for the host and lanes overlap."""
        return max(self.search, self.send, self.receive, self.carried / lanes_of(depth))

    def period(self, depth: int) -> float:
        """Time per bucket in a long run.

        Each of these is a lower bound: the host, the device, its links, the lanes, and the rule that a bucket starts
        only when the one `depth` before it is done. The largest one is met exactly, because stages run in order: each
        cycle among the events of a run is one of these.
        """
        return max(self.host, self.device(depth), (self.host + self.carried) / depth)


class CostModel:
    """Equations 3 and 4 per bucket: interpolates between samples at R = 0 to any R.

    In the paper, C_C,i is the additional time of the host's walk for level i, C_G,i the time that the device's search
    saves, and L_C the time of the leaves. Transfer times change with R in the same way: at D = levels there are none.
    Not in the model: a bucket in two parts needs two launches.
    """

    def __init__(self, times: Mapping[int, StageTimes], bucket: int) -> None:
        """`times`: samples at R = 0, by D; `bucket`: queries per bucket."""
        self._times, self._bucket = times, bucket

    def times(self, split: Split) -> StageTimes:
        """The stage times of a bucket; `split` is between two sampled depths."""
        above = self._times[split.D]
        if split.R == 0:
            return above
        below, R = self._times[split.D + 1], split.R
        return StageTimes(*((1 - R) * a + R * b for a, b in zip(above.all(), below.all(), strict=True)))

    def cost(self, split: Split) -> float:
        """C of Equation 4 (with R = 0, Equation 3): nanoseconds per query of the slower side, without transfers."""
        times = self.times(split)
        return max(times.host, times.search) / self._bucket

    def speed(self, split: Split, depth: int) -> float:
        """Queries per second of a pipeline, transfers included."""
        return self._bucket / self.times(split).period(depth) * 1e9


@dataclass(frozen=True)
class Plan:
    """D and R, and their predicted and measured speed in queries per second (None if not tuned)."""

    D: int = 0
    R: float = 0.0
    predicted: float | None = None
    measured: float | None = None
    balance: float | None = field(default=None, compare=False)
    """Host time / device time in the measured run."""
    bucket: int | None = field(default=None, compare=False)
    """Queries per bucket that were measured as the fastest, if `tune` was free to choose."""
    crossover: int | None = field(default=None, compare=False)
    """Updates of this many changes or more send all inner nodes at once; smaller ones send each changed node."""

    @property
    def split(self) -> Split:
        """D and R only."""
        return Split(self.D, self.R)

    def __repr__(self) -> str:
        """D, R, the speeds and the crossover, for users."""
        speeds = [("predicted", self.predicted), ("measured", self.measured)]
        parts = [f"{name}={value / 1e6:.3g} M queries/s" for name, value in speeds if value is not None]
        parts = parts or ["not tuned"]
        parts += [] if self.bucket is None else [f"buckets of {self.bucket:,}"]
        parts += [] if self.crossover is None else [f"updates asynchronous from {self.crossover:,} changes"]
        return f"Plan({', '.join([f'D={self.D}', f'R={self.R:.3g}', *parts])})"


@dataclass(frozen=True)
class Measured:
    """A run at full depth: queries per second in its steady part, and its stage times."""

    speed: float
    times: StageTimes


class Subject(Protocol):
    """The object to tune: it runs sample queries at a split."""

    levels: int
    depth: int
    bucket: int

    def sample(self, queries: Array, split: Split) -> StageTimes:
        """Run one bucket at a time, so that stages do not affect each other."""

    def measure(self, queries: Array, split: Split) -> Measured:
        """Run at full depth."""


def discover(subject: Subject, queries: Array) -> Plan:
    """Find the best D and R for queries like these."""
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


def best_bucket(speed_of: Callable[[int], float], first: int, smallest: int, largest: int) -> tuple[int, float]:
    """The bucket size with the highest speed, by doubling or else by halving from `first` on; and that speed.

    A step must gain `MIN_GAIN`: launches become cheaper in larger buckets, caches and overlap better in smaller ones,
    and between them lies a flat part where only noise would decide.
    """
    best, top = first, speed_of(first)
    for up, down in ((2, 1), (1, 2)):
        size = best * up // down
        while smallest <= size <= largest:
            speed = speed_of(size)
            if speed < top * MIN_GAIN:
                break
            best, top = size, speed
            size = size * up // down
        if best != first:
            break
    return best, top


class _Samples:
    """Samples by split."""

    def __init__(self, subject: Subject, queries: Array) -> None:
        self.levels, self.depth, self.bucket = subject.levels, subject.depth, subject.bucket
        self._subject, self._queries = subject, queries
        self._taken: dict[Split, StageTimes] = {}

    def take(self, split: Split) -> tuple[float, float]:
        """The paper's getSample: the times of device and host."""
        if split not in self._taken:
            self._taken[split] = self._subject.sample(self._queries, split)
        times = self._taken[split]
        return times.device(self.depth), times.host

    def best(self, count: int) -> list[Split]:
        """The splits with the shortest predicted period; among equal ones, those with more work on the device first."""
        return sorted(self._taken, key=lambda split: (self._taken[split].period(self.depth), split.levels))[:count]

    def model(self) -> CostModel:
        """The model from the samples at R = 0."""
        return CostModel({split.D: times for split, times in self._taken.items() if split.R == 0}, self.bucket)


def _algorithm_1(samples: _Samples) -> None:
    """Find D by linear search and R by bisection; all samples are kept."""
    D = 0
    device, host = samples.take(Split(0))
    while device > host and samples.levels > D:
        D += 1
        device, host = samples.take(Split(D))
    if D == 0 or device > host:
        return  # one side is slower for every split
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
    samples.take(Split(D - 1, round(crossing * samples.bucket) / samples.bucket))  # an integer number of queries


def balance_of(times: StageTimes) -> float | None:
    """Host time / device time; None if the device has no work."""
    return times.host / times.search if times.search > 0 else None


class Drift:
    """Detects that host and device times have changed since the plan was made."""

    def __init__(self, min_buckets: int) -> None:
        """`min_buckets`: buckets needed for a decision."""
        self._min_buckets = min_buckets
        self._buckets: list[Bucket] = []

    def drifted(self, plan: Plan, buckets: Sequence[Bucket]) -> bool:
        """Add a run's buckets; return whether the balance has drifted from the plan's."""
        if plan.balance is None:
            return False
        self._buckets = [*self._buckets, *buckets][-self._min_buckets :]
        if len(self._buckets) < self._min_buckets:
            return False
        recent = balance_of(StageTimes.of(self._buckets))
        return recent is None or not 1 / MAX_CHANGE <= recent / plan.balance <= MAX_CHANGE
