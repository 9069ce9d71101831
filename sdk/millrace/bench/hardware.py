"""Bench `hardware`: the simulated engine of `hw/rtl`, in tuples per clock cycle, against its theoretical bound.

- `merger-w…`: one merger on ideal memory, two runs of 512 Ki tuples (`balanced`), or one of 1 Mi and one of a hundredth
  (`skew100`). The bound is W tuples per cycle. Cycles are counted for the complete command, start and end included.
- `merge-w…-n…`: N mergers merge a batch of 64 Ki into 1 Mi tuples and write the sampled index. The bound with ideal
  memory is W times N tuples per cycle; with `ddr3` it is the bandwidth: each tuple and the index moved once.
- `probe-w…-n…-m…`: M probers search a sorted batch, a lower and an upper bound per tuple, in a run with 64 Ki
  partitions. The bound is the memory's bandwidth: bounds, positions, and for lower and upper bounds each the partitions
  that contain one. Ideal memory has the bandwidth of all ports, in both directions. The index is on the chip, as it is
  for all batches but the first after a merge; `cold` loads it, and its bound includes the load.
- `2^23`: the paper's subwindow (Figure 14), batches of 1 Ki to 1 Mi. `w1-n8-m16` is the paper's engine: 8 mergers of
  one tuple per cycle and 8 probers; a prober of the paper searches both bounds of a tuple, ours one, so there are 16.

Cycles are exact, so each case is simulated once. `value` is work per cycle: the harness gets cycles instead of seconds,
and `work` / `value` gives the cycles. Results are compared with NumPy's. The peers are `bound` and `model`, the
prediction of the performance model (`sim/performance.py`). Words have 64 bits. PanJoin, IV and V-B.

The `csim-…` cases measure the C simulation in tuples per second: see `csim.py`.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from millrace.bench import csim
from millrace.bench.engine_work import Merging, Probing, Work, min_step, power
from millrace.bench.harness import Answer, Case, Contender, PeerMissing
from millrace.bench.options import Options
from millrace.errors import DeviceUnavailable
from millrace.registry import device

LANES = (1, 4, 8)
SKEW = 100
ENGINES = ("w4,n2,m4", "w1,n8,m16")
"""The first one also runs the paper's sizes."""
MEMORIES = ("ideal", "ddr3")
RUN, BATCH = 1 << 20, 1 << 16
PAPERS_RUN = 1 << 23
PAPERS_BATCHES = (1 << 10, 1 << 12, 1 << 14, 1 << 16, 1 << 18, 1 << 20)
PARTITIONS = 1 << 16
QUICK_RUN, QUICK_BATCH, QUICK_PARTITIONS = 1 << 15, 1 << 12, 1 << 11


def cases(options: Options) -> Iterator[Case]:
    """Mergers alone, engines merging, engines probing, the paper's sizes."""
    if options.quick:
        for memory in MEMORIES:
            yield _merging(ENGINES[0], memory, QUICK_RUN, QUICK_BATCH)
            yield _probing(ENGINES[0], memory, QUICK_RUN, QUICK_BATCH, QUICK_PARTITIONS)
        yield from csim.cases(QUICK_RUN, QUICK_BATCH, QUICK_PARTITIONS)
        return
    for lanes in LANES:
        yield _merger(lanes, RUN // 2, RUN // 2)
        yield _merger(lanes, RUN, RUN // SKEW)
    for engine in ENGINES:
        for memory in MEMORIES:
            yield _merging(engine, memory, RUN, BATCH)
    for engine in ENGINES:
        for memory in MEMORIES:
            yield _probing(engine, memory, RUN, BATCH, PARTITIONS)
            yield _probing(engine, memory, RUN, BATCH, PARTITIONS, resident=False)
    for memory in MEMORIES:
        for batch in PAPERS_BATCHES:
            yield _merging(ENGINES[0], memory, PAPERS_RUN, batch)
            yield _probing(ENGINES[0], memory, PAPERS_RUN, batch, PARTITIONS)
        # Loading the index costs most, relative to the work, in the smallest batch.
        yield _probing(ENGINES[0], memory, PAPERS_RUN, min(PAPERS_BATCHES), PARTITIONS, resident=False)
    yield from csim.cases(RUN, BATCH, PARTITIONS)


def _merger(lanes: int, long: int, short: int) -> Case:
    work = Merging(f"rtl:w{lanes},n1,m2", long, short, min_step(long + short, PARTITIONS))
    return _case(f"merger-w{lanes}-ideal-{'balanced' if long == short else f'skew{long // short}'}", work)


def _merging(engine: str, memory: str, size: int, batch: int) -> Case:
    step = min_step(size + batch, PARTITIONS)
    work = Merging(f"rtl:{engine},{memory}", size, batch, step)
    return _case(f"merge-{_shown(engine, 2)}-{memory}-{power(size)}-batch{batch}", work)


def _probing(engine: str, memory: str, size: int, batch: int, parts: int, resident: bool = True) -> Case:
    work = Probing(f"rtl:{engine},{memory}", size, batch, min_step(size, parts), resident)
    cold = "" if resident else "-cold"
    return _case(f"probe-{_shown(engine, 3)}-{memory}-{power(size)}-batch{batch}{cold}", work)


def _case(name: str, work: Work) -> Case:
    """Ours, the bound and the model. The bound returns NumPy's result; the model returns none."""
    contenders = [
        Contender(f"bisort on {work.device}", partial(Simulated, work), "bisort", work.device, "rtl"),
        Contender("bound", partial(Bound, work)),
        Contender("model", partial(Predicted, work), answers=False),
    ]
    return Case(name, work.unit, contenders, work.facts, check_steps=1)


def _shown(engine: str, parts: int) -> str:
    return "-".join(engine.split(",")[:parts])


class Once:
    """A runner that repeats one known number of cycles."""

    def __init__(self, work: Work, cycles: float, answer: Answer) -> None:
        """Stores the measured or computed cycles."""
        self._rows, self._cycles, self._answer = work.rows, cycles, answer

    def step(self) -> tuple[float, float]:
        """The amount of work, and cycles instead of seconds."""
        return self._rows, self._cycles

    def answer(self) -> Answer:
        """The stored result."""
        return self._answer

    def pause(self) -> None:
        """Drop the result; it has been compared."""
        self._answer = {}

    def close(self) -> None:
        """Nothing is open."""


class Simulated(Once):
    """The engine, simulated once at construction."""

    def __init__(self, work: Work) -> None:
        """Builds the simulation on the first use of this engine."""
        try:
            opened = device(work.device)
        except DeviceUnavailable as reason:
            raise PeerMissing(str(reason)) from reason
        try:
            launch = work.prepare(opened, work.make())
            cycles = launch.run()["cycles"]
            super().__init__(work, cycles, launch.answer())
        finally:
            opened.close()


class Bound(Once):
    """The minimum cycles that lanes or bandwidth allow, with NumPy's result."""

    def __init__(self, work: Work) -> None:
        """Computed."""
        answer = work.expected(work.make())
        super().__init__(work, work.bound(answer), answer)


class Predicted(Once):
    """The cycles that the performance model predicts."""

    def __init__(self, work: Work) -> None:
        """Computed."""
        super().__init__(work, work.predicted_cycles(), {})
