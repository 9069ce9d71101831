"""The nested loop in bench `live`: ScaleJoin (`index="scan"`); the experiments of its paper, section VI.

A *comparison* decides for one new tuple and one tuple of the other window whether their keys match: for one band, one
subtraction and one unsigned comparison of words. The join counts them (`stats["comparisons"]`): new tuples times the
tuples visible to each. Batches of new tuples go into full count windows through the public API; counts come out.

- `nested-keys-…-threads…`: one band on 32-bit keys. Peers: `numpy` does the same, a window at a time for each new
  tuple, on one thread; `bar` is 3 billion comparisons per second and thread, `paper` its 0.1 billion; `1 thread` is
  ours.
- `nested-bands-…-threads…`: the paper's condition: a band on an integer and one on a float, 1 pair in 250,000
  comparisons; pairs come out.
- `nested-latency-…-batch…-threads…`: pushes of so many tuples; percentiles over single pushes.
- `nested-share-…`: how far a thread's comparisons in a period are from the mean of all threads, at most, in
  thousandths (lower is better; `2%` is the bar). Sources with constant, fluctuating and peaking rates, 10, 12 and 14
  threads (Figure 8). Not a speed: stripes are counted, whatever cores the machine has.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from millrace.bench.harness import Answer, Case, Contender
from millrace.bench.inequality_stream import Bar
from millrace.bench.options import Options
from millrace.bench.scalejoin_shares import STUDIES, Study, deviations
from millrace.ingest.choices import Side
from millrace.window_join import WindowJoin

WINDOWS, QUICK_WINDOWS = (1 << 12, 1 << 14, 1 << 16, 1 << 18, 1 << 20), (1 << 10,)
BAND_WINDOWS = (1 << 14, 1 << 16, 1 << 18)
THREADS = (1, 2)
BATCHES = (1, 16, 256)
LATENCY_WINDOW = 1 << 16
TURN = 1 << 27
"""About so many comparisons in a push."""
MAX_BATCH = 1 << 14
SPAN = 10_000
WIDTH = 10
"""The paper's domain of the keys, and the half-width of its bands."""
DOMAIN = 1 << 30
BAR, PAPER, BAR_SECONDS = 3e9, 0.1e9, 0.05
SLICE_SHARE = 0.3
SEED = 40_048
Columns = dict[str, npt.NDArray[Any]]


@dataclass(frozen=True)
class NestedWork:
    """Two streams in full count windows. `bands`: 1, or 2 for the paper's condition; `batch`: tuples per push."""

    window: int
    batch: int
    bands: int = 1

    @cached_property
    def on(self) -> str:
        """The condition in our syntax."""
        if self.bands == 1:
            return f"abs(r.x - s.x) <= {self.eps}"
        return f"abs(r.x - s.x) <= {WIDTH} AND abs(r.y - s.y) <= {WIDTH}"

    @property
    def eps(self) -> int:
        """The half-width of the band of `nested-keys`, for two matches per tuple."""
        return DOMAIN // self.window

    @property
    def output(self) -> Any:
        """Counts, or for the paper's condition pairs."""
        return "count" if self.bands == 1 else "seqs"

    def rows(self, number: int, count: int) -> Columns:
        """Keys that depend on the seed and the number alone; 32 bits each."""
        rng = np.random.default_rng([SEED, number])
        if self.bands == 1:
            return {"x": rng.integers(0, DOMAIN, count, np.int32)}
        return {"x": rng.integers(1, SPAN + 1, count, np.int32), "y": rng.uniform(1, SPAN, count).astype(np.float32)}

    def facts(self, threads: int) -> dict[str, Any]:
        """What a result line reports about the work."""
        shown = {"window": self.window, "batch": self.batch, "output": self.output, "bands": self.bands}
        return {**shown, "threads": threads}


def cases(options: Options) -> Iterator[Case]:
    """All cases."""
    quick = options.quick
    for window in QUICK_WINDOWS if quick else WINDOWS:
        work = NestedWork(window, _batch(window))
        yield from (_nested(f"nested-keys-{_power(window)}", work, threads) for threads in THREADS)
    for window in QUICK_WINDOWS if quick else BAND_WINDOWS:
        work = NestedWork(window, _batch(window), bands=2)
        yield from (_nested(f"nested-bands-{_power(window)}", work, threads) for threads in THREADS)
    window = QUICK_WINDOWS[0] if quick else LATENCY_WINDOW
    for batch in BATCHES:
        yield from (_latency(NestedWork(window, batch), threads) for threads in THREADS)
    yield from (_share(study) for study in STUDIES)


