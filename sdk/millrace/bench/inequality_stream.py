"""The streams of bench `inequality_join`: `WindowJoin` on two inequalities in count windows, `output="count"`.

- `stream-…-sel…`: alternating pushes of r and s into full windows, so many matches per tuple (the paper's 625 and
  2,490), with percentiles over single pushes. Rivals in the same run: `scan` (nested loop) and `btree` with recheck,
  which need seconds for a push, so they push `SLOW_BATCH` tuples at a time. `200,000 tuples/s` is the target.
- `slowest-…`: the slowest of `PUSHES` pushes in a row, against `3 medians` of the same pushes: merging must not stall.
  The value is the median over the repeats, so a single outlier does not show: read `max` in `stream-…` too.
- `memory-…`: window tuples per byte that the index holds, against `80 bytes` per tuple (40 per predicate); not a speed.

All windows are filled from one saved state, because filling them by pushes would take a nested loop hours.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Any, cast

import numpy as np
import pyarrow as pa

from millrace.bench.entrants import Entrant
from millrace.bench.harness import Answer, Case, Contender
from millrace.bench.inequality_workload import ON, SEED, readings
from millrace.host.runtime.allocator import bytes_in_use
from millrace.ingest.choices import IndexName, Side
from millrace.window_join import WindowJoin

WINDOW, BATCH, MERGE_ROWS, RATES = 1_000_000, 4096, 100_000, (625, 2490)
QUICK_WINDOW, QUICK_BATCH, QUICK_MERGE_ROWS, QUICK_RATES = 1 << 14, 256, 1 << 11, (10, 41)
SLOW_BATCH = 16
SLOW = ("scan", "btree")
PUSHES = 64
TARGET_SPEED = 200_000.0
TARGET_BYTES = 80


@dataclass(frozen=True)
class StreamWork:
    """Two streams. `window`: rows per side; `batch`: tuples per push; `rate`: matches per tuple."""

    window: int
    batch: int
    merge_rows: int
    rate: int
    _saved: list[Any] = field(default_factory=list)

    @property
    def facts(self) -> dict[str, Any]:
        """What a result line reports about the work."""
        return {
            "window": self.window,
            "batch": self.batch,
            "slow_batch": SLOW_BATCH,
            "merge_rows": self.merge_rows,
            "output": "count",
            "selectivity": self.rate,
        }

    def rows(self, number: int, count: int) -> pa.Table:
        """Rows that depend on the seed and the number alone."""
        return pa.table(readings(np.random.default_rng([SEED, number]), count, self.rate / self.window))

    @cached_property
    def _arguments(self) -> dict[str, Any]:
        return {"on": ON, "window": f"{self.window} rows", "output": "count", "device": "cpu"}

    def join(self, index: str) -> WindowJoin:
        """A join with full windows, restored from the state of one that was filled by pushes."""
        options: Mapping[str, Any] = {"merge_rows": self.merge_rows} if index == "spo" else {}
        if not self._saved:
            filled = WindowJoin(**self._arguments, index="spo")
            for number, side in enumerate(("r", "s")):
                filled.push(cast(Side, side), self.rows(number, self.window))
            self._saved.append(filled.state())
            filled.close()
        saved = self._saved[0]
        named = cast(IndexName, index)
        return WindowJoin.restore(saved.manifest, saved.added, **self._arguments, index=named, options=options)


def cases(quick: bool) -> Iterator[Case]:
    """All cases of streams."""
    window, batch, merge_rows = (QUICK_WINDOW, QUICK_BATCH, QUICK_MERGE_ROWS) if quick else (WINDOW, BATCH, MERGE_ROWS)
    works = [StreamWork(window, batch, merge_rows, rate) for rate in (QUICK_RATES if quick else RATES)]
    size = f"{window // 1_000_000}M" if window >= 1_000_000 else f"{window >> 10}Ki"
    for work in works:
        yield _stream(f"stream-{size}-sel{work.rate}", work)
    for work in works:
        yield _slowest(f"slowest-{size}-sel{work.rate}", work)
    yield _memory(f"memory-{size}", works[0])


def _stream(name: str, work: StreamWork) -> Case:
    ours = [Entrant("spo", "cpu", "cpu").contender(partial(Pushes, work, "spo", work.batch))]
    ours += [Entrant(slow, "cpu", "cpu").contender(partial(Pushes, work, slow, SLOW_BATCH)) for slow in SLOW]
    target = Contender(f"{TARGET_SPEED:,.0f} tuples/s", partial(Bar, lambda: 1 / TARGET_SPEED), answers=False)
    return Case(
        name,
        "tuples/s",
        [*ours, target],
        work.facts,
        check_steps=1,
        round=2,
        rivals=frozenset(SLOW),
        step_unit="us",
    )


def _slowest(name: str, work: StreamWork) -> Case:
    started: list[SlowestPush] = []

    def start() -> SlowestPush:
        started.append(SlowestPush(work))
        return started[-1]

    medians = Contender("3 medians", lambda: Bar(lambda: 3 * started[-1].median), answers=False)
    ours = Entrant("spo", "cpu", "cpu").contender(start)
    return Case(name, "1/s", [ours, medians], {**work.facts, "pushes": PUSHES}, check_steps=1)


def _memory(name: str, work: StreamWork) -> Case:
    ours = Entrant("spo", "cpu", "cpu").contender(partial(HeldBytes, work))
    target = Contender(f"{TARGET_BYTES} bytes", partial(Bar, lambda: float(TARGET_BYTES)), answers=False)
    return Case(name, "tuples/byte", [ours, target], work.facts, check_steps=1)


class Pushes:
    """Pushes of r and s in turn; the unit of work is the tuple."""

    def __init__(self, work: StreamWork, index: str, batch: int) -> None:
        """Fill the windows. A smaller batch than the work's takes the first tuples of each push."""
        self._work, self._batch, self._number = work, batch, 0
        self._join = work.join(index)
        self._last: pa.Table | None = None

    def step(self) -> tuple[float, float]:
        """One push."""
        rows = self._work.rows(2 + self._number, self._work.batch).slice(0, self._batch)
        side: Side = "s" if self._number % 2 else "r"
        start = time.perf_counter()
        self._last = self._join.push(side, rows)
        seconds = time.perf_counter() - start
        self._number += 1
        return rows.num_rows, seconds

    def answer(self) -> Answer:
        """The counts of the first tuples, which all contenders have pushed."""
        counts = [] if self._last is None else self._last.column("count").to_numpy()[:SLOW_BATCH]
        return {"count": np.asarray(counts)}

    def pause(self) -> None:
        """Free the last result."""
        self._last = None

    def close(self) -> None:
        """Release the join."""
        self._join.close()


