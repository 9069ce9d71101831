"""Bench `small`: what single small calls cost, and how `index="auto"` behaves from the first push on.

- `push-…-batch1`, `-batch16`, `-batch256`: pushes into full windows of 100,000 rows, r and s alternating; pairs with
  payload. The windows are filled by one large push per side. Percentiles are in microseconds per push.
- `calls-…-batch1`: Python calls of a push of one row, as cProfile counts them (functions of C included). The unit
  counts a call as a microsecond: pushes per million calls; the yardstick `500 calls` is the target.
- `join-3`: `mr.join` of two tables of three rows. `lookup-2`: `OrderedIndex.lookup` of two keys among 2^20.
- `start-…`: a new join with default arguments and its first 30 batches of 64 Ki rows: rows per second over all of them.
  `slowest-…`: the same, but only the slowest of the 30 pushes counts (`1 / seconds`). `auto` against `bisort`.

Beside each stands the floor `pyarrow`: the input's columns read and an output of the same shape built, nothing else.
"""

from __future__ import annotations

import cProfile
import pstats
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, cast

import numpy as np
import pyarrow as pa

from millrace.bench.entrants import Entrant
from millrace.bench.harness import Answer, Case, Contender
from millrace.bench.lookup import OurLookups, QueryRunner, data
from millrace.bench.options import Options
from millrace.bench.ours import OurSession
from millrace.bench.peers.pyarrow_floor import FloorJoin, FloorLookup, FloorSession
from millrace.bench.stream import Session, starter
from millrace.bench.tables import OurJoin, TableRun, Tables
from millrace.bench.workload import Workload
from millrace.host.hbtree.layout import LAYOUTS
from millrace.ingest.choices import IndexName

WINDOW, BATCHES = 100_000, (1, 16, 256)
START_BATCH, START_PUSHES = 1 << 16, 30
KEYS = 1 << 20
QUICK_WINDOW, QUICK_START_BATCH, QUICK_START_PUSHES, QUICK_KEYS = 1 << 12, 1 << 12, 4, 1 << 12
INDEXES = ("auto", "bisort", "rap", "wib", "btree")
START_INDEXES = ("auto", "bisort")
JOIN_ROWS, LOOKUP_KEYS = 3, 2
MAX_CALLS = 500
WARM_CALLS = 200
FLOOR = "pyarrow"
MICROSECONDS, CALLS = "us", "calls"


def cases(options: Options) -> Iterator[Case]:
    """All cases."""
    quick = options.quick
    window = QUICK_WINDOW if quick else WINDOW
    for batch in BATCHES:
        yield _push(Workload(window, batch, "batches", "pairs"))
    yield _calls(Workload(window, 1, "batches", "pairs"))
    yield _join()
    yield _lookup(QUICK_KEYS if quick else KEYS)
    batch, pushes = (QUICK_START_BATCH, QUICK_START_PUSHES) if quick else (START_BATCH, START_PUSHES)
    for slowest in (False, True):
        yield _start(Workload(window, batch, "batches", "pairs"), pushes, slowest)


def _entrants(indexes: tuple[str, ...] = INDEXES) -> list[Entrant]:
    return [Entrant(index, "cpu", "cpu") for index in indexes]


def _push(workload: Workload) -> Case:
    ours = [entrant.contender(entrant.starts(workload)) for entrant in _entrants()]
    floor = Contender(FLOOR, starter(FloorSession, workload, ordered=True), answers=False)
    return Case(
        f"push-{workload.window}-batch{workload.batch}",
        "tuples/s",
        [*ours, floor],
        workload.facts,
        round=2,
        warm_work=WARM_CALLS * workload.batch,
        rivals=frozenset({"btree"}),
        step_unit=MICROSECONDS,
    )


def _calls(workload: Workload) -> Case:
    def counter(make: Callable[[Workload], Session]) -> Callable[[], CallCounter]:
        return lambda: CallCounter(make, workload)

    ours = [
        e.contender(counter(partial(OurSession, index=cast(IndexName, e.index), device=e.device))) for e in _entrants()
    ]
    target = Contender(f"{MAX_CALLS} calls", lambda: FixedCalls(MAX_CALLS), answers=False)
    floor = Contender(FLOOR, counter(FloorSession), answers=False)
    return Case(
        f"calls-{workload.window}-batch{workload.batch}",
        "pushes/1M calls",
        [*ours, target, floor],
        workload.facts,
        round=2,
        warm_work=WARM_CALLS,
        slice_share=0.05,
        step_unit=CALLS,
    )


