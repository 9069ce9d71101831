"""Bench `pipeline`: compares the bucket-handling strategies (thesis, appendix A, 5.4, 5.5; Figures 10 and 18).

Host and device have simulated speeds, so that any machine can measure how much the stages overlap. The lookups are
real: a tree of the hybrid layout, searched by the CPU's units in the role of the device. Each stage takes a configured
wall-clock time and sleeps if its work ends earlier. The bench measures how well the pipeline's threads overlap stages
T1 to T4, in queries per second of the steady state: buckets that fill or drain the pipeline are not counted. All
strategies must return the same positions.

The yardstick `max(T2, T4)` is computed, not measured: it is the limit for this split of the work. The target of double
buffering is 0.95 of it if T1 + T3 is smaller. `load-balanced` tunes its D and R before it is timed, which changes the
split, so it can be faster than the yardstick.
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
from millrace.host.hybrid.lookup_runner import LookupRun, LookupRunner
from millrace.host.hybrid.paced_device import DevicePace, HostPace, PacedDevice, PacedTree
from millrace.host.hybrid.pipeline import BUCKET, LOAD_BALANCED, STRATEGIES
from millrace.host.hybrid.search_engine import SearchEngine
from millrace.host.runtime.clock import WALL

KEYS = 1 << 15
LEVELS = 4
"""Inner levels of a tree of that many 64-bit keys."""
BUCKETS, QUICK_BUCKETS = 24, 16
MILLISECONDS, QUICK_MILLISECONDS = 4.0, 0.5
"""Duration of one unit of `Speeds`: much longer than a busy machine takes to wake a thread."""
SLICE_SHARE = 0.1
"""A slice is one lookup, about a second."""
SEED = 53
YARDSTICK = "max(T2, T4)"


@dataclass(frozen=True)
class Speeds:
    """T1 to T4 of a bucket with all inner levels on the device, and the host's time per level.

    Leaf numbers take half as many bytes as queries, so T3 is half of T1.
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
    """One case per set of speeds."""
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
    """The yardstick: one bucket per fixed time."""

    def __init__(self, nanoseconds: float) -> None:
        """The time of a bucket."""
        self._seconds = nanoseconds / 1e9

    def step(self) -> tuple[float, float]:
        """Does no work."""
        return BUCKET, self._seconds

    def answer(self) -> Answer:
        """No result."""
        return {}

    def pause(self) -> None:
        """Nothing to release."""

    def close(self) -> None:
        """Nothing to release."""


@dataclass
class Gathering:
    """Collects the last run of each strategy of a case for one trace file; without a path nothing is written."""

    path: Path | None
    runs: list[trace.Traced]

    def add(self, run: trace.Traced) -> None:
        """Add a run and write all runs so far."""
        if self.path is not None:
            self.runs.append(run)
            trace.write(self.path, *self.runs)


class Paced:
    """A strategy on a device and a host with simulated speeds."""

    def __init__(self, strategy: str, stages: StageTimes, level: float, buckets: int, gathering: Gathering) -> None:
        """`level`: the host's nanoseconds per level of a bucket."""
        rng = np.random.default_rng(SEED)
        words = np.unique(rng.integers(0, 1 << 63, KEYS + 999, dtype=np.uint64))[:KEYS]
        # One thread each: the real work fits into the simulated times, and helper threads would take cores from lanes.
        tree = HBTree.of(words, "implicit", hybrid=True, threads=1)
        assert tree.levels == LEVELS
        inner = CpuDevice(1)
        byte = stages.send / (BUCKET * words.itemsize)
        pace = DevicePace(byte=byte, levels=(stages.search / LEVELS / BUCKET,) * LEVELS)
        mine = HostPace((level / BUCKET,) * LEVELS, stages.leaves / BUCKET)
        self._queries = np.where(rng.random(buckets * BUCKET) < 0.5, rng.choice(words, buckets * BUCKET), 1 << 40)
        self._queries = self._queries.astype(words.dtype)
        depth = STRATEGIES[strategy]
        # One lookup at full speed compiles the kernels before the first timed stage.
        LookupRunner(SearchEngine(inner), tree).lookup(self._queries)
        engine = SearchEngine(PacedDevice(inner, pace, WALL))
        self._runner = LookupRunner(engine, PacedTree(tree, mine, WALL), depth=depth, bucket=BUCKET)
        if depth == LOAD_BALANCED:
            self._runner.tune(self._queries)
        self._strategy, self._gathering = strategy, gathering
        self._run: LookupRun | None = None

    def step(self) -> tuple[float, float]:
        """One lookup of all queries, reported at its steady-state speed."""
        self._runner.lookup(self._queries)
        self._run = self._runner.last
        assert self._run is not None
        return len(self._queries), len(self._queries) / self._run.speed()

    def answer(self) -> Answer:
        """Positions in key order, in the order of the queries."""
        assert self._run is not None
        return {"position": self._run.positions}

    def pause(self) -> None:
        """Keeps the last run: it is small and needed for the trace."""

    def close(self) -> None:
        """Add the last run to the trace and free the segment."""
        if self._run is not None:
            self._gathering.add(self._run.traced(self._strategy))
        self._runner.close()