class SlowestPush(Pushes):
    """Each step is `PUSHES` pushes; its time is that of the slowest."""

    def __init__(self, work: StreamWork) -> None:
        """Fill the windows."""
        super().__init__(work, "spo", work.batch)
        self.median = 1.0

    def step(self) -> tuple[float, float]:
        """The slowest push, and the median for the yardstick."""
        taken = [super(SlowestPush, self).step()[1] for _ in range(PUSHES)]
        self.median = float(np.median(taken))
        return 1.0, max(taken)


class HeldBytes(Pushes):
    """The most bytes that the index holds per window tuple, after each of `PUSHES` pushes; not a speed.

    These are the bytes that the library has in use, less those in use with an index that holds nothing (`scan`): memory
    of merges that are not done and of rounding to size classes counts, the rows themselves do not.
    """

    def __init__(self, work: StreamWork) -> None:
        """Fill the windows."""
        without = _bytes_of(partial(Pushes, work, "scan", work.batch))
        self._base, self._most = bytes_in_use() + without, 0
        super().__init__(work, "spo", work.batch)

    def step(self) -> tuple[float, float]:
        """Report bytes per tuple as seconds."""
        for _ in range(PUSHES):
            super().step()
            self.pause()
            self._most = max(self._most, bytes_in_use() - self._base)
        return 1.0, self._most / (2 * self._work.window)

    def answer(self) -> Answer:
        """No result to compare."""
        return {}


def _bytes_of(make: Callable[[], Pushes]) -> int:
    """The bytes that a runner keeps in use."""
    before = bytes_in_use()
    with closing(make()):
        return bytes_in_use() - before


class Bar:
    """A yardstick: a step that takes as long as a function says, for an amount of work."""

    def __init__(self, seconds: Callable[[], float], work: float = 1.0) -> None:
        """The seconds of a step."""
        self._seconds, self._work = seconds, work

    def step(self) -> tuple[float, float]:
        """Nothing is run."""
        return self._work, self._seconds()

    def answer(self) -> Answer:
        """Not compared."""
        return {}

    def pause(self) -> None:
        """Nothing to free."""

    def close(self) -> None:
        """Nothing to release."""
