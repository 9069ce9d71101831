"""Bench `pipeline`: the strategies of bucket handling side by side (thesis, appendix A, 5.4, 5.5; Figures 10 and 18).

Host and device have set speeds here, so that any machine can measure how much of the stages overlaps. The lookups are
real: a tree of the hybrid layout, searched by the CPU's units on behalf of the device; but each stage takes as long as
it is told, by the wall clock, and sleeps where its work is done earlier. So what is measured is what the pipeline's
threads and hand-overs make of stages T1 to T4, in queries per second of a long run: the buckets that fill the
pipeline and those that drain it are not counted. All strategies must give the same positions.

The yardstick, `max(T2, T4)`, is not measured but set: nothing can be faster with this split of the work. Double
buffering is to reach 0.95 of it where T1 + T3 is less. `load-balanced` finds its D and R in the bench, before it is
timed, so it may be faster than that.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np

from millrace.bench.harness import Answer, Case, Contender
from millrace.bench.options import Options
from millrace.host.device.cpu import CpuDevice
from millrace.host.hbtree.tree import HBTree
from millrace.host.hybrid import trace
from millrace.host.hybrid.balance import StageTimes
from millrace.host.hybrid.lookup_runner import LookupRunner, Run
from millrace.host.hybrid.paced_device import DevicePace, HostPace, PacedDevice, PacedTree
from millrace.host.hybrid.pipeline import BUCKET, LOAD_BALANCED, STRATEGIES
from millrace.host.hybrid.search_engine import SearchEngine
from millrace.host.runtime.clock import WALL

KEYS = 1 << 15
LEVELS = 4
"""Inner levels of a tree of that many 64-bit keys."""
BUCKETS, QUICK_BUCKETS = 24, 16
MILLISECONDS, QUICK_MILLISECONDS = 4.0, 0.5
"""What one of the numbers below is: much longer than a busy machine takes to wake a thread."""
SLICE_SHARE = 0.1
"""A slice is one lookup, about a second."""
SEED = 53
YARDSTICK = "max(T2, T4)"


@dataclass(frozen=True)
class Speeds:
    """T1 to T4 of a bucket with all inner levels on the device, and what one level takes the host.

    Leaves are half as many bytes as queries, and so T3 is half of T1.
    """

    T1: float
    T2: float
    T4: float
    level: float = 4.0

    def stages(self, unit: float) -> StageTimes:
        """In nanoseconds."""
        return StageTimes(0.0, *(1e6 * unit * T for T in (self.T1, self.T2, self.T1 / 2, self.T4)))


CASES = {
    "equal": Speeds(2, 8, 8),
    "device-bound": Speeds(2, 8, 4),
    "host-bound": Speeds(2, 4, 8),
    "long-transfers": Speeds(4.6, 8, 8),
    "slow-device": Speeds(2, 24, 4, level=2.0),
}


def cases(options: Options) -> Iterator[Case]:
    """One per set of speeds."""
    unit, buckets = (QUICK_MILLISECONDS, QUICK_BUCKETS) if options.quick else (MILLISECONDS, BUCKETS)
    for name, speeds in CASES.items():
        stages = speeds.stages(unit)
        gathered: list[trace.Traced] = []
        path = options.trace if options.only in name else None
        ours = [
            Contender(
                strategy,
                partial(Paced, strategy, stages, speeds.level * unit * 1e6, buckets, Gathering(path, gathered)),
                index=strategy,
                device="paced",
                device_kind="paced",
            )
            for strategy in STRATEGIES
        ]
        bound = Contender(YARDSTICK, partial(Bound, max(stages.search, stages.leaves)), answers=False)
        predicted = {strategy: BUCKET / stages.period(depth) * 1e9 for strategy, depth in STRATEGIES.items()}
        facts = {f"T{n}_ms": stages.all()[n] / 1e6 for n in (1, 2, 3, 4)} | {"bucket": BUCKET, "predicted": predicted}
        rivals = frozenset({"sequential"})
        yield Case(name, "queries/s", [*ours, bound], facts, check_steps=1, slice_share=SLICE_SHARE, rivals=rivals)


class Bound:
    """The yardstick: a bucket in a set time."""

    def __init__(self, nanoseconds: float) -> None:
        """Of a bucket."""
        self._seconds = nanoseconds / 1e9

    def step(self) -> tuple[float, float]:
        """Nothing is done."""
        return BUCKET, self._seconds

    def answer(self) -> Answer:
        """Nothing was done."""
        return {}

    def pause(self) -> None:
        """Nothing to let go."""

    def close(self) -> None:
        """Nothing to give back."""


@dataclass
class Gathering:
    """The last runs of all strategies of a case, for one trace; none is written without a path."""

    path: Path | None
    runs: list[trace.Traced]

    def add(self, run: trace.Traced) -> None:
        """Write what is there so far."""
        if self.path is not None:
            self.runs.append(run)
            trace.write(self.path, *self.runs)


class Paced:
    """A strategy at work, on a device and a host of set speeds."""

    def __init__(self, strategy: str, stages: StageTimes, level: float, buckets: int, gathering: Gathering) -> None:
        """`level`: nanoseconds that a level of a bucket takes the host."""
        rng = np.random.default_rng(SEED)
        words = np.unique(rng.integers(0, 1 << 63, KEYS + 999, dtype=np.uint64))[:KEYS]
        # One thread each: the real work fits into the set times, and helpers would only take cores from lanes.
        tree = HBTree.of(words, "implicit", hybrid=True, threads=1)
        assert tree.levels == LEVELS
        inner = CpuDevice(1)
        byte = stages.send / (BUCKET * words.itemsize)
        pace = DevicePace(byte=byte, levels=(stages.search / LEVELS / BUCKET,) * LEVELS)
        mine = HostPace((level / BUCKET,) * LEVELS, stages.leaves / BUCKET)
        self._queries = np.where(rng.random(buckets * BUCKET) < 0.5, rng.choice(words, buckets * BUCKET), 1 << 40)
        self._queries = self._queries.astype(words.dtype)
        depth = STRATEGIES[strategy]
        # A few buckets at no set pace: kernels are compiled here, not in the first stage that is timed.
        LookupRunner(SearchEngine(inner), tree).lookup(self._queries)
        engine = SearchEngine(PacedDevice(inner, pace, WALL))
        self._runner = LookupRunner(engine, PacedTree(tree, mine, WALL), depth=depth)
        if depth == LOAD_BALANCED:
            self._runner.tune(self._queries)
        self._strategy, self._gathering = strategy, gathering
        self._run: Run | None = None

    def step(self) -> tuple[float, float]:
        """One lookup of all queries, at the speed of its steady part."""
        self._runner.lookup(self._queries)
        self._run = self._runner.last
        assert self._run is not None
        return len(self._queries), len(self._queries) / self._run.speed()

    def answer(self) -> Answer:
        """Positions in key order, in the order of the queries."""
        assert self._run is not None
        return {"position": self._run.positions}

    def pause(self) -> None:
        """The last run is small, and wanted for the trace."""

    def close(self) -> None:
        """Show the last run, and give the segment back."""
        if self._run is not None:
            self._gathering.add(self._run.traced(self._strategy))
        self._runner.close()