def _join() -> Case:
    tables = Tables(JOIN_ROWS)
    ours = [
        entrant.contender(
            partial(TableRun, partial(OurJoin, index=cast(IndexName, entrant.index), device=entrant.device), tables)
        )
        for entrant in _entrants(("auto", "bisort", "btree"))
    ]
    floor = Contender(FLOOR, partial(TableRun, FloorJoin, tables), answers=False)
    return Case(f"join-{JOIN_ROWS}", "rows/s", [*ours, floor], tables.facts, step_unit=MICROSECONDS)


def _lookup(size: int) -> Case:
    def draw(rng: np.random.Generator) -> pa.Array:
        return pa.array(data(size)[0][rng.integers(0, size, LOOKUP_KEYS)])

    def runner(make: Callable[[], Any]) -> Callable[[], QueryRunner]:
        return partial(QueryRunner, make, draw, LOOKUP_KEYS)

    ours = [Entrant(one, "cpu", "cpu").contender(runner(partial(OurLookups, size, one, "cpu"))) for one in LAYOUTS]
    floor = Contender(FLOOR, runner(FloorLookup), answers=False)
    facts = {"keys": size, "queries": LOOKUP_KEYS}
    return Case(f"lookup-{LOOKUP_KEYS}", "lookups/s", [*ours, floor], facts, step_unit=MICROSECONDS)


def _start(workload: Workload, pushes: int, slowest: bool) -> Case:
    def starts(make: Callable[[Workload], Session]) -> Callable[[], FirstPushes]:
        return lambda: FirstPushes(make, workload, pushes, slowest)

    ours = [
        e.contender(starts(partial(OurSession, index=cast(IndexName, e.index), device=e.device)))
        for e in _entrants(START_INDEXES)
    ]
    floor = Contender(FLOOR, starts(FloorSession), answers=False)
    kind, unit = ("slowest", "1/s") if slowest else ("start", "tuples/s")
    return Case(
        f"{kind}-{workload.window}-batch{workload.batch}x{pushes}",
        unit,
        [*ours, floor],
        {**workload.facts, "pushes": pushes},
        check_steps=1,
        slice_share=0.1,
        step_unit=MICROSECONDS,
    )


class CallCounter:
    """Pushes one turn after the other under cProfile; a step's time is the number of calls, each a microsecond."""

    def __init__(self, make: Callable[[Workload], Session], workload: Workload) -> None:
        """Fill the windows."""
        self._session, self._workload, self._number = make(workload), workload, 0
        self._last: Any = None
        self._session.fill(*workload.fill())

    def step(self) -> tuple[float, float]:
        """Push one turn and count."""
        prepared = self._session.prepare(self._workload.turn(self._number))
        self._number += 1
        profile = cProfile.Profile()
        self._last = profile.runcall(self._session.push, prepared)
        return 1.0, 1e-6 * int(vars(pstats.Stats(profile))["total_calls"])

    def answer(self) -> Answer:
        """The last turn's pairs."""
        return self._session.answer(self._last)

    def pause(self) -> None:
        """Free the last result."""
        self._last = None

    def close(self) -> None:
        """Close the session."""
        self._session.close()


class FixedCalls:
    """A yardstick: a push that takes exactly so many calls."""

    def __init__(self, calls: int) -> None:
        """The number of calls."""
        self._calls = calls

    def step(self) -> tuple[float, float]:
        """Nothing is run."""
        return 1.0, 1e-6 * self._calls

    def answer(self) -> Answer:
        """Not compared."""
        return {}

    def pause(self) -> None:
        """Nothing to free."""

    def close(self) -> None:
        """Nothing to release."""


class FirstPushes:
    """Each step makes a new join, without filling its windows, and pushes the first turns of the workload."""

    def __init__(self, make: Callable[[Workload], Session], workload: Workload, pushes: int, slowest: bool) -> None:
        """`slowest`: a step is its slowest push, not all of them."""
        self._make, self._workload, self._pushes, self._slowest = make, workload, pushes, slowest
        self._answer: Answer = {}

    def step(self) -> tuple[float, float]:
        """All pushes; making rows and the join is not timed."""
        session, taken = self._make(self._workload), []
        try:
            for number in range(self._pushes):
                prepared = session.prepare(self._workload.turn(number))
                start = time.perf_counter()
                result = session.push(prepared)
                taken.append(time.perf_counter() - start)
            self._answer = session.answer(result)
        finally:
            session.close()
        return (1.0, max(taken)) if self._slowest else (self._pushes * self._workload.batch, sum(taken))

    def answer(self) -> Answer:
        """The pairs of the last push."""
        return self._answer

    def pause(self) -> None:
        """Free the last result."""
        self._answer = {}

    def close(self) -> None:
        """Nothing to release."""