def _batch(window: int) -> int:
    return min(TURN // window, MAX_BATCH)


def _power(window: int) -> str:
    return f"2^{window.bit_length() - 1}"


def _nested(name: str, work: NestedWork, threads: int) -> Case:
    peers = [Contender("numpy", partial(NumpyLoop, work))] if work.bands == 1 else []
    peers += [Contender(n, partial(_bar, threads * speed), answers=False) for n, speed in _BARS]
    if threads > 1:
        peers.append(Contender("1 thread", partial(Pushes, work, 1)))
    ours = Contender("scan on cpu", partial(Pushes, work, threads), "scan", "cpu", "cpu")
    facts = work.facts(threads)
    return Case(f"{name}-threads{threads}", "comparisons/s", [ours, *peers], facts, round=2, slice_share=SLICE_SHARE)


_BARS = (("bar", BAR), ("paper", PAPER))


def _bar(speed: float) -> Bar:
    """A yardstick of a given speed; its steps are long enough to be counted."""
    return Bar(lambda: BAR_SECONDS, BAR_SECONDS * speed)


def _latency(work: NestedWork, threads: int) -> Case:
    ours = Contender("scan on cpu", partial(TuplePushes, work, threads), "scan", "cpu", "cpu")
    name = f"nested-latency-{_power(work.window)}-batch{work.batch}-threads{threads}"
    warm, facts = 100 * work.batch, work.facts(threads)
    return Case(name, "tuples/s", [ours], facts, round=2, warm_work=warm, slice_share=SLICE_SHARE, step_unit="us")


class Pushes:
    """Our join; r and s are pushed in turn. The unit of work is the comparison."""

    def __init__(self, work: NestedWork, threads: int) -> None:
        """Fill both windows from a checkpoint of another index: comparing all pairs to fill them would take long."""
        self._work, self._number = work, 0
        arguments: dict[str, Any] = {"on": work.on, "window": f"{work.window} rows", "output": work.output}
        filling = WindowJoin(**arguments)
        for number, side in enumerate(("r", "s")):
            filling.push("r" if side == "r" else "s", pa.table(work.rows(number, work.window)))
        saved = filling.state()
        filling.close()
        self._join = WindowJoin.restore(saved.manifest, saved.added, **arguments, index="scan", threads=threads)
        self._last: pa.Table | None = None

    def step(self) -> tuple[float, float]:
        """One push."""
        before = self._compared()
        seconds = self._push()
        return self._compared() - before, seconds

    def _compared(self) -> float:
        """The comparisons so far; the index counts from its first push on."""
        return float(self._join.stats.get("comparisons", 0))

    def _push(self) -> float:
        """The seconds of one push."""
        rows = pa.table(self._work.rows(2 + self._number, self._work.batch))
        side: Side = "s" if self._number % 2 else "r"
        self._last = None
        start = time.perf_counter()
        self._last = self._join.push(side, rows)
        seconds = time.perf_counter() - start
        self._number += 1
        return seconds

    def answer(self) -> Answer:
        """The counts of the new tuples, or the pairs."""
        names = ("count",) if self._work.output == "count" else ("r_seq", "s_seq")
        return {} if self._last is None else {name: self._last.column(name).to_numpy() for name in names}

    def pause(self) -> None:
        """Free the last result."""
        self._last = None

    def close(self) -> None:
        """Release the join."""
        self._join.close()


class TuplePushes(Pushes):
    """The same; the unit of work is the tuple."""

    def step(self) -> tuple[float, float]:
        """One push."""
        return self._work.batch, self._push()


class NumpyLoop:
    """The nested loop in NumPy: for each new tuple one subtraction and one comparison over the entire window."""

    def __init__(self, work: NestedWork) -> None:
        """Fill both windows."""
        self._work, self._number = work, 0
        self._windows = [work.rows(number, work.window)["x"] for number in (0, 1)]
        self._counts = np.zeros(0, np.int64)
        self._scratch = np.empty(work.window, np.uint32), np.empty(work.window, np.bool_)

    def step(self) -> tuple[float, float]:
        """One batch; the other side's window stands still meanwhile."""
        new, side = self._work.rows(2 + self._number, self._work.batch)["x"], self._number % 2
        start = time.perf_counter()
        window, eps = self._windows[1 - side].view(np.uint32), self._work.eps
        low = (new.astype(np.int64) - eps).astype(np.uint32)
        above, found = self._scratch
        span = np.uint32(2 * eps)
        counts = np.empty(len(new), np.int64)
        for i in range(len(new)):
            np.less_equal(np.subtract(window, low[i], out=above), span, out=found)
            counts[i] = np.count_nonzero(found)
        self._windows[side] = np.concatenate([self._windows[side], new])[-self._work.window :]
        seconds = time.perf_counter() - start
        self._counts, self._number = counts, self._number + 1
        return float(len(new) * self._work.window), seconds

    def answer(self) -> Answer:
        """The counts of the new tuples."""
        return {"count": self._counts}

    def pause(self) -> None:
        """Keeps its memory."""

    def close(self) -> None:
        """Nothing is open."""


# Shares of the threads.


def _share(study: Study) -> Case:
    ours = Contender("scan on cpu", partial(Deviation, study), "scan", "cpu", "cpu")
    bar = Contender("2%", partial(_bar, 20.0), answers=False)
    facts = {"threads": study.threads, "sources": {"r": study.r_sources, "s": study.s_sources}}
    return Case(f"nested-share-{study.name}", "1/1000 of the mean", [ours, bar], facts, check_steps=1, slice_share=0.01)


class Deviation:
    """The largest deviation of a thread's comparisons in a period from the mean; not a speed."""

    def __init__(self, study: Study) -> None:
        """Nothing is drawn yet."""
        self._study = study

    def step(self) -> tuple[float, float]:
        """Report the deviation as work done in one second."""
        return 1000 * max(one.largest for one in deviations(self._study)), 1.0

    def answer(self) -> Answer:
        """No result to compare."""
        return {}

    def pause(self) -> None:
        """Nothing is held."""

    def close(self) -> None:
        """Nothing is held."""
